"""What the ledger must hold when nothing is under way, counted anew from the API's objects alone.

It shares no code with the services on purpose, as the checker beside it does: its own reading of requests, of which
quota a pod belongs to and of the chain above it. The ledger's names of things are all it knows of koord
(docs/ledger.md): ``node/<name>`` is charged with what live assigned pods ask for, ``quota/<name>`` with what pods of
the quota and of all below it ask for, ``guaranteed/<name>`` with what those pods of the quota itself ask for that must
not be preempted, ``admitted/<name>`` with what admitted QueueUnits ask for and with the pods that
no unit stands for. The same template is counted once, so 50,000 pods take about a second.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from koord.cli.demo.checker import ROOT, Amounts, amounts, request_of
from koord.localcluster.clusterapi import ClusterApi

DEFAULT = "koordinator-default-quota"
_NAME = "quota.scheduling.koordinator.sh/name"
_LEGACY_NAME = "alibabacloud.com/quota-name"
_PREEMPTIBLE = ("quota.scheduling.koordinator.sh/preemptible", "quota.scheduling.alibabacloud.com/preemptible")
_PARENT = "quota.scheduling.koordinator.sh/parent"
_NAMESPACES = "quota.scheduling.koordinator.sh/namespaces"
_UNIT = ("koord-queue/related-queueunit", "kube-queue/related-queueunit")
_OVER = ("Succeeded", "Failed")
_UNIT_OVER = ("Succeed", "Failed")
_NOTHING = msgspec.Raw(b"null")

Sums = dict[str, dict[str, int]]


class Counted(Protocol):
    """What is read of an item of the ledger."""

    @property
    def limits(self) -> Mapping[str, int]:
        """Limits by resource."""
        ...

    @property
    def used(self) -> Mapping[str, int]:
        """What the API shows as taken."""
        ...

    @property
    def held(self) -> Mapping[str, int]:
        """What is claimed and not seen yet: nothing at rest."""
        ...


class Drift(NamedTuple):
    """One item that differs: its field (``limits``, ``used``, ``held``), the ledger's amounts and the right ones."""

    item: str
    field: str
    ledger: dict[str, int]
    right: dict[str, int]


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: msgspec.Raw = _NOTHING
    init_containers: msgspec.Raw = _NOTHING
    overhead: msgspec.Raw = _NOTHING


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _PodSpec
    status: _Status = msgspec.field(default_factory=_Status)


_pod = msgspec.json.Decoder(_Pod)


class Objects(NamedTuple):
    """What is there, as the API sent it."""

    nodes: list[bytes]
    pods: list[bytes]
    quotas: list[bytes]
    units: list[bytes]


async def objects(api: ClusterApi) -> Objects:
    """Everything that counts, listed now; the lists are not of one moment, so ask when nothing changes."""
    return Objects(
        await _listed(api, "nodes"),
        await _listed(api, "pods"),
        await _listed(api, "elasticquotas.scheduling.sigs.k8s.io"),
        await _listed(api, "queueunits.scheduling.x-k8s.io"),
    )


async def _listed(api: ClusterApi, resource: str) -> list[bytes]:
    found: list[bytes] = []
    async for events in api.watch(resource):
        if events[0].type == "BOOKMARK":
            break
        found.extend(bytes(event.raw) for event in events)
    return found


class Recount:
    """The amounts that follow from the objects: cpu in milli-cores, all else in base units, rounded up per pod."""

    def __init__(self, found: Objects) -> None:
        self.limits: Sums = {}
        self.used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._parents: dict[str, str] = {}
        self._homes: dict[str, str] = {}
        self._requests: dict[tuple[bytes, bytes, bytes], dict[str, int]] = {}
        for raw in found.quotas:
            self._quota(msgspec.json.decode(raw))
        for raw in found.nodes:
            node = msgspec.json.decode(raw)
            room = amounts(node.get("status", {}).get("allocatable") or {})
            self.limits[f"node/{node['metadata']['name']}"] = whole(room)
        for raw in found.pods:
            self._pod(_pod.decode(raw))
        for raw in found.units:
            self._unit(msgspec.json.decode(raw))

    def compare(self, ledger: Mapping[str, Counted]) -> list[Drift]:
        """Every difference between the ledger's items and these sums; amounts of zero are as good as none.

        A quota's limits are the quota service's own figures, not counts, so only those of nodes are compared.
        """
        found: list[Drift] = []
        for name in sorted(self.used.keys() | self.limits.keys() | ledger.keys()):
            item = ledger.get(name)
            used, held = (item.used, item.held) if item is not None else ({}, {})
            pairs = [("used", used, self.used.get(name, {})), ("held", held, {})]
            if name.startswith("node/"):
                pairs.append(("limits", item.limits if item is not None else {}, self.limits.get(name, {})))
            for field, has, right in pairs:
                if _some(has) != _some(right):
                    found.append(Drift(name, field, _some(has), _some(right)))
        return found

    # Which quota ----------------------------------------------------------------------------------------------------

    def _quota(self, quota: Any) -> None:
        meta = quota["metadata"]
        name = meta["name"]
        self._parents[name] = (meta.get("labels") or {}).get(_PARENT, "")
        for namespace in msgspec.json.decode((meta.get("annotations") or {}).get(_NAMESPACES) or "[]"):
            self._homes.setdefault(namespace, name)
        if meta.get("namespace") == name:
            self._homes[name] = name

    def _chain(self, quota: str) -> list[str]:
        """The quota and all above it but the root; none if one of them does not exist."""
        chain: list[str] = []
        while quota and quota != ROOT:
            if quota not in self._parents or quota in chain:
                return []
            chain.append(quota)
            quota = self._parents[quota]
        return chain

    def _quota_of_pod(self, labels: Mapping[str, str], namespace: str) -> str:
        named = labels.get(_NAME) or labels.get(_LEGACY_NAME, "")
        if named:
            return named if named in self._parents else DEFAULT
        return self._homes.get(namespace, DEFAULT)

    # What is charged ------------------------------------------------------------------------------------------------

    def _pod(self, pod: _Pod) -> None:
        spec = pod.spec
        if not spec.node_name or pod.status.phase in _OVER:
            return
        meta = pod.metadata
        request = self._request(spec)
        self._charge(f"node/{spec.node_name}", request)
        asked = {name: amount for name, amount in request.items() if name != "pods"}
        labels = meta.labels or {}
        owned = any((meta.annotations or {}).get(key) for key in _UNIT)
        chain = self._chain(self._quota_of_pod(labels, meta.namespace))
        said = [labels[key] for key in _PREEMPTIBLE if labels.get(key)]
        if chain and said[:1] == ["false"]:
            self._charge(f"guaranteed/{chain[0]}", asked)
        for quota in chain:
            self._charge(f"quota/{quota}", asked)
            if not owned:
                self._charge(f"admitted/{quota}", asked)

    def _request(self, spec: _PodSpec) -> dict[str, int]:
        key = (bytes(spec.containers), bytes(spec.init_containers), bytes(spec.overhead))
        known = self._requests.get(key)
        if known is None:
            names = ("containers", "initContainers", "overhead")
            parts = {name: msgspec.json.decode(part) or () for name, part in zip(names, key, strict=True)}
            known = self._requests[key] = whole(request_of(parts))
        return known

    def _unit(self, unit: Any) -> None:
        meta, status = unit["metadata"], unit.get("status") or {}
        if not status.get("admissions") or status.get("phase") in _UNIT_OVER:
            return
        labels = meta.get("labels") or {}
        quota = labels.get(_NAME) or labels.get(_LEGACY_NAME) or self._homes.get(meta["namespace"], DEFAULT)
        total = whole(amounts(unit["spec"].get("resource") or unit["spec"].get("request") or {}))
        for level in self._chain(quota):
            self._charge(f"admitted/{level}", total)

    def _charge(self, item: str, request: Mapping[str, int]) -> None:
        sums = self.used[item]
        for name, amount in request.items():
            sums[name] += amount


def whole(exact: Amounts) -> dict[str, int]:
    """As the ledger counts: cpu in thousandths, everything else in ones, rounded up."""
    return {name: math.ceil(amount * 1000 if name == "cpu" else amount) for name, amount in exact.items()}


def _some(sums: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in sums.items() if amount}
