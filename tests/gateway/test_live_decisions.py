"""Decisions that come past their queue: executed once, whenever the queue's own copy comes, whoever dies meanwhile."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from koord.bus.connection import TRACEPARENT, Bus
from koord.bus.decisions import DecisionPublisher
from koord.bus.leaders import stream_leader
from koord.bus.livedecisions import LiveDecisions
from koord.bus.streams import StreamLimits, ensure_streams
from koord.contracts.codec import decode, encode
from koord.contracts.decisions import KINDS, Bind, Create, Decision, EventNote, ObjectRef, RecordEvents
from koord.contracts.results import Result
from koord.gateway.access import ApiAccess
from koord.gateway.leanclient import LeanClient, Response
from koord.gateway.ledgerlease import LEASE
from koord.gateway.livemark import LIVE
from koord.gateway.remembered import Remembered
from koord.gateway.settings import GatewaySettings
from koord.kube.meta import micro_rfc3339
from koord.kube.resources import EVENTS, LEASES, PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.localcluster.natscluster import NatsCluster
from koord.localcluster.servers import RedisServer
from koord.telemetry.context import TraceContext
from tests.gateway.conftest import Kube, until
from tests.gateway.test_barrier import Cluster, OnServers
from tests.gateway.test_lost_decisions import Bed, Wire, reconciling
from tests.gateway.underway import HoldingWire

TRACE = TraceContext.new()


class Counting(Wire):
    """Counts the Bindings that the API took, by pod; one can be held up."""

    def __init__(self, client: LeanClient) -> None:
        super().__init__(client)
        self.bound: Counter[str] = Counter()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.reached = asyncio.Event()

    async def _answer(self, method: str, path: str, body: bytes, content_type: str, lane: int) -> Response:
        if path.endswith("/binding"):
            self.reached.set()
            await self.goes_on.wait()
        answer = await super()._answer(method, path, body, content_type, lane)
        if path.endswith("/binding") and answer.status < 300:
            self.bound[path.split("/")[-2]] += 1
        return answer


class Clustered(Bus):
    """A single server never has anything live; this one is taken for a cluster."""

    @property
    def clustered(self) -> bool:
        return True

    @clustered.setter
    def clustered(self, value: bool) -> None:
        """As it is."""


class Live:
    """A gateway that hears live decisions, and a scheduler that sends them by hand."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.results: list[Result] = []
        bed.bus.__class__ = Clustered
        bed.live = LiveDecisions(bed.bus)
        bed.live.start()
        bed.bus.subscribe_raw(
            bed.bus.subjects.results_of("scheduler"), lambda s, r, h, body: self.results.append(decode(Result, body))
        )

    async def send(self, decision: Decision) -> None:
        subjects = self.bed.bus.subjects
        subject = subjects.live_of(subjects.decision("scheduler", KINDS[type(decision)]))
        await self.bed.bus.publish(subject, encode(decision), {TRACEPARENT: TRACE.traceparent})

    async def answered(self, count: int) -> None:
        await until(lambda: len(self.results) >= count, f"{count} results")

    async def is_empty(self) -> bool:
        stream = self.bed.bus.subjects.decisions_stream
        return not (await self.bed.bus.js.stream_info(stream)).state.messages


@pytest.fixture
async def live(
    nats_url: str, own_redis: RedisServer, cluster: str, access: ApiAccess, kube: Kube
) -> AsyncIterator[Live]:
    async with OnServers(nats_url, own_redis, cluster, access, kube) as made:
        await made.kill_gateway()
        made.wire = Counting(made.wire.client)
        live = Live(made)
        await made.follow_gateway()
        yield live


def counting(live: Live) -> Counting:
    assert isinstance(live.bed.wire, Counting)
    return live.bed.wire


async def claimed(bed: Bed, name: str) -> Bind:
    pod = await bed.kube.pod(name)
    return bed.decision(pod, await bed.claim(pod))


@pytest.mark.parametrize("order", ["before", "while", "after"])
async def test_the_queues_copy_comes_before_while_or_after_the_live_one_runs(live: Live, order: str) -> None:
    bed, wire = live.bed, counting(live)
    decision = await claimed(bed, "p")
    if order == "before":
        await bed.publisher.publish(decision, TRACE)
        await live.answered(1)
    elif order == "while":
        wire.goes_on.clear()
    await live.send(decision)
    if order == "while":
        await asyncio.wait_for(wire.reached.wait(), 60)
        await bed.publisher.publish(decision, TRACE)
        await live.send(decision)  # a second live copy must not take the place of the one that settles
        await until(lambda: bed.bus.acks.in_flight == 0, "the queue's copy")
        wire.goes_on.set()
    elif order == "after":
        await live.answered(1)
        assert (await bed.shown("p"))[0] == bed.node and await live.is_empty(), "executed, and in no queue"
        await bed.publisher.publish(decision, TRACE)
    await live.answered(2 if order == "after" else 1)
    await until(lambda: _is_marked(bed), "the live copy to be taken")
    assert {result.outcome for result in live.results} == {"done"}
    await until(live.is_empty, "the queue's copy to be acknowledged")
    assert wire.bound == {"p": 1}


async def _is_marked(bed: Bed) -> bool:
    """Before a live decision with a claim is looked at, the Lease says so."""
    lease = await bed.kube.get(LEASES.path(bed.kube.namespace, LEASE))
    return lease is not None and LIVE in lease["metadata"]["annotations"]


async def test_creates_and_events_are_not_doubled(live: Live) -> None:
    """A generated name comes from the decision's id; Events count when they come from the queue, not live."""
    bed = live.bed
    namespace, path = bed.kube.namespace, QUEUE_UNITS.path(bed.kube.namespace)
    body = {"apiVersion": QUEUE_UNITS.api_version, "kind": "QueueUnit", "metadata": {"generateName": "u-"}, "spec": {}}
    create = Create("live-create", QUEUE_UNITS.token, namespace, "", json.dumps(body).encode(), "")
    subjects = bed.bus.subjects
    for _ in range(2):
        subject = subjects.live_of(subjects.decision("queue", "create"))
        await bed.bus.publish(subject, encode(create), {TRACEPARENT: TRACE.traceparent})
        await DecisionPublisher(bed.bus, "queue").settle(create, TRACE, timeout=60)
        # The next gateway remembers nothing; the API does.
        await bed.kill_gateway()
        bed.start_gateway()
    listing = await bed.kube.get(path)
    assert listing is not None and len(listing["items"]) == 1
    pod = await bed.kube.pod("e")
    target = ObjectRef(PODS.token, namespace, "e", pod["metadata"]["uid"])
    events = RecordEvents("live-event", [EventNote(target, "Pod", "v1", "Normal", "Tested", "text", controller="c")])
    await live.send(events)
    await bed.publisher.publish(events, TRACE)

    async def written() -> list[int]:
        found = await bed.kube.get(EVENTS.path(namespace))
        assert found is not None
        return [event["count"] for event in found["items"] if event["reason"] == "Tested"]

    assert await until(written, "the Event") == [1]
    await until(live.is_empty, "an empty queue")
    assert await written() == [1]


async def test_a_late_live_decision_is_refused_after_a_rebuild(live: Live) -> None:
    """What a publisher still holds is in no queue and in nobody's hands: the ledger refuses it by its epoch."""
    bed, wire = live.bed, counting(live)
    assert isinstance(bed, Cluster)
    decision, before = await claimed(bed, "p"), await bed.opened()
    await bed.lose_redis()
    await bed.opened(before)
    await live.send(decision)
    await live.answered(1)
    assert (live.results[0].outcome, live.results[0].members[0].reason.split(":")[0]) == ("rejected", "claim gone")
    assert not wire.bound and (await bed.shown("p"))[0] == ""
    await bed.is_right()


@pytest.mark.parametrize("over_s", [0.0, 60.0])
async def test_a_barrier_settles_what_a_dead_gateway_executed_past_the_queue(live: Live, over_s: float) -> None:
    """Gateway and ledger are lost with a request under way that no queue tells of.

    It may have been sent ``over_s`` after the time in the note: a decision is taken before that time, waits in its
    lane, and is tried again in rounds.
    """
    bed = live.bed
    assert isinstance(bed, Cluster)
    plain = bed.wire
    await bed.kill_gateway()
    bed.wire = holding = HoldingWire(plain.client, "/b/binding")
    await bed.follow_gateway()
    pod = await bed.kube.pod("b")
    decision, before = bed.decision(pod, await bed.claim(pod)), await bed.opened()
    await live.send(decision)
    await asyncio.wait_for(holding.under_way.reached.wait(), 60)
    await bed.kill_gateway()
    assert await live.is_empty()
    if over_s:
        note = {"metadata": {"annotations": {LIVE: micro_rfc3339(time.time() - over_s)}}}
        await bed.kube.call("patch", LEASES.path(bed.kube.namespace, LEASE), note, "application/merge-patch+json")
    await bed.lose_redis()
    bed.wire = plain
    # Who waits for requests that take so long does not open the ledger in time.
    bed.settings = GatewaySettings(lease_namespace=bed.kube.namespace, api_timeout_s=600.0)
    await bed.follow_gateway()
    await bed.opened(before)
    assert await holding.under_way.arrive() == 409
    assert (await bed.shown("b")) == ("", True)
    await bed.is_right()


def test_results_are_remembered_by_number_and_by_time() -> None:
    remembered = Remembered(least=3, keep_s=10.0, most=6)
    for number in range(5):
        remembered.put(Result(f"d{number}", "done", code=number), float(number))
    assert [remembered.get(f"d{number}") is not None for number in range(5)] == [True] * 5
    assert remembered.get("d2") == Result("d2", "done", code=2)
    remembered.put(Result("d5", "done"), 12.5)  # 0 to 2 are older than ten seconds, but three stay in any case
    assert [number for number in range(6) if remembered.get(f"d{number}")] == [3, 4, 5]
    for number in range(6, 20):
        remembered.put(Result(f"d{number}", "done"), 12.5)
    assert len(remembered) == 6 and remembered.get("d13") is None and remembered.get("d14") is not None


async def test_the_gateway_dies_while_the_queue_has_no_leader(
    redis_url: str, cluster: str, access: ApiAccess, kube: Kube
) -> None:
    """SIGKILL of the queue's leader, then the end of the gateway: its standby goes on, every pod is bound once.

    Another server dies with the leader and comes back before the gateway ends."""
    client = LeanClient(access, connections=8, timeout_s=10)
    three = NatsCluster(3)
    await three.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        stack.push_async_callback(three.stop)
        bus = await stack.enter_async_context(await Bus.connect(three.url, cluster, "test"))
        await ensure_streams(bus, StreamLimits(replicas=3))
        bed, wire = Bed(bus, kube, access, Wire(client)), Counting(client)
        bed.wire = wire
        await kube.node(bed.node, cpu="64")
        bed.scheduler, bed.gateway, reconciler, second = [
            await stack.enter_async_context(await Ledger.connect(redis_url, cluster, name, lease_s=3600.0))
            for name in "sgrt"
        ]
        bed.live, standby = LiveDecisions(bus), LiveDecisions(bus)
        for one in (bed.live, standby):
            one.start()
        bed.start_gateway()
        stack.push_async_callback(bed.kill_gateway)
        await stack.enter_async_context(reconciling(bed, reconciler))
        await until(lambda: _is_open(bed.scheduler), "the ledger", 60)
        decisions = [await claimed(bed, f"p{number}") for number in range(16)]
        await asyncio.wait_for(bed.publisher.settle(decisions[0], TRACE), 60)
        victim = await stream_leader(bus, bus.subjects.decisions_stream)
        third = next(server for server in three.servers if server.name != victim)
        # Two of three, so that no leader is elected before the first are bound, however slow the machine is.
        await asyncio.gather(three.server(victim).kill(), third.kill())
        sent = [bed.publisher.send(decision, TRACE, timeout=None) for decision in decisions[1:8]]
        await until(lambda: len(wire.bound) == 8, "what was decided first", 60)
        early = sum(not future.done() for future in sent)
        await third.start()
        sent += [bed.publisher.send(decision, TRACE, timeout=None) for decision in decisions[8:12]]
        await bed.kill_gateway()
        sent += [bed.publisher.send(decision, TRACE, timeout=None) for decision in decisions[12:]]
        bed.gateway, bed.live = second, standby
        bed.start_gateway()
        await until(lambda: len(wire.bound) == 16, "everything", 60)
        late = sum(not future.done() for future in sent)
        print(f"{early} of 7 bound before the queue had them, {late} of 15 unconfirmed when the last one was bound")
        assert early == 7
        await asyncio.wait_for(asyncio.gather(*sent), 60)
        await until(lambda: _is_acknowledged(bus), "an empty queue", 60)
        assert set(wire.bound.values()) == {1}
        await until(lambda: bed.is_((16_000, 0)), "the ledger to see all", 60)


async def _is_open(ledger: Ledger) -> bool:
    return (await ledger.status()).open


async def _is_acknowledged(bus: Bus) -> bool:
    return not (await bus.js.stream_info(bus.subjects.decisions_stream)).state.messages
