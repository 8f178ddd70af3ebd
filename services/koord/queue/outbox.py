"""Writes that are under way: at most one per object, so that every step is planned from what the last one left.

An object is busy from the moment a decision about it is put here until the state stream shows the write (or the
gateway says that it failed). Steps are level driven, so a failed write is not repeated as such: the object is looked at
again, and whatever is right by then is put here anew, after a growing pause. A decision of which nothing is heard is
published again under its own id; the gateway executes it once.
"""

from collections.abc import Iterable

from koord.contracts.decisions import Decision
from koord.contracts.results import Result
from koord.runtime import underway
from koord.telemetry.context import TraceContext

REPUBLISH_S = 10.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
FREE_TRIES = 5
"""Conflicts in a row that are retried at once: somebody else wrote, the next look sees it."""


def object_key(token: str, key: str) -> str:
    """What an object is called here: its resource's token and its ``ns/name``."""
    return f"{token} {key}"


class Write(underway.Write):
    """One decision under way. ``settled``: resourceVersion at which the object shows it, once the gateway told."""

    decision: Decision
    trace: TraceContext
    settled: str = ""


class Outbox:
    """Decisions to publish and those whose outcome is not seen yet."""

    def __init__(self) -> None:
        self._writes: underway.UnderWay[Write] = underway.UnderWay(REPUBLISH_S)
        self._pauses = underway.Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._fresh: list[Write] = []

    def __len__(self) -> int:
        return len(self._writes)

    def busy(self, object_: str) -> bool:
        """Is a write of this object under way?"""
        return object_ in self._writes

    def pause(self, object_: str, now_s: float) -> float:
        """Seconds to wait before the next write of this object, after failures."""
        return self._pauses.left_s(object_, now_s)

    def put(self, object_: str, decision: Decision, trace: TraceContext, now_s: float) -> None:
        """Publish ``decision`` with the next :meth:`take`; the object must not be busy."""
        write = Write(object_, decision.id, now_s, decision, trace)
        if object_ in self._writes or not self._writes.begin(write):
            raise RuntimeError(f"{object_}: a second write while the first is under way")
        self._fresh.append(write)

    def take(self, now_s: float) -> list[tuple[Decision, TraceContext]]:
        """What is to be published now, overdue decisions included."""
        fresh, self._fresh = self._fresh, []
        for write in fresh:
            write.sent_s = now_s
        for write in self._writes.overdue(now_s):
            write.sent_s = now_s
            fresh.append(write)
        return [(write.decision, write.trace) for write in fresh]

    def next_overdue_s(self) -> float | None:
        """When the next decision must be published again."""
        return self._writes.next_overdue_s()

    def publish_again(self) -> None:
        """Nobody knows what of the last :meth:`take` arrived: the next one repeats everything under way."""
        for write in self._writes:
            write.sent_s = 0.0

    def settle(self, result: Result, shown_version: str, now_s: float) -> tuple[Write, bool] | None:
        """The gateway's answer; ``shown_version`` is what the cache shows of the object now.

        Answers the write and whether it is over (the object may be looked at again); None for a decision that is not
        (any more) of interest.
        """
        write = self._writes.unheard(result.id)
        if write is None:
            return None
        if result.outcome == "done":
            self._pauses.over(write.key)
            write.settled = result.resource_version
            if not result.resource_version:
                # Done before, at an unknown version: the stream will show it; do not ask again meanwhile.
                self._pauses.hold(write.key, now_s)
            elif not at_least(shown_version, result.resource_version):
                return write, False
        else:
            self._pauses.failed(write.key, now_s, free=FREE_TRIES if result.outcome == "conflict" else 0)
        self._writes.end(write.key)
        return write, True

    def written_for(self, decision_id: str) -> str:
        """The object of a decision under way, or ``""``."""
        write = self._writes.unheard(decision_id)
        return write.key if write is not None else ""

    def seen(self, object_: str, version: str) -> bool:
        """The state stream shows the object at ``version``; True if its write is over with that."""
        self._pauses.seen(object_)
        write = self._writes.of(object_)
        if write is None or not write.settled or not at_least(version, write.settled):
            return False
        self._writes.end(object_)
        return True

    def gone(self, object_: str) -> None:
        """The object is deleted: nothing about it is under way any more."""
        self._writes.end(object_)
        self._pauses.over(object_)

    def under_way(self) -> Iterable[Write]:
        """Every write that is not over."""
        return self._writes


def at_least(shown: str, wanted: str) -> bool:
    """Is resourceVersion ``shown`` the same as ``wanted`` or newer? (Decimal numbers on every API server.)"""
    if shown.isdecimal() and wanted.isdecimal():
        return int(shown) >= int(wanted)
    return shown == wanted
