"""What time asks of a scheduler: renew leases, give room back, say again what was not heard, set the gauges."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from koord.bus.errors import BusError
from koord.bus.statecache import StateCache
from koord.contracts.ledger import LedgerHint
from koord.kube.groups import PodGroup
from koord.ledger.model import LedgerUnavailable
from koord.runtime.host import Host
from koord.scheduler import metrics
from koord.scheduler.binds import Binds
from koord.scheduler.driver import Driver
from koord.scheduler.engine.placement import Engine
from koord.scheduler.gang.news import GangNews
from koord.scheduler.gang.partial import PartialGangs
from koord.scheduler.monitor import Monitor
from koord.scheduler.outgoing import Outgoing
from koord.scheduler.preempting import Preempting
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.retiring import Retiring

RENEW_S = 10.0
NOTICES_S = 0.05
EVERY_S = 1.0
LEDGER_POLL_S = 0.5
OPEN_POLL_S = 5.0


class Upkeep:
    """Three tasks: ``run``, ``watch_ledger`` and ``send``.

    ``evicting`` answers whether this replica is the one that evicts, and whether what it knows is sure.
    """

    def __init__(
        self,
        host: Host,
        driver: Driver,
        binds: Binds,
        queue: SchedulingQueue,
        engine: Engine,
        *,
        news: GangNews,
        partial: PartialGangs,
        retiring: Retiring,
        outgoing: Outgoing,
        groups: StateCache[PodGroup],
        evicting: Callable[[], tuple[bool, bool]],
        monitor: Monitor,
        preempting: Preempting,
        profile: str,
        plugins: Sequence[str],
    ) -> None:
        self._host = host
        self._log = host.log
        self._driver = driver
        self._binds = binds
        self._queue = queue
        self._engine = engine
        self._news = news
        self._partial = partial
        self._retiring = retiring
        self._outgoing = outgoing
        self._groups = groups
        self._evicting = evicting
        self._monitor = monitor
        self._preempting = preempting
        self._profile = profile
        self._parked = {(plugin, profile) for plugin in plugins}
        """Whose parked units were told once: by plugin and scheduler's name."""
        self._incoming: dict[tuple[str, str], int] = {}

    async def watch_ledger(self) -> None:
        """Open the loop while the ledger is open. Hints make this faster than polling, polling makes it certain."""
        opened = self._driver.ledger_open
        while True:
            try:
                status = await self._host.ledger.status()
            except LedgerUnavailable as error:
                self._driver.close(f"ledger unavailable: {error}")
            else:
                if status.open:
                    self._binds.older_than(status.epoch, time.monotonic())
                if status.open and not opened.is_set():
                    opened.set()
                    self._host.ready.open("ledger")
                    self._driver.kick()
                elif not status.open:
                    self._driver.close("the ledger is closed")
            if not opened.is_set():
                self._host.ready.close("ledger")
            await asyncio.sleep(OPEN_POLL_S if opened.is_set() else LEDGER_POLL_S)

    async def send(self) -> None:
        """Publish notices and hints as they come."""
        while True:
            await asyncio.sleep(NOTICES_S)
            if self._outgoing.waiting:
                try:
                    await self._outgoing.send()
                except BusError as error:
                    self._log.warning("notices were not published", error=str(error))

    async def run(self) -> None:
        """Each second; what is to be given back goes at once."""
        renewed = measured = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._binds.releasing.wait()
            now = time.monotonic()
            await self.release()
            if now - measured < EVERY_S:
                continue
            measured = now
            if now - renewed >= RENEW_S:
                renewed = now
                await self._renew()
            await self._retire(now)
            again = self._binds.republish(now)
            if again:
                self._log.warning("nothing was heard of binds, they are published again", binds=again)
            self._news.tell_gated(now, {key: group.metadata.uid for key, group in self._groups.items.items()})
            leading, sure = self._evicting()
            if leading:  # one replica is enough
                self._outgoing.add(self._partial.due(now, sure=sure))
            self._preempting.expire(now)
            self._monitor.tick(now, self._queue, self._binds.flights)
            self._measure()

    async def release(self) -> None:
        """Give back, and tell everybody who waits for room."""
        items = await self._binds.flush_releases()
        if items:
            await self._outgoing.hint(LedgerHint("released", items))

    async def _renew(self) -> None:
        if len(self._binds.flights):
            try:
                await self._host.ledger.renew()
            except LedgerUnavailable as error:
                self._driver.close(f"ledger unavailable: {error}")

    async def _retire(self, now: float) -> None:
        """Give back what dead replicas held."""
        try:
            answer = await self._retiring.look(now, connected=self._host.bus.connected)
        except LedgerUnavailable as error:
            self._log.warning("what dead schedulers held cannot be given back yet", error=str(error))
            return
        if answer is None or not answer.ended:
            return
        claims = [ended.claim for ended in answer.ended]
        uids = [uid for ended in answer.ended for uid in ended.uids]
        self._log.warning("what a dead scheduler held is given back", claims=len(claims), pods=len(uids))
        await self._outgoing.hint(LedgerHint("expired", list(answer.items), uids, claims))

    def _measure(self) -> None:
        for state in ("active", "backoff", "unschedulable", "gated", "elsewhere"):
            metrics.pending.labels(state).set(self._queue.counts[state])
        for key, count in self._queue.incoming.items():
            grown = count - self._incoming.get(key, 0)
            if grown:
                metrics.incoming.labels(*key).inc(grown)
                self._incoming[key] = count
        parked = dict.fromkeys(self._parked, 0)
        for (plugin, scheduler), count in self._queue.parked_by().items():
            key = plugin, scheduler or self._profile
            parked[key] = parked.get(key, 0) + count
        self._parked |= parked.keys()
        for key, count in parked.items():
            metrics.unschedulable.labels(*key).set(count)
        metrics.cache_size.labels("nodes").set(len(self._engine.cluster))
        metrics.cache_size.labels("pods").set(len(self._engine.cluster.pods))
        metrics.cache_size.labels("assumed_pods").set(self._engine.assumed_count)
        metrics.open_claims.labels("held").set(sum(flight.bind is None for flight in self._binds.flights))
        metrics.open_claims.labels("binding").set(sum(flight.bind is not None for flight in self._binds.flights))
        metrics.waiting_groups.set(self._binds.waiting_groups)
