"""The phase machine of a QueueUnit as one pure function of what the API shows (spec 70 sections 3.5, 4).

It is level driven: the same unit and job always give the same next step, so a crash between two writes is repaired by
looking again. Two marks on the objects tell apart what would otherwise look the same:

* the job's ``koord-queue/job-dequeue-timestamp`` equals the unit's ``lastAllocateTime`` once the job was resumed for
  that admission: a job found suspended with the mark was suspended again by somebody, without it it is not resumed yet;
* the unit's ``koord.sh/trace-after`` equals ``lastAllocateTime`` of the attempt before, once a new trace was begun.
"""

from typing import Literal

import msgspec

from koord.queue.backoff import RequeueState, Timeouts, due_at, next_requeue

Phase = Literal["Enqueued", "Dequeued", "Running", "Succeed", "Failed", "TimeoutBackoff"]

ADMITTED_PHASES = frozenset(("Reserved", "Dequeued", "SchedReady", "SchedSucceed", "Running"))
FINAL_PHASES = frozenset(("Succeed", "Failed"))

DEACTIVATION = "Deactivated"
MAX_EXECUTION_TIME = "MaximumExecutionTimeExceeded"
"""Reasons of condition Evicted."""

BACKOFF_OVER = "Enqueued because backoff timeout"
RUNNING_TIMEOUT = "Backoff due to running timeout"
SUSPENDED_AGAIN = "Backoff because the job was suspended again"
SUSPENDED_BY_USER = "Enqueued because the running job was suspended"
DEQUEUED = "Dequeued because schedule successfully"
CHARGED = "Dequeued because the job runs outside the queue"
DEACTIVATED = "Evicted because the queue unit is deactivated"
TIME_EXCEEDED = "Evicted because the maximum execution time was exceeded"
REACTIVATED = "Enqueued because the queue unit is active again"


class UnitFacts(msgspec.Struct, frozen=True):
    """What the machine reads of a unit. Times in seconds since the epoch, marks as the texts the API shows.

    ``owner_uid``: uid of the job that owns it. ``allocated``: text of lastAllocateTime. ``trace_after``: the mark.
    ``requeue_at_s`` and ``requeue_count``: status.requeueState, None and 0 without one.
    ``draining``: Enqueued again, and its admissions stand until its pods are gone. ``reclaiming``: replicas of it are
    being taken back. ``evicted``: reason of condition Evicted while that is True. ``ends_at_s``: when its longest
    execution time is over, None while it does not run or without a limit.
    """

    phase: str
    owner_uid: str
    allocated: str = ""
    trace_after: str = ""
    last_update_s: float = 0.0
    requeue_at_s: float | None = None
    requeue_count: int = 0
    active: bool = True
    draining: bool = False
    reclaiming: bool = False
    evicted: str = ""
    ends_at_s: float | None = None


class JobFacts(msgspec.Struct, frozen=True):
    """What the machine reads of a job.

    ``status``: Created, Queuing, Pending, Running, Succeeded or Failed. ``dequeued``: text of the resume mark.
    """

    uid: str
    status: str
    suspended: bool
    dequeued: str = ""


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do; look again at ``until_s`` (None: only when something changes)."""

    until_s: float | None = None


class Queue(msgspec.Struct, frozen=True):
    """Waits for admission."""


class Charge(msgspec.Struct, frozen=True):
    """The job runs without having been admitted: take its amounts now, whether they fit or not."""


class Resume(msgspec.Struct, frozen=True):
    """Admitted and not resumed yet."""


class MarkDequeued(msgspec.Struct, frozen=True):
    """Admitted and running without the resume mark on the job: write the mark."""


class Suspend(msgspec.Struct, frozen=True):
    """Fell back: suspend the job, whether or not it still runs, and take its resume mark off."""


class NewTrace(msgspec.Struct, frozen=True):
    """A new attempt begins: give it a trace of its own, linked to the last one."""


class Remove(msgspec.Struct, frozen=True):
    """The job is gone: the unit goes too."""


class Move(msgspec.Struct, frozen=True):
    """Write a new phase. ``release``: the admissions end here. ``requeue``: the new backoff (None clears it)."""

    phase: Phase
    message: str
    release: bool = False
    requeue: RequeueState | None = None


class Exceeded(msgspec.Struct, frozen=True):
    """It ran as long as it may: say so in the status, which ends its execution time; it is deactivated next."""


class Deactivate(msgspec.Struct, frozen=True):
    """Set ``spec.active`` to false: what was said in the status is carried out."""


class Evict(msgspec.Struct, frozen=True):
    """Deactivated, and its job is suspended: back to Enqueued. Its admissions stand until its pods are gone."""

    reason: str
    message: str


Step = (
    Wait | Queue | Charge | Resume | MarkDequeued | Suspend | NewTrace | Remove | Move | Exceeded | Deactivate | Evict
)


def next_step(
    unit: UnitFacts,
    job: JobFacts | None,
    now_s: float,
    timeouts: Timeouts,
    *,
    spread: float = 0.0,
    doubling: bool = True,
) -> Step:
    """What to do about the unit now.

    ``job`` None: it does not exist (any more). ``spread`` in [-1, 1] spreads the doubling backoff; ``doubling`` False
    keeps the flat wait of the released version.
    """
    if job is None or (unit.owner_uid and job.uid != unit.owner_uid):
        return Remove()
    if unit.phase in FINAL_PHASES:
        return Wait()
    if job.status == "Succeeded":
        return Move("Succeed", "Succeeded", release=True)
    if job.status == "Failed":
        return Move("Failed", "Failed", release=True)
    if unit.phase == "TimeoutBackoff":
        return _backing_off(unit, job, now_s, timeouts)
    if unit.phase in ADMITTED_PHASES and not unit.reclaiming:
        step = _deactivating(unit, job, now_s)
        if step is not None:
            return step
    if unit.phase == "Running":
        return (
            Move("Enqueued", SUSPENDED_BY_USER, release=True)
            if job.suspended
            else _marked(unit, job, Wait(unit.ends_at_s))
        )
    if unit.phase in ADMITTED_PHASES:
        return _admitted(unit, job, now_s, timeouts, spread, doubling)
    return _waiting(unit, job)


def _waiting(unit: UnitFacts, job: JobFacts) -> Step:
    if not job.suspended:
        if not unit.draining:
            return Charge()
        # Its room is still taken: it goes on with it, or the eviction goes on.
        return Move("Dequeued", CHARGED) if unit.active else Suspend()
    if not unit.active:
        return Wait()
    if unit.evicted:
        return Move("Enqueued", REACTIVATED)
    if unit.trace_after != unit.allocated:
        return NewTrace()
    return Queue()


def _deactivating(unit: UnitFacts, job: JobFacts, now_s: float) -> Step | None:
    """Active units that ran too long are deactivated; deactivated ones lose their job's switch, then their phase."""
    if unit.active:
        if unit.evicted == MAX_EXECUTION_TIME:
            return Deactivate()
        return Exceeded() if unit.ends_at_s is not None and now_s >= unit.ends_at_s else None
    if not job.suspended or job.dequeued:
        return Suspend()
    if unit.evicted == MAX_EXECUTION_TIME:
        return Evict(MAX_EXECUTION_TIME, TIME_EXCEEDED)
    return Evict(DEACTIVATION, DEACTIVATED)


def _backing_off(unit: UnitFacts, job: JobFacts, now_s: float, timeouts: Timeouts) -> Step:
    if job.dequeued:
        return Suspend()  # takes the resume mark off, so that from then on a running job is one resumed by hand
    if not job.suspended:
        return Charge()
    due = due_at(unit.requeue_at_s, unit.last_update_s, timeouts)
    if now_s < due:
        return Wait(due)
    return Move("Enqueued", BACKOFF_OVER, release=True, requeue=_kept(unit))


def _admitted(unit: UnitFacts, job: JobFacts, now_s: float, timeouts: Timeouts, spread: float, doubling: bool) -> Step:
    resumed = bool(unit.allocated) and job.dequeued == unit.allocated

    def fall_back(message: str) -> Step:
        requeue = next_requeue(unit.requeue_count, timeouts, now_s, spread) if doubling else None
        return Move("TimeoutBackoff", message, release=True, requeue=requeue)

    if job.suspended:
        return fall_back(SUSPENDED_AGAIN) if resumed else Resume()
    if job.status == "Running":
        return _marked(unit, job, Move("Running", "Running"))
    if timeouts.running > 0:
        until = unit.last_update_s + timeouts.running
        if now_s >= until:
            return fall_back(RUNNING_TIMEOUT)
        return _marked(unit, job, Wait(until))
    return _marked(unit, job, Wait())


def _marked(unit: UnitFacts, job: JobFacts, step: Step) -> Step:
    return MarkDequeued() if unit.allocated and job.dequeued != unit.allocated else step


def _kept(unit: UnitFacts) -> RequeueState | None:
    """The failure count survives until the job runs, so that the waits go on doubling."""
    return RequeueState(unit.requeue_count, unit.requeue_at_s) if unit.requeue_at_s is not None else None
