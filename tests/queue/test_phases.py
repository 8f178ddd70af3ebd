"""The phase machine: what happens next, from what the API shows."""

import pytest

from koord.queue.backoff import RequeueState, Timeouts
from koord.queue.phases import (
    BACKOFF_OVER,
    CHARGED,
    DEACTIVATED,
    REACTIVATED,
    RUNNING_TIMEOUT,
    SUSPENDED_AGAIN,
    SUSPENDED_BY_USER,
    TIME_EXCEEDED,
    Charge,
    Deactivate,
    Evict,
    Exceeded,
    JobFacts,
    MarkDequeued,
    Move,
    NewTrace,
    Queue,
    Remove,
    Resume,
    Step,
    Suspend,
    UnitFacts,
    Wait,
    next_step,
)

T1, T2 = "2026-03-02T09:00:00Z", "2026-03-02T09:05:00Z"
HELD = JobFacts("j", "Queuing", suspended=True)
PENDING = JobFacts("j", "Pending", suspended=False, dequeued=T1)
RUNS = JobFacts("j", "Running", suspended=False, dequeued=T1)
NONE = Timeouts()


def unit(phase: str, **more: object) -> UnitFacts:
    return UnitFacts(phase, "j", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "job", "step"),
    [
        (unit("Enqueued"), HELD, Queue()),
        (unit("Enqueued", active=False), HELD, Wait()),
        (unit("Enqueued"), PENDING, Charge()),
        (unit("Enqueued", allocated=T1), HELD, NewTrace()),
        (unit("Enqueued", allocated=T1, trace_after=T1), HELD, Queue()),
        (unit("Dequeued", allocated=T1), HELD, Resume()),
        (unit("Dequeued", allocated=T2, trace_after=T1), JobFacts("j", "Queuing", True, T1), Resume()),
        (unit("Dequeued", allocated=T1), PENDING, Wait()),
        (unit("Dequeued", allocated=T1), RUNS, Move("Running", "Running")),
        (unit("Dequeued", allocated=T2), RUNS, MarkDequeued()),
        (unit("Running", allocated=T1), RUNS, Wait()),
        (unit("Running", allocated=T1), PENDING, Wait()),
        (
            unit("Running", allocated=T1),
            JobFacts("j", "Queuing", True, T1),
            Move("Enqueued", SUSPENDED_BY_USER, release=True),
        ),
        (unit("Running"), JobFacts("j", "Succeeded", False), Move("Succeed", "Succeeded", release=True)),
        (unit("Enqueued"), JobFacts("j", "Failed", True), Move("Failed", "Failed", release=True)),
        (unit("Succeed"), JobFacts("j", "Succeeded", False), Wait()),
        (unit("Running"), None, Remove()),
        (unit("Succeed"), None, Remove()),
        (unit("Running"), JobFacts("another", "Running", False), Remove()),
    ],
)
def test_steps(state: UnitFacts, job: JobFacts | None, step: Step) -> None:
    assert next_step(state, job, 100.0, NONE) == step


def test_pending_too_long_falls_back() -> None:
    state = unit("Dequeued", allocated=T1, last_update_s=100.0)
    limits = Timeouts(running=60.0, backoff=60.0)
    assert next_step(state, PENDING, 130.0, limits) == Wait(160.0)
    assert next_step(state, PENDING, 160.0, limits) == Move(
        "TimeoutBackoff", RUNNING_TIMEOUT, release=True, requeue=RequeueState(1, 220.0)
    )
    assert next_step(state, PENDING, 160.0, limits, doubling=False) == Move(
        "TimeoutBackoff", RUNNING_TIMEOUT, release=True
    )


def test_suspended_again_falls_back() -> None:
    state = unit("Dequeued", allocated=T1, requeue_count=2, requeue_at_s=1.0)
    step = next_step(state, JobFacts("j", "Queuing", True, T1), 100.0, NONE)
    assert step == Move("TimeoutBackoff", SUSPENDED_AGAIN, release=True, requeue=RequeueState(3, 140.0))


def test_the_way_back() -> None:
    state = unit("TimeoutBackoff", allocated=T1, requeue_count=1, requeue_at_s=200.0)
    assert next_step(state, PENDING, 150.0, NONE) == Suspend()
    assert next_step(state, JobFacts("j", "Queuing", True, T1), 150.0, NONE) == Suspend()
    assert next_step(state, HELD, 150.0, NONE) == Wait(200.0)
    assert next_step(state, HELD, 200.0, NONE) == Move(
        "Enqueued", BACKOFF_OVER, release=True, requeue=RequeueState(1, 200.0)
    )
    by_hand = JobFacts("j", "Pending", suspended=False)
    assert next_step(state, by_hand, 150.0, NONE) == Charge()


def test_flat_backoff_counts_from_the_last_update() -> None:
    state = unit("TimeoutBackoff", last_update_s=100.0)
    assert next_step(state, HELD, 130.0, Timeouts(backoff=60.0)) == Wait(160.0)
    assert isinstance(next_step(state, HELD, 160.0, Timeouts(backoff=60.0)), Move)
    assert isinstance(next_step(state, HELD, 100.0, NONE), Move)


def test_a_unit_without_an_owner_uid_follows_the_job_of_its_name() -> None:
    assert next_step(UnitFacts("Enqueued", ""), HELD, 0.0, NONE) == Queue()


FREE = JobFacts("j", "Queuing", suspended=True)
BY_HAND = JobFacts("j", "Pending", suspended=False)
OUT = "MaximumExecutionTimeExceeded"


@pytest.mark.parametrize(
    ("state", "job", "step"),
    [
        (unit("Running", allocated=T1, active=False), RUNS, Suspend()),
        (unit("Dequeued", allocated=T1, active=False), HELD, Evict("Deactivated", DEACTIVATED)),
        (unit("Running", allocated=T1, active=False), FREE, Evict("Deactivated", DEACTIVATED)),
        (unit("Running", active=False, reclaiming=True), BY_HAND, Wait()),
        (unit("Running", active=False), JobFacts("j", "Failed", False), Move("Failed", "Failed", release=True)),
        (unit("Running", ends_at_s=101.0), BY_HAND, Wait(101.0)),
        (unit("Running", ends_at_s=100.0), BY_HAND, Exceeded()),
        (unit("Running", evicted=OUT), BY_HAND, Deactivate()),
        (unit("Running", evicted=OUT, active=False), BY_HAND, Suspend()),
        (unit("Running", evicted=OUT, active=False), FREE, Evict(OUT, TIME_EXCEEDED)),
        (unit("Enqueued", evicted=OUT, active=False, allocated=T1), FREE, Wait()),
        (unit("Enqueued", evicted=OUT, allocated=T1), FREE, Move("Enqueued", REACTIVATED)),
        (unit("Enqueued", draining=True, active=False), BY_HAND, Suspend()),
        (unit("Enqueued", draining=True), BY_HAND, Move("Dequeued", CHARGED)),
        (unit("Enqueued", active=False), BY_HAND, Charge()),
    ],
)
def test_deactivation(state: UnitFacts, job: JobFacts, step: Step) -> None:
    assert next_step(state, job, 100.0, NONE) == step
