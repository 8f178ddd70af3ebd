"""What the ledger says against the columns, believed for a while.

Other schedulers' claims are in the ledger before the API shows anything. A refused claim names the most that could be
taken; the columns and the quota books are masked to that until a hint tells that the item moved, or two seconds passed.
"""

from collections import deque
from collections.abc import Iterable

from koord.contracts.ledger import LedgerHint
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.world import World

CORRECTION_S = 2.0


class Corrections:
    """Masks on nodes and quotas, each with its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ends: deque[tuple[float, str]] = deque()

    def believe(self, item: str, key: str, available: int, now: float) -> None:
        """At most ``available`` of ``key`` can be taken of ``item`` (``node/<name>`` or ``quota/<name>``)."""
        kind, _, name = item.partition("/")
        quota = self._world.quota
        if kind == "node":
            corrected = self._world.engine.cluster.correct(name, key or "pods", available)
        elif kind == "quota" and quota is not None:
            corrected = quota.correct(name, key, available)
        else:
            return
        if corrected:
            self._ends.append((now + CORRECTION_S, item))

    def expire(self, now: float) -> None:
        """End the masks that are old enough; what they kept out may fit."""
        while self._ends and self._ends[0][0] <= now:
            self._end(self._ends.popleft()[1])

    def hint(self, hint: LedgerHint) -> None:
        """The ledger moved records: what was masked is free, or the API shows it by now."""
        if not self._ends or hint.event in ("held", "binding"):
            return
        quota = self._world.quota
        masked = {f"node/{name}" for name in self._world.engine.cluster.corrected}
        if quota is not None:
            masked |= {f"quota/{name}" for name in quota.corrected}
        for item in masked.intersection(hint.items) if hint.items else masked:
            self._end(item)

    def lift(self, items: Iterable[str]) -> None:
        """End masks of node items that do not hold for whoever is planned next: the room is kept for it."""
        for item in items:
            self._world.engine.cluster.uncorrect(item.partition("/")[2])

    @property
    def next_time(self) -> float | None:
        """When :meth:`expire` has something to do."""
        return self._ends[0][0] if self._ends else None

    def _end(self, item: str) -> None:
        kind, _, name = item.partition("/")
        quota = self._world.quota
        if kind == "node":
            changed = self._world.engine.cluster.uncorrect(name)
        else:
            changed = quota is not None and quota.uncorrect(name)
        if changed:
            self._world.events.add(ClusterEvent.LEDGER_RELEASE)
