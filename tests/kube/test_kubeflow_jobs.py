"""TFJob and PyTorchJob."""

from typing import Any

import msgspec
import pytest

from koord.kube.jobs.hints import start_hints
from koord.kube.jobs.kind import JobError, JobStatus
from koord.kube.jobs.pytorchjob import PYTORCHJOB
from koord.kube.jobs.tfjob import TFJOB
from koord.kube.meta import now_rfc3339


def replica(replicas: Any = None, **template: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"template": {"spec": {"containers": [{"name": "main"}]}, **template}}
    if replicas is not None:
        found["replicas"] = replicas
    return found


def tfjob(roles: dict[str, Any], **more: Any) -> dict[str, Any]:
    policy = more.pop("runPolicy", {"suspend": True})
    return {
        "metadata": {"name": "train", "namespace": "ml", **more.pop("metadata", {})},
        "spec": {"tfReplicaSpecs": roles, "runPolicy": policy, **more},
    }


def test_roles_come_in_order_whatever_their_case() -> None:
    job = tfjob({"worker": replica(3), "CHIEF": replica(), "Ps": replica(2)})
    sets = TFJOB.pod_sets(job)
    assert [(part.name, part.count) for part in sets] == [("chief", 1), ("ps", 2), ("worker", 3)]
    assert sets[0].template_path == ("spec", "tfReplicaSpecs", "CHIEF", "template")


def test_suspended_by_field_or_annotation() -> None:
    annotated = {"annotations": {"scheduling.x-k8s.io/suspend": "true"}}
    assert TFJOB.suspended(tfjob({}))
    assert TFJOB.suspended(tfjob({}, runPolicy={}, metadata=annotated))
    assert TFJOB.suspended(tfjob({}, runPolicy={"suspend": False}, metadata=annotated))
    assert not TFJOB.suspended(tfjob({}, runPolicy=None))
    assert TFJOB.managed(tfjob({}))
    assert not TFJOB.managed(tfjob({}, runPolicy={}))
    assert TFJOB.managed(tfjob({}, runPolicy={}), manage_all=True)
    assert TFJOB.managed(tfjob({}, runPolicy={}, metadata={"annotations": {"koord-queue/job-enqueue-timestamp": "t"}}))
    assert TFJOB.managed(tfjob({}, runPolicy={"suspend": True, "managedBy": "kubeflow.org/training-operator"}))
    assert not TFJOB.managed(tfjob({}, runPolicy={"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}))


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], JobStatus.CREATED),
        (["Created"], JobStatus.PENDING),
        (["Created", "Running"], JobStatus.RUNNING),
        (["Created", "Restarting"], JobStatus.PENDING),
        (["Created", "Running", "Succeeded"], JobStatus.SUCCEEDED),
        (["Created", "Failed"], JobStatus.FAILED),
    ],
)
def test_status_by_true_conditions(types: list[str], expected: JobStatus) -> None:
    job = tfjob({}, runPolicy={})
    job["status"] = {
        "conditions": [{"type": type_, "status": "True"} for type_ in types]
        + [{"type": "Succeeded", "status": "False"}] * ("Succeeded" not in types)
    }
    assert TFJOB.status(job) is expected
    if not expected.finished:
        job["spec"]["runPolicy"] = {"suspend": True}
        assert TFJOB.status(job) is JobStatus.QUEUING


def test_priority_sources_in_order() -> None:
    job = tfjob(
        {
            "Worker": replica(1, spec={"priority": 5}),
            "PS": replica(1, spec={"priorityClassName": "high"}),
        },
        runPolicy={"schedulingPolicy": {"priorityClass": "top"}},
    )
    sources = TFJOB.priority_sources(job)
    assert [(source.class_name, source.value) for source in sources] == [("top", None), ("high", None), ("", 5)]
    assert sources[1].field == "spec.tfReplicaSpecs.PS.template.spec.priorityClassName"


def test_gang_minimum() -> None:
    roles = {"Worker": replica(3), "PS": replica(2)}
    assert TFJOB.gang_minimum(tfjob(roles)) == 5
    assert TFJOB.gang_minimum(tfjob(roles, runPolicy={"schedulingPolicy": {"minAvailable": 4}})) == 4


def test_start_patch_and_switches() -> None:
    job = tfjob({"Worker": replica(3), "PS": replica(2, metadata={"labels": {"a": "b"}})})
    hints = start_hints(TFJOB, job, unit="ml/train-tf-qu", quota_name="vision", traceparent="tp")
    patch = TFJOB.start_patch(job, hints)
    assert patch.type == "merge"
    body = msgspec.json.decode(patch.encode())
    assert body["metadata"] == {"annotations": {"scheduling.x-k8s.io/suspend": "false"}}
    assert body["spec"]["runPolicy"] == {"suspend": False}
    worker = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"]
    assert worker == {
        "labels": {"quota.scheduling.koordinator.sh/name": "vision"},
        "annotations": {
            "koord-queue/related-queueunit": "ml/train-tf-qu",
            "koord-queue/related-podset-name": "worker",
            "koord.sh/traceparent": "tp",
            "gang.scheduling.koordinator.sh/name": "train-tf-qu",
            "gang.scheduling.koordinator.sh/min-available": "5",
        },
    }
    assert TFJOB.suspend_patch(job) == {
        "metadata": {"annotations": {"scheduling.x-k8s.io/suspend": "true"}},
        "spec": {"runPolicy": {"suspend": True}},
    }
    assert TFJOB.resume_patch(job)["spec"] == {"runPolicy": {"suspend": False}}


def test_a_gang_of_the_users_own_is_left_alone_and_the_rest_can_be_met() -> None:
    own = {
        "annotations": {
            "gang.scheduling.koordinator.sh/name": "mine",
            "gang.scheduling.koordinator.sh/min-available": "3",
        }
    }
    job = tfjob({"Worker": replica(3, metadata=own), "PS": replica(2)})
    hints = start_hints(TFJOB, job, unit="ml/train-tf-qu")
    assert "gang.scheduling.koordinator.sh/name" not in hints["worker"].annotations
    assert hints["ps"].annotations["gang.scheduling.koordinator.sh/min-available"] == "2"
    plain = start_hints(TFJOB, job, unit="ml/train-tf-qu", with_gang=False)
    assert not any("gang." in key for hint in plain.values() for key in hint.annotations)


def test_queuing_condition() -> None:
    job = tfjob({})
    job["status"] = {"conditions": [{"type": "Created", "status": "True", "reason": "TFJobCreated"}]}
    first = TFJOB.status_patch(job, queuing=True, now=1000.0)
    assert first is not None
    created, queuing = first["status"]["conditions"]
    assert created == {"type": "Created", "status": "True", "reason": "TFJobCreated"}
    assert (queuing["type"], queuing["status"], queuing["message"]) == ("Queuing", "True", "Job Enqueued")
    assert queuing["lastTransitionTime"] == now_rfc3339(1000.0)
    job["status"] = first["status"]
    assert TFJOB.status_patch(job, queuing=True, now=2000.0) is None
    second = TFJOB.status_patch(job, queuing=False, now=2000.0)
    assert second is not None
    assert [item["type"] for item in second["status"]["conditions"]] == ["Created", "Queuing"]
    assert second["status"]["conditions"][1]["message"] == "Job Dequeued"
    assert job["status"]["conditions"][1]["message"] == "Job Enqueued", "the job itself is not touched"


def test_elastic_pytorch() -> None:
    def job(policy: dict[str, Any] | None) -> dict[str, Any]:
        roles = {"Master": replica(), "Worker": replica(4)}
        return {"metadata": {"name": "t"}, "spec": {"pytorchReplicaSpecs": roles, "elasticPolicy": policy}}

    assert [part.min_count for part in PYTORCHJOB.pod_sets(job({"minReplicas": 2, "maxReplicas": 8}))] == [None, 2]
    assert PYTORCHJOB.gang_minimum(job({"minReplicas": 2, "maxReplicas": 8})) == 3
    assert [part.min_count for part in PYTORCHJOB.pod_sets(job({"maxReplicas": 3}))] == [None, 3]
    assert [part.min_count for part in PYTORCHJOB.pod_sets(job(None))] == [None, None]
    assert PYTORCHJOB.gang_minimum(job({})) == 5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"Worker": replica("x")}, 'spec.tfReplicaSpecs.Worker.replicas: must be an integer >= 0, got "x"'),
        ({"Worker": replica(-2)}, "spec.tfReplicaSpecs.Worker.replicas: must be an integer >= 0, got -2"),
        (
            {"Boss": replica()},
            "spec.tfReplicaSpecs.Boss: unknown role, must be one of Chief, Master, PS, Worker, Evaluator",
        ),
        ({"Worker": replica(), "worker": replica()}, "spec.tfReplicaSpecs.worker: the same role as Worker"),
        ({"Worker": 3}, "spec.tfReplicaSpecs.Worker: must be an object, got 3"),
        ({"Worker": {"template": []}}, "spec.tfReplicaSpecs.Worker.template: must be an object, got []"),
        ([], "spec.tfReplicaSpecs: must be an object, got []"),
        ({}, "spec.tfReplicaSpecs: must have at least one of the roles Chief, Master, PS, Worker, Evaluator"),
        ({"Worker": {"replicas": 1}}, "spec.tfReplicaSpecs.Worker.template: is required"),
    ],
)
def test_malformed_jobs_are_named(spec: Any, message: str) -> None:
    with pytest.raises(JobError) as caught:
        TFJOB.pod_sets(tfjob(spec))
    assert str(caught.value) == message


def test_pods_of_a_job() -> None:
    assert TFJOB.pod_set_of({"training.kubeflow.org/replica-type": "Worker"}) == "worker"
    assert PYTORCHJOB.pod_set_of({"pytorch-replica-type": "master"}) == "master"
    assert TFJOB.pod_set_of({}) == ""
    assert TFJOB.pod_selector(tfjob({})) == ("training.kubeflow.org/job-name", "train")
