"""Conditions of a QueueUnit: a mirror of its phase (spec 70 section 3.6), with Kueue's reasons where more precise."""

from collections.abc import Sequence

import msgspec

from koord.kube.conditions import Condition, find, set_condition
from koord.kube.meta import parse_time
from koord.queue.headroom import WAITING

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
PODS_READY = "PodsReady"
FINISHED = "Finished"
EVICTED = "Evicted"


class _Row(msgspec.Struct, frozen=True):
    """What one phase says of one condition. ``only_present``: leave it out where the unit never had it."""

    type: str
    status: str
    reason: str
    only_present: bool = False


_ADMITTED_ROWS = (_Row(QUOTA_RESERVED, "True", "QuotaReserved"), _Row(ADMITTED, "True", "Admitted"))

_ROWS: dict[str, tuple[_Row, ...]] = {
    "Enqueued": (
        _Row(QUOTA_RESERVED, "False", ""),
        _Row(ADMITTED, "False", "Pending"),
        _Row(PODS_READY, "False", "Pending", only_present=True),
        _Row(EVICTED, "False", "Requeued", only_present=True),
    ),
    "Reserved": (
        _Row(QUOTA_RESERVED, "True", "QuotaReserved"),
        _Row(ADMITTED, "False", "WaitingForAdmissionChecks"),
    ),
    "Dequeued": _ADMITTED_ROWS,
    "SchedReady": _ADMITTED_ROWS,
    "SchedSucceed": _ADMITTED_ROWS,
    "SchedFailed": (_Row(ADMITTED, "False", "SchedulingFailed"),),
    "Running": (
        _Row(QUOTA_RESERVED, "True", "QuotaReserved"),
        _Row(ADMITTED, "True", "Admitted"),
        _Row(PODS_READY, "True", "PodsRunning"),
    ),
    "Succeed": (_Row(FINISHED, "True", "Succeeded"),),
    "Failed": (_Row(FINISHED, "True", "Failed"),),
    "TimeoutBackoff": (
        _Row(QUOTA_RESERVED, "False", "BackoffTimeout"),
        _Row(ADMITTED, "False", "BackoffTimeout"),
        _Row(PODS_READY, "False", "Pending", only_present=True),
        _Row(EVICTED, "True", "BackoffTimeout"),
    ),
}


def stamp_evicted(held: list[Condition], reason: str, message: str, now_s: float) -> None:
    """Condition Evicted, after the row of the phase it fell back to; a deactivated unit's Admitted says why, too."""
    set_condition(held, Condition(type=EVICTED, status="True", reason=reason, message=message), now_s)
    if find(held, ADMITTED) is not None:
        set_condition(held, Condition(type=ADMITTED, status="False", reason="Deactivated", message=message), now_s)


def exceeded(previous: Sequence[Condition], reason: str, message: str, now_s: float) -> list[Condition]:
    """The unit ran as long as it may and is about to be evicted: its pods count as not ready from here on."""
    held = list(previous)
    set_condition(held, Condition(type=PODS_READY, status="False", reason="Pending", message=message), now_s)
    set_condition(held, Condition(type=EVICTED, status="True", reason=reason, message=message), now_s)
    return held


def ready_since_s(conditions: Sequence[Condition]) -> float | None:
    """Since when the unit's pods are ready, in seconds since the epoch; None if they are not."""
    ready = find(list(conditions), PODS_READY)
    if ready is None or ready.status != "True" or not ready.last_transition_time:
        return None
    try:
        return parse_time(ready.last_transition_time)
    except ValueError:
        return None


def mirror(
    previous: Sequence[Condition], phase: str, message: str, now_s: float, waiting_reason: str = WAITING
) -> list[Condition]:
    """The conditions of a unit that is in ``phase`` now; those the phase says nothing of stay as they are.

    ``waiting_reason`` is the precise reason of QuotaReserved=False while Enqueued.
    """
    held = list(previous)
    for row in _ROWS.get(phase, ()):
        if row.only_present and find(held, row.type) is None:
            continue
        set_condition(
            held,
            Condition(type=row.type, status=row.status, reason=row.reason or waiting_reason, message=message),
            now_s,
        )
    return held
