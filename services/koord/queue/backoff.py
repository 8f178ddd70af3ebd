"""How long a unit that fell back waits before it may be admitted again (spec 70 section 3.14).

Two rules live side by side: the released one waits the same time after every failure; with ``status.requeueState`` the
wait doubles per failure up to 15 minutes, spread by 10 % so that units that failed together do not return together.
"""

from typing import Annotated

import msgspec

LONGEST_S = 900.0
SPREAD = 0.1
BASE_S = 10.0

Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Per job kind, in seconds; 0 switches the limit off.

    ``running``: how long an admitted job may stay Pending. ``backoff``: the wait after a failure.
    """

    running: Seconds = 0.0
    backoff: Seconds = 0.0


class RequeueState(msgspec.Struct, frozen=True):
    """How often the unit fell back in a row, and when (seconds since the epoch) it may return."""

    count: int
    requeue_at_s: float


def exponential(count: int, base_s: float, spread: float) -> float:
    """Seconds to wait after failure number ``count`` (from 1); ``spread`` in [-1, 1] picks the point in the ±10 %."""
    steps = min(max(count, 1) - 1, 62)  # beyond that the cap has long been reached, and floats stay finite
    return min(base_s * 2.0**steps, LONGEST_S) * (1.0 + SPREAD * spread)


def next_requeue(previous_count: int, timeouts: Timeouts, now_s: float, spread: float) -> RequeueState:
    """The requeue state after one more failure; base is the kind's backoff, or 10 s where it has none."""
    count = previous_count + 1
    return RequeueState(count, now_s + exponential(count, timeouts.backoff or BASE_S, spread))


def due_at(requeue_at_s: float | None, last_update_s: float, timeouts: Timeouts) -> float:
    """When a unit in TimeoutBackoff may return: requeueAt where it is set, else a flat wait after its last update.

    A requeueAt in the past (clock skew) means now.
    """
    if requeue_at_s is not None:
        return requeue_at_s
    return last_update_s + timeouts.backoff
