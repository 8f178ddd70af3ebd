"""Objects of storage as the API has them, and a test bed with the plugins for volumes."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.kube.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.volumebinding import VolumeBinding
from koord.scheduler.volumes.book import VolumeBook
from tests.scheduler.clusters import Bed, requests

Object = dict[str, Any]
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
WAIT = "WaitForFirstConsumer"


def storage_class(
    name: str = "local",
    *,
    mode: str = WAIT,
    provisioner: str = "kubernetes.io/no-provisioner",
    topologies: Sequence[Mapping[str, Sequence[str]]] = (),
) -> Object:
    terms = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in term.items()]}
        for term in topologies
    ]
    made = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    return {**made, "allowedTopologies": terms} if terms else made


def claim(
    name: str,
    *,
    size: str = "1Gi",
    class_: str | None = "local",
    modes: Sequence[str] = ("ReadWriteOnce",),
    volume: str = "",
    bound: bool = False,
    selected: str = "",
    phase: str = "",
    owner: str = "",
    deleting: bool = False,
    **spec: Any,
) -> Object:
    annotations = {}
    if bound:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    if selected:
        annotations["volume.kubernetes.io/selected-node"] = selected
    meta: Object = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    if owner:
        meta["ownerReferences"] = [{"kind": "Pod", "name": "any", "uid": owner, "controller": True}]
    if deleting:
        meta["deletionTimestamp"] = "2026-03-02T09:00:00Z"
    body: Object = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec}
    if class_ is not None:
        body["storageClassName"] = class_
    if volume:
        body["volumeName"] = volume
    return {"metadata": meta, "spec": body, "status": {"phase": phase or ("Bound" if bound else "Pending")}}


def volume(
    name: str,
    *,
    size: str = "1Gi",
    class_: str = "local",
    modes: Sequence[str] = ("ReadWriteOnce",),
    on: Mapping[str, Sequence[str]] | None = None,
    terms: Sequence[Object] | None = None,
    given: Object | None = None,
    labels: Mapping[str, str] | None = None,
    csi: tuple[str, str] | None = None,
    phase: str = "",
    **spec: Any,
) -> Object:
    """``on``: labels that a node must have one of the values of; ``given``: the claim that it names."""
    body: Object = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": class_, **spec}
    if on is not None:
        tests = [{"key": key, "operator": "In", "values": list(values)} for key, values in on.items()]
        terms = [{"matchExpressions": tests}]
    if terms is not None:
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": list(terms)}}
    if given is not None:
        meta = given["metadata"]
        body["claimRef"] = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    if csi is not None:
        body["csi"] = {"driver": csi[0], "volumeHandle": csi[1]}
    phase = phase or ("Bound" if given is not None else "Available")
    return {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": body, "status": {"phase": phase}}


def local(name: str, node: str, **more: Any) -> Object:
    """A volume of one node."""
    return volume(name, on={HOST: [node]}, **more)


def csi_node(name: str, limits: Mapping[str, int | None]) -> Object:
    drivers = [
        {"name": driver, "nodeID": name, **({} if count is None else {"allocatable": {"count": count}})}
        for driver, count in limits.items()
    ]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def csi_driver(name: str, *, storage_capacity: bool = True) -> Object:
    return {"metadata": {"name": name}, "spec": {"storageCapacity": storage_capacity}}


def capacity(
    name: str, class_: str, amount: str | None, topology: Mapping[str, str] | None, largest: str | None = None
) -> Object:
    made: Object = {"metadata": {"name": name, "namespace": "csi"}, "storageClassName": class_}
    if amount is not None:
        made["capacity"] = amount
    if largest is not None:
        made["maximumVolumeSize"] = largest
    if topology is not None:
        made["nodeTopology"] = {"matchLabels": dict(topology)}
    return made


def attachment(name: str, driver: str, node: str, volume_name: str) -> Object:
    source = {"persistentVolumeName": volume_name}
    return {"metadata": {"name": name}, "spec": {"attacher": driver, "nodeName": node, "source": source}}


def using(*claims: str, ephemeral: Sequence[str] = (), disks: Sequence[Object] = (), **more: Any) -> Object:
    """A pod's spec that uses the claims."""
    volumes: list[Object] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(claims)
    ]
    volumes += [{"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}} for name in ephemeral]
    volumes += [{"name": f"d{number}", **disk} for number, disk in enumerate(disks)]
    # What every pod has, under another name each time.
    volumes.append({"name": "kube-api-access-x7zqk", "projected": {"sources": []}})
    return requests("100m", "64Mi", volumes=volumes, **more)


KINDS: Mapping[str, Resource] = {
    "class": STORAGE_CLASSES,
    "claim": PERSISTENT_VOLUME_CLAIMS,
    "volume": PERSISTENT_VOLUMES,
    "csi_node": CSI_NODES,
    "csi_driver": CSI_DRIVERS,
    "capacity": CSI_STORAGE_CAPACITIES,
    "attachment": VOLUME_ATTACHMENTS,
}


class VolumeBed(Bed):
    """Told of objects the way the service tells: each decoded once, every plugin that watches the kind hears of it."""

    def __init__(self, *, seed: str = "", binding: VolumeBinding | None = None) -> None:
        super().__init__(seed=seed, extra=[] if binding is None else [binding])
        self.book = VolumeBook.of(self.cluster)
        self._objects: dict[tuple[str, str], Any] = {}

    def tell(self, kind: str, new: Object) -> set[ClusterEvent]:
        meta = new["metadata"]
        return self._tell(kind, f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"], new)

    def gone(self, kind: str, key: str) -> set[ClusterEvent]:
        return self._tell(kind, key, None)

    def _tell(self, kind: str, key: str, new: Object | None) -> set[ClusterEvent]:
        resource = KINDS[kind]
        old = self._objects.pop((kind, key), None)
        decoded: Any = None
        events: set[ClusterEvent] = set()
        for plugin in self.profile.watching:
            for watch in plugin.watches():
                if watch.resource == resource:
                    if decoded is None and new is not None:
                        decoded = self._objects[kind, key] = msgspec.convert(new, watch.type)
                    events.update(plugin.changed(resource, key, old, decoded))
        return events

    def nodes(self, *names: str, zones: Mapping[str, str] | None = None) -> None:
        for name in names:
            labels = {HOST: name}
            if zones and name in zones:
                labels[ZONE] = zones[name]
            self.node(name, labels=labels)

    def place(self, pod: PodInfo) -> str:
        """The node, or the text."""
        outcome = self.engine.place_one(pod, 0.0)
        return outcome.node if isinstance(outcome, Placed) else outcome.message

    def refusal(self, pod: PodInfo) -> Diagnosis:
        outcome = self.engine.place_one(pod, 0.0)
        assert isinstance(outcome, Diagnosis), outcome
        return outcome
