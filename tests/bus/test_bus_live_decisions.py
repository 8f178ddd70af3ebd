"""Three nats-servers, one killed: decisions reach the gateway while their queue or its consumer has no leader."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator

import nats.errors
import nats.js.errors
import pytest
import pytest_asyncio

from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, DecisionPublisher
from koord.bus.ending import end
from koord.bus.errors import BusError
from koord.bus.leaders import stream_leader
from koord.bus.livecopies import AGAIN_S
from koord.bus.livedecisions import LiveDecisions
from koord.bus.streams import StreamLimits, ensure_streams
from koord.contracts.decisions import Delete, EventNote, ObjectRef, RecordEvents
from koord.localcluster.natscluster import NatsCluster
from koord.telemetry.context import TraceContext
from tests.bus.conftest import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
_numbers = itertools.count(1)
DEADLINE_S = 60.0
EVERY_S = 0.02
TARGET = ObjectRef("pods_core", "default", "x", uid="u")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three() -> AsyncIterator[NatsCluster]:
    cluster = NatsCluster(3)
    await cluster.start()
    yield cluster
    await cluster.stop()


class Sight:
    """The first time that a decision came to the gateway."""

    def __init__(self, after_s: float, confirmed: bool, settles: bool, stored: bool) -> None:
        self.after_s = after_s
        self.confirmed = confirmed
        self.settles = settles
        self.stored = stored


class Work:
    """An author that decides all the time, and a gateway that acknowledges what it gets."""

    def __init__(self, three: NatsCluster) -> None:
        self._three = three
        self._cluster = f"d{os.getpid()}-{next(_numbers)}"
        self._buses: list[Bus] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.futures: dict[str, asyncio.Future[int]] = {}
        self.sent_at: dict[str, float] = {}
        self.seen: dict[str, Sight] = {}
        # Copies may follow what the queue has settled.
        self.settled_ids: set[str] = set()
        self.events = 0

    async def _bus(self, name: str) -> Bus:
        bus = await Bus.connect(self._three.url, self._cluster, name)
        self._buses.append(bus)
        await ensure_streams(bus, StreamLimits(replicas=3))
        return bus

    async def __aenter__(self) -> "Work":
        self.author, self.gateway, self.other = [await self._bus(name) for name in ("author", "gateway", "other")]
        self.stream = self.author.subjects.decisions_stream
        self.live = LiveDecisions(self.gateway)
        self.live.start()
        self.consumer = DecisionConsumer(self.gateway, live=self.live)
        await self.consumer.start()
        self.publisher = DecisionPublisher(self.author, "queue")
        self._tasks = [asyncio.create_task(self._decide()), asyncio.create_task(self._execute())]
        await until(lambda: len(self.seen) > 20, timeout=DEADLINE_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(*self._tasks)
        await self.consumer.close()
        self.live.close()
        for bus in self._buses:
            await bus.close()
        # Whatever came of this test, the next one finds three servers.
        for server in self._three.servers:
            if server.pid is None:
                await server.start()
        await self._three.ready()

    async def _decide(self) -> None:
        while True:
            decision = Delete(f"d{len(self.futures)}", TARGET)
            self.sent_at[decision.id] = time.monotonic()
            self.futures[decision.id] = self.publisher.send(decision, TraceContext.new(), timeout=None)
            await asyncio.sleep(EVERY_S)

    async def _execute(self) -> None:
        async for batch in self.consumer.batches():
            for delivery in batch:
                if isinstance(delivery.decision, RecordEvents):
                    # One that was read directly is the queue's own, which the gateway leaves alone.
                    if delivery.settles:
                        self.events += 1
                    delivery.ack()
                    assert delivery.stored, "an Event came live"
                    continue
                assert delivery.decision is not None and delivery.trace is not None
                id_ = delivery.decision.id
                assert (delivery.service, delivery.kind) == ("queue", "delete")
                if id_ not in self.seen:
                    after_s = time.monotonic() - self.sent_at[id_]
                    self.seen[id_] = Sight(after_s, self.futures[id_].done(), delivery.settles, delivery.stored)
                delivery.ack()
                if delivery.settles:
                    self.settled_ids.add(id_)

    async def leaders(self) -> tuple[str, str]:
        """Of the queue and of its consumer; "" where there is none."""
        try:
            info = await self.other.js_quick.consumer_info(self.stream, "gateway")
            consumer = info.cluster.leader if info.cluster is not None else ""
            return await stream_leader(self.other, self.stream), consumer or ""
        except (BusError, nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError):
            return "", ""

    async def apart(self) -> tuple[str, str]:
        """The leaders of the queue and of its consumer, made to be two servers."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            queue, consumer = await self.leaders()
            if queue and consumer and queue != consumer:
                return queue, consumer
            assert time.monotonic() < deadline, (queue, consumer)
            await self.other.nc.request(f"$JS.API.CONSUMER.LEADER.STEPDOWN.{self.stream}.gateway", b"", timeout=5)
            await asyncio.sleep(0.2)

    async def elected(self) -> None:
        """Until both have a leader again."""
        deadline = time.monotonic() + DEADLINE_S
        while not all(await self.leaders()):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)

    async def settled(self) -> None:
        """Decide no more; until everything was confirmed, seen, and acknowledged in the queue."""
        await end(self._tasks[0])
        await asyncio.wait_for(asyncio.gather(*self.futures.values()), DEADLINE_S)
        await until(lambda: self.seen.keys() == self.futures.keys() == self.settled_ids, timeout=DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while (await self.other.js.stream_info(self.stream)).state.messages:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("victim", ["queue", "consumer", "neither"])
async def test_decisions_come_while_a_leader_is_missing(three: NatsCluster, victim: str) -> None:
    """SIGKILL of the leader of the queue, of its consumer, and of the third server.

    An Event that came twice would count twice: of those no copy goes out, they wait for the queue.
    """
    async with Work(three) as work:
        queue, consumer = await work.apart()
        third = next(server.name for server in three.servers if server.name not in (queue, consumer))
        name = {"queue": queue, "consumer": consumer, "neither": third}[victim]
        first = len(work.futures)
        await three.server(name).kill()
        killed = time.monotonic()
        note = EventNote(TARGET, "Pod", "v1", "Normal", "Test", "text")
        event = work.publisher.send(RecordEvents("e1", [note]), TraceContext.new(), timeout=None)
        if victim == "neither":
            await until(lambda: len(work.seen) > first + 100, timeout=DEADLINE_S)
        else:
            await until(lambda: len(work.seen) > first + 50, timeout=DEADLINE_S)
            await work.elected()
        elected_s = time.monotonic() - killed
        await asyncio.wait_for(event, DEADLINE_S)
        await until(lambda: work.events, timeout=DEADLINE_S)
        await work.settled()
        assert work.events == 1
        await three.server(name).start()
        await three.ready()
        during = [sight for id_, sight in work.seen.items() if killed <= work.sent_at[id_] < killed + elected_s]
        past = [sight for sight in during if not sight.settles]
        slowest = max(sight.after_s for id_, sight in work.seen.items() if work.sent_at[id_] > killed - 1)
        print(
            f"{victim}: leaders after {elected_s:.1f} s; {len(during)} decisions meanwhile, {len(past)} past the "
            f"consumer, {sum(sight.stored for sight in past)} read directly; the slowest came after {slowest:.2f} s"
        )
        if victim == "queue":
            assert any(not sight.confirmed and not sight.stored for sight in past), "none came live"
        elif victim == "consumer":
            # Read directly where the queue confirmed it, live where the election slowed the queue down, too; which of
            # the two is up to the servers.
            assert past, "all waited for the consumer"
        place = {id_: number for number, id_ in enumerate(work.futures)}
        # Who was reconnecting gets a live copy again, behind newer ones: no first copy is as old as that.
        for way in ((True, True), (False, True), (False, False)):
            places = [
                place[id_]
                for id_, sight in work.seen.items()
                if (sight.settles, sight.stored) == way and (way != (False, False) or sight.after_s < AGAIN_S)
            ]
            assert places == sorted(places), f"out of order: {way}"
