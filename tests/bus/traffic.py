"""Load on a bus in bad weather, and the judgement of what came of it.

A gateway publishes versions of objects and consumes decisions, an author publishes decisions, a reader keeps a cache,
two incarnations want one lease. ``judge`` holds them to what docs/bus.md promises: nothing confirmed is missing, the
caches (an old and a new one) end equal to what was published, each decision was seen and settles, the lease never had
two holders.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable

from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, DecisionPublisher
from koord.bus.ending import end
from koord.bus.leases import KvLease
from koord.bus.statecache import Change, StateCache
from koord.bus.statepublisher import StatePublisher
from koord.bus.streams import StreamLimits, ensure_streams
from koord.contracts.decisions import Delete, ObjectRef
from koord.kube.resources import PODS
from koord.telemetry.context import TraceContext
from tests.bus.conftest import Thing, body, until

DEADLINE_S = 60.0


class Traffic:
    """``objects`` objects; each is published again every ``objects`` × ``pause_s`` seconds."""

    def __init__(self, urls: dict[str, str], cluster: str, *, replicas: int, objects: int, pause_s: float) -> None:
        self._urls = urls
        self._cluster = cluster
        self._replicas = replicas
        self._objects = objects
        self._pause_s = pause_s
        self._buses: list[Bus] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._leases: list[KvLease] = []
        self._stop = asyncio.Event()
        self._waiting: list[asyncio.Future[int]] = []
        self.version = 0
        self.published: dict[str, int] = {}
        self.confirmed: dict[str, int] = {}
        self.confirmed_at: list[float] = [time.monotonic()]
        self.sent: list[str] = []
        self.seen: set[str] = set()
        self.told: list[Change[Thing]] = []
        self.both_held = 0
        self.leases_won = 0

    async def bus(self, name: str) -> Bus:
        bus = await Bus.connect(self._urls.get(name, self._urls["any"]), self._cluster, name)
        self._buses.append(bus)
        await ensure_streams(bus, StreamLimits(replicas=self._replicas))
        return bus

    async def start(self) -> None:
        self.gateway, self.author, self.reader = [await self.bus(name) for name in ("gateway", "author", "reader")]
        self.publisher = StatePublisher(self.gateway)
        await self.publisher.start()
        self.consumer = DecisionConsumer(self.gateway, ack_wait=5.0)
        await self.consumer.start()
        self.decisions = DecisionPublisher(self.author, "queue")
        for number in range(self._objects):
            await self._publish(number)
        await self.publisher.listed(PODS, "1")
        self.cache = StateCache(self.reader, PODS, Thing, self.told.append)
        await self.cache.start()
        await asyncio.wait_for(self.cache.synced(), DEADLINE_S)
        self.told.clear()
        self._leases = [KvLease(bus, "queue", bus.name) for bus in (self.author, self.reader)]
        for work in (self._publish_state(), self._decide(), self._execute(), *map(self._lead, self._leases)):
            self._tasks.append(asyncio.create_task(work))
        self._tasks.append(asyncio.create_task(self._watch()))

    async def _publish(self, number: int) -> None:
        await self.publisher.room()
        self.version += 1
        name, version = f"p{number}", self.version
        future = self.publisher.publish(PODS, "MODIFIED", "default", name, str(version), body(name, version))
        self.published[name] = version
        self._waiting.append(future)

        def done(stored: asyncio.Future[int]) -> None:
            if not stored.cancelled() and stored.exception() is None:
                self.confirmed[name] = max(version, self.confirmed.get(name, 0))
                self.confirmed_at.append(time.monotonic())

        future.add_done_callback(done)

    async def _publish_state(self) -> None:
        number = 0
        while not self._stop.is_set():
            await self._publish(number % self._objects)
            number += 1
            await asyncio.sleep(self._pause_s)

    async def _decide(self) -> None:
        while not self._stop.is_set():
            decision = Delete(f"d{len(self.sent)}", ObjectRef("pods_core", "default", "x", uid="u"))
            self.sent.append(decision.id)
            await self.author.room()
            self._waiting.append(self.decisions.send(decision, TraceContext.new(), timeout=None))
            await asyncio.sleep(self._pause_s)

    async def _execute(self) -> None:
        async for batch in self.consumer.batches():
            for delivery in batch:
                assert delivery.decision is not None
                self.seen.add(delivery.decision.id)
                delivery.ack()

    async def _lead(self, lease: KvLease) -> None:
        while True:
            await lease.acquire()
            self.leases_won += 1
            await lease.lost.wait()

    async def _watch(self) -> None:
        while True:
            self.both_held += all(lease.held for lease in self._leases)
            await asyncio.sleep(0.01)

    async def flowing(self) -> None:
        """Until what is published now is confirmed, seen and read, so that the weather is over for everybody."""
        version, sent = self.version, len(self.sent)
        await until(
            lambda: (
                min(self.confirmed.values()) > version
                and len(self.seen) > sent
                and min(item.size for item in self.cache.items.values()) > version
            ),
            timeout=DEADLINE_S,
            what=f"{min(self.confirmed.values())} > {version}, {len(self.seen)} > {sent}",
        )

    def longest_pause(self, since: float) -> float:
        """Seconds between two confirmations, at most."""
        times = [since, *(moment for moment in self.confirmed_at if moment >= since), time.monotonic()]
        return max(after - before for before, after in itertools.pairwise(times))

    async def judge(self) -> None:
        """Stop publishing, let everything arrive, compare."""
        self._stop.set()
        await asyncio.wait_for(asyncio.gather(*self._waiting), DEADLINE_S)
        await until(lambda: set(self.sent) == self.seen, timeout=DEADLINE_S, what="every decision seen")

        def is_right(cache: StateCache[Thing]) -> Callable[[], bool]:
            return lambda: (
                cache.is_synced
                and {key: item.size for key, item in cache.items.items()}
                == {f"default/{name}": version for name, version in self.published.items()}
            )

        await until(is_right(self.cache), timeout=DEADLINE_S, what="the cache equals what was published")
        fresh = StateCache(self.author, PODS, Thing)
        await fresh.start()
        await until(is_right(fresh), timeout=DEADLINE_S, what="a new cache equals what was published")
        await fresh.close()
        assert not [change for change in self.told if change.kind == "DELETED"][:3], "nothing was ever deleted"

        async def left() -> int:
            return (await self.gateway.js.stream_info(self.gateway.subjects.decisions_stream)).state.messages

        deadline = time.monotonic() + DEADLINE_S
        while await left():
            assert time.monotonic() < deadline, "decisions do not settle"
            await asyncio.sleep(0.1)
        assert self.both_held == 0
        await until(lambda: self.leases_won, timeout=DEADLINE_S, what="a lease was won")

    async def close(self) -> None:
        await end(*self._tasks)
        for lease in self._leases:
            await lease.release()
        for cache in (getattr(self, "cache", None), getattr(self, "consumer", None)):
            if cache is not None:
                await cache.close()
        for bus in self._buses:
            await bus.close()


@contextlib.asynccontextmanager
async def traffic(
    urls: dict[str, str], cluster: str, *, replicas: int = 3, objects: int = 100, pause_s: float = 0.004
) -> AsyncIterator[Traffic]:
    """Running traffic. ``urls``: by name of the bus (gateway, author, reader), ``any`` for the rest."""
    made = Traffic(urls, cluster, replicas=replicas, objects=objects, pause_s=pause_s)
    try:
        await made.start()
        yield made
    finally:
        await made.close()
