"""What the reconciler sees: four state caches, always warm, so that a standby can take over at once."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from koord.bus.connection import Bus
from koord.bus.statecache import Change, StateCache
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import ELASTIC_QUOTAS, NODES, POD_DISRUPTION_BUDGETS, PODS, QUEUE_UNITS
from koord.ledger.model import Folded, Nameless, Observation, Short
from koord.reconciler import metrics
from koord.reconciler.catchingup import catch_up, level
from koord.reconciler.folding import Folder
from koord.reconciler.running import RunningSpans
from koord.reconciler.sights import BudgetSight, NodeSight, PodSight, UnitSight
from koord.runtime.settings import SCHEDULER_NAMES
from koord.telemetry.spans import Spans

MOST_PENDING: Final = 100_000
"""Observations that wait for the ledger; more are told anew, all of them, when it is back."""


class World:
    """The caches, and the observations that their changes make while somebody collects them.

    ``overflowed``: nobody folded them for so long that no more are kept; everything has to be told anew.
    ``audit_soon``: something is missing without a tombstone; only an audit may say that it is gone.
    ``overcommitted``: node amounts found below zero, by item and resource, until somebody tells their nodes.
    ``nameless``: limits that the ledger has no column for, by item, until then too.
    """

    def __init__(self, bus: Bus, spans: Spans, scheduler_names: Collection[str] = SCHEDULER_NAMES) -> None:
        self._bus = bus
        self.folder = Folder(scheduler_names)
        self.pending: deque[Observation] = deque()
        self.overcommitted: dict[tuple[str, str], Short] = {}
        self.nameless: dict[str, Nameless] = {}
        self.overflowed = False
        self.audit_soon = False
        self.wake = asyncio.Event()
        self._collecting = False
        self._running = RunningSpans(spans)
        self.nodes = StateCache(bus, NODES, NodeSight, self._node)
        self.pods = StateCache(bus, PODS, PodSight, self._pod)
        self.quotas = StateCache(bus, ELASTIC_QUOTAS, ElasticQuota, self._quota)
        self.units = StateCache(bus, QUEUE_UNITS, UnitSight, self._unit)
        # Nobody waits for these: a gateway of before does not list them, and no room depends on them.
        self.budgets = StateCache(bus, POD_DISRUPTION_BUDGETS, BudgetSight, self._budget)
        self._caches: tuple[StateCache[Any], ...] = (self.quotas, self.nodes, self.pods, self.units)

    async def start(self, on_synced: Callable[[str], None]) -> None:
        """Begin to read; ``on_synced`` is told the token of each resource that is complete."""
        for cache in (*self._caches, self.budgets):
            await cache.start()
        for cache in self._caches:
            await cache.synced()
            on_synced(cache.token)

    @property
    def tokens(self) -> list[str]:
        """The resources that are read."""
        return [cache.token for cache in self._caches]

    @property
    def position(self) -> Folded | None:
        """Up to where the state stream was read; None while a cache reads anew, or another life of the stream."""
        epochs = {cache.epoch for cache in self._caches}
        if len(epochs) > 1 or not all(cache.is_synced for cache in self._caches):
            return None
        return Folded(epochs.pop(), max(cache.position for cache in self._caches))

    async def catch_up(self, folded: Folded) -> bool:
        """Wait until the caches are no older than the ledger; see :func:`koord.reconciler.catchingup.catch_up`."""
        return await catch_up(self._bus, self._caches, folded)

    async def level(self) -> bool:
        """Have the caches hold what the stream holds now; False if that cannot be said within seconds."""
        return await level(self._bus, self._caches)

    async def marked(self, mark: str) -> None:
        """Wait until the caches hold what the gateway listed before it put ``mark`` into the stream."""
        await asyncio.gather(*(cache.marked(mark) for cache in self._caches))

    async def close(self) -> None:
        """Stop reading."""
        for cache in (*self._caches, self.budgets):
            await cache.close()

    def collect_anew(self) -> list[Observation]:
        """Everything that is there now; later changes go to ``pending``."""
        self._collecting = True
        self.overflowed = False
        self.pending.clear()
        return self.folder.everything(
            self.nodes.items.values(),
            self.pods.items.values(),
            self.units.items.values(),
            time.monotonic(),
            self.budgets.items.values(),
        )

    def rest(self) -> None:
        """Collect no more: another reconciler leads."""
        self._collecting = False
        self.pending.clear()
        self.folder.forget()
        self._running.rest()

    def late(self) -> None:
        """Fold those who waited for a quota long enough, and those who belong to another place in the tree by now."""
        if self._collecting:
            self._add(self.folder.late(time.monotonic()))
            self._add(self.folder.strays())
            self._add(self.folder.moved(self.pods.items.values(), self.units.items.values()))

    def recharged(self, uids: Sequence[str]) -> list[Observation]:
        """These pods and units, which are charged, as what they are now: their records go another way up the tree."""
        wanted = set(uids)
        found: list[Observation] = []
        for pod in self.pods.items.values():
            if pod.metadata.uid in wanted:
                found += self.folder.recharged(pod)
        for unit in self.units.items.values():
            if unit.metadata.uid in wanted:
                found += self.folder.recharged(unit)
        return found

    def again(self, uids: Sequence[str]) -> list[Observation]:
        """These pods and units once more: the ledger has no record of them."""
        wanted = set(uids)
        self.folder.drop(wanted)
        now = time.monotonic()
        found: list[Observation] = []
        for pod in self.pods.items.values():
            if pod.metadata.uid in wanted:
                found += self.folder.pod(None, pod, "", now)
        for unit in self.units.items.values():
            if unit.metadata.uid in wanted:
                found += self.folder.unit(None, unit, "", now)
        return found

    def live(self, uid: str, key: str) -> bool:
        """Whether an assigned live pod or an admitted unit with this uid exists under this key."""
        pod = self.pods.items.get(key)
        if pod is not None and pod.metadata.uid == uid:
            return bool(pod.spec.node_name) and not pod.terminal
        unit = self.units.items.get(key)
        return unit is not None and unit.metadata.uid == uid and bool(unit.status.admissions)

    def exists(self, uid: str, key: str) -> bool:
        """Whether a pod or unit with this uid exists under this key and has not ended."""
        pod = self.pods.items.get(key)
        if pod is not None and pod.metadata.uid == uid:
            return not pod.terminal
        unit = self.units.items.get(key)
        return unit is not None and unit.metadata.uid == uid

    def unbound(self, uid: str, key: str) -> bool:
        """Whether a pod without a node, or a unit without admissions, exists under this key with this uid."""
        return self.exists(uid, key) and not self.live(uid, key)

    def note_overcommitted(self, shorts: Sequence[Short]) -> None:
        """Node amounts that the ledger found below zero."""
        if shorts:
            metrics.OVERCOMMITTED.inc(len(shorts))
            self.overcommitted.update({(short.item, short.key): short for short in shorts})

    def note_nameless(self, found: Sequence[Nameless]) -> None:
        """Limits that the ledger has no column for."""
        if found:
            metrics.NAMELESS.inc(len(found))
            self.nameless.update({one.item: one for one in found})

    def add(self, found: list[Observation]) -> None:
        """Have these folded too, while somebody collects."""
        if self._collecting:
            self._add(found)

    # Changes ------------------------------------------------------------------------------------------------------

    def _node(self, change: Change[NodeSight]) -> None:
        if self._collecting:
            self._add(self.folder.node(change.old, change.new, change.resource_version))

    def _budget(self, change: Change[BudgetSight]) -> None:
        if self._collecting:
            self._add(self.folder.budget(change.old, change.new, change.resource_version))

    def _pod(self, change: Change[PodSight]) -> None:
        if not self._collecting or self._swept(change):
            return
        self._add(self.folder.pod(change.old, change.new, change.resource_version, time.monotonic()))
        if not change.replay:
            self._running.change(change.old, change.new, time.time_ns())

    def _quota(self, change: Change[ElasticQuota]) -> None:
        found = self.folder.quota(change.old, change.new, time.monotonic())
        if self._collecting:
            self._add(found)

    def _swept(self, change: Change[PodSight] | Change[UnitSight]) -> bool:
        """Whether it is only missing from the stream, without a tombstone.

        A NATS that crashed may have lost its last messages; the gateway sends them again a moment later. Told as gone,
        the uid could not be charged again, so the audit ends the record if the object stays away.
        """
        if not change.swept or change.old is None:
            return False
        self.folder.drop((change.old.metadata.uid,))
        self.audit_soon = True
        self.wake.set()
        return True

    def _unit(self, change: Change[UnitSight]) -> None:
        if self._collecting and not self._swept(change):
            self._add(self.folder.unit(change.old, change.new, change.resource_version, time.monotonic()))

    def _add(self, found: list[Observation]) -> None:
        if found and not self.overflowed:
            self.pending.extend(found)
            self.overflowed = len(self.pending) > MOST_PENDING
            self.wake.set()
