"""Volumes: one pod, one node, one claim at a time, on objects as the API has them (spec 10 section 3.15).

What is promised to a placed pod is written into the objects at once, as if the API showed it already.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.quantities import parse
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.selecting import labels_match, requirement_holds

Object = dict[str, Any]
Reasons = list[tuple[str, bool]]
SELECTED, COMPLETED = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed"
ZONES = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
LATER = {ZONES[0]: ZONES[2], ZONES[1]: ZONES[3]}


@dataclass
class StorageWorld(World):
    """The cluster with its storage: claims by ``ns/name``, everything else by name."""

    claims: dict[str, Object] = field(default_factory=dict)
    volumes: dict[str, Object] = field(default_factory=dict)
    classes: dict[str, Object] = field(default_factory=dict)
    drivers: dict[str, Object] = field(default_factory=dict)
    csi_nodes: dict[str, Object] = field(default_factory=dict)
    capacities: dict[str, Object] = field(default_factory=dict)
    attachments: dict[str, Object] = field(default_factory=dict)


def claim_names(pod: Pod) -> dict[str, bool]:
    """Keys of the pod's claims, with whether it is an ephemeral volume's."""
    names: dict[str, bool] = {}
    for volume in pod.spec.get("volumes", []):
        if "persistentVolumeClaim" in volume:
            names[f"{pod.namespace}/{volume['persistentVolumeClaim']['claimName']}"] = False
        elif "ephemeral" in volume:
            names[f"{pod.namespace}/{pod.name}-{volume['name']}"] = True
    return names


def class_of(claim: Object) -> str:
    """The class of a claim."""
    name: str = claim["spec"].get("storageClassName") or ""
    return name


def waits(claim: Object, world: StorageWorld) -> bool:
    """Whether the claim waits for its first consumer."""
    found = world.classes.get(class_of(claim), {})
    return bool(found.get("volumeBindingMode") == "WaitForFirstConsumer")


def is_bound(claim: Object) -> bool:
    """Whether the claim has its volume for good."""
    return bool(claim["spec"].get("volumeName")) and COMPLETED in claim["metadata"].get("annotations", {})


def size_of(claim: Object) -> Any:
    """What a claim asks for."""
    return parse(claim["spec"].get("resources", {}).get("requests", {}).get("storage", "0"))


def volume_refusal(pod: Pod, world: StorageWorld) -> str | None:
    """The PreFilters: why the pod fits nowhere."""
    names = claim_names(pod)
    for key, ephemeral in names.items():
        if not ephemeral and key not in world.claims:
            return f'persistentvolumeclaim "{key.partition("/")[2]}" not found'
    for key, ephemeral in names.items():
        name, claim = key.partition("/")[2], world.claims.get(key)
        if claim is None:
            assert ephemeral
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim["status"].get("phase") == "Lost":
            return (
                f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim["spec"]["volumeName"]}"'
            )
        if "deletionTimestamp" in claim["metadata"]:
            return f'persistentvolumeclaim "{name}" is being deleted'
    claims = [world.claims[key] for key in names]
    if any(not is_bound(one) and (one["spec"].get("volumeName") or not waits(one, world)) for one in claims):
        return "pod has unbound immediate PersistentVolumeClaims"
    for key, ephemeral in names.items():
        held = world.claims[key]["spec"].get("volumeName")
        if held and not ephemeral and held not in world.volumes:
            return f'persistentvolume "{held}" not found'
    return None


def reached(volume: Object, node: Node) -> bool:
    """Whether the node's labels pass the volume's node affinity."""
    required = volume["spec"].get("nodeAffinity", {}).get("required")
    if required is None:
        return True
    return any(
        term.get("matchExpressions") and all(requirement_holds(one, node.labels) for one in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


# VolumeRestrictions ---------------------------------------------------------------------------------------------------


def volume_restrictions(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Disks that clash on the node, then claims for one pod at a time that are in use anywhere."""
    assert isinstance(world, StorageWorld)
    for other in world.on(node):
        for mine in pod.spec.get("volumes", []):
            if any(clash(mine, theirs) for theirs in other.spec.get("volumes", [])):
                return [("node(s) had no available disk", True)]
    for key in claim_names(pod):
        modes = world.claims[key]["spec"]["accessModes"]
        if "ReadWriteOncePod" in modes and any(key in claim_names(other) for other in world.pods.values()):
            text = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
            return [(text, True)]
    return []


def clash(mine: Object, theirs: Object) -> bool:
    """Whether two volumes are a disk that two pods may not have on one node."""
    for kind, name in (("gcePersistentDisk", "pdName"), ("iscsi", "iqn")):
        if kind in mine and kind in theirs and mine[kind][name] == theirs[kind][name]:
            return not (mine[kind].get("readOnly") and theirs[kind].get("readOnly"))
    kind = "awsElasticBlockStore"
    if kind in mine and kind in theirs:
        return bool(mine[kind]["volumeID"] == theirs[kind]["volumeID"])
    if "rbd" in mine and "rbd" in theirs:
        one, other = mine["rbd"], theirs["rbd"]
        same = one.get("pool", "rbd") == other.get("pool", "rbd") and one["image"] == other["image"]
        common = set(one["monitors"]) & set(other["monitors"])
        return same and bool(common) and not (one.get("readOnly") and other.get("readOnly"))
    return False


# NodeVolumeLimits -----------------------------------------------------------------------------------------------------


def handle(key: str, world: StorageWorld) -> tuple[str, str] | None:
    """Driver and handle of a claim's volume."""
    claim = world.claims.get(key)
    if claim is None:
        return None
    volume = world.volumes.get(claim["spec"].get("volumeName", ""))
    if volume is not None:
        csi = volume["spec"].get("csi")
        return None if csi is None else (csi["driver"], csi["volumeHandle"])
    found = world.classes.get(class_of(claim))
    return None if found is None else (found["provisioner"], f"claim {key}")


def volume_limits(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Volumes that are there and those that would come, each once."""
    assert isinstance(world, StorageWorld)
    there = {handle(key, world) for other in world.on(node) for key in claim_names(other)} - {None}
    for one in world.attachments.values():
        volume = world.volumes.get(one["spec"]["source"]["persistentVolumeName"])
        if one["spec"]["nodeName"] == node.name and volume is not None and "csi" in volume["spec"]:
            there.add((volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]))
    coming = {handle(key, world) for key in claim_names(pod)} - {None} - there
    for driver in world.csi_nodes.get(node.name, {"spec": {"drivers": []}})["spec"]["drivers"]:
        limit = driver.get("allocatable", {}).get("count")
        new = sum(one is not None and one[0] == driver["name"] for one in coming)
        old = sum(one is not None and one[0] == driver["name"] for one in there)
        if limit is not None and new and old + new > limit:
            return [("node(s) exceed max volume count", True)]
    return []


# VolumeBinding --------------------------------------------------------------------------------------------------------


def volume_binding(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Bound volumes can be reached; each waiting claim finds a volume or one can be made."""
    assert isinstance(world, StorageWorld)
    reasons: list[str] = []
    claims = [world.claims[key] for key in claim_names(pod)]
    for one in claims:
        if is_bound(one):
            volume = world.volumes.get(one["spec"]["volumeName"])
            if volume is None:
                reasons.append("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
                break
            if not reached(volume, node):
                reasons.append("node(s) didn't match PersistentVolume's node affinity")
                break
    answer = find(claims, node, world)
    return [(text, False) for text in reasons + ([answer] if isinstance(answer, str) else [])]


def find(claims: list[Object], node: Node, world: StorageWorld) -> str | dict[str, str]:
    """What each waiting claim gets on the node (a volume, or empty: one is made); or why that is not possible."""
    gets: dict[str, str] = {}
    none, full = (
        "node(s) didn't find available persistent volumes to bind",
        "node(s) did not have enough free storage",
    )
    waiting = [one for one in claims if not is_bound(one)]
    pinned = [one for one in waiting if SELECTED in one["metadata"].get("annotations", {})]
    for one in pinned:
        if one["metadata"]["annotations"][SELECTED] != node.name:
            return none
    others = sorted((one for one in waiting if one not in pinned), key=size_of)
    to_make = list(pinned)
    for one in others:
        volume = match(one, node, world, set(gets.values()))
        if volume is None:
            to_make.append(one)
        else:
            gets[key_of(one)] = volume
    for one in to_make:
        found = world.classes[class_of(one)]
        if found["provisioner"] == "kubernetes.io/no-provisioner" or not allowed(found, node):
            return none
        if not room(found, size_of(one), node, world):
            return full
        gets[key_of(one)] = ""
    return gets


def key_of(claim: Object) -> str:
    """``ns/name``."""
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def match(claim: Object, node: Node, world: StorageWorld, taken: set[str]) -> str | None:
    """The volume that names the claim, else the smallest that will do, of equal ones the first by name."""
    spec = claim["spec"]
    best: tuple[Any, str] | None = None
    for name in sorted(world.volumes):
        volume = world.volumes[name]
        has = volume["spec"]
        if name in taken or has.get("storageClassName", "") != class_of(claim):
            continue
        ref = has.get("claimRef")
        size = parse(has["capacity"]["storage"])
        same_mode = has.get("volumeMode", "Filesystem") == spec.get("volumeMode", "Filesystem")
        if size < size_of(claim) or not same_mode or "deletionTimestamp" in volume["metadata"]:
            continue
        if ref is not None:
            if (ref["namespace"], ref["name"]) == (claim["metadata"]["namespace"], claim["metadata"]["name"]):
                return name if reached(volume, node) else None
            continue
        selector = spec.get("selector")
        if (
            volume["status"]["phase"] == "Available"
            and (selector is None or labels_match(selector, volume["metadata"].get("labels", {})))
            and set(spec["accessModes"]) <= set(has["accessModes"])
            and reached(volume, node)
            and (best is None or size < best[0])
        ):
            best = (size, name)
    return None if best is None else best[1]


def allowed(class_: Object, node: Node) -> bool:
    """Whether the class makes volumes for the node."""
    terms = class_.get("allowedTopologies", [])
    return not terms or any(
        all(node.labels.get(one["key"]) in one["values"] for one in term["matchLabelExpressions"]) for term in terms
    )


def tells_room(class_: Object, world: StorageWorld) -> bool:
    """Whether the driver says how much room it has."""
    driver = world.drivers.get(class_["provisioner"])
    return driver is not None and bool(driver["spec"].get("storageCapacity"))


def roomy(class_: Object, size: Any, node: Node, world: StorageWorld) -> Object | None:
    """What says that there is room for the volume on the node, of several the first by name."""
    for _, one in sorted(world.capacities.items()):
        limit = one.get("maximumVolumeSize", one.get("capacity"))
        if (
            one["storageClassName"] == class_["metadata"]["name"]
            and limit is not None
            and parse(limit) >= size
            and labels_match(one.get("nodeTopology"), node.labels)
        ):
            return one
    return None


def room(class_: Object, size: Any, node: Node, world: StorageWorld) -> bool:
    """Whether the driver has room, if it says how much it has."""
    return not tells_room(class_, world) or roomy(class_, size, node, world) is not None


def capacity_score(pod: Pod, node: Node, world: StorageWorld, shape: dict[int, int]) -> int:
    """How much of the storage the claims would use: of volumes that exist if there are any, else of the drivers' room.

    ``shape``: the score at each whole percentage.
    """
    gets = find([world.claims[key] for key in claim_names(pod)], node, world)
    assert isinstance(gets, dict), gets
    asked: dict[str, int] = {}
    there: dict[str, int] = {}
    for key, name in gets.items():
        claim = world.claims[key]
        class_, size = class_of(claim), int(size_of(claim))
        if name:
            there[class_] = there.get(class_, 0) + int(parse(world.volumes[name]["spec"]["capacity"]["storage"]))
            asked[class_] = asked.get(class_, 0) + size
        elif not any(gets.values()) and size and tells_room(world.classes[class_], world):
            found = roomy(world.classes[class_], size, node, world)
            assert found is not None
            there[class_] = int(parse(found["capacity"] if "capacity" in found else found["maximumVolumeSize"]))
            asked[class_] = asked.get(class_, 0) + size
    if not there:
        return 0
    full = {class_ for class_ in there if not there[class_] or asked[class_] > there[class_]}
    points = [shape[100 if class_ in full else asked[class_] * 100 // there[class_]] for class_ in there]
    return (2 * sum(points) + len(points)) // (2 * len(points))


def promise(pod: Pod, node: Node, world: StorageWorld) -> dict[str, str]:
    """Write what the pod's waiting claims get on the node into the objects; answers volumes by claim."""
    gets = find([world.claims[key] for key in claim_names(pod)], node, world)
    assert isinstance(gets, dict), gets
    for key, name in gets.items():
        meta = world.claims[key]["metadata"]
        if name:
            ref = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
            world.volumes[name]["spec"]["claimRef"] = ref
        else:
            meta.setdefault("annotations", {})[SELECTED] = node.name
    return gets


# VolumeZone -----------------------------------------------------------------------------------------------------------


def volume_zone(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Labels of the volumes' zones, on nodes that have any."""
    assert isinstance(world, StorageWorld)
    if not any(key in node.labels for key in ZONES):
        return []
    for key, ephemeral in claim_names(pod).items():
        volume = world.volumes.get(world.claims[key]["spec"].get("volumeName", ""))
        if volume is None or ephemeral:
            continue
        for label in ZONES:
            zones = volume["metadata"].get("labels", {}).get(label)
            if zones is None:
                continue
            here = node.labels.get(label, node.labels.get(LATER.get(label, "")))
            if here not in zones.split("__"):
                return [("node(s) had no available volume zone", False)]
    return []


VOLUME_FILTERS = {
    "VolumeRestrictions": volume_restrictions,
    "NodeVolumeLimits": volume_limits,
    "VolumeBinding": volume_binding,
    "VolumeZone": volume_zone,
}
