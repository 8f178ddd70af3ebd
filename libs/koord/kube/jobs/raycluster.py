"""Pod sets of a Ray cluster's spec: the head, the worker groups, and what KubeRay adds to the head.

KubeRay makes ``clamp(replicas, minReplicas, maxReplicas) * max(1, numOfHosts)`` pods of a group, none of a suspended
one; exactly that is charged (spec 70 section 3.3). Containers that KubeRay injects are added to the head's template
here, so that the request of the template is the request of the pod.
"""

from collections.abc import Mapping
from typing import Any, Final

from koord.kube.jobs import reading
from koord.kube.jobs.kind import Job, JobError, Path, PodSetSpec
from koord.kube.jobs.naming import pod_set_name

HEAD: Final = "head"
SUBMITTER: Final = "submitter"
RESERVED: Final = frozenset((HEAD, SUBMITTER))
"""Pod sets that no worker group may be called; such a group takes the hashed form of its name."""

CLUSTER: Final = "ray.io/cluster"
GROUP: Final = "ray.io/group"
NODE_TYPE: Final = "ray.io/node-type"
HEAD_GROUP: Final = "headgroup"
FT_ENABLED: Final = "ray.io/ft-enabled"

SUBMITTER_RESOURCES: Final = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
AUTOSCALER_RESOURCES: Final = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
REDIS_CLEANUP_RESOURCES: Final = {"requests": {"cpu": "200m", "memory": "256Mi"}}


def cluster_pod_sets(
    cluster: dict[str, Any],
    path: Path,
    *,
    head_extras: list[dict[str, Any]],
    fault_tolerant: bool,
    live: Job | None = None,
) -> list[PodSetSpec]:
    """The head and every worker group of the cluster spec at ``path`` of the job.

    ``head_extras`` are containers put beside the head's own; ``live``: the RayCluster made from this spec, whose
    replicas count when the autoscaler is on.
    """
    where = ".".join(str(part) for part in path)
    head_group = reading.mapping(cluster, "headGroupSpec", where)
    if head_group.get("template") is None:
        raise JobError(f"{where}.headGroupSpec.template", "is required")
    head = reading.mapping(head_group, "template", f"{where}.headGroupSpec")
    extras = list(head_extras)
    autoscaled = reading.boolean(cluster, "enableInTreeAutoscaling", where)
    if autoscaled:
        extras.append(_autoscaler(cluster, where))
    sets = [
        PodSetSpec(
            HEAD,
            1,
            _with_containers(head, f"{where}.headGroupSpec.template", extras, cleanup=fault_tolerant),
            (*path, "headGroupSpec", "template"),
        )
    ]
    replicas = _live_replicas(live) if autoscaled and live is not None else {}
    taken = set(RESERVED)
    for index, group in enumerate(reading.objects(cluster, "workerGroupSpecs", where)):
        group_path = f"{where}.workerGroupSpecs[{index}]"
        raw = reading.text(group, "groupName", group_path)
        name = pod_set_name(raw or "worker", taken)
        if name in taken:
            raise JobError(f"{group_path}.groupName", f'the name "{raw}" is taken by another group')
        taken.add(name)
        count, minimum = group_pods(group, group_path, replicas.get(raw))
        sets.append(
            PodSetSpec(
                name,
                count,
                reading.mapping(group, "template", group_path),
                (*path, "workerGroupSpecs", index, "template"),
                gang_count=minimum if autoscaled else None,
            )
        )
    return sets


def group_pods(group: dict[str, Any], path: str, live_replicas: int | None = None) -> tuple[int, int]:
    """How many pods KubeRay makes of a group now, and how many at its ``minReplicas``."""
    low = reading.count(group, "minReplicas", path) or 0
    high = reading.count(group, "maxReplicas", path)
    replicas = reading.count(group, "replicas", path) if live_replicas is None else live_replicas
    hosts = max(1, reading.count(group, "numOfHosts", path) or 1)
    if reading.boolean(group, "suspend", path):
        return 0, 0
    top = reading.INT32_MAX if high is None else high
    wanted = low if replicas is None else replicas
    return min(max(wanted, low), top) * hosts, min(low, top) * hosts


def is_fault_tolerant(cluster: dict[str, Any], path: str, annotations: Mapping[str, str]) -> bool:
    """Whether GCS fault tolerance is on, so that a clean-up job runs when the cluster goes."""
    return cluster.get("gcsFaultToleranceOptions") is not None or annotations.get(FT_ENABLED) == "true"


def group_of_pod(pod_labels: Mapping[str, str]) -> str:
    """The pod set of a Ray pod by its group label, mapped as group names are; ``""`` if it has none."""
    group = pod_labels.get(GROUP)
    if group is None:
        return HEAD if pod_labels.get(NODE_TYPE) == "head" else ""
    if group == HEAD_GROUP:
        return HEAD
    return pod_set_name(group or "worker", RESERVED)


def head_image(cluster: dict[str, Any]) -> str:
    """The image of the head's first container, which KubeRay gives the submitter too."""
    template: Any = cluster
    for key in ("headGroupSpec", "template", "spec", "containers"):
        template = template.get(key) if isinstance(template, dict) else None
    if isinstance(template, list) and template and isinstance(template[0], dict):
        image = template[0].get("image")
        return image if isinstance(image, str) else ""
    return ""


def _autoscaler(cluster: dict[str, Any], where: str) -> dict[str, Any]:
    options = reading.mapping(cluster, "autoscalerOptions", where)
    resources = reading.mapping(options, "resources", f"{where}.autoscalerOptions") or AUTOSCALER_RESOURCES
    return {"name": "autoscaler", "resources": resources}


def _with_containers(
    template: dict[str, Any], path: str, extras: list[dict[str, Any]], *, cleanup: bool
) -> dict[str, Any]:
    if not extras and not cleanup:
        return template
    spec = dict(reading.mapping(template, "spec", path))
    if extras:
        spec["containers"] = [*reading.objects(spec, "containers", f"{path}.spec"), *extras]
    if cleanup:
        # The clean-up job runs once the cluster is gone: a floor, as an init container is, not an addition.
        floor = {"name": "redis-cleanup", "resources": REDIS_CLEANUP_RESOURCES}
        spec["initContainers"] = [floor, *reading.objects(spec, "initContainers", f"{path}.spec")]
    return {**template, "spec": spec}


def _live_replicas(cluster: Job) -> dict[str, int]:
    found = {}
    for index, group in enumerate(reading.objects(reading.spec(cluster), "workerGroupSpecs", "spec")):
        path = f"spec.workerGroupSpecs[{index}]"
        replicas = reading.count(group, "replicas", path)
        if replicas is not None:
            found[reading.text(group, "groupName", path)] = replicas
    return found
