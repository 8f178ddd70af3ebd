"""Good objects of every kind that koord reads, and how they are bent before they are sent to the API."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from koord.kube.protocol import gang, queue, quota
from koord.kube.resources import (
    ELASTIC_QUOTAS,
    JOBS,
    NODES,
    POD_GROUPS,
    PODS,
    PYTORCHJOBS,
    QUEUE_UNITS,
    QUEUES,
    RAYJOBS,
    TFJOBS,
    Resource,
)
from tests.fuzz.bending import Bend, Path, bends, bent, broken, collect, places, share, values
from tests.fuzz.known import bad_bends, wrong

NAMESPACE = "fuzz"
QUOTA = "fuzz"
MANY = 8
"""A number of pods from which on an object may carry no other bend: a job let go by one bend and made huge by another
would be obeyed, and its operator would make all of its pods."""
WRONG_EACH = 4
"""Objects for each place of which it is known what is bad there."""
FAKE_NODES = {"koord.sh/fake-node": "true"}
Manifest = dict[str, Any]


class ObjectCase(NamedTuple):
    """One request: ``body`` is posted to ``path``. ``keys``: the names of the places that were bent; ``wrong``: the one
    that is known to make it bad."""

    resource: Resource
    path: str
    body: bytes
    keys: tuple[str, ...]
    wrong: str = ""


# Good ones ------------------------------------------------------------------------------------------------------------


def template() -> Manifest:
    """A pod that runs for a moment."""
    container = {
        "name": "main",
        "image": "registry.example/x:1",
        "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}, "limits": {"memory": "2Mi"}},
    }
    spec = {"schedulerName": "koord-scheduler", "restartPolicy": "Never", "containers": [container], "priority": 0}
    return {"metadata": {"labels": {"app": "x"}, "annotations": {"koord.sh/fake-run-seconds": "0.05"}}, "spec": spec}


def _meta(name: str, labels: Manifest | None = None, annotations: Manifest | None = None) -> Manifest:
    return {"name": name, "namespace": NAMESPACE, "labels": labels or {}, "annotations": annotations or {}}


def _object(resource: Resource, meta: Manifest, spec: Manifest) -> Manifest:
    if not resource.namespaced:
        meta = {key: value for key, value in meta.items() if key != "namespace"}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}


def pod(name: str) -> Manifest:
    made = template()
    labels = {quota.NAME: QUOTA, gang.POD_GROUP_NAME: f"gang-{name}", gang.POD_GROUP_MIN_AVAILABLE: "1"}
    annotations = {**made["metadata"]["annotations"], gang.WAITING_TIME: "10s", gang.MODE: "NonStrict"}
    spec = made["spec"] | {
        "nodeSelector": dict(FAKE_NODES),
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "koord.sh/fake-node", "operator": "In", "values": ["true"]}]}
                    ]
                }
            }
        },
        "overhead": {"cpu": "1m"},
    }
    return _object(PODS, _meta(name, labels, annotations), spec)


def node(name: str) -> Manifest:
    """Nobody runs there: it has a taint and is cordoned, for no kubelet answers for it."""
    spec = {"unschedulable": True, "taints": [{"key": "fuzz", "effect": "NoSchedule", "value": "x"}]}
    made = _object(NODES, _meta(name, {"zone": "a"}, {"node.koordinator.sh/reservation": "{}"}), spec)
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    made["status"] = {"capacity": dict(room), "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    return made


def elastic_quota(name: str) -> Manifest:
    labels = {quota.PARENT: quota.ROOT_QUOTA, quota.IS_PARENT: "false", quota.ALLOW_LENT_RESOURCE: "true"}
    annotations = {
        quota.SHARED_WEIGHT: '{"cpu":"1"}',
        quota.NAMESPACES: "[]",
        quota.TOTAL_RESOURCE: '{"cpu":"100"}',
        queue.QUEUE_POLICY: "Priority",
        queue.MAX_DEPTH: "10",
    }
    spec = {"min": {"cpu": "1", "memory": "1Gi"}, "max": {"cpu": "2", "memory": "2Gi"}}
    return _object(ELASTIC_QUOTAS, _meta(name, labels, annotations), spec)


def pod_group(name: str) -> Manifest:
    annotations = {
        gang.GROUPS: json.dumps([f"{NAMESPACE}/{name}"]),
        gang.MODE: "Strict",
        gang.MATCH_POLICY: "once-satisfied",
    }
    spec = {"minMember": 2, "scheduleTimeoutSeconds": 10, "minResources": {"cpu": "1"}}
    return _object(POD_GROUPS, _meta(name, {}, annotations), spec)


def queue_object(name: str) -> Manifest:
    annotations = {queue.MAX_DEPTH: "10", queue.ITEMS_REFRESH_INTERVAL: "15", "koord-queue/inject-gang": "false"}
    spec = {"queuePolicy": "Priority", "priority": 1}
    return _object(QUEUES, _meta(name, {queue.CREATED_BY: "false"}, annotations) | {"namespace": "koord-queue"}, spec)


def queue_unit(name: str) -> Manifest:
    """By hand, and for no job."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    spec = {
        "queue": QUOTA,
        "priority": 1,
        "resource": dict(amounts),
        "request": amounts,
        "podSet": [{"name": "main", "count": 1, "template": template()}],
        "consumerRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "nobody", "namespace": NAMESPACE},
        "active": True,
        "maximumExecutionTimeSeconds": 60,
    }
    return _object(QUEUE_UNITS, _meta(name, {quota.NAME: QUOTA}, {queue.PRIORITY: "1"}), spec)


_JOB_ANNOTATIONS = {
    queue.PRIORITY: "1",
    queue.ACTIVE: "true",
    queue.MAX_EXEC_TIME: "60",
    "koord.sh/traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


def _job(resource: Resource, name: str, spec: Manifest) -> Manifest:
    return _object(resource, _meta(name, {quota.NAME: QUOTA}, dict(_JOB_ANNOTATIONS)), spec)


def batch_job(name: str) -> Manifest:
    return _job(
        JOBS, name, {"suspend": True, "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template()}
    )


def _roles(worker: str) -> Manifest:
    made = template()
    made["spec"]["containers"][0]["name"] = worker
    return {
        role: {"replicas": 1, "restartPolicy": "Never", "template": json.loads(json.dumps(made))}
        for role in ("Master", "Worker")
    }


def tf_job(name: str) -> Manifest:
    policy = {"suspend": True, "cleanPodPolicy": "All", "schedulingPolicy": {"minAvailable": 2, "priorityClass": ""}}
    return _job(TFJOBS, name, {"runPolicy": policy, "tfReplicaSpecs": _roles("tensorflow")})


def pytorch_job(name: str) -> Manifest:
    return _job(PYTORCHJOBS, name, {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": _roles("pytorch")})


def ray_job(name: str) -> Manifest:
    group = {
        "groupName": "small",
        "replicas": 1,
        "minReplicas": 0,
        "maxReplicas": 2,
        "numOfHosts": 1,
        "rayStartParams": {},
        "template": template(),
    }
    cluster = {"headGroupSpec": {"rayStartParams": {}, "template": template()}, "workerGroupSpecs": [group]}
    spec = {"suspend": True, "entrypoint": "python x.py", "submissionMode": "HTTPMode", "rayClusterSpec": cluster}
    return _job(RAYJOBS, name, spec)


# Bent ones ------------------------------------------------------------------------------------------------------------

_KINDS: Sequence[tuple[Resource, Callable[[str], Manifest], float]] = (
    (PODS, pod, 0.05),
    (NODES, node, 0.03),
    (ELASTIC_QUOTAS, elastic_quota, 0.04),
    (POD_GROUPS, pod_group, 0.03),
    (QUEUES, queue_object, 0.02),
    (QUEUE_UNITS, queue_unit, 0.03),
    (JOBS, batch_job, 0.04),
    (TFJOBS, tf_job, 0.04),
    (PYTORCHJOBS, pytorch_job, 0.03),
    (RAYJOBS, ray_job, 0.03),
)
"""Each with its share of all cases."""
_COUNTS = frozenset(("replicas", "parallelism", "completions", "minReplicas", "maxReplicas", "numOfHosts"))
_NEW: dict[str, Sequence[Path]] = {
    "Pod": (
        ("spec", "schedulingGates"),
        ("spec", "nodeName"),
        ("spec", "initContainers"),
        ("spec", "priorityClassName"),
    ),
    "Node": (("spec", "podCIDR"), ("status", "nodeInfo")),
    "Job": (("spec", "completionMode"), ("spec", "managedBy"), ("spec", "activeDeadlineSeconds"), ("status",)),
    "RayJob": (("spec", "clusterSelector"), ("spec", "shutdownAfterJobFinishes"), ("status",)),
}
"""Places that the good object does not have."""


def object_cases() -> list[ObjectCase]:
    """All of them, each under a name of its own unless it is the name that is bent."""
    cases: list[ObjectCase] = []
    for resource, good, part in _KINDS:
        count = share(part)
        drawn = collect(st.tuples(bends(_paths(resource, good)), _broken_bodies(good)), count)
        for number, (changes, raw) in enumerate(drawn):
            name = f"fuzz-{resource.kind.lower()}-{number}"
            namespace = "koord-queue" if resource is QUEUES else NAMESPACE if resource.namespaced else ""
            path = resource.path(namespace)
            if number % 20 == 19:
                cases.append(ObjectCase(resource, path, raw, ()))
                continue
            changes = _harmless(changes)
            body = json.dumps(bent(good(name), changes)).encode()
            keys = tuple(_key(change) for change in changes)
            cases.append(ObjectCase(resource, path, body, keys, wrong(resource, changes)))
        for number, change in enumerate(bad_bends(resource, WRONG_EACH)):
            body = json.dumps(bent(good(f"fuzz-{resource.kind.lower()}-wrong-{number}"), [change])).encode()
            cases.append(ObjectCase(resource, path, body, (_key(change),), wrong(resource, [change])))
    return cases


def _paths(resource: Resource, good: Callable[[str], Manifest]) -> list[Path]:
    return [*places(good("x")), *_NEW.get(resource.kind, ())]


def _broken_bodies(good: Callable[[str], Manifest]) -> st.SearchStrategy[bytes]:
    body = json.dumps(good("fuzz-broken")).encode()
    return st.one_of(broken(body), values.map(lambda value: json.dumps(value).encode()))


def _harmless(changes: Sequence[Bend]) -> Sequence[Bend]:
    """The bends, or only the first that asks for many pods."""
    for change in changes:
        if isinstance(change.path[-1], str) and change.path[-1] in _COUNTS and not change.gone:
            number = change.value
            if isinstance(number, int | float) and number > MANY:
                return [change]
            if isinstance(number, str):
                return [change]
    return changes


def _key(change: Bend) -> str:
    return next((key for key in reversed(change.path) if isinstance(key, str)), "")
