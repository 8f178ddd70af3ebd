"""batch Job: who is managed, how many pods, progress, and one patch that starts it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.jobs.batchjob import BatchJob
from koord.kube.jobs.hints import start_hints
from koord.kube.jobs.indexes import count_indexes
from koord.kube.jobs.kind import JobError, JobStatus

KIND = BatchJob()


def job(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", **metadata},
        "spec": {"suspend": True, "template": {"spec": {"containers": [{"name": "main"}]}}, **(spec or {})},
        "status": status or {},
    }


def owner(kind: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "x/v1", "kind": kind, "name": "o", "uid": "1", "controller": True}]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (job(), True),
        (job({"suspend": False}), False),
        (job({"suspend": None}), False),
        (job(status={"startTime": "2026-03-02T09:00:00Z"}), False),
        (job({"suspend": False}, annotations={"koord-queue/job-has-enqueued": "true"}), True),
        (job({"managedBy": "kubernetes.io/job-controller"}), True),
        (job({"managedBy": "kueue.x-k8s.io/multikueue"}), False),
        (job(ownerReferences=owner("JobSet")), False),
        (job(ownerReferences=owner("RayJob")), False),
        (job(ownerReferences=owner("CronJob")), True),
        (job(ownerReferences=[{**owner("JobSet")[0], "controller": False}]), True),
    ],
)
def test_managed(case: dict[str, Any], expected: bool) -> None:
    assert KIND.managed(case) is expected


def test_manage_all_takes_what_runs_but_never_what_is_foreign() -> None:
    assert KIND.managed(job({"suspend": False}), manage_all=True)
    assert not KIND.managed(job({"managedBy": "kueue.x-k8s.io/multikueue"}), manage_all=True)


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, JobStatus.QUEUING),
        ({"suspend": False}, {}, JobStatus.CREATED),
        ({"suspend": False}, {"startTime": "t", "active": 2}, JobStatus.PENDING),
        ({"suspend": False}, {"startTime": "t", "active": 2, "ready": 1}, JobStatus.RUNNING),
        ({"suspend": False}, {"startTime": "t", "active": 2, "ready": 0, "succeeded": 1}, JobStatus.RUNNING),
        ({"suspend": False}, {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, JobStatus.CREATED),
        ({"suspend": False}, {"conditions": [{"type": "Complete", "status": "True"}]}, JobStatus.SUCCEEDED),
        ({"suspend": False}, {"conditions": [{"type": "Failed", "status": "True"}]}, JobStatus.FAILED),
        ({"suspend": False}, {"conditions": [{"type": "Failed", "status": "False"}]}, JobStatus.CREATED),
    ],
)
def test_status(spec: dict[str, Any], status: dict[str, Any], expected: JobStatus) -> None:
    assert KIND.status(job(spec, status)) is expected
    assert expected.finished is (expected in ("Succeeded", "Failed"))


def test_absent_numbers_have_their_defaults() -> None:
    assert [part.count for part in KIND.pod_sets(job())] == [1]
    assert [part.count for part in KIND.pod_sets(job({"parallelism": None, "completions": 5}))] == [1]
    assert [part.count for part in KIND.pod_sets(job({"parallelism": 0}))] == [0]
    assert [part.count for part in KIND.pod_sets(job({"parallelism": 3}, {"succeeded": 1}))] == [2]


def test_gang_is_what_runs_at_once_and_none_for_waves() -> None:
    assert KIND.gang_minimum(job({"parallelism": 4})) == 4
    assert KIND.gang_minimum(job({"parallelism": 8, "completions": 3})) == 3
    assert KIND.gang_minimum(job({"parallelism": 4, "completions": 10})) is None


def test_pod_set_is_named_by_the_job_as_a_label() -> None:
    assert KIND.pod_sets(job(name="My.Job"))[0].name.startswith("my-job-")
    name = KIND.pod_sets(job(name="j" * 70))[0].name
    assert len(name) == 63
    assert KIND.pod_set_of({"batch.kubernetes.io/job-name": "j"}) == "j"
    assert KIND.pod_set_of({"job-name": "j"}) == "j"
    assert KIND.pod_set_of({}) == ""
    assert KIND.pod_selector(job()) == ("batch.kubernetes.io/job-name", "j")


def test_one_patch_annotates_and_resumes() -> None:
    case = job({"parallelism": 2})
    hints = start_hints(KIND, case, unit="ns/j", quota_name="vision", traceparent="00-aa-bb-01")
    patch = KIND.start_patch(case, hints, {"koord-queue/job-dequeue-timestamp": "2026-03-02T09:00:00Z"})
    assert patch.type == "merge"
    assert patch.body == {
        "metadata": {"annotations": {"koord-queue/job-dequeue-timestamp": "2026-03-02T09:00:00Z"}},
        "spec": {
            "suspend": False,
            "template": {
                "metadata": {
                    "labels": {"quota.scheduling.koordinator.sh/name": "vision"},
                    "annotations": {
                        "koord-queue/related-queueunit": "ns/j",
                        "koord-queue/related-podset-name": "j",
                        "koord.sh/traceparent": "00-aa-bb-01",
                        "gang.scheduling.koordinator.sh/name": "j",
                        "gang.scheduling.koordinator.sh/min-available": "2",
                    },
                }
            },
        },
    }


def test_the_template_of_a_started_job_is_left_alone() -> None:
    case = job({"parallelism": 2}, {"startTime": "2026-03-02T09:00:00Z"})
    hints = start_hints(KIND, case, unit="ns/j")
    assert KIND.annotate_templates(case, hints) is None
    assert KIND.start_patch(case, hints).body == {"spec": {"suspend": False}}


def test_gang_and_quota_of_the_template_win() -> None:
    metadata = {
        "labels": {"pod-group.scheduling.sigs.k8s.io": "mine", "quota.scheduling.koordinator.sh/name": "own"},
        "annotations": {"koord-queue/related-queueunit": "ns/j"},
    }
    case = job({"parallelism": 2, "template": {"metadata": metadata, "spec": {}}})
    patch = KIND.annotate_templates(case, start_hints(KIND, case, unit="ns/j", quota_name="vision"))
    assert patch is not None
    assert patch.body == {"spec": {"template": {"metadata": {"annotations": {"koord-queue/related-podset-name": "j"}}}}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"parallelism": "x"}, 'spec.parallelism: must be an integer >= 0, got "x"'),
        ({"parallelism": -1}, "spec.parallelism: must be an integer >= 0, got -1"),
        ({"parallelism": True}, "spec.parallelism: must be an integer >= 0, got true"),
        ({"parallelism": 1.5}, "spec.parallelism: must be an integer >= 0, got 1.5"),
        ({"parallelism": 2**31}, "spec.parallelism: must be at most 2147483647, got 2147483648"),
        ({"completions": [1]}, "spec.completions: must be an integer >= 0, got [1]"),
        ({"template": "none"}, 'spec.template: must be an object, got "none"'),
        ({"suspend": "yes"}, 'spec.suspend: must be true or false, got "yes"'),
        ({"template": {"metadata": {"labels": {"a": 1}}}}, "spec.template.metadata.labels[a]: must be a string, got 1"),
    ],
)
def test_malformed_jobs_are_named(spec: dict[str, Any], message: str) -> None:
    case = job(spec)
    with pytest.raises(JobError) as caught:
        KIND.suspended(case)
        start_hints(KIND, case, unit="ns/j")
    assert str(caught.value) == message
    assert message == f"{caught.value.field}: {caught.value.rule}"


def test_switches() -> None:
    assert KIND.resume_patch(job()) == {"spec": {"suspend": False}}
    assert KIND.suspend_patch(job()) == {"spec": {"suspend": True}}
    assert KIND.status_patch(job(), queuing=True, now=0.0) is None


def test_the_start_of_a_job_that_waits_again_is_taken_off_once_its_pods_are_stopped() -> None:
    """Its template may then be changed for the next attempt, on every release."""
    stopped = {"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]}
    running = {"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "False"}]}
    assert KIND.status_patch(job(status=stopped), queuing=True, now=0.0) == {"status": {"startTime": None}}
    assert KIND.status_patch(job(status=stopped), queuing=False, now=0.0) is None
    assert KIND.status_patch(job({"suspend": False}, stopped), queuing=True, now=0.0) is None
    assert KIND.status_patch(job(status=running), queuing=True, now=0.0) is None
    waits = job(status={**stopped, "startTime": None})
    hints = start_hints(KIND, waits, unit="ns/j")
    assert KIND.annotate_templates(job(status=stopped), hints) is None
    assert KIND.annotate_templates(waits, hints) is not None


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6), st.integers(0, 25))
def test_indexes_are_counted_once_and_below_the_limit(spans: list[tuple[int, int]], below: int) -> None:
    text = ",".join(f"{first}-{last}" if first != last else str(first) for first, last in spans)
    expected = {index for first, last in spans for index in range(first, last + 1) if index < below}
    assert count_indexes(text, below) == len(expected)


def test_odd_index_texts_are_ignored() -> None:
    assert count_indexes("", 5) == 0
    assert count_indexes("a,1,,2-,-3,4-x, 3", 5) == 1
    assert count_indexes("0-2147483647", 2**31 - 1) == 2**31 - 1
