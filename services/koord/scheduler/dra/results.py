"""What is written into a claim's status: its devices, their configuration, and from which nodes it can be used."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec

from koord.kube.dynamicresources import DeviceClass, DeviceConfiguration, DeviceResult, ResourceClaim
from koord.kube.pods import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koord.kube.quantity import QuantityError, parse
from koord.scheduler.dra.allocator import Chosen, Given
from koord.scheduler.dra.consuming import CapacityName, full_name
from koord.scheduler.dra.demand import DemandError
from koord.scheduler.dra.devices import DeviceId

NODE_NAME = "metadata.name"


class Share(msgspec.Struct, frozen=True):
    """What is taken of the capacities of a device that several claims share, in nanos."""

    device: DeviceId
    taken: tuple[tuple[CapacityName, int], ...]


class Allocation(msgspec.Struct, frozen=True):
    """``body`` is the ``status.allocation`` as JSON; ``where`` the node selector in it, None: all nodes."""

    body: msgspec.Raw
    where: NodeSelector | None
    devices: tuple[DeviceId, ...]
    """Those that nobody else may have."""
    shares: tuple[Share, ...] = ()


def allocation(claim: ResourceClaim, given: Given, classes: Mapping[str, DeviceClass]) -> Allocation:
    """What ``given`` comes to. DemandError: devices that cannot be put into one node selector."""
    where = node_selector(given.devices)
    seed = f"{claim.metadata.uid}/{claim.metadata.resource_version}"
    results = [_result(chosen, f"{seed}/{number}") for number, chosen in enumerate(given.devices)]
    body: dict[str, Any] = {"devices": {"results": results}}
    config = _config(claim, given, classes)
    if config:
        body["devices"]["config"] = config
    if where is not None:
        body["nodeSelector"] = where
    return Allocation(
        msgspec.Raw(msgspec.json.encode(body)),
        where,
        tuple(each.device.id for each in given.devices if not each.ask.admin and each.portions is None),
        tuple(
            Share(each.device.id, tuple((name, portion.nanos) for name, portion in each.portions.items()))
            for each in given.devices
            if each.portions is not None
        ),
    )


def shares(results: Iterable[DeviceResult]) -> tuple[Share, ...]:
    """What results in the API take of shared devices; amounts that cannot be read count as nothing."""
    found = []
    for result in results:
        if result.share_id is not None and not result.admin_access:
            taken = []
            for name, amount in result.consumed_capacity.items():
                with contextlib.suppress(QuantityError):
                    taken.append((full_name(name, result.driver), parse(amount).nanos))
            found.append(Share(result.id, tuple(taken)))
    return tuple(found)


def _result(chosen: Chosen, share: str) -> dict[str, Any]:
    driver, pool, device = chosen.device.id
    result: dict[str, Any] = {"request": chosen.ask.name, "driver": driver, "pool": pool, "device": device}
    if chosen.ask.admin:
        result["adminAccess"] = True
    if chosen.portions is not None:
        result["shareID"] = str(uuid5(NAMESPACE_OID, share))
        if chosen.portions:
            limits = chosen.device.limits
            result["consumedCapacity"] = {limits[name].key: each.text for name, each in chosen.portions.items()}
    if chosen.ask.tolerations:
        result["tolerations"] = [
            {
                name: value
                for name, value in (
                    ("key", each.key),
                    ("operator", each.operator),
                    ("value", each.value),
                    ("effect", each.effect),
                )
                if value
            }
            for each in chosen.ask.tolerations
        ]
    return result


def _config(claim: ResourceClaim, given: Given, classes: Mapping[str, DeviceClass]) -> list[dict[str, Any]]:
    """Configuration of classes, each once with the requests that have the class, then the claim's own as far as it
    concerns what was chosen. One that concerns all requests names none."""
    requests = claim.spec.devices.requests
    chosen: list[tuple[str, str]] = []
    """By request: the name of what was chosen, and its class."""
    for request, pick in zip(requests, given.picks, strict=True):
        if request.exactly is not None:
            chosen.append((request.name, request.exactly.device_class_name))
        else:
            sub = request.first_available[pick]
            chosen.append((f"{request.name}/{sub.name}", sub.device_class_name))
    found: list[tuple[str, list[str], DeviceConfiguration]] = []
    for name in dict.fromkeys(class_ for _, class_ in chosen):
        named = [request for request, class_ in chosen if class_ == name]
        found += [("FromClass", named, config) for config in (classes[name].spec.config if name in classes else ())]
    names = {request for request, _ in chosen} | {request.name for request in requests}
    found += [
        ("FromClaim", config.requests, config)
        for config in claim.spec.devices.config
        if not config.requests or not names.isdisjoint(config.requests)
    ]
    shown: list[dict[str, Any]] = []
    for source, named, config in found:
        entry: dict[str, Any] = {"source": source}
        every = all(name in named or request.name in named for request, (name, _) in zip(requests, chosen, strict=True))
        if named and not every:
            entry["requests"] = named
        if config.opaque is not None:
            entry["opaque"] = {"driver": config.opaque.driver, "parameters": config.opaque.parameters}
        shown.append(entry)
    return shown


def node_selector(devices: Sequence[Chosen]) -> NodeSelector | None:
    """From which nodes all the devices are reached; None: from all."""
    fields: list[NodeSelectorRequirement] = []
    labels: list[NodeSelectorRequirement] = []
    for chosen in devices:
        reach = chosen.group.reach
        if reach.node:
            only = NodeSelectorRequirement(key=NODE_NAME, operator="In", values=[reach.node])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[only])])
        if reach.selector is None or not reach.selector.node_selector_terms:
            continue
        if len(reach.selector.node_selector_terms) > 1:
            count = len(reach.selector.node_selector_terms)
            raise DemandError(f"unsupported ResourceSlice.NodeSelector with {count} terms")
        [term] = reach.selector.node_selector_terms
        fields += [each for each in term.match_fields if not _among(each, fields)]
        labels += [each for each in term.match_expressions if not _among(each, labels)]
    if not fields and not labels:
        return None
    return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=labels, match_fields=fields)])


def _among(one: NodeSelectorRequirement, others: Sequence[NodeSelectorRequirement]) -> bool:
    return any(
        one.key == other.key and one.operator == other.operator and set(one.values) == set(other.values)
        for other in others
    )
