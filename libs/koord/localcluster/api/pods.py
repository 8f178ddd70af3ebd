"""What the server does to pods beyond storing them: priority, status at birth, binding."""

from typing import TYPE_CHECKING, Any

from koord.localcluster.api.builtin import PODS, PRIORITY_CLASSES
from koord.localcluster.api.errors import (
    Cause,
    bad_request,
    broken_precondition,
    conflict,
    forbidden,
    invalid,
    not_supported,
    required,
    unreasoned,
)
from koord.localcluster.api.poddefaults import qos_class
from koord.localcluster.api.store import decode, encode
from koord.localcluster.api.validation import validate_metadata_change
from koord.localcluster.clusterapi import Object

if TYPE_CHECKING:
    from koord.localcluster.api.cluster import Cluster

_SYSTEM = (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))


def system_priority_classes() -> list[Object]:
    """The two classes that every cluster has."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value in _SYSTEM
    ]


def prepare(cluster: "Cluster", pod: Object) -> None:
    """Resolve the priority and set the first status of a new pod."""
    spec = pod["spec"]
    resolve_priority(cluster, pod)
    status: Object = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": cluster.clock.now(),
            }
        ]
    pod["status"] = status


def resolve_priority(cluster: "Cluster", pod: Object) -> None:
    """Write into a pod what its PriorityClass, or the default one, says; 403 when the pod says something else."""
    spec = pod["spec"]
    classes = cluster.collection(PRIORITY_CLASSES)
    name = spec.get("priorityClassName")
    found: Object | None = None
    if name:
        entry = classes.get("", name)
        if entry is None:
            why = f"no PriorityClass with name {name} was found"
            raise forbidden(PODS, pod["metadata"].get("name", ""), why)
        found = decode(entry)
    elif classes.count > len(_SYSTEM):
        defaults = [obj for obj in map(decode, classes.entries()) if obj.get("globalDefault")]
        if defaults:
            found = min(defaults, key=lambda obj: int(obj["value"]))
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found["value"] if found else 0
    if spec.get("priority", value) != value:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, pod["metadata"].get("name", ""), why)
    spec["priority"] = value
    policy = found.get("preemptionPolicy") if found else None
    spec.setdefault("preemptionPolicy", policy or "PreemptLowerPriority")


def prepare_change(new: Object, old: Object) -> None:
    """What admission fills in on a write that leaves it out."""
    spec, before = new.get("spec"), old["spec"]
    if isinstance(spec, dict) and spec is not before:
        for field in ("priority", "preemptionPolicy"):
            if field in before:
                spec.setdefault(field, before[field])


def bind(cluster: "Cluster", namespace: str, name: str, binding: Object, *, dry_run: bool = False) -> None:
    """Assign a pod to a node, as its `binding` sub-resource does.

    `binding.metadata` may carry a uid and a resourceVersion as preconditions, and annotations and labels that go onto
    the pod in the same write. 404 no such pod, 409 already assigned, being deleted, or a precondition that fails.
    """
    if cluster.admission.current is not None:
        binding = cluster.admission.bound(namespace, name, binding, dry_run=dry_run)
    target = binding.get("target")
    metadata = binding.get("metadata") or {}
    if not isinstance(target, dict) or not isinstance(metadata, dict):
        raise bad_request("Binding in the request cannot be handled: target and metadata must be objects")
    kind, node = target.get("kind") or "", target.get("name") or ""
    if not isinstance(kind, str) or not isinstance(node, str):
        raise bad_request("Binding in the request cannot be handled: target.kind and target.name must be strings")
    causes: list[Cause] = []
    if kind not in ("", "Node"):
        causes.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not node:
        causes.append(required("target.name"))
    if causes:
        words = [f"{cause.field}: {cause.message}" for cause in causes]
        raise unreasoned(words[0] if len(words) == 1 else "[" + ", ".join(words) + "]")
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    if annotations or labels:
        _check_marks(name, annotations, labels)
    if metadata.get("name") not in (None, "", name):
        raise bad_request("name in URL does not match name in Binding object")
    if metadata.get("namespace") not in (None, "", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    entry = cluster.find(PODS, namespace, name)
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != entry.uid:
        raise broken_precondition(PODS, namespace, name, "UID", uid, entry.uid)
    if version and version != str(entry.version):
        raise broken_precondition(PODS, namespace, name, "ResourceVersion", version, str(entry.version))
    if entry.deleting:
        raise conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host", part="binding")
    pod = decode(entry)
    spec = pod["spec"]
    if spec.get("nodeName"):
        raise conflict(PODS, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"', part="binding")
    if spec.get("schedulingGates"):
        raise conflict(PODS, name, f"pod {name} has non-empty .spec.schedulingGates", part="binding")
    spec["nodeName"] = node
    for field, values in (("annotations", annotations), ("labels", labels)):
        if values:
            pod["metadata"].setdefault(field, {}).update(values)
    _set_scheduled(pod, cluster.clock.now())
    if not dry_run:
        cluster.collection(PODS).put(pod, cluster.store.next_version())
    else:
        encode(pod)


def _check_marks(name: str, annotations: Any, labels: Any) -> None:
    """What a Binding puts onto its pod: 400 unless strings by name, 422 unless the names and values are allowed."""
    for field, values in (("annotations", annotations), ("labels", labels)):
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise bad_request(f"Binding in the request cannot be handled: metadata.{field} must be strings by name")
    if causes := validate_metadata_change(PODS, {"annotations": annotations, "labels": labels}, {}):
        raise invalid(PODS, name, causes)


def _set_scheduled(pod: Object, now: str) -> None:
    status = pod.setdefault("status", {})
    conditions = status.setdefault("conditions", [])
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    for i, condition in enumerate(conditions):
        if condition.get("type") == "PodScheduled":
            conditions[i] = scheduled
            return
    conditions.append(scheduled)
