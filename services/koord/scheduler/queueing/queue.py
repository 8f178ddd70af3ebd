"""The scheduling queue: active, backoff, unschedulable and gated units, and the events that wake them.

Spec 10 section 3.2, with two differences that users see only as speed. The unit is a pod or a whole gang group. And
unschedulable units are parked by *signature* (their class and who rejected them): an event wakes the first of a
signature; if that one finds a place the next ones follow, twice as many each time. So thousands of hopeless pods of one
class cost one check per event, not thousands. Who parks is asked whether the event can help it at all (``hints``).

With several replicas each tries only the units that are its own (``mine``); the others' wait *elsewhere*.

Times are seconds of one monotonic clock, passed in.
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping

from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.happenings import UNKNOWN
from koord.scheduler.queueing.hints import Happened, Hints
from koord.scheduler.queueing.lots import EventsOf, Lot, Lots
from koord.scheduler.queueing.unit import FLUSH_S, STATES, Order, QueueSettings, State, Unit, backoff_s

__all__ = ["FLUSH_S", "QueueSettings", "SchedulingQueue", "Unit", "backoff_s"]

EARLY = 64
BURST = 1024
REMEMBERED = 64
"""Wakes that units in flight are judged by; for one that is longer in flight any event counts that may help."""


class SchedulingQueue:
    """All units that wait, by key. ``events_of`` tells which events may help what a plugin rejected, ``hints`` whether
    one really does; without hints every such event counts."""

    def __init__(
        self,
        events_of: EventsOf,
        settings: QueueSettings | None = None,
        hints: Hints | None = None,
    ) -> None:
        self._events_of = events_of
        self._hints = hints
        self.settings = settings or QueueSettings()
        self._sub_priority = self.settings.sub_priority
        self.units: dict[str, Unit] = {}
        self.mine: Callable[[Unit], bool] = lambda unit: True
        """Whether a unit is for this replica to try; after a change of mind call :meth:`reassign`."""
        self._tickets = 0
        self._active: list[tuple[Order, int, Unit]] = []
        self._backoff: list[tuple[float, int, Unit]] = []
        self._soon: list[tuple[int, Order, int, Unit]] = []
        """Rejected units that back off, by the second in which that ends: the best of a second may come early."""
        self._lots = Lots(events_of, self._order)
        self._wakes = 0
        self._woken: dict[ClusterEvent, int] = {}
        self._happened: deque[tuple[int, Happened]] = deque(maxlen=REMEMBERED)
        self.counts: dict[State, int] = dict.fromkeys(STATES, 0)
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
            _, ticket, unit = heapq.heappop(self._active)
            if unit.ticket == ticket and unit.state == "active":
                taken.append(unit)
                count += len(unit.pods)
                self._start(unit, now)
        if not taken:
            taken = self._early(now)
        return taken

    def seize(self, unit: Unit, now: float) -> None:
        """Try a unit now, wherever it waits: its turn came by another way. One in flight stays there."""
        if unit.state != "inflight":
            self._leave(unit)
            self._start(unit, now)

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

    def reject(
        self,
        unit: Unit,
        rejecters: Iterable[str],
        now: float,
        message: str = "",
        pending: frozenset[str] = frozenset(),
    ) -> None:
        """No place: park the unit until an event of one of the ``rejecters``; one of those ``pending`` has it tried at
        once, whether it backs off or not.

        One that came while the unit was in flight (its claim was asked for) found nobody to wake: it counts, too.
        """
        unit.rejecters = frozenset(rejecters)
        unit.pending = pending
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
            event, plugin = missed
            self._enter(unit, "active" if plugin in pending else "backoff", event.value)
            return
        self._move(unit, "unschedulable")
        self._lots.park(unit, self._next())

    def let_go(self, unit: Unit, now: float) -> None:
        """A rejected unit that was held back is parked as it would be without that."""
        if unit.state != "gated" or not unit.rejecters or not self.mine(unit):
            self.activate(unit, now, "ScheduleAttemptFailure")
            return
        unit.parked_at = now
        self._move(unit, "unschedulable")
        self._lots.park(unit, self._next())

    def fail(self, unit: Unit, now: float, message: str = "", *, counted: bool = True) -> None:
        """An error that is nobody's verdict: back off. ``counted`` False: try again without a longer wait."""
        unit.message = message
        unit.rejecters = unit.pending = frozenset()
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

    def wake(self, events: Happened | Iterable[ClusterEvent], now: float) -> int:
        """Something happened: wake the first unit of each signature that it may help. Answers how many woke.

        A mapping tells of each event what it is about.
        """
        happened = events if isinstance(events, Mapping) else dict.fromkeys(events, UNKNOWN)
        if not happened:
            return 0
        self._wakes += 1
        self._woken.update(dict.fromkeys(happened, self._wakes))
        self._happened.append((self._wakes, happened))
        if self._hints is not None:
            self._hints.begin()
        woken = 0
        for signature, lot in self._lots.concerned(happened).items():
            first = lot.first()
            helpful = None if first is None else self._helpful(first, lot.rejecters, happened)
            if helpful is not None:
                event, plugin = helpful
                woken += self._release(signature, lot, 1, now, event.value, at_once=plugin in lot.pending)
        return woken

    def tick(self, now: float) -> None:
        """Move what has backed off long enough to the active queue, and flush what waited for too long."""
        while self._backoff and self._backoff[0][0] <= now:
            _, ticket, unit = heapq.heappop(self._backoff)
            if unit.ticket == ticket and unit.state == "backoff":
                self._enter(unit, "active", "BackoffComplete")
        while self._soon and self._soon[0][3].ticket != self._soon[0][2]:
            heapq.heappop(self._soon)
        limit = now - self.settings.flush_after_s
        for signature, lot in self._lots.items():
            first = lot.first()
            if first is not None and first.parked_at <= limit:
                for unit in lot.take_older(limit):
                    unit.timestamp = now
                    self._enter(unit, "active", ClusterEvent.TIMEOUT.value)
                self._lots.tidy(signature, lot)

    def next_time(self) -> float | None:
        """When :meth:`tick` has something to do next; None: nothing waits for time."""
        times = [self._backoff[0][0]] if self._backoff else []
        parked = [lot.heap[0][2].parked_at for lot in self._lots if lot.heap]
        if parked:
            times.append(min(parked) + self.settings.flush_after_s)
        return min(times) if times else None

    def parked_by(self) -> dict[tuple[str, str], int]:
        """How many units are parked, by plugin that rejected them and the scheduler's name that they are of."""
        counts: dict[tuple[str, str], int] = {}
        for lot in self._lots:
            first = lot.first()
            scheduler = "" if first is None else first.scheduler
            for plugin in lot.rejecters:
                counts[plugin, scheduler] = counts.get((plugin, scheduler), 0) + lot.size
        return counts

    # Inside ---------------------------------------------------------------------------------------------------------

    def _order(self, unit: Unit) -> Order:
        if self._sub_priority:
            return unit.rank(sub_priority=True), unit.timestamp
        return (-unit.priority, 0), unit.timestamp

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
            heapq.heappush(self._active, (self._order(unit), unit.ticket, unit))
        else:
            heapq.heappush(self._backoff, (unit.ready_at, unit.ticket, unit))
            if unit.rejecters:
                heapq.heappush(self._soon, (int(unit.ready_at), self._order(unit), unit.ticket, unit))
        key = (state, event)
        self.incoming[key] = self.incoming.get(key, 0) + 1

    def _leave(self, unit: Unit) -> None:
        """Whatever place a unit is in, its entry there is void from now on."""
        unit.ticket = 0
        if unit.state == "unschedulable":
            self._lots.left(unit)

    def _start(self, unit: Unit, now: float) -> None:
        self._move(unit, "inflight")
        unit.again = False
        unit.started = self._wakes
        unit.popped_at = now
        unit.ticket = 0
        unit.attempts += 1

    def _helpful(self, unit: Unit, rejecters: frozenset[str], happened: Happened) -> tuple[ClusterEvent, str] | None:
        """The event that may help the unit and the rejecter that it is of, None if none does."""
        if self._hints is not None:
            return self._hints.first((pod.class_ for pod in unit.pods.values()), rejecters, happened)
        found = ((event, name) for event in happened for name in rejecters if event in self._events_of(name))
        return next(found, None)

    def _missed(self, unit: Unit) -> tuple[ClusterEvent, str] | None:
        """An event since the unit was popped that may help what rejected it."""
        if unit.started == self._wakes or unit.state != "inflight":
            return None
        if unit.started + 1 >= self._happened[0][0]:
            if self._hints is not None:
                self._hints.begin()
            since = [happened for number, happened in self._happened if number > unit.started]
            found = (self._helpful(unit, unit.rejecters, happened) for happened in since)
            return next((each for each in found if each is not None), None)
        may_help = ((event, name) for name in unit.rejecters for event in self._events_of(name))
        return next((each for each in may_help if self._woken.get(each[0], 0) > unit.started), None)

    def _early(self, now: float) -> list[Unit]:
        taken: list[Unit] = []
        while self._soon and len(taken) < EARLY:
            _, _, ticket, unit = heapq.heappop(self._soon)
            if unit.ticket == ticket and unit.state == "backoff":
                taken.append(unit)
                self._start(unit, now)
        return taken

    def _follow(self, unit: Unit, now: float) -> None:
        lot = self._lots.like(unit)
        if lot is not None:
            lot.burst = min(lot.burst * 2, BURST)
            self._release(unit.signature, lot, lot.burst, now, "Follow")

    def _release(
        self, signature: Hashable, lot: Lot, count: int, now: float, event: str, *, at_once: bool = False
    ) -> int:
        taken = lot.take(count)
        for unit in taken:
            unit.timestamp = now
            self._enter(unit, "backoff" if unit.ready_at > now and not at_once else "active", event)
        self._lots.tidy(signature, lot)
        return len(taken)
