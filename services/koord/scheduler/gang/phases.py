"""The phase of a PodGroup, one step at a time: pure rules (spec 20 section 3.3)."""

import msgspec

from koord.kube.groups import PodGroupStatus

PENDING, PRE_SCHEDULING, SCHEDULING, SCHEDULED = "Pending", "PreScheduling", "Scheduling", "Scheduled"
RUNNING, FAILED, FINISHED = "Running", "Failed", "Finished"
TERMINAL = frozenset((FAILED, FINISHED))
SATISFIED = frozenset((SCHEDULED, RUNNING, FAILED, FINISHED))
"""Phases that say that the gang was complete once (spec 20 section 3.1)."""


class Tally(msgspec.Struct, frozen=True):
    """Members of one gang: how many exist, have a node (ended ones included), run, succeeded, failed."""

    pods: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


def step(minimum: int, status: PodGroupStatus, tally: Tally, owners: str, now: str) -> PodGroupStatus:
    """The status after one step; equal to ``status`` when nothing is to change.

    ``owners``: whom the members belong to, for ``occupiedBy``. ``now``: RFC 3339, for ``scheduleStartTime``.
    """
    if not status.phase:
        return msgspec.structs.replace(status, phase=PENDING)
    if status.phase in TERMINAL:
        return status
    if status.phase == PENDING:
        if minimum <= 0 or tally.pods < minimum:
            return status
        return msgspec.structs.replace(status, phase=PRE_SCHEDULING, occupied_by=owners or status.occupied_by)
    if not tally.pods:
        # Unlike the original the counts go back, too: they count members, and there are none.
        return msgspec.structs.replace(status, phase=PENDING, scheduled=0, running=0, succeeded=0, failed=0)
    ended = tally.failed + tally.succeeded
    started = status.schedule_start_time
    if tally.scheduled < minimum:
        phase = SCHEDULING
        started = started or now
    else:
        phase = SCHEDULED
        if tally.succeeded + tally.running >= minimum:
            phase = RUNNING
    if tally.failed and ended + tally.running >= minimum:
        phase = FAILED
    if tally.succeeded >= minimum:
        phase = FINISHED
    return msgspec.structs.replace(
        status,
        phase=phase,
        schedule_start_time=started,
        scheduled=tally.scheduled,
        running=tally.running,
        succeeded=tally.succeeded,
        failed=tally.failed,
    )


def stale(minimum: int, status: PodGroupStatus, start_after_s: float | None, limit_s: float) -> bool:
    """Whether the original would leave the PodGroup alone from now on: all of it is scheduled, nothing runs, and
    scheduling began more than ``limit_s`` (48 h) after it was created. ``limit_s`` 0: never."""
    if limit_s <= 0 or start_after_s is None:
        return False
    return status.scheduled == minimum and not status.running and start_after_s > limit_s


def changes(old: PodGroupStatus, new: PodGroupStatus) -> dict[str, object]:
    """The merge patch of the status that turns ``old`` into ``new``; empty if they are equal."""
    was, want = msgspec.to_builtins(old), msgspec.to_builtins(new)
    zero: dict[str, object] = {"phase": "", "occupiedBy": "", "scheduled": 0, "running": 0, "succeeded": 0, "failed": 0}
    zero["scheduleStartTime"] = None
    return {key: want.get(key, none) for key, none in zero.items() if was.get(key, none) != want.get(key, none)}
