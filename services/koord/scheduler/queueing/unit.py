"""What the scheduling queue holds: one pod, or the pending members of a gang group, with what became of its tries."""

from collections.abc import Hashable
from typing import Literal

import msgspec

from koord.kube.protocol import qos
from koord.scheduler.engine.placement import PodInfo

Order = tuple[tuple[int, int], float]
"""A unit's rank, and when it came."""
State = Literal["new", "active", "backoff", "unschedulable", "gated", "inflight", "elsewhere"]
STATES: tuple[State, ...] = ("new", "active", "backoff", "unschedulable", "gated", "inflight", "elsewhere")

FLUSH_S = 300.0


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Backoff of rejected units, and when those that nothing woke are tried again. ``sub_priority``: of units of one
    priority those go first whose label ``koordinator.sh/priority`` says more."""

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    flush_after_s: float = FLUSH_S
    sub_priority: bool = False


class Unit:
    """What is tried at once: one pod, or the pending members of a gang group (``group`` is its id)."""

    __slots__ = (
        "again",
        "attempts",
        "conflicts",
        "errors",
        "group",
        "key",
        "message",
        "parked_at",
        "pending",
        "pods",
        "popped_at",
        "ready_at",
        "rejecters",
        "rejections",
        "signature",
        "since",
        "started",
        "state",
        "ticket",
        "timestamp",
    )

    def __init__(self, key: str, group: str, now: float) -> None:
        self.key = key
        self.group = group
        self.pods: dict[str, PodInfo] = {}
        self.state: State = "new"
        self.since = now
        self.timestamp = now
        self.attempts = 0
        self.rejections = 0
        self.errors = 0
        self.conflicts = 0
        """Claims in a row that the ledger refused; counted by the claim rounds."""
        self.rejecters: frozenset[str] = frozenset()
        self.pending: frozenset[str] = frozenset()
        """Of the rejecters those that wait for something outside: when that comes, nobody backs off."""
        self.message = ""
        self.ready_at = 0.0
        self.parked_at = 0.0
        self.popped_at = 0.0
        self.ticket = 0
        self.signature: Hashable = None
        self.again = False
        self.started = 0
        """How often somebody had been woken when it was popped."""

    @property
    def priority(self) -> int:
        """Of the most important pod."""
        if len(self.pods) == 1:
            for pod in self.pods.values():
                return pod.priority
        return max((pod.priority for pod in self.pods.values()), default=0)

    @property
    def scheduler(self) -> str:
        """The name of the profile that places it; members of one unit are of one, but for the oddest gangs."""
        return next((pod.class_.profile.scheduler_name for pod in self.pods.values()), "")

    def rank(self, *, sub_priority: bool) -> tuple[int, int]:
        """What sorts the more important unit first, before the time it came; without the label a pod has 0."""
        if not sub_priority:
            return -self.priority, 0
        ranks = ((-pod.priority, -(qos.sub_priority(pod.ref.labels) or 0)) for pod in self.pods.values())
        return min(ranks, default=(0, 0))

    def classes(self) -> Hashable:
        """Equal for units that would be judged alike."""
        if not self.group:
            for pod in self.pods.values():
                return pod.class_
            return None
        counts: dict[int, int] = {}
        for pod in self.pods.values():
            counts[id(pod.class_)] = counts.get(id(pod.class_), 0) + 1
        return tuple(sorted(counts.items()))


def backoff_s(count: int, settings: QueueSettings) -> float:
    """How long a unit waits after its ``count``-th failure in a row: 1, 2, 4, 8, 10, 10, ... by default."""
    if count <= 0:
        return 0.0
    return min(settings.initial_backoff_s * 2.0 ** min(count - 1, 60), settings.max_backoff_s)
