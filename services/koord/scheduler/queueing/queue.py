"""The scheduling queue: active, backoff, unschedulable and gated units, and the events that wake them.

Spec 10 section 3.2, with two differences that users see only as speed. The unit is a pod or a whole gang group. And
unschedulable units are parked by *signature* (their class and who rejected them): an event wakes the first of a
signature; if that one finds a place the next ones follow, twice as many each time. So thousands of hopeless pods of one
class cost one check per event, not thousands.

With several replicas each tries only the units that are its own (``mine``); the others' wait *elsewhere*.

Times are seconds of one monotonic clock, passed in.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Literal

import msgspec

from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.framework.events import ClusterEvent

State = Literal["new", "active", "backoff", "unschedulable", "gated", "inflight", "elsewhere"]

FLUSH_S = 300.0
EARLY = 64
BURST = 1024


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Backoff of rejected units, and when those that nothing woke are tried again."""

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    flush_after_s: float = FLUSH_S


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
        "pods",
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
        self.message = ""
        self.ready_at = 0.0
        self.parked_at = 0.0
        self.ticket = 0
        self.signature: Hashable = None
        self.again = False
        self.started = 0
        """How often somebody had been woken when it was popped."""

    @property
    def priority(self) -> int:
        """Of the most important pod."""
        return max((pod.priority for pod in self.pods.values()), default=0)

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


class _Lot:
    """Parked units of one signature, best first."""

    __slots__ = ("burst", "events", "heap", "rejecters", "size")

    def __init__(self, rejecters: frozenset[str], events: frozenset[ClusterEvent]) -> None:
        self.rejecters = rejecters
        self.events = events
        self.heap: list[tuple[int, float, int, Unit]] = []
        self.size = 0
        self.burst = 1


def backoff_s(count: int, settings: QueueSettings) -> float:
    """How long a unit waits after its ``count``-th failure in a row: 1, 2, 4, 8, 10, 10, ... by default."""
    if count <= 0:
        return 0.0
    return min(settings.initial_backoff_s * 2.0 ** min(count - 1, 60), settings.max_backoff_s)


class SchedulingQueue:
    """All units that wait, by key. ``events_of`` tells which events may help what a plugin rejected."""

    def __init__(
        self, events_of: Callable[[str], frozenset[ClusterEvent]], settings: QueueSettings | None = None
    ) -> None:
        self._events_of = events_of
        self.settings = settings or QueueSettings()
        self.units: dict[str, Unit] = {}
        self.mine: Callable[[Unit], bool] = lambda unit: True
        """Whether a unit is for this replica to try; after a change of mind call :meth:`reassign`."""
        self._tickets = 0
        self._active: list[tuple[int, float, int, Unit]] = []
        self._backoff: list[tuple[float, int, Unit]] = []
        self._lots: dict[Hashable, _Lot] = {}
        self._wakes = 0
        self._woken: dict[ClusterEvent, int] = {}
        self.counts: dict[State, int] = dict.fromkeys(
            ("new", "active", "backoff", "unschedulable", "gated", "inflight", "elsewhere"), 0
        )
        self.incoming: dict[tuple[str, str], int] = {}
        """How many units entered which queue by which event, for the metric."""

    # Coming and going -----------------------------------------------------------------------------------------------

    def unit(self, key: str, group: str, now: float) -> Unit:
        """The unit of that key, made now if it is new (then in state "new": neither queued nor gated)."""
        unit = self.units.get(key)
        if unit is None:
            unit = self.units[key] = Unit(key, group, now)
            self.counts["new"] += 1
        return unit

    def activate(self, unit: Unit, now: float, event: str = "PodAdd") -> None:
        """Put a unit into the active queue, wherever it is; one in flight is tried again should it find no place."""
        if unit.state in ("active", "inflight"):
            unit.again = unit.state == "inflight"
            return
        self._leave(unit)
        unit.timestamp = now
        self._enter(unit, "active", event)

    def gate(self, unit: Unit) -> None:
        """Hold a unit back until :meth:`activate`; no event but its own reasons wakes it."""
        if unit.state in ("gated", "inflight"):
            return
        self._leave(unit)
        self._move(unit, "gated")

    def regate(self, unit: Unit) -> None:
        """Hold back a unit in flight: what let it go is no longer so."""
        self._move(unit, "gated")

    def reassign(self) -> int:
        """Sort anew which units are ours; answers how many came. What is in flight is finished here."""
        came = 0
        for unit in self.units.values():
            if unit.state == "elsewhere":
                if self.mine(unit):
                    self._enter(unit, "active", "ShareChange")
                    came += 1
            elif unit.state in ("active", "backoff", "unschedulable") and not self.mine(unit):
                self._leave(unit)
                self._move(unit, "elsewhere")
        return came

    def remove(self, key: str) -> Unit | None:
        """Forget a unit."""
        unit = self.units.pop(key, None)
        if unit is not None:
            self._leave(unit)
            self.counts[unit.state] -= 1
        return unit

    # Trying ---------------------------------------------------------------------------------------------------------

    def pop(self, pods: int, now: float) -> list[Unit]:
        """Units to try now, best first, of about ``pods`` pods in all; they are in flight then.

        When the active queue is empty, the first units that back off from rejections (not from errors) come early.
        """
        self.tick(now)
        taken: list[Unit] = []
        count = 0
        while self._active and count < pods:
            _, _, ticket, unit = heapq.heappop(self._active)
            if unit.ticket == ticket and unit.state == "active":
                taken.append(unit)
                count += len(unit.pods)
                self._start(unit)
        if not taken:
            taken = self._early()
        return taken

    def done(self, unit: Unit, now: float) -> None:
        """The unit found its place and leaves; what is parked like it may fit too."""
        self._follow(unit, now)
        if self.units.get(unit.key) is unit:
            self.remove(unit.key)

    def keep(self, unit: Unit, now: float) -> None:
        """Part of a gang group found its place, the rest stays: it is tried again at once."""
        unit.rejections = unit.errors = 0
        self._follow(unit, now)
        unit.timestamp = now
        self._enter(unit, "active", "GangUpdate")

    def reject(self, unit: Unit, rejecters: Iterable[str], now: float, message: str = "") -> None:
        """No place: park the unit until an event of one of the ``rejecters``.

        One that came while the unit was in flight (its claim was asked for) found nobody to wake: it counts, too.
        """
        unit.rejecters = frozenset(rejecters)
        unit.message = message
        unit.rejections += 1
        unit.errors = 0
        unit.ready_at = now + backoff_s(unit.rejections, self.settings)
        unit.timestamp = now
        unit.parked_at = now
        if unit.again or not self.mine(unit):
            self._enter(unit, "backoff", "GangUpdate")
            return
        if (missed := self._missed(unit)) is not None:
            self._enter(unit, "backoff", missed.value)
            return
        signature = (unit.classes(), unit.rejecters)
        unit.signature = signature
        lot = self._lots.get(signature)
        if lot is None:
            events = frozenset().union(*(self._events_of(name) for name in unit.rejecters))
            lot = self._lots[signature] = _Lot(unit.rejecters, events)
        lot.burst = 1
        self._move(unit, "unschedulable")
        unit.ticket = self._next()
        heapq.heappush(lot.heap, (-unit.priority, unit.timestamp, unit.ticket, unit))
        lot.size += 1

    def fail(self, unit: Unit, now: float, message: str = "", *, counted: bool = True) -> None:
        """An error that is nobody's verdict: back off. ``counted`` False: try again without a longer wait."""
        unit.message = message
        unit.rejecters = frozenset()
        if counted:
            unit.errors += 1
        unit.ready_at = now + backoff_s(max(unit.errors, 1), self.settings)
        unit.timestamp = now
        self._enter(unit, "backoff", "ScheduleAttemptFailure")

    def retry(self, unit: Unit, now: float) -> None:
        """Try again at once: what it lost to was no verdict either (a conflict that is masked now)."""
        unit.timestamp = min(unit.timestamp, now)
        self._enter(unit, "active", "ScheduleAttemptFailure")

    # Waking ---------------------------------------------------------------------------------------------------------

    def wake(self, events: Iterable[ClusterEvent], now: float) -> int:
        """Something happened: wake the first unit of each signature that waits for it. Answers how many woke."""
        happened = frozenset(events)
        self._wakes += 1
        self._woken.update(dict.fromkeys(happened, self._wakes))
        woken = 0
        for signature, lot in list(self._lots.items()):
            if lot.events & happened:
                event = next(iter(lot.events & happened))
                woken += self._release(signature, lot, 1, now, event.value)
        return woken

    def tick(self, now: float) -> None:
        """Move what has backed off long enough to the active queue, and flush what waited for too long."""
        while self._backoff and self._backoff[0][0] <= now:
            _, ticket, unit = heapq.heappop(self._backoff)
            if unit.ticket == ticket and unit.state == "backoff":
                self._enter(unit, "active", "BackoffComplete")
        limit = now - self.settings.flush_after_s
        for lot in list(self._lots.values()):
            while lot.heap and lot.heap[0][3].ticket != lot.heap[0][2]:
                heapq.heappop(lot.heap)
            if lot.heap and lot.heap[0][3].parked_at <= limit:
                self._flush(lot, limit, now)

    def next_time(self) -> float | None:
        """When :meth:`tick` has something to do next; None: nothing waits for time."""
        times = [self._backoff[0][0]] if self._backoff else []
        if self._lots:
            parked = [lot.heap[0][3].parked_at for lot in self._lots.values() if lot.heap]
            if parked:
                times.append(min(parked) + self.settings.flush_after_s)
        return min(times) if times else None

    def parked_by(self) -> dict[str, int]:
        """How many units are parked, by plugin that rejected them."""
        counts: dict[str, int] = {}
        for lot in self._lots.values():
            for plugin in lot.rejecters:
                counts[plugin] = counts.get(plugin, 0) + lot.size
        return counts

    # Inside ---------------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._tickets += 1
        return self._tickets

    def _move(self, unit: Unit, state: State) -> None:
        self.counts[unit.state] -= 1
        self.counts[state] += 1
        unit.state = state

    def _enter(self, unit: Unit, state: State, event: str) -> None:
        if not self.mine(unit):
            self._move(unit, "elsewhere")
            unit.ticket = 0
            return
        self._move(unit, state)
        unit.ticket = self._next()
        if state == "active":
            heapq.heappush(self._active, (-unit.priority, unit.timestamp, unit.ticket, unit))
        else:
            heapq.heappush(self._backoff, (unit.ready_at, unit.ticket, unit))
        key = (state, event)
        self.incoming[key] = self.incoming.get(key, 0) + 1

    def _leave(self, unit: Unit) -> None:
        """Whatever place a unit is in, its entry there is void from now on."""
        unit.ticket = 0
        if unit.state == "unschedulable":
            lot = self._lots.get(unit.signature)
            if lot is not None:
                lot.size -= 1
                if not lot.size:
                    del self._lots[unit.signature]

    def _start(self, unit: Unit) -> None:
        self._move(unit, "inflight")
        unit.again = False
        unit.started = self._wakes
        unit.ticket = 0
        unit.attempts += 1

    def _missed(self, unit: Unit) -> ClusterEvent | None:
        """An event since the unit was popped that may help what rejected it."""
        if unit.started == self._wakes or unit.state != "inflight":
            return None
        may_help = (event for name in unit.rejecters for event in self._events_of(name))
        return next((event for event in may_help if self._woken.get(event, 0) > unit.started), None)

    def _early(self) -> list[Unit]:
        taken: list[Unit] = []
        kept: list[tuple[float, int, Unit]] = []
        while self._backoff and len(taken) < EARLY:
            entry = heapq.heappop(self._backoff)
            _, ticket, unit = entry
            if unit.ticket != ticket or unit.state != "backoff":
                continue
            if not unit.rejecters:
                kept.append(entry)
            else:
                taken.append(unit)
                self._start(unit)
        for entry in kept:
            heapq.heappush(self._backoff, entry)
        return taken

    def _follow(self, unit: Unit, now: float) -> None:
        lot = self._lots.get(unit.signature) if unit.signature is not None else None
        if lot is not None:
            lot.burst = min(lot.burst * 2, BURST)
            self._release(unit.signature, lot, lot.burst, now, "Follow")

    def _release(self, signature: Hashable, lot: _Lot, count: int, now: float, event: str) -> int:
        released = 0
        while lot.heap and released < count:
            _, _, ticket, unit = heapq.heappop(lot.heap)
            if unit.ticket != ticket or unit.state != "unschedulable":
                continue
            lot.size -= 1
            released += 1
            unit.timestamp = now
            self._enter(unit, "backoff" if unit.ready_at > now else "active", event)
        if not lot.size:
            self._lots.pop(signature, None)
        return released

    def _flush(self, lot: _Lot, limit: float, now: float) -> None:
        late = [
            unit
            for _, _, ticket, unit in lot.heap
            if unit.ticket == ticket and unit.state == "unschedulable" and unit.parked_at <= limit
        ]
        for unit in late:
            self._leave(unit)
            unit.timestamp = now
            self._enter(unit, "active", ClusterEvent.TIMEOUT.value)
        if lot.size and late:
            lot.heap = [entry for entry in lot.heap if entry[3].ticket == entry[2]]
            heapq.heapify(lot.heap)
