"""Decisions of the training operator, without any server."""

from typing import Any

import pytest

from koord.localcluster.operators.kubeflow import PYTORCHJOB, TFJOB, KubeflowOperator
from koord.localcluster.operators.plan import JobInvalid
from tests.localcluster.operators.manifests import World, kubeflow_job, template


def role(replicas: int | None = 1, policy: str = "", **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": template(), **more}
    if replicas is not None:
        spec["replicas"] = replicas
    if policy:
        spec["restartPolicy"] = policy
    return spec


def tf(roles: dict[str, Any], **run_policy: Any) -> World:
    return World(KubeflowOperator(TFJOB), kubeflow_job("TFJob", roles, **run_policy))


def torch(roles: dict[str, Any], **run_policy: Any) -> World:
    return World(KubeflowOperator(PYTORCHJOB), kubeflow_job("PyTorchJob", roles, **run_policy))


def test_pods_names_labels_and_policies() -> None:
    w = torch({"Master": role(None), "worker": role(2, "ExitCode")})
    w.settle()
    assert w.names() == ["job-master-0", "job-worker-0", "job-worker-1"]
    master = w.bodies["job-master-0"]
    assert master["metadata"]["labels"] == {
        "app": "x",
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    assert master["metadata"]["annotations"] == {"team.example.com/note": "kept"}
    assert master["spec"]["restartPolicy"] == "OnFailure"
    worker = w.bodies["job-worker-1"]
    assert "training.kubeflow.org/job-role" not in worker["metadata"]["labels"]
    assert worker["spec"]["restartPolicy"] == "Never"
    assert w.conditions() == {"Created": "True"}
    assert w.status["startTime"] == w.stamp()


def test_a_pytorchjob_follows_its_master() -> None:
    w = torch({"Master": role(), "Worker": role(2)})
    w.settle()
    w.phase("Running", ["job-worker-0"])
    w.settle()
    assert "Running" not in w.conditions()
    w.phase("Running")
    w.settle()
    assert w.conditions() == {"Created": "True", "Running": "True"}
    assert w.status["replicaStatuses"]["Worker"]["active"] == 2
    w.phase("Succeeded", ["job-master-0"])
    w.settle()
    assert w.conditions() == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert w.status["completionTime"] == w.stamp()
    counts = w.status["replicaStatuses"]
    assert (counts["Master"]["succeeded"], counts["Worker"]["active"], counts["Worker"]["succeeded"]) == (1, 0, 2)
    assert w.names() == ["job-master-0", "job-worker-0", "job-worker-1"], "cleanPodPolicy is None unless said"


def test_a_pytorchjob_without_master_needs_all_workers() -> None:
    w = torch({"Worker": role(2)})
    w.settle()
    w.phase("Succeeded", ["job-worker-0"])
    w.settle()
    assert "Succeeded" not in w.conditions()
    w.phase("Succeeded")
    w.settle()
    assert w.conditions()["Succeeded"] == "True"


@pytest.mark.parametrize(
    ("roles", "policy", "succeeding", "done"),
    [
        ({"Chief": role(), "Worker": role(2)}, "", ["job-worker-0", "job-worker-1"], False),
        ({"Chief": role(), "Worker": role(2)}, "", ["job-chief-0"], True),
        ({"Master": role(), "PS": role(2)}, "", ["job-master-0"], True),
        ({"PS": role(1), "Worker": role(2)}, "", ["job-worker-0"], True),
        ({"PS": role(1), "Worker": role(2)}, "", ["job-worker-1"], False),
        ({"PS": role(1), "Worker": role(2)}, "AllWorkers", ["job-worker-0"], False),
        ({"PS": role(1), "Worker": role(2)}, "AllWorkers", ["job-worker-0", "job-worker-1"], True),
    ],
)
def test_when_a_tfjob_has_succeeded(roles: dict[str, Any], policy: str, succeeding: list[str], done: bool) -> None:
    w = tf(roles)
    w.set(successPolicy=policy)
    w.settle()
    w.phase("Running")
    w.phase("Succeeded", succeeding)
    w.settle()
    assert (w.conditions().get("Succeeded") == "True") is done


@pytest.mark.parametrize(
    ("policy", "left"),
    [("None", ["job-chief-0", "job-ps-0", "job-worker-0"]), ("Running", ["job-chief-0"]), ("All", [])],
)
def test_clean_pod_policy(policy: str, left: list[str]) -> None:
    w = tf({"Chief": role(), "PS": role(), "Worker": role()}, cleanPodPolicy=policy)
    w.settle()
    w.phase("Running", ["job-ps-0"])
    w.phase("Succeeded", ["job-chief-0"])
    w.settle()
    assert w.names() == left


def test_suspend_and_resume() -> None:
    w = torch({"Master": role(), "Worker": role(1)}, suspend=True)
    w.settle()
    assert w.pods == {}
    assert w.conditions() == {"Created": "True", "Suspended": "True"}
    assert "startTime" not in w.status
    w.set(runPolicy={"suspend": False})
    w.now += 9
    w.settle()
    assert w.names() == ["job-master-0", "job-worker-0"]
    assert w.conditions()["Suspended"] == "False" and w.status["startTime"] == w.stamp()
    w.phase("Running")
    w.settle()
    w.set(runPolicy={"suspend": True})
    w.settle()
    assert w.pods == {}
    assert w.conditions() == {"Created": "True", "Running": "False", "Suspended": "True"}
    reasons = {condition["type"]: condition["reason"] for condition in w.status["conditions"]}
    assert reasons["Suspended"] == "PyTorchJobSuspended"
    w.set(runPolicy={})
    w.settle()
    w.phase("Running")
    w.settle()
    assert w.conditions()["Running"] == "True"


def test_a_lost_pod_comes_back_under_its_name() -> None:
    w = torch({"Master": role(), "Worker": role(2)})
    w.settle()
    w.phase("Running")
    w.vanish("job-worker-1")
    w.settle()
    assert w.names() == ["job-master-0", "job-worker-0", "job-worker-1"]
    assert w.pods["job-worker-1"].phase == "Pending"


def test_a_pod_being_deleted_blocks_its_name() -> None:
    w = torch({"Worker": role(1)})
    w.settle()
    w.pods["job-worker-0"] = w.pods["job-worker-0"]._replace(deleting=True)
    assert w.step().create == []


@pytest.mark.parametrize(
    ("policy", "exit_code", "outcome"),
    [
        ("Never", 1, "Failed"),
        ("ExitCode", 1, "Failed"),
        ("ExitCode", 130, "Restarting"),
        ("OnFailure", 1, "Restarting"),
        ("Always", 1, "Restarting"),
    ],
)
def test_a_failed_pod_ends_the_job_or_is_started_again(policy: str, exit_code: int, outcome: str) -> None:
    w = tf({"Worker": role(2, policy)})
    w.settle()
    w.phase("Running")
    w.settle()
    w.phase("Failed", ["job-worker-1"], exit_code=exit_code)
    w.step()
    conditions = w.conditions()
    assert conditions[outcome] == "True"
    if outcome == "Failed":
        assert conditions["Running"] == "False" and w.status["completionTime"] == w.stamp()
    else:
        assert "Running" not in conditions
        w.settle()
        assert w.pods["job-worker-1"].phase == "Pending"
        assert "Restarting" not in w.conditions() and w.conditions()["Running"] == "True"


def test_the_backoff_limit_counts_restarts() -> None:
    w = tf({"Worker": role(1, "OnFailure")}, backoffLimit=1)
    w.settle()
    w.phase("Failed")
    w.settle()
    assert "Failed" not in w.conditions()
    w.phase("Failed")
    w.settle()
    assert w.conditions()["Failed"] == "True"


def test_deadline_ttl_scale_down_and_foreign_managers() -> None:
    w = tf({"Worker": role(3)}, activeDeadlineSeconds=60, ttlSecondsAfterFinished=5)
    w.settle()
    w.set(tfReplicaSpecs={"Worker": role(1)})
    w.settle()
    assert w.names() == ["job-worker-0"]
    w.now += 60
    w.settle()
    assert w.conditions()["Failed"] == "True"
    w.now += 5
    w.step()
    assert w.deleted_job
    foreign = tf({"Worker": role()}, managedBy="kueue.x-k8s.io/multikueue")
    foreign.settle()
    assert foreign.pods == {}


@pytest.mark.parametrize(
    ("roles", "complaint"),
    [
        ({}, "spec.tfReplicaSpecs: must have at least one of the roles Chief, Master, PS, Worker, Evaluator"),
        ({"Helper": role()}, "spec.tfReplicaSpecs.Helper: is no role of a TFJob: Chief, Master, PS, Worker, Evaluator"),
        ({"Worker": role(), "WORKER": role()}, "spec.tfReplicaSpecs.WORKER: is the same role as Worker"),
        ({"Chief": role(2)}, "spec.tfReplicaSpecs.Chief.replicas: must be 1 for Chief, got 2"),
        ({"Worker": role(-1)}, "spec.tfReplicaSpecs.Worker.replicas: must be a whole number, at least 0, got -1"),
        ({"Worker": {"replicas": 1}}, "spec.tfReplicaSpecs.Worker.template: is required"),
        ({"Worker": 3}, "spec.tfReplicaSpecs.Worker: must be an object, got 3"),
        (
            {"Worker": role(1, "Perhaps")},
            "spec.tfReplicaSpecs.Worker.restartPolicy: "
            "must be one of Always, OnFailure, Never, ExitCode, got 'Perhaps'",
        ),
    ],
)
def test_malformed_jobs_name_field_and_rule(roles: dict[str, Any], complaint: str) -> None:
    w = tf(roles)
    with pytest.raises(JobInvalid) as caught:
        w.step()
    assert str(caught.value) == complaint
    assert w.status == {} and w.pods == {}
