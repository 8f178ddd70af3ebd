"""Who goes next: strict-priority lanes, serial per object, bounded concurrency.

Bind and evict go before status writes, and those before Events. Two pieces of work that touch the same object run one
after the other in the order in which they came, whatever their lanes: a status written after a bind must not overtake
it. What stands before more urgent work on its object becomes as urgent. Pure: work is started by calling it and reports
its end by :meth:`Lanes.done`.

Work that the API server puts off goes on running until its next try. So less urgent lanes never have all the places
(:func:`shares`): a bind that comes while everything else waits for a throttled server starts at once.
"""

from collections import deque
from collections.abc import Callable, Sequence

BIND, STATUS, EVENT = 0, 1, 2
LANES = ("bind", "status", "event")
METRIC = 3
LANE_NAMES = (*LANES, "metric")
"""As decisions and metrics name them. ``metric`` has what ``event`` has of places and connections; its decisions wait
elsewhere (:mod:`koord.gateway.reports`)."""

CROWD = 16
"""A server that keeps up has fewer decisions under way: at 100 pods a second about two."""

Key = tuple[str, str, str]
"""Resource token, namespace, name."""


def shares(limit: int) -> tuple[int, int, int]:
    """Of ``limit`` places, how many each lane may have together with the lanes below it: all, 3/4, 1/4."""
    return limit, max(1, limit * 3 // 4), max(1, limit // 4)


class Work:
    """One decision to execute. ``start`` must arrange for :meth:`Lanes.done` to be called exactly once."""

    __slots__ = ("blocked", "keys", "lane", "running", "start")

    def __init__(self, lane: int, keys: Sequence[Key], start: "Callable[[Work], None]") -> None:
        self.lane = lane
        # One object named twice by one decision is one place in that object's line.
        self.keys = keys if len(keys) < 2 else tuple(dict.fromkeys(keys))
        self.start = start
        self.blocked = 0
        self.running = False


class Lanes:
    """Starts work while fewer than ``limit`` run."""

    def __init__(self, limit: int) -> None:
        self._shares = shares(limit)
        # Running work of each lane and of those below it.
        self._running = [0, 0, 0]
        self._ready: tuple[deque[Work], ...] = (deque(), deque(), deque())
        self._lines: dict[Key, deque[Work]] = {}
        self._blocked = [0, 0, 0]

    @property
    def running(self) -> int:
        """Pieces of work under way."""
        return self._running[BIND]

    @property
    def total(self) -> int:
        """Pieces of work waiting or under way."""
        return self._running[BIND] + sum(map(len, self._ready)) + sum(self._blocked)

    @property
    def crowded(self) -> bool:
        """The server does not keep up, or much has come at once: what can wait should."""
        return self.total > CROWD

    def depth(self, lane: int) -> int:
        """Pieces of work of one lane that wait."""
        return len(self._ready[lane]) + self._blocked[lane]

    def submit(self, work: Work) -> None:
        """Take one piece of work; it starts at once if nothing stands before it."""
        lines = self._lines
        for key in work.keys:
            line = lines.get(key)
            if line is None:
                lines[key] = deque((work,))
            else:
                line.append(work)
                work.blocked += 1
        if work.blocked:
            self._blocked[work.lane] += 1
            if work.lane < EVENT:
                self._hurry(work)
            return
        self._ready[work.lane].append(work)
        self._dispatch()

    def done(self, work: Work) -> None:
        """A piece of work has ended: the next on its objects may go."""
        for lane in range(work.lane + 1):
            self._running[lane] -= 1
        for key in work.keys:
            line = self._lines[key]
            line.popleft()
            if not line:
                del self._lines[key]
                continue
            following = line[0]
            following.blocked -= 1
            if not following.blocked:
                self._blocked[following.lane] -= 1
                self._ready[following.lane].append(following)
        self._dispatch()

    def _hurry(self, work: Work) -> None:
        """Raise what stands before ``work`` to its lane, or urgent work would wait for the least urgent."""
        for key in work.keys:
            for ahead in self._lines[key]:
                if ahead is work:
                    break
                if ahead.lane <= work.lane or ahead.running:
                    continue
                if ahead.blocked:
                    self._blocked[ahead.lane] -= 1
                    self._blocked[work.lane] += 1
                else:
                    self._ready[ahead.lane].remove(ahead)
                    self._ready[work.lane].append(ahead)
                ahead.lane = work.lane

    def _dispatch(self) -> None:
        while (work := self._next()) is not None:
            for lane in range(work.lane + 1):
                self._running[lane] += 1
            work.running = True
            work.start(work)

    def _next(self) -> Work | None:
        for lane, queue in enumerate(self._ready):
            if self._running[lane] >= self._shares[lane]:
                return None  # and no less urgent lane may have what this one may not
            if queue:
                return queue.popleft()
        return None
