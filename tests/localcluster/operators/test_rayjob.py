"""Decisions of the KubeRay stand-in, without any server."""

from typing import Any

import pytest

from koord.localcluster.operators.plan import JobInvalid
from koord.localcluster.operators.rayjob import RayJobOperator
from tests.localcluster.operators.manifests import World, ray_job, template


def world(**spec: Any) -> World:
    return World(RayJobOperator(), ray_job(**spec))


def short(w: World) -> list[str]:
    """Pod names without the job's and the attempt's part."""
    cluster = w.status.get("rayClusterName", "")
    suffix = cluster.rpartition("-")[2]
    return [name.replace(f"{cluster}-", "").replace(f"job-{suffix}", "submitter") for name in w.names()]


def test_cluster_then_submitter_then_the_end() -> None:
    w = world(shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=3)
    w.settle()
    assert w.status["jobDeploymentStatus"] == "Initializing"
    assert short(w) == ["head", "small-worker-0", "small-worker-1"]
    cluster = w.status["rayClusterName"]
    head = w.bodies[f"{cluster}-head"]["metadata"]
    assert head["labels"].items() >= {
        ("ray.io/cluster", cluster),
        ("ray.io/group", "headgroup"),
        ("ray.io/node-type", "head"),
        ("app", "x"),
    }
    assert head["annotations"] == {"team.example.com/note": "kept"}
    worker = w.bodies[f"{cluster}-small-worker-1"]["metadata"]
    assert worker["labels"]["ray.io/group"] == "Small" and worker["labels"]["ray.io/node-type"] == "worker"
    w.phase("Running", w.names()[:2])
    w.settle()
    assert w.status["jobDeploymentStatus"] == "Initializing", "one worker is missing"
    assert w.status["rayClusterStatus"]["readyWorkerReplicas"] == 1
    w.phase("Running")
    w.settle()
    assert short(w) == ["submitter", "head", "small-worker-0", "small-worker-1"]
    assert (w.status["jobDeploymentStatus"], w.status["jobStatus"]) == ("Running", "PENDING")
    submitter = w.names()[0]
    body = w.bodies[submitter]
    assert body["spec"]["restartPolicy"] == "Never"
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "200Mi"}
    assert "ray.io/node-type" not in body["metadata"]["labels"]
    assert body["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "job"
    w.phase("Running")
    w.settle()
    assert w.status["jobStatus"] == "RUNNING"
    w.phase("Succeeded", [submitter])
    plan = w.step()
    assert (w.status["jobDeploymentStatus"], w.status["jobStatus"], w.status["succeeded"]) == (
        "Complete",
        "SUCCEEDED",
        1,
    )
    assert w.status["endTime"] == w.stamp()
    assert plan.again_s == 3 and plan.delete == []
    w.now += 3
    w.settle()
    assert w.names() == [submitter], "the submitter's Job keeps its pod"


def test_without_shutdown_the_cluster_stays() -> None:
    w = world()
    w.settle()
    w.phase("Running")
    w.settle()
    w.phase("Running")
    w.phase("Succeeded", w.names()[:1])
    w.settle()
    assert w.status["jobDeploymentStatus"] == "Complete" and len(w.pods) == 4


def test_suspended_at_first_and_in_the_middle() -> None:
    w = world(suspend=True)
    w.settle()
    assert w.pods == {} and w.status == {"jobDeploymentStatus": "Suspended"}
    w.set(suspend=False)
    w.settle()
    first = w.status["rayClusterName"]
    assert w.status["startTime"] == w.stamp()
    w.phase("Running")
    w.settle()
    w.set(suspend=True)
    w.step()
    assert w.status["jobDeploymentStatus"] == "Suspending"
    w.settle()
    assert w.pods == {} and w.status == {"jobDeploymentStatus": "Suspended"}
    w.set(suspend=False)
    w.now += 5
    w.settle()
    assert w.status["rayClusterName"] != first
    assert short(w) == ["head", "small-worker-0", "small-worker-1"]


def test_lost_and_ended_ray_pods_come_back() -> None:
    w = world()
    w.settle()
    w.phase("Running")
    w.settle()
    cluster = w.status["rayClusterName"]
    w.vanish(f"{cluster}-small-worker-0")
    w.phase("Failed", [f"{cluster}-head"])
    w.settle()
    assert short(w) == ["submitter", "head", "small-worker-0", "small-worker-1"]
    assert w.pods[f"{cluster}-head"].phase == "Pending"
    assert w.status["jobDeploymentStatus"] == "Running"
    w.vanish(w.names()[0])
    w.settle()
    assert short(w)[0] == "submitter"


@pytest.mark.parametrize(("limit", "attempts"), [(0, 1), (2, 3)])
def test_a_failed_job_is_tried_again_on_a_new_cluster(limit: int, attempts: int) -> None:
    w = world(backoffLimit=limit)
    clusters = []
    for _ in range(attempts):
        w.settle()
        clusters.append(w.status["rayClusterName"])
        w.phase("Running")
        w.settle()
        w.phase("Failed", [name for name in w.names() if "raycluster" not in name])
        w.settle()
        w.now += 1
    assert len(set(clusters)) == attempts
    assert (w.status["jobDeploymentStatus"], w.status["jobStatus"]) == ("Failed", "FAILED")
    assert (w.status["failed"], w.status["reason"]) == (attempts, "AppFailed")


@pytest.mark.parametrize(
    ("group", "pods"),
    [
        ({"replicas": 2, "numOfHosts": 2}, 4),
        ({"minReplicas": 3}, 3),
        ({"replicas": 9, "maxReplicas": 4}, 4),
        ({"replicas": 1, "minReplicas": 5, "maxReplicas": 2}, 2),
        ({"replicas": 3, "suspend": True}, 0),
        ({}, 0),
    ],
)
def test_how_many_workers_a_group_has(group: dict[str, Any], pods: int) -> None:
    w = world(groups=[{"groupName": "g", "template": template(), **group}])
    w.settle()
    assert len(w.pods) == 1 + pods


def test_what_kuberay_injects() -> None:
    job = ray_job(submissionMode="SidecarMode", groups=[])
    job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = True
    w = World(RayJobOperator(), job)
    w.settle()
    (name,) = w.names()
    spec = w.bodies[name]["spec"]
    assert [container["name"] for container in spec["containers"]] == ["main", "autoscaler", "ray-job-submitter"]
    assert spec["containers"][1]["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi"}
    assert spec["restartPolicy"] == "Never"


def test_modes_without_a_submitter_pod_run_for_their_time() -> None:
    job = ray_job(submissionMode="HTTPMode")
    job["metadata"]["annotations"] = {"koord.sh/fake-run-seconds": "30", "koord.sh/fake-exit": "Failed"}
    w = World(RayJobOperator(), job)
    w.settle()
    w.phase("Running")
    plan = w.step()
    assert w.status["jobStatus"] == "RUNNING" and plan.again_s == 30
    w.now += 30
    w.settle()
    assert w.status["jobDeploymentStatus"] == "Failed" and len(w.pods) == 3
    waiting = world(submissionMode="InteractiveMode")
    waiting.settle()
    waiting.phase("Running")
    waiting.settle()
    assert waiting.status["jobDeploymentStatus"] == "Waiting"


def test_an_own_submitter_template_and_a_deadline() -> None:
    own = template("OnFailure", seconds=4)
    job = ray_job(submitterPodTemplate=own, activeDeadlineSeconds=60, groups=[])
    job["metadata"]["annotations"] = {"koord.sh/fake-run-seconds": "30", "koord.sh/fake-start-seconds": "1"}
    w = World(RayJobOperator(), job)
    w.settle()
    w.phase("Running")
    w.settle()
    body = w.bodies[w.names()[0]]
    assert body["metadata"]["annotations"] == {
        "team.example.com/note": "kept",
        "koord.sh/fake-run-seconds": "4",
        "koord.sh/fake-start-seconds": "1",
    }
    assert body["spec"]["restartPolicy"] == "OnFailure"
    w.now += 60
    w.settle()
    assert (w.status["jobDeploymentStatus"], w.status["reason"]) == ("Failed", "DeadlineExceeded")


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"rayClusterSpec": None}, "spec.rayClusterSpec: is required"),
        ({"rayClusterSpec": {"headGroupSpec": {}}}, "spec.rayClusterSpec.headGroupSpec.template: is required"),
        (
            {"groups": [{"groupName": "a", "template": template()}, {"groupName": "a", "template": template()}]},
            "spec.rayClusterSpec.workerGroupSpecs[1].groupName: 'a' is used by another group",
        ),
        ({"groups": [{"template": template()}]}, "spec.rayClusterSpec.workerGroupSpecs[0].groupName: is required"),
        (
            {"groups": [{"groupName": "a", "replicas": -1, "template": template()}]},
            "spec.rayClusterSpec.workerGroupSpecs[0].replicas: must be a whole number, at least 0, got -1",
        ),
        (
            {"submissionMode": "Pigeon"},
            "spec.submissionMode: must be one of K8sJobMode, HTTPMode, InteractiveMode, SidecarMode, got 'Pigeon'",
        ),
        ({"clusterSelector": {"a": "b"}}, "spec.clusterSelector: is not served here: give a rayClusterSpec"),
        ({"name": "x" * 48}, "metadata.name: must have at most 47 characters"),
    ],
)
def test_malformed_jobs_name_field_and_rule(spec: dict[str, Any], complaint: str) -> None:
    w = world(**spec)
    with pytest.raises(JobInvalid) as caught:
        w.step()
    assert str(caught.value) == complaint
    assert w.status == {} and w.pods == {}
