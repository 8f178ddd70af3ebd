"""Golden examples of spec 70, section 6, on jobs: pod sets, totals, names (G1 to G9, G43, G46) and priorities."""

from typing import Any

import pytest

from koord.accounting.jobs import job_total
from koord.accounting.requests import pod_request, resource_list
from koord.kube.jobs.kind import Job
from koord.kube.jobs.naming import unit_name
from koord.kube.jobs.registry import BY_KIND
from koord.kube.pods import Container, PodSpec, ResourceRequirements

GPU = "nvidia.com/gpu"


def template(cpu: str | int, memory: str = "", gpu: int = 0, **spec: Any) -> dict[str, Any]:
    requests: dict[str, Any] = {"cpu": cpu}
    if memory:
        requests["memory"] = memory
    if gpu:
        requests[GPU] = gpu
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}], **spec}}


def sets_and_total(job: Job) -> tuple[list[tuple[str, int]], dict[str, str]]:
    kind = BY_KIND[job["apiVersion"], job["kind"]]
    pod_sets = kind.pod_sets(job)
    return [(part.name, part.count) for part in pod_sets], resource_list(job_total(pod_sets))


def batch_job(**spec: Any) -> Job:
    status = spec.pop("status", {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns"},
        "spec": {"suspend": True, **spec},
        "status": status,
    }


def test_g1_batch_job() -> None:
    job = batch_job(parallelism=4, completions=10, template=template("500m", "1Gi"))
    assert sets_and_total(job) == ([("j", 4)], {"cpu": "2", "memory": "4Gi"})
    kind = BY_KIND["batch/v1", "Job"]
    assert kind.managed(job)
    assert unit_name("j", kind.suffix) == "j"


def test_g2_fewer_completions_than_parallelism() -> None:
    job = batch_job(parallelism=8, completions=3, template=template(1))
    assert sets_and_total(job) == ([("j", 3)], {"cpu": "3"})


@pytest.mark.parametrize(
    ("mode", "completions", "parallelism", "succeeded", "failed", "count"),
    [
        ("Indexed", 8, 8, 1, "1,3-5", 3),
        ("Indexed", 100, 5, 0, "1-3", 5),
        ("Indexed", 4, 4, 1, "0,2-3", 0),
        ("Indexed", 4, 4, 0, "3-1", 4),
        ("NonIndexed", 4, 4, 0, "1", 4),
    ],
)
def test_g3_indexed_jobs(
    mode: str, completions: int, parallelism: int, succeeded: int, failed: str, count: int
) -> None:
    job = batch_job(
        completionMode=mode,
        completions=completions,
        parallelism=parallelism,
        template=template(1),
        status={"succeeded": succeeded, "failedIndexes": failed},
    )
    assert sets_and_total(job)[0] == [("j", count)]


def container(cpu: str, **more: Any) -> Container:
    return Container(name="c", resources=ResourceRequirements(requests={"cpu": cpu}), **more)


def test_g4_sidecars_and_init_containers() -> None:
    sidecar, init = container("250m", restart_policy="Always"), container("2")
    apps = [container("1"), container("500m")]
    first = PodSpec(containers=apps, init_containers=[sidecar, init], overhead={"cpu": "100m"})
    assert pod_request(first) == {"cpu": 2350}
    after = PodSpec(containers=apps, init_containers=[init, sidecar], overhead={"cpu": "100m"})
    assert pod_request(after) == {"cpu": 2100}


def test_g5_a_limit_stands_in_for_a_request() -> None:
    limits = ResourceRequirements(limits={"cpu": "2"})
    assert pod_request(PodSpec(containers=[Container(name="c", resources=limits)])) == {"cpu": 2000}


def test_g6_tfjob() -> None:
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "train"},
        "spec": {
            "runPolicy": {"suspend": True},
            "tfReplicaSpecs": {
                "Worker": {"replicas": 4, "template": template(4, "8Gi", 1)},
                "PS": {"replicas": 2, "template": template(2, "4Gi")},
                "Chief": {"replicas": 1, "template": template(1, "2Gi")},
            },
        },
    }
    assert sets_and_total(job) == (
        [("chief", 1), ("ps", 2), ("worker", 4)],
        {"cpu": "21", "memory": "42Gi", GPU: "4"},
    )
    assert unit_name("train", BY_KIND["kubeflow.org/v1", "TFJob"].suffix) == "train-tf-qu"


def pytorch_job(roles: dict[str, Any], **run_policy: Any) -> Job:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {"runPolicy": {"suspend": True, **run_policy}, "pytorchReplicaSpecs": roles},
    }


def test_g7_pytorch_job() -> None:
    pod = template(4, "16Gi", 8)
    job = pytorch_job({"Master": {"template": pod}, "Worker": {"replicas": 3, "template": pod}})
    assert sets_and_total(job) == ([("master", 1), ("worker", 3)], {"cpu": "16", "memory": "64Gi", GPU: "32"})


def ray_job(groups: list[dict[str, Any]], **cluster: Any) -> Job:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "tune"},
        "spec": {
            "suspend": True,
            "submissionMode": "K8sJobMode",
            "rayClusterSpec": {
                "headGroupSpec": {"template": template(2, "4Gi")},
                "workerGroupSpecs": groups,
                **cluster,
            },
        },
    }


def test_g9_ray_job() -> None:
    group = {"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "template": template(8, "16Gi", 1)}
    expected = [("head", 1), ("gpu", 4), ("submitter", 1)]
    assert sets_and_total(ray_job([group])) == (expected, {"cpu": "34500m", "memory": "69832Mi", GPU: "4"})
    autoscaled = ray_job([group], enableInTreeAutoscaling=True)
    assert sets_and_total(autoscaled) == (expected, {"cpu": "35", "memory": "70344Mi", GPU: "4"})


@pytest.mark.parametrize(
    ("group", "pods"),
    [
        ({"replicas": 0, "minReplicas": 2, "maxReplicas": 10, "numOfHosts": 2}, 4),
        ({"replicas": 15, "minReplicas": 0, "maxReplicas": 10, "numOfHosts": 1}, 10),
        ({"minReplicas": 3, "maxReplicas": 5, "numOfHosts": 1}, 3),
        ({"replicas": 4, "minReplicas": 6, "maxReplicas": 5, "numOfHosts": 1}, 5),
        ({"replicas": 3, "minReplicas": 0, "maxReplicas": 9, "numOfHosts": 2, "suspend": True}, 0),
    ],
)
def test_g43_ray_groups(group: dict[str, Any], pods: int) -> None:
    sets, _ = sets_and_total(ray_job([{"groupName": "workers", **group}]))
    assert sets == [("head", 1), ("workers", pods), ("submitter", 1)]


def test_g46_roles_in_any_case_and_a_foreign_manager() -> None:
    pod = template(1)
    job = pytorch_job({"WORKER": {"replicas": 2, "template": pod}, "master": {"template": pod}})
    assert sets_and_total(job) == ([("master", 1), ("worker", 2)], {"cpu": "3"})
    kind = BY_KIND["kubeflow.org/v1", "TFJob"]
    foreign = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "t"},
        "spec": {"runPolicy": {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}, "tfReplicaSpecs": {}},
    }
    assert not kind.managed(foreign)


def test_g44_for_the_kinds_at_hand_an_absent_replica_count_is_one() -> None:
    job = pytorch_job({"Master": {"template": template(1)}, "Worker": {"template": template(8)}})
    assert sets_and_total(job) == ([("master", 1), ("worker", 1)], {"cpu": "9"})


def test_a_job_without_pods_asks_for_nothing() -> None:
    assert sets_and_total(batch_job(parallelism=0, template=template(1))) == ([("j", 0)], {})
    assert sets_and_total(batch_job()) == ([("j", 1)], {})
