"""The pods of a Ray cluster, from a RayJob's `spec.rayClusterSpec`, as KubeRay makes them (spec 70, 2.10 and 3.3)."""

import re
from typing import Final, NamedTuple

from koord.localcluster.clusterapi import Object
from koord.localcluster.operators.observed import PodSeen
from koord.localcluster.operators.plan import JobInvalid
from koord.localcluster.operators.reading import count, flag, integer, mapping, objects, template, text
from koord.localcluster.operators.templates import pod_of

CLUSTER: Final = "ray.io/cluster"
GROUP: Final = "ray.io/group"
NODE_TYPE: Final = "ray.io/node-type"
HEAD_GROUP: Final = "headgroup"
_SPEC: Final = "spec.rayClusterSpec"
_MAX_REPLICAS = 2147483647
_SUBMITTER_RESOURCES: Final = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
_AUTOSCALER_RESOURCES: Final = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
MODES: Final = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")


class Group(NamedTuple):
    """One worker group: its name and the number of pods it should have."""

    name: str
    pods: int
    template: Object


class ClusterSpec(NamedTuple):
    """A Ray cluster, read."""

    head: Object
    groups: list[Group]
    autoscaler: Object | None

    @property
    def workers(self) -> int:
        """How many worker pods it wants."""
        return sum(group.pods for group in self.groups)


def read_cluster(job: Object) -> ClusterSpec:
    """The cluster of a RayJob; `JobInvalid` names the field."""
    if mapping(job, "spec.clusterSelector"):
        raise JobInvalid("spec.clusterSelector", "is not served here: give a rayClusterSpec")
    if not mapping(job, _SPEC):
        raise JobInvalid(_SPEC, "is required")
    head = template(job, f"{_SPEC}.headGroupSpec.template")
    groups: list[Group] = []
    for i, spec in enumerate(objects(job, f"{_SPEC}.workerGroupSpecs")):
        prefix = f"{_SPEC}.workerGroupSpecs[{i}]."
        name = text(spec, "groupName", prefix=prefix)
        if not name:
            raise JobInvalid(f"{prefix}groupName", "is required")
        if any(group.name == name for group in groups):
            raise JobInvalid(f"{prefix}groupName", f"{name!r} is used by another group")
        least = count(spec, "minReplicas", 0, prefix=prefix)
        most = count(spec, "maxReplicas", _MAX_REPLICAS, prefix=prefix)
        replicas = integer(spec, "replicas", least, prefix=prefix) or 0
        hosts = max(1, count(spec, "numOfHosts", 1, prefix=prefix))
        pods = 0 if flag(spec, "suspend", prefix=prefix) else min(max(replicas, least), most) * hosts
        groups.append(Group(name, pods, template(spec, "template", prefix=prefix)))
    autoscaler: Object | None = None
    if flag(job, f"{_SPEC}.enableInTreeAutoscaling"):
        autoscaler = mapping(job, f"{_SPEC}.autoscalerOptions.resources") or _AUTOSCALER_RESOURCES
    return ClusterSpec(head, groups, autoscaler)


def cluster_pods(job: Object, spec: ClusterSpec, cluster: str, mode: str) -> dict[str, Object]:
    """All pods that the cluster wants, by name."""
    common = {
        CLUSTER: cluster,
        "ray.io/is-ray-node": "yes",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    name = f"{cluster}-head"
    head = pod_of(
        job,
        spec.head,
        name=name,
        labels={**common, NODE_TYPE: "head", GROUP: HEAD_GROUP, "ray.io/identifier": name},
        restart_policy="Never" if mode == "SidecarMode" else "",
    )
    containers = head["spec"]["containers"]
    if spec.autoscaler is not None:
        containers.append({"name": "autoscaler", "image": _image(spec.head), "resources": spec.autoscaler})
    if mode == "SidecarMode":
        containers.append(_submitter_container(spec.head))
    pods = {name: head}
    for group in spec.groups:
        for number in range(group.pods):
            name = f"{cluster}-{_dns(group.name)}-worker-{number}"
            pods[name] = pod_of(
                job,
                group.template,
                name=name,
                labels={**common, NODE_TYPE: "worker", GROUP: group.name, "ray.io/identifier": f"{cluster}-worker"},
            )
    return pods


def submitter_pod(job: Object, spec: ClusterSpec, name: str) -> Object:
    """The pod that submits the job: from `submitterPodTemplate`, or KubeRay's default.

    KubeRay starts it through a batch Job named like the RayJob, hence the labels. Annotations of the RayJob that steer
    fake pods (`koord.sh/fake-*`) hold for it too, because the default has no template to carry them.
    """
    if mapping(job, "spec.submitterPodTemplate"):
        own = template(job, "spec.submitterPodTemplate")
    else:
        own = {"metadata": {}, "spec": {"containers": [_submitter_container(spec.head)]}}
    given = (own.get("metadata") or {}).get("annotations") or {}
    marks = job["metadata"].get("annotations") or {}
    fakes = {key: mark for key, mark in marks.items() if key.startswith("koord.sh/fake-") and key not in given}
    policy = own["spec"].get("restartPolicy")
    owner = job["metadata"]["name"]
    return pod_of(
        job,
        own,
        name=name,
        labels={
            "batch.kubernetes.io/job-name": owner,
            "job-name": owner,
            "ray.io/originated-from-cr-name": owner,
            "ray.io/originated-from-crd": "RayJob",
            "app.kubernetes.io/created-by": "kuberay-operator",
        },
        annotations=fakes,
        restart_policy=policy if policy in ("Never", "OnFailure") else "Never",
    )


def is_head(pod: PodSeen) -> bool:
    """Whether it is a head pod."""
    return pod.labels.get(NODE_TYPE) == "head"


def _submitter_container(head: Object) -> Object:
    return {"name": "ray-job-submitter", "image": _image(head), "resources": _SUBMITTER_RESOURCES}


def _image(head: Object) -> str:
    first = head["spec"]["containers"][0]
    return str(first.get("image") or "ray") if isinstance(first, dict) else "ray"


def _dns(name: str) -> str:
    return re.sub(r"[^a-z0-9-]", "-", name.lower()).strip("-") or "group"
