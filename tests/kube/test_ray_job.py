"""RayJob: pod sets as KubeRay makes them, JSON patches that are applied here to see what comes out."""

import copy
from typing import Any

import msgspec
import pytest

from koord.kube.jobs.hints import start_hints
from koord.kube.jobs.kind import JobError, JobPatch, JobStatus
from koord.kube.jobs.rayjob import RayJob

KIND = RayJob()


def template(**metadata: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"spec": {"containers": [{"name": "ray", "image": "ray:2"}]}}
    return {**found, "metadata": metadata} if metadata else found


def rayjob(groups: list[dict[str, Any]], cluster: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    status = spec.pop("status", {})
    return {
        "metadata": {"name": "tune", "namespace": "ml"},
        "spec": {
            "suspend": True,
            "rayClusterSpec": {
                "headGroupSpec": {"template": template()},
                "workerGroupSpecs": groups,
                **(cluster or {}),
            },
            **spec,
        },
        "status": status,
    }


def apply(job: dict[str, Any], patch: JobPatch) -> dict[str, Any]:
    """The result of a JSON patch of add and test operations."""
    result: Any = copy.deepcopy(job)
    for operation in msgspec.json.decode(patch.encode()):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target = result
        for part in parts[:-1]:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if operation["op"] == "test":
            assert target[parts[-1]] == operation["value"]
        else:
            assert operation["op"] == "add"
            target[parts[-1]] = operation["value"]
    return dict(result)


def test_managed() -> None:
    assert KIND.managed(rayjob([]))
    assert not KIND.managed(rayjob([], suspend=False))
    assert KIND.managed(rayjob([], suspend=False), manage_all=True)
    assert not KIND.managed(rayjob([], status={"startTime": "t"}))
    assert not KIND.managed(rayjob([], clusterSelector={"ray.io/cluster": "shared"}))
    assert not KIND.managed(rayjob([], managedBy="kueue.x-k8s.io/multikueue"))
    assert KIND.managed(rayjob([], managedBy="ray.io/kuberay-operator"))


@pytest.mark.parametrize(
    ("status", "suspend", "expected"),
    [
        ({}, True, JobStatus.QUEUING),
        ({}, False, JobStatus.CREATED),
        ({"jobDeploymentStatus": "Initializing"}, False, JobStatus.PENDING),
        ({"jobDeploymentStatus": "Retrying"}, False, JobStatus.PENDING),
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, False, JobStatus.RUNNING),
        ({"jobDeploymentStatus": "Suspended"}, True, JobStatus.QUEUING),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, False, JobStatus.SUCCEEDED),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, False, JobStatus.FAILED),
        ({"jobDeploymentStatus": "Failed"}, False, JobStatus.FAILED),
        ({"jobDeploymentStatus": "ValidationFailed"}, True, JobStatus.FAILED),
    ],
)
def test_status(status: dict[str, Any], suspend: bool, expected: JobStatus) -> None:
    job = rayjob([], suspend=suspend, status=status)
    assert KIND.status(job) is expected
    if expected.finished:
        assert KIND.status(job, children_alive=True) is JobStatus.RUNNING


def test_group_names() -> None:
    groups = [{"groupName": name} for name in ("GPU", "gpu", "My_Group", "head", "submitter", "")]
    sets = KIND.pod_sets(rayjob(groups, submissionMode="HTTPMode"))
    names = [part.name for part in sets]
    assert names[:2] == ["head", "gpu"]
    assert names[2].startswith("gpu-")
    assert names[3].startswith("my-group-")
    assert names[4].startswith("head-")
    assert names[5].startswith("submitter-")
    assert names[6] == "worker"
    assert len(set(names)) == len(names)
    assert all(len(name) <= 63 for name in names)
    assert KIND.pod_set_of({"ray.io/group": "My_Group"}) == names[3]
    assert KIND.pod_set_of({"ray.io/group": "GPU"}) == "gpu"
    assert KIND.pod_set_of({"ray.io/group": "headgroup", "ray.io/node-type": "head"}) == "head"
    assert KIND.pod_set_of({"ray.io/group": "head"}) == names[4]
    assert KIND.pod_set_of({"ray.io/originated-from-crd": "RayJob"}) == "submitter"
    assert KIND.pod_set_of({"batch.kubernetes.io/job-name": "j"}) == KIND.pod_set_of({"job-name": "j"}) == "submitter"
    assert KIND.pod_set_of({}) == ""
    with pytest.raises(JobError, match="is taken by another group"):
        KIND.pod_sets(rayjob([{"groupName": "a_b"}, {"groupName": "a_b"}]))


def test_what_kuberay_injects_is_charged() -> None:
    def names(part: dict[str, Any], key: str = "containers") -> list[str]:
        return [container["name"] for container in part["spec"].get(key, [])]

    sidecar = KIND.pod_sets(rayjob([], submissionMode="SidecarMode"))
    assert [part.name for part in sidecar] == ["head"]
    assert names(sidecar[0].template) == ["ray", "ray-job-submitter"]
    own = {"requests": {"cpu": "2"}}
    auto = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"resources": own}}
    head = KIND.pod_sets(rayjob([], auto))[0].template
    assert names(head) == ["ray", "autoscaler"]
    assert head["spec"]["containers"][1]["resources"] == own
    durable = KIND.pod_sets(rayjob([], {"gcsFaultToleranceOptions": {"redisAddress": "r"}}))[0].template
    assert names(durable, "initContainers") == ["redis-cleanup"]
    assert KIND.pod_sets({"metadata": {}, "spec": {"clusterSelector": {"ray.io/cluster": "shared"}}}) == []


def test_an_autoscaled_cluster_counts_its_live_replicas() -> None:
    groups = [{"groupName": "gpu", "replicas": 2, "minReplicas": 1, "maxReplicas": 5, "numOfHosts": 2}]
    live = {"spec": {"workerGroupSpecs": [{"groupName": "gpu", "replicas": 4}]}}
    job = rayjob(groups, {"enableInTreeAutoscaling": True})
    assert [part.count for part in KIND.pod_sets(job)] == [1, 4, 1]
    assert [part.count for part in KIND.pod_sets(job, live=live)] == [1, 8, 1]
    assert [part.count for part in KIND.pod_sets(rayjob(groups), live=live)] == [1, 4, 1]
    assert KIND.gang_minimum(job) == 3
    assert KIND.gang_minimum(rayjob(groups)) == 5


def test_start_patch() -> None:
    groups = [
        {"groupName": "cpu", "replicas": 1, "template": template()},
        {"groupName": "gpu", "replicas": 2, "template": template(labels={"a/b": "c"}, annotations={"x~y": "z"})},
    ]
    job = rayjob(groups, submitterPodTemplate=template())
    hints = start_hints(KIND, job, unit="ml/tune-ray-qu", quota_name="vision", traceparent="tp")
    patch = KIND.start_patch(job, hints, {"note": "n"})
    assert patch.type == "json"
    assert job == rayjob(groups, submitterPodTemplate=template()), "the job itself is not touched"
    started = apply(job, patch)
    assert started["spec"]["suspend"] is False
    assert started["metadata"]["annotations"] == {"note": "n"}
    cluster = started["spec"]["rayClusterSpec"]
    gpu = cluster["workerGroupSpecs"][1]["template"]["metadata"]
    assert gpu["labels"] == {"a/b": "c", "quota.scheduling.koordinator.sh/name": "vision"}
    assert gpu["annotations"] == {
        "x~y": "z",
        "koord-queue/related-queueunit": "ml/tune-ray-qu",
        "koord-queue/related-podset-name": "gpu",
        "koord.sh/traceparent": "tp",
        "gang.scheduling.koordinator.sh/name": "tune-ray-qu",
        "gang.scheduling.koordinator.sh/min-available": "4",
    }
    head = cluster["headGroupSpec"]["template"]["metadata"]["annotations"]
    assert head["koord-queue/related-podset-name"] == "head"
    submitter = started["spec"]["submitterPodTemplate"]["metadata"]
    assert submitter["annotations"]["koord-queue/related-podset-name"] == "submitter"
    assert "gang.scheduling.koordinator.sh/name" not in submitter["annotations"], "it follows a ready cluster"
    tests = [op for op in msgspec.json.decode(patch.encode()) if op["op"] == "test"]
    assert [op["value"] for op in tests] == ["cpu", "gpu"]
    assert KIND.annotate_templates(started, hints) is None, "what is there is not written again"
    assert not KIND.suspended(started)


def test_the_default_submitter_is_written_out_so_that_it_can_carry_hints() -> None:
    job = rayjob([])
    started = apply(job, KIND.start_patch(job, start_hints(KIND, job, unit="ml/tune-ray-qu")))
    submitter = started["spec"]["submitterPodTemplate"]
    assert submitter["spec"]["restartPolicy"] == "Never"
    assert submitter["spec"]["containers"][0]["image"] == "ray:2"
    assert submitter["metadata"]["annotations"]["koord-queue/related-queueunit"] == "ml/tune-ray-qu"


def test_templates_without_hints_or_without_a_template_are_not_patched() -> None:
    job = rayjob([{"groupName": "g"}])
    assert KIND.annotate_templates(job, {}) is None
    hints = start_hints(KIND, job, unit="ml/tune-ray-qu")
    started = apply(job, KIND.start_patch(job, hints))
    assert "template" not in started["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            rayjob([{"groupName": "g", "replicas": "x"}]),
            'spec.rayClusterSpec.workerGroupSpecs[0].replicas: must be an integer >= 0, got "x"',
        ),
        (
            rayjob([], submissionMode="Fax"),
            'spec.submissionMode: must be one of K8sJobMode, HTTPMode, InteractiveMode, SidecarMode, got "Fax"',
        ),
        (
            rayjob([{"groupName": f"g{index}"} for index in range(17)]),
            "spec.rayClusterSpec.workerGroupSpecs: must not make more than 18 pod sets, got 19",
        ),
        (rayjob([], {"workerGroupSpecs": [7]}), "spec.rayClusterSpec.workerGroupSpecs[0]: must be an object, got 7"),
        (rayjob([], rayClusterSpec=[]), "spec.rayClusterSpec: must be an object, got []"),
        (rayjob([], rayClusterSpec=None), "spec.rayClusterSpec: is required"),
        (rayjob([], {"headGroupSpec": {}}), "spec.rayClusterSpec.headGroupSpec.template: is required"),
    ],
)
def test_malformed_jobs_are_named(job: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as caught:
        KIND.pod_sets(job)
    assert str(caught.value) == message


def test_pods_are_found_by_the_cluster_once_it_is_named() -> None:
    assert KIND.pod_selector(rayjob([])) is None
    assert KIND.pod_selector(rayjob([], status={"rayClusterName": "tune-x"})) == ("ray.io/cluster", "tune-x")
