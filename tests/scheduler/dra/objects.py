"""Devices, claims and classes as the API has them, and a test bed that is told of them as the service tells."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.kube.meta import decode
from koord.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from koord.scheduler.dra.book import DeviceBook
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.dynamicresources.plugin import DynamicResources
from koord.scheduler.podview import PodView
from tests.scheduler.clusters import Bed, pod_body, requests

Object = dict[str, Any]
DRIVER = "gpu.example.com"
ZONE = "topology.kubernetes.io/zone"
KINDS: Mapping[str, Resource] = {"class": DEVICE_CLASSES, "slice": RESOURCE_SLICES, "claim": RESOURCE_CLAIMS}


def device_class(name: str = "gpu", *selectors: str, config: Sequence[Object] = ()) -> Object:
    spec: Object = {"selectors": [{"cel": {"expression": text}} for text in selectors]}
    return {"metadata": {"name": name}, "spec": {**spec, "config": list(config)} if config else spec}


def device(name: str, *, memory: str = "40Gi", taints: Sequence[Object] = (), **attributes: Any) -> Object:
    """Attributes by keyword: a text, a number, a truth, or as in JSON; ``domain__name`` is ``domain/name``."""
    kinds = {str: "string", bool: "bool", int: "int"}
    made = {
        key.replace("__", "/").replace("_", "."): value if isinstance(value, dict) else {kinds[type(value)]: value}
        for key, value in attributes.items()
    }
    body: Object = {"name": name, "attributes": made, "capacity": {"memory": {"value": memory}}}
    return {**body, "taints": list(taints)} if taints else body


def slice_(
    name: str,
    devices: Sequence[Object] | int,
    *,
    node: str = "",
    pool: str = "",
    driver: str = DRIVER,
    generation: int = 1,
    count: int = 1,
    **spec: Any,
) -> Object:
    """A slice of a node's devices, or as ``spec`` says (``allNodes``, ``nodeSelector``, ...); a number: alike ones."""
    if isinstance(devices, int):
        devices = [device(f"gpu-{number}") for number in range(devices)]
    body: Object = {
        "driver": driver,
        "pool": {"name": pool or node or name, "generation": generation, "resourceSliceCount": count},
        "devices": list(devices),
        **spec,
    }
    if node:
        body["nodeName"] = node
    return {"metadata": {"name": name}, "spec": body}


def request(name: str = "gpu", class_: str = "gpu", count: int = 1, *selectors: str, **more: Any) -> Object:
    exactly: Object = {"deviceClassName": class_, "allocationMode": "ExactCount", "count": count, **more}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    if exactly["allocationMode"] == "All":
        del exactly["count"]
    return {"name": name, "exactly": exactly}


def first_of(name: str, *subs: Object) -> Object:
    return {"name": name, "firstAvailable": [{"name": sub["name"], **sub["exactly"]} for sub in subs]}


def claim(
    name: str,
    *wishes: Object,
    owner: str = "",
    allocation: Object | None = None,
    users: Sequence[str] = (),
    deleting: bool = False,
    finalizers: Sequence[str] = (),
    **devices: Any,
) -> Object:
    meta: Object = {"name": name, "namespace": "default", "uid": f"uid-{name}", "finalizers": list(finalizers)}
    if owner:
        meta["ownerReferences"] = [{"kind": "Pod", "name": "any", "uid": owner, "controller": True}]
    if deleting:
        meta["deletionTimestamp"] = "2026-03-02T09:00:00Z"
    status: Object = {}
    if allocation is not None:
        status["allocation"] = allocation
    if users:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-default-{user}"} for user in users]
    return {
        "metadata": meta,
        "spec": {"devices": {"requests": list(wishes or [request()]), **devices}},
        "status": status,
    }


def allocated(*names: str, pool: str, node: str = "", driver: str = DRIVER) -> Object:
    """An allocation of devices of one pool."""
    results = [{"request": "gpu", "driver": driver, "pool": pool, "device": name} for name in names]
    made: Object = {"devices": {"results": results}}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        made["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return made


def using(*claims: str, templates: Sequence[str] = (), **more: Any) -> Object:
    """A pod spec with claims by name, and entries for templates."""
    entries: list[Object] = [{"name": f"e-{name}", "resourceClaimName": name} for name in claims]
    entries += [{"name": name, "resourceClaimTemplateName": f"t-{name}"} for name in templates]
    return requests(resourceClaims=entries, **more)


class DeviceBed(Bed):
    """Every plugin that watches a kind hears of an object; objects get versions."""

    def __init__(self, *nodes: str, zones: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.book = DeviceBook.of(self.cluster)
        self.objects: dict[tuple[str, str], tuple[Any, Object]] = {}
        self._version = 10
        for name in nodes:
            self.node(name, labels={ZONE: (zones or {}).get(name, "z1")})
        self.tell("class", device_class())

    @property
    def plugin(self) -> DynamicResources:
        return next(each for each in self.profile.plugins if isinstance(each, DynamicResources))

    def tell(self, kind: str, body: Object) -> set[ClusterEvent]:
        body = copy.deepcopy(body)
        self._version += 1
        meta = body["metadata"]
        meta["resourceVersion"] = str(self._version)
        meta.setdefault("uid", f"uid-{kind}-{meta['name']}")
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        return self._tell(kind, key, body)

    def gone(self, kind: str, key: str) -> set[ClusterEvent]:
        return self._tell(kind, key, None)

    def claim_of(self, name: str) -> Object:
        return self.objects["claim", f"default/{name}"][1]

    def _tell(self, kind: str, key: str, body: Object | None) -> set[ClusterEvent]:
        resource = KINDS[kind]
        old = self.objects.pop((kind, key), (None, {}))[0]
        decoded: Any = None
        events: set[ClusterEvent] = set()
        for plugin in self.profile.watching:
            for watch in plugin.watches():
                if watch.resource == resource:
                    if decoded is None and body is not None:
                        decoded = decode(watch.type, json.dumps(body).encode())
                        self.objects[kind, key] = (decoded, body)
                    events.update(plugin.changed(resource, key, old, decoded))
        return events

    def pod_with(self, name: str, spec: Object, status: Object) -> PodInfo:
        """A pod of which controllers have said something."""
        body = json.loads(pod_body(name, spec))
        return self.catalogue.pod(msgspec.json.decode(json.dumps({**body, "status": status}), type=PodView))

    def place(self, pod: PodInfo) -> str:
        """The node, or the text."""
        outcome = self.engine.place_one(pod, 0.0)
        return outcome.node if isinstance(outcome, Placed) else outcome.message

    def placed(self, pod: PodInfo) -> Placed:
        outcome = self.engine.place_one(pod, 0.0)
        assert isinstance(outcome, Placed), outcome
        return outcome

    def refusal(self, pod: PodInfo) -> Diagnosis:
        outcome = self.engine.place_one(pod, 0.0)
        assert isinstance(outcome, Diagnosis), outcome
        return outcome
