"""Three nats-servers, one killed: state travels on while a stream, its consumers or the meta group have no leader."""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.bus.leaders import stream_leader
from koord.bus.statecache import LIVE, Change, StateCache
from koord.bus.statepublisher import StatePublisher
from koord.bus.streams import StreamLimits, ensure_streams
from koord.kube.resources import PODS
from koord.localcluster.natscluster import NatsCluster
from tests.bus.conftest import Thing, body, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
_numbers = itertools.count(1)
DEADLINE_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three() -> AsyncIterator[NatsCluster]:
    cluster = NatsCluster(3)
    await cluster.start()
    yield cluster
    await cluster.stop()


class Probes:
    """A gateway that publishes versions of objects, ``every_s`` one, and readers that note what came when."""

    def __init__(self, url: str, cluster: str, *, every_s: float = 0.02, objects: int = 20) -> None:
        self._url = url
        self._cluster = cluster
        self._every_s = every_s
        self._objects = objects
        self._version = 0
        self._stop = asyncio.Event()
        self.buses: list[Bus] = []
        self.caches: list[StateCache[Thing]] = []
        self.faults: list[str] = []
        self.futures: dict[int, asyncio.Future[int]] = {}
        self.published: dict[int, float] = {}
        self.names: dict[str, int] = {}
        # By reader: version -> (moment, whether the stream had confirmed it by then, the change).
        self.seen: list[dict[int, tuple[float, bool, Change[Thing]]]] = []

    async def bus(self, name: str, limit: int = 4096) -> Bus:
        bus = await Bus.connect(self._url, self._cluster, name, limit=limit)
        self.buses.append(bus)
        await ensure_streams(bus, StreamLimits(replicas=3))
        return bus

    async def start(self, readers: int) -> None:
        # So few in flight that most of what is published meanwhile waits behind the bound.
        gateway = await self.bus("gateway", limit=16)
        self.publisher = StatePublisher(gateway)
        await self.publisher.start()
        await self.publisher.listed(PODS, "1")
        for number in range(readers):
            seen: dict[int, tuple[float, bool, Change[Thing]]] = {}
            self.seen.append(seen)

            def note(change: Change[Thing], seen: dict[int, tuple[float, bool, Change[Thing]]] = seen) -> None:
                size = change.new.size if change.new is not None else 0
                if not size or size in seen or (change.old is not None and change.old.size >= size):
                    self.faults.append(f"told as gone, twice or backwards: {change}")
                    return
                seen[size] = (time.monotonic(), self.futures[size].done(), change)

            cache = StateCache(await self.bus(f"reader-{number}"), PODS, Thing, note)
            self.caches.append(cache)
            await cache.start()
        for cache in self.caches:
            await asyncio.wait_for(cache.synced(), DEADLINE_S)
        self._task = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        while not self._stop.is_set():
            await self.publisher.room()
            self._version += 1
            version, name = self._version, f"p{self._version % self._objects}"
            future = self.publisher.publish(PODS, "MODIFIED", "default", name, str(version + 100), body(name, version))
            self.futures[version], self.published[version], self.names[name] = future, time.monotonic(), version
            await asyncio.sleep(self._every_s)

    async def latest(self) -> None:
        """Until everybody has seen something that is published from now on."""
        version = self._version
        await until(lambda: all(max(seen, default=0) > version for seen in self.seen), timeout=DEADLINE_S)

    async def settle(self) -> None:
        """Publish no more; until everything is confirmed and every reader holds what was published."""
        self._stop.set()
        await self._task
        await asyncio.wait_for(asyncio.gather(*self.futures.values()), DEADLINE_S)
        wanted = {f"default/{name}": version for name, version in self.names.items()}

        def is_right() -> bool:
            return all(
                {key: item.size for key, item in cache.items.items()} == wanted and not cache._notes and cache.is_synced
                for cache in self.caches
            )

        await until(is_right, timeout=DEADLINE_S, what="every cache equals what was published, and the stream shows it")
        assert not self.faults, self.faults[:3]

    def slowest(self, since: float) -> float:
        """Seconds until a version, or a newer one of its object, was told, at most over all readers."""
        worst = 0.0
        for seen in self.seen:
            for version, moment in self.published.items():
                if moment >= since:
                    newer = (seen[v][0] for v in range(version, self._version + 1, self._objects) if v in seen)
                    worst = max(worst, min(newer, default=time.monotonic()) - moment)
        return worst

    def ahead(self, since: float) -> int:
        """Versions that a reader saw as live copies before the stream confirmed them, at least over all readers.

        What the stream shows may also come before its confirmation: they travel on two connections.
        """
        return min(
            sum(not done and change.sequence == LIVE for moment, done, change in seen.values() if moment >= since)
            for seen in self.seen
        )

    async def close(self) -> None:
        await end(getattr(self, "_task", None))
        for cache in self.caches:
            await cache.close()
        for bus in self.buses:
            await bus.close()


@contextlib.asynccontextmanager
async def probes(three: NatsCluster, *, readers: int = 3) -> AsyncIterator[Probes]:
    made = Probes(three.url, f"v{os.getpid()}-{next(_numbers)}")
    try:
        await made.start(readers)
        yield made
    finally:
        await made.close()
        for server in three.servers:
            if server.pid is None:
                await server.start()
        await three.ready()


async def meta_leader(three: NatsCluster) -> str:
    """Who says last, in its log, that it leads JetStream's bookkeeping."""
    said = [
        (line.split(" [INF] ")[0].split("] ", 1)[-1], server.name)
        for server in three.servers
        for line in server.log_tail(100_000).splitlines()
        if "Self is new JetStream cluster metadata leader" in line
    ]
    return max(said)[1]


async def test_the_state_streams_leader_is_killed(three: NatsCluster) -> None:
    async with probes(three) as load:
        await load.latest()
        victim = three.server(await stream_leader(load.buses[0], load.buses[0].subjects.state_stream))
        since = time.monotonic()
        await victim.kill()
        await until(lambda: load.ahead(since) >= 5, timeout=DEADLINE_S, what="read while the stream had no leader")
        copies = [change for seen in load.seen for _, _, change in seen.values() if change.sequence == LIVE]
        assert not any(change.replay for change in copies)
        await load.latest()
        await load.settle()
        print(f"SIGKILL of the state stream's leader: at most {load.slowest(since):.2f} s, {load.ahead(since)} ahead")


def server_of(three: NatsCluster, bus: Bus) -> str:
    """The name of the server that ``bus`` is connected to; "" while it is to none."""
    address = bus.nc.connected_server() or "-"
    return next((server.name for server in three.servers if server.url.endswith(address)), "")


async def test_the_server_of_a_readers_consumer_is_killed(three: NatsCluster) -> None:
    """The stream confirms, the connections of writer and reader stand: only the reader's consumer is gone."""
    async with probes(three, readers=1) as load:
        cache, (writer, reader) = load.caches[0], load.buses
        stream = reader.subjects.state_stream
        deadline = time.monotonic() + DEADLINE_S
        while True:
            info = await reader.js.consumer_info(stream, cache._reader._consumer)
            victim = info.cluster.leader if info.cluster is not None and info.cluster.leader else ""
            assert time.monotonic() < deadline, "no consumer on a third server"
            if victim not in ("", server_of(three, reader), await stream_leader(reader, stream)):
                if victim != server_of(three, writer):
                    break
                await writer.nc.move_on()
                await until(lambda: writer.connected and not writer.recovering, timeout=DEADLINE_S)
                continue
            replays = cache.replays
            cache.replay("another server")
            await until(lambda replays=replays: cache.replays > replays and cache.is_synced)  # type: ignore[misc]
        read, replays = cache._reader._bypass.read, cache.replays
        since = time.monotonic()
        await three.server(victim).kill()
        await until(lambda: cache._reader._bypass.read > read, timeout=DEADLINE_S, what="the stream is read directly")
        assert any(change.sequence > 0 for moment, _, change in load.seen[0].values() if moment > since)
        await load.latest()
        await load.settle()
        print(
            f"SIGKILL of the consumer's server: at most {load.slowest(since):.2f} s, {cache.replays - replays} replays"
        )


async def test_the_leader_of_the_bookkeeping_is_killed(three: NatsCluster) -> None:
    async with probes(three) as load:
        await load.latest()
        name = await meta_leader(three)
        since = time.monotonic()
        await three.server(name).kill()
        await load.latest()
        await load.settle()
        print(f"SIGKILL of the meta leader: at most {load.slowest(since):.2f} s, {load.ahead(since)} ahead")
