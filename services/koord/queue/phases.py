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

BACKOFF_OVER = "Enqueued because backoff timeout"
RUNNING_TIMEOUT = "Backoff due to running timeout"
SUSPENDED_AGAIN = "Backoff because the job was suspended again"
SUSPENDED_BY_USER = "Enqueued because the running job was suspended"
DEQUEUED = "Dequeued because schedule successfully"
CHARGED = "Dequeued because the job runs outside the queue"


class UnitFacts(msgspec.Struct, frozen=True):
    """What the machine reads of a unit. Times in seconds since the epoch, marks as the texts the API shows.

    ``owner_uid``: uid of the job that owns it. ``allocated``: text of lastAllocateTime. ``trace_after``: the mark.
    ``requeue_at_s`` and ``requeue_count``: status.requeueState, None and 0 without one.
    """

    phase: str
    owner_uid: str
    allocated: str = ""
    trace_after: str = ""
    last_update_s: float = 0.0
    requeue_at_s: float | None = None
    requeue_count: int = 0
    active: bool = True


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


Step = Wait | Queue | Charge | Resume | MarkDequeued | Suspend | NewTrace | Remove | Move


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
    if unit.phase == "Running":
        return Move("Enqueued", SUSPENDED_BY_USER, release=True) if job.suspended else _marked(unit, job, Wait())
    if unit.phase in ADMITTED_PHASES:
        return _admitted(unit, job, now_s, timeouts, spread, doubling)
    return _waiting(unit, job)


def _waiting(unit: UnitFacts, job: JobFacts) -> Step:
    if not job.suspended:
        return Charge()
    if unit.trace_after != unit.allocated:
        return NewTrace()
    return Queue() if unit.active else Wait()


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
