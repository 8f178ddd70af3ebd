"""Decisions of the Job controller, without any server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.localcluster.operators.batchjob import JobOperator
from koord.localcluster.operators.indexes import format_indexes, parse_indexes
from koord.localcluster.operators.plan import JobInvalid
from tests.localcluster.operators.manifests import World, batch_job, template


def world(**spec: Any) -> World:
    return World(JobOperator(backoff_s=1.0), batch_job(**spec))


def test_a_job_runs_to_completion() -> None:
    w = world(parallelism=2, completions=3)
    w.settle()
    assert len(w.pods) == 2
    body = next(iter(w.bodies.values()))
    assert body["metadata"]["labels"] == {
        "app": "x",
        "batch.kubernetes.io/controller-uid": "uid-of-job",
        "batch.kubernetes.io/job-name": "job",
        "controller-uid": "uid-of-job",
        "job-name": "job",
    }
    assert body["metadata"]["annotations"] == {"team.example.com/note": "kept"}
    assert body["metadata"]["ownerReferences"][0]["controller"] is True
    w.phase("Running")
    w.settle()
    assert (w.status["active"], w.status["ready"], w.status["startTime"]) == (2, 2, w.stamp())
    w.phase("Succeeded")
    w.settle()
    assert (w.status["succeeded"], w.status["active"], len(w.pods)) == (2, 1, 3)
    w.phase("Succeeded")
    w.settle()
    assert w.conditions() == {"SuccessCriteriaMet": "True", "Complete": "True"}
    assert w.status["completionTime"] == w.stamp()
    assert (w.status["succeeded"], w.status["active"]) == (3, 0)


def test_pods_count_as_active_from_the_step_that_makes_them() -> None:
    """They may wait for a node for hours, and nothing of that is an occasion to count again."""
    w = world(parallelism=2, completions=3)
    w.step()
    assert (len(w.pods), w.status["active"], w.status["ready"]) == (2, 2, 0)


def test_a_suspended_job_has_no_pods_and_resumes() -> None:
    w = world(parallelism=2, suspend=True)
    w.settle()
    assert w.pods == {} and "startTime" not in w.status
    assert w.conditions() == {"Suspended": "True"}
    w.set(suspend=False)
    w.now += 60
    w.settle()
    assert len(w.pods) == 2 and w.status["startTime"] == w.stamp()
    assert w.conditions() == {"Suspended": "False"}
    w.phase("Running")
    w.set(suspend=True)
    plan = w.step()
    assert len(plan.delete) == 2
    assert (w.status["active"], w.status["terminating"]) == (0, 2)
    w.settle()
    assert w.pods == {}
    assert w.status.get("failed", 0) == 0, "pods taken by a suspension have not failed"
    w.set(suspend=False)
    w.settle()
    assert len(w.pods) == 2


def test_a_lost_pod_counts_as_failed_and_is_replaced_after_a_wait() -> None:
    w = world(parallelism=1, completions=1)
    w.settle()
    w.phase("Running")
    w.vanish(*w.names())
    plan = w.step()
    assert plan.create == [] and plan.again_s == pytest.approx(1.0)
    assert w.status["failed"] == 1
    w.now += 1.0
    w.settle()
    assert len(w.pods) == 1


def test_the_wait_doubles_with_every_failure() -> None:
    w = world(parallelism=1, backoffLimit=6)
    waits = []
    for _ in range(4):
        w.settle()
        w.phase("Failed", [name for name, pod in w.pods.items() if pod.phase == "Pending"])
        plan = w.step()
        assert plan.again_s is not None
        waits.append(plan.again_s)
        w.now += plan.again_s
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_too_many_failures_end_the_job() -> None:
    w = world(parallelism=3, completions=3, backoffLimit=1)
    w.settle()
    first, second, third = w.names()
    w.phase("Failed", [first, second])
    w.phase("Running", [third])
    plan = w.step()
    assert [pod.name for pod in plan.delete] == [third] and plan.create == []
    assert w.conditions() == {"FailureTarget": "True"}, "it waits for the pods to end"
    w.settle()
    assert w.conditions() == {"FailureTarget": "True", "Failed": "True"}
    assert "completionTime" not in w.status
    reasons = {condition["reason"] for condition in w.status["conditions"]}
    assert reasons == {"BackoffLimitExceeded"}
    assert w.status["failed"] == 2


def test_a_deadline_ends_the_job() -> None:
    w = world(parallelism=1, activeDeadlineSeconds=30)
    plan = w.step()
    assert plan.again_s == 30
    w.now += 30
    w.settle()
    assert w.conditions()["Failed"] == "True"
    assert w.status["conditions"][-1]["reason"] == "DeadlineExceeded"


def test_indexes_run_once_each() -> None:
    w = world(parallelism=2, completions=4, completionMode="Indexed", backoffLimit=6)
    w.settle()
    assert sorted(name.rsplit("-", 1)[0] for name in w.names()) == ["job-0", "job-1"]
    body = next(iter(w.bodies.values()))
    assert body["spec"]["hostname"] == "job-0"
    assert body["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert body["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    w.phase("Succeeded", [name for name in w.names() if name.startswith("job-1-")])
    w.phase("Failed", [name for name in w.names() if name.startswith("job-0-")])
    w.now += 10
    w.settle()
    active = sorted(name.rsplit("-", 1)[0] for name, pod in w.pods.items() if pod.active)
    assert active == ["job-0", "job-2"]
    assert w.status["completedIndexes"] == "1"
    for _ in range(3):
        w.phase("Succeeded", [name for name, pod in w.pods.items() if pod.active])
        w.settle()
    assert w.status["completedIndexes"] == "0-3"
    assert w.conditions()["Complete"] == "True"


def test_a_vanished_success_still_counts_also_for_a_new_operator() -> None:
    w = world(parallelism=1, completions=2)
    w.settle()
    w.phase("Succeeded")
    w.settle()
    done = [name for name, pod in w.pods.items() if pod.phase == "Succeeded"]
    w.vanish(*done)
    w.settle()
    assert w.status["succeeded"] == 1
    w.gone.clear()
    w.settle()
    assert w.status["succeeded"] == 1 and len(w.pods) == 1


def test_a_work_queue_ends_with_its_last_pod() -> None:
    w = World(JobOperator(), batch_job(parallelism=3))
    w.settle()
    a, b, c = w.names()
    w.phase("Succeeded", [a])
    w.settle()
    assert len(w.pods) == 3 and "Complete" not in w.conditions()
    w.phase("Succeeded", [b, c])
    w.settle()
    assert w.conditions()["Complete"] == "True"


def test_fewer_wanted_means_the_least_far_go() -> None:
    w = world(parallelism=3, completions=9)
    w.settle()
    w.phase("Running", w.names()[:1])
    w.set(parallelism=1)
    plan = w.step()
    assert sorted(pod.name for pod in plan.delete) == w.names()[1:]


def test_ttl_and_foreign_managers() -> None:
    w = world(ttlSecondsAfterFinished=5)
    w.settle()
    w.phase("Succeeded")
    w.settle()
    plan = w.step()
    assert (plan.again_s, plan.delete_job) == (5, False)
    w.now += 5
    assert w.step().delete_job
    foreign = world(managedBy="kueue.x-k8s.io/multikueue")
    foreign.settle()
    assert foreign.pods == {} and foreign.status == {}


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"parallelism": -1}, "spec.parallelism: must be a whole number, at least 0, got -1"),
        ({"parallelism": "2"}, "spec.parallelism: must be a whole number, at least 0, got '2'"),
        ({"parallelism": True}, "spec.parallelism: must be a whole number, at least 0, got True"),
        ({"completionMode": "Sometimes"}, "spec.completionMode: must be one of NonIndexed, Indexed, got 'Sometimes'"),
        ({"completionMode": "Indexed"}, "spec.completions: is required when completionMode is Indexed"),
        ({"suspend": "yes"}, "spec.suspend: must be true or false, got 'yes'"),
        ({"of": {"spec": {}}}, "spec.template.spec.containers: must have at least one container"),
        ({"of": {"metadata": 7, "spec": {}}}, "spec.template.metadata: must be an object, got 7"),
        (
            {"of": {**template(), "metadata": {"labels": {"a": 1}}}},
            "spec.template.metadata.labels: must map strings to strings",
        ),
    ],
)
def test_malformed_jobs_name_field_and_rule(spec: dict[str, Any], complaint: str) -> None:
    w = world(**spec)
    with pytest.raises(JobInvalid) as caught:
        w.step()
    assert str(caught.value) == complaint
    assert w.status == {} and w.pods == {}


@given(st.sets(st.integers(0, 200)))
def test_indexes_are_written_and_read_back(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes), 201) == indexes


@given(st.text(alphabet="0123456789-, x", max_size=40))
def test_any_text_of_indexes_can_be_read(text: str) -> None:
    assert all(0 <= index < 1000 for index in parse_indexes(text, 1000))


def test_index_ranges_as_kubernetes_writes_them() -> None:
    assert format_indexes({0, 1, 2, 5, 7, 8}) == "0-2,5,7,8"
    assert parse_indexes("1,3-5, x,9-7,-2,8-", 100) == {1, 3, 4, 5}
    assert parse_indexes("0-99999999999", 3) == {0, 1, 2}


@pytest.mark.parametrize("policy", ["", "TerminatingOrFailed", "Failed"])
def test_a_pod_deleted_by_hand_is_a_failure_as_the_real_controller_counts_it(policy: str) -> None:
    """At once and replaced at once; with podReplacementPolicy Failed once it is gone."""
    w = world(parallelism=2, completions=2, **({"podReplacementPolicy": policy} if policy else {}))
    w.settle()
    w.phase("Running")
    w.step()
    victim = w.names()[0]
    w.pods[victim] = w.pods[victim]._replace(deleting=True)
    w.now += 5
    w.step()
    patient = policy == "Failed"
    assert w.status.get("failed", 0) == (0 if patient else 1)
    w.now += 5
    w.step()
    assert len(w.pods) == (2 if patient else 3), "a replacement before the end of the old one, or not"
    w.vanish(victim)
    w.now += 5
    w.settle()
    w.now += 5
    w.settle()
    assert w.status["failed"] == 1
    assert len(w.pods) == 2
    w.phase("Succeeded")
    w.settle()
    assert w.conditions()["Complete"] == "True"
