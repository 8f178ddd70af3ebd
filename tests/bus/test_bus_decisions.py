"""The work queue: order, redelivery, the ways to settle a delivery, truncated bodies, results."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.bus import queued
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, DecisionPublisher, Delivery
from koord.bus.directread import Stored, read_stored
from koord.bus.errors import BusTimeout
from koord.bus.livedecisions import LiveDecisions
from koord.bus.pull import Pulled, PullLoop
from koord.bus.queued import unacknowledged
from koord.contracts.codec import decode_decision, encode
from koord.contracts.decisions import Bind, BindMember, ClaimRef, Create, Delete, ObjectRef
from koord.contracts.results import Result
from koord.telemetry.context import TraceContext
from tests.bus.conftest import Connect, until

TRACE = TraceContext.new()


def bind(number: int) -> Bind:
    member = BindMember(f"uid-{number}", "default", f"pod-{number}", "node-1", {"a": "b"})
    return Bind(f"claim-{number}", ClaimRef(f"claim-{number}", number, 1), [member])


class Gateway:
    """Consumes in the background; ``handle`` decides."""

    def __init__(self, consumer: DecisionConsumer) -> None:
        self.consumer = consumer
        self.deliveries: list[Delivery] = []
        self.handle = Delivery.ack
        self._task: asyncio.Task[None] | None = None

    def of(self, number: int) -> list[Delivery]:
        """The deliveries of one decision of :func:`bind`."""
        return [one for one in self.deliveries if one.decision and one.decision.id == f"claim-{number}"]

    async def start(self) -> None:
        await self.consumer.start()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for batch in self.consumer.batches():
            for delivery in batch:
                self.deliveries.append(delivery)
                self.handle(delivery)

    async def stop(self) -> None:
        await self.consumer.close()
        assert self._task is not None
        await self._task


async def started(bus: Bus, **options: float) -> Gateway:
    gateway = Gateway(DecisionConsumer(bus, **options))  # type: ignore[arg-type]
    await gateway.start()
    return gateway


async def messages(bus: Bus) -> int:
    return (await bus.js.stream_info(bus.subjects.decisions_stream)).state.messages


async def until_empty(bus: Bus) -> None:
    deadline = time.monotonic() + 60
    while await messages(bus):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("lags", [False, True])
async def test_what_nobody_acknowledged_can_be_looked_through(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, lags: bool
) -> None:
    """Also when the replicas that answer lag, one behind the other: their answers end too early."""
    bus = await connect()
    if lags:
        asked = itertools.count()

        async def lagging(bus: Bus, stream: str, subjects: str, first: int, **options: int) -> list[Stored]:
            found = await read_stored(bus, stream, subjects, first, **options)
            return found[: next(asked) % 2]

        monkeypatch.setattr(queued, "read_stored", lagging)
    assert [page async for page in unacknowledged(bus)] == []
    publisher, gateway = DecisionPublisher(bus, "scheduler"), await started(bus)
    gateway.handle = lambda self: self.ack() if self.body == encode(bind(1)) else self.nak(60.0)
    for number in range(4):
        await publisher.publish(bind(number), TRACE)
    await bus.publish_acked(bus.subjects.decision("scheduler", "bind"), b"nonsense")
    await bus.publish_acked(bus.subjects.decision("scheduler", "bind"), b"")
    await until(lambda: len(gateway.deliveries) == 6, what="every delivery")
    await until_async(lambda: _held(bus, 5), "the acknowledgement")
    for size in (2, 3, 500):
        pages = [page async for page in unacknowledged(bus, size)]
        assert [decision for page in pages for decision in page] == [bind(0), bind(2), bind(3)]
        assert max(map(len, pages)) <= size
    await gateway.stop()


async def _held(bus: Bus, count: int) -> bool:
    return (await bus.js.stream_info(bus.subjects.decisions_stream)).state.messages == count


async def until_async(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + 60
    while not await condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


async def test_decisions_arrive_in_order_with_author_and_trace(bus: Bus) -> None:
    publisher = DecisionPublisher(bus, "scheduler")
    await publisher.publish_many([(bind(number), TRACE) for number in range(2000)])
    gateway = await started(bus)
    await until(lambda: len(gateway.deliveries) == 2000)
    assert [d.decision.id for d in gateway.deliveries if d.decision] == [f"claim-{n}" for n in range(2000)]
    first = gateway.deliveries[0]
    assert (first.service, first.kind, first.trace, first.delivered) == ("scheduler", "bind", TRACE, 1)
    assert first.decision == bind(0)
    await until_empty(bus)
    await gateway.stop()


async def test_settle_returns_the_result(bus: Bus, connect: Connect) -> None:
    publisher = DecisionPublisher(bus, "queue")
    heard: list[Result] = []
    publisher.on_result(heard.append)
    gateway = Gateway(DecisionConsumer(await connect("gateway")))

    def answer(delivery: Delivery) -> None:
        assert delivery.decision is not None and delivery.trace is not None
        gateway.consumer.answer(
            delivery.service, Result(delivery.decision.id, "conflict", "resourceVersion 5"), delivery.trace
        )
        delivery.ack()

    gateway.handle = answer  # type: ignore[assignment]
    await gateway.start()
    decision = Create("d-1", "queueunits_scheduling_x-k8s_io", "default", "unit.with.dots", b"{}")
    assert await publisher.settle(decision, TRACE, 10) == Result("d-1", "conflict", "resourceVersion 5")
    assert heard == [Result("d-1", "conflict", "resourceVersion 5")]
    await gateway.stop()


async def test_settle_without_a_gateway_times_out_and_the_decision_stays(bus: Bus) -> None:
    with pytest.raises(BusTimeout, match="claim-1"):
        await DecisionPublisher(bus, "scheduler").settle(bind(1), TRACE, 0.3)
    assert await messages(bus) == 1


async def test_nak_comes_again_after_its_delay(bus: Bus) -> None:
    gateway = await started(bus, ack_wait=600.0)  # not for want of an acknowledgement
    times: list[float] = []

    def handle(delivery: Delivery) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            delivery.nak(0.4)
        elif len(times) == 2:
            delivery.nak()
        else:
            delivery.ack()

    gateway.handle = handle  # type: ignore[assignment]
    await DecisionPublisher(bus, "scheduler").publish(bind(1), TRACE)
    await until(lambda: len(times) == 3)
    assert times[1] - times[0] > 0.3
    assert [delivery.delivered for delivery in gateway.deliveries] == [1, 2, 3]
    await until_empty(bus)
    await gateway.stop()


async def test_what_is_not_settled_comes_again_unless_it_is_in_progress(bus: Bus) -> None:
    gateway = await started(bus, ack_wait=0.6)
    gateway.handle = lambda delivery: None  # type: ignore[assignment]
    publisher = DecisionPublisher(bus, "scheduler")
    for attempt in range(1, 100):
        told = [time.monotonic()]
        await publisher.publish(bind(attempt), TRACE)
        await until(lambda attempt=attempt: gateway.of(attempt))  # type: ignore[misc]
        while told[-1] - told[0] < 1.5:
            gateway.of(attempt)[0].in_progress()
            await bus.barrier()
            told.append(time.monotonic())
            await asyncio.sleep(0.1)
        if max(after - before for before, after in itertools.pairwise(told)) < 0.5:
            break  # else the server was not told in time: this attempt shows nothing
    assert len(gateway.of(attempt)) == 1
    await until(lambda: len(gateway.of(attempt)) >= 2)
    assert gateway.of(attempt)[1].delivered == 2
    for delivery in gateway.deliveries:
        await delivery.ack_confirmed()
    assert await messages(bus) == 0
    await gateway.stop()


async def test_ack_confirmed_waits_for_the_server(bus: Bus) -> None:
    gateway = await started(bus)
    gateway.handle = lambda delivery: None  # type: ignore[assignment]
    await DecisionPublisher(bus, "scheduler").publish_many([(bind(n), TRACE) for n in range(20)])
    await until(lambda: len(gateway.deliveries) == 20)
    await asyncio.gather(*(delivery.ack_confirmed() for delivery in gateway.deliveries))
    assert await messages(bus) == 0
    await gateway.stop()


async def test_a_truncated_decision_is_delivered_with_its_error_and_can_be_ended(bus: Bus) -> None:
    whole = encode(bind(1))
    subject = bus.subjects.decision("scheduler", "bind")
    await bus.publish_acked(subject, whole[: len(whole) // 2], ("traceparent", TRACE.traceparent))
    await bus.publish_acked(bus.subjects.decision("scheduler", "delete"), whole, ("traceparent", TRACE.traceparent))
    await DecisionPublisher(bus, "scheduler").publish(bind(2), TRACE)
    gateway = await started(bus)
    gateway.handle = lambda d: d.ack() if d.decision else d.term("cannot be read")  # type: ignore[assignment]
    await until(lambda: len(gateway.deliveries) == 3)
    cut, lying, good = gateway.deliveries
    assert cut.decision is None and cut.error is not None and "Decision" in str(cut.error)
    assert cut.trace == TRACE and cut.service == "scheduler"
    assert lying.decision is None and "'delete'" in str(lying.error) and "'bind'" in str(lying.error)
    assert good.decision == bind(2)
    await until_empty(bus)
    await gateway.stop()


async def test_max_ack_pending_bounds_what_is_out(bus: Bus) -> None:
    gateway = await started(bus, max_ack_pending=50, ack_wait=30)
    gateway.handle = lambda delivery: None  # type: ignore[assignment]
    await DecisionPublisher(bus, "scheduler").publish_many([(bind(n), TRACE) for n in range(200)])
    await until(lambda: len(gateway.deliveries) == 50)
    done = 0
    while done < 200:
        await until(lambda seen=done: len(gateway.deliveries) > seen)  # type: ignore[misc]
        assert len(gateway.deliveries) - done <= 50
        for delivery in gateway.deliveries[done:]:
            delivery.ack()
            done += 1
    await until_empty(bus)
    assert len(gateway.deliveries) == 200
    await gateway.stop()


async def test_a_successor_gets_what_the_first_consumer_had_not_settled(bus: Bus, connect: Connect) -> None:
    first = await started(await connect("first"), ack_wait=1.0)
    first.handle = lambda d: d.ack() if int(d.decision.id[6:]) < 5 else None  # type: ignore[assignment,union-attr]
    await DecisionPublisher(bus, "scheduler").publish_many([(bind(n), TRACE) for n in range(10)])
    await until(lambda: len({d.decision.id for d in first.deliveries if d.decision}) == 10)
    await until_async(lambda: _held(bus, 5), "what was acknowledged is gone")
    await first.stop()
    second, left = await started(bus, ack_wait=1.0), {f"claim-{n}" for n in range(5, 10)}
    await until(lambda: {d.decision.id for d in second.deliveries if d.decision} == left)
    assert all(delivery.delivered >= 2 for delivery in second.deliveries)
    await until_empty(bus)
    await second.stop()


async def test_a_deleted_consumer_is_made_again(bus: Bus) -> None:
    gateway = await started(bus)
    publisher = DecisionPublisher(bus, "scheduler")
    await publisher.publish(bind(1), TRACE)
    await until(lambda: len(gateway.deliveries) == 1)
    await until_empty(bus)  # else the acknowledgement may be too late, and the decision comes again
    await bus.js.delete_consumer(bus.subjects.decisions_stream, "gateway")
    await publisher.publish(bind(2), TRACE)
    await until(lambda: len(gateway.deliveries) == 2, timeout=60)
    await gateway.stop()


async def test_more_decisions_than_one_pull_asks_for(bus: Bus) -> None:
    gateway = Gateway(DecisionConsumer(bus, ahead=4))
    await gateway.start()
    await DecisionPublisher(bus, "scheduler").publish_many([(bind(n), TRACE) for n in range(500)])
    await until(lambda: len(gateway.deliveries) == 500)
    await until_empty(bus)
    await gateway.stop()


async def test_twenty_thousand_decisions_go_through(bus: Bus, connect: Connect) -> None:
    """How many a second is what `koord bench bus` says."""
    count = 20_000
    await DecisionPublisher(bus, "scheduler").publish_many([(bind(number), TRACE) for number in range(count)])
    gateway = Gateway(DecisionConsumer(await connect("gateway")))
    await gateway.start()
    await until(lambda: len(gateway.deliveries) >= count)  # more on a machine where acks are late
    assert len({delivery.decision.id for delivery in gateway.deliveries if delivery.decision}) == count
    await until_empty(bus)
    await gateway.stop()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(body=st.binary(max_size=200), cut=st.integers(0, 200))
async def test_no_body_breaks_a_delivery(bus: Bus, body: bytes, cut: int) -> None:
    for payload in (body, encode(bind(1))[:cut], encode(bind(1))[:cut] + body):
        delivery = Delivery(bus, Pulled(b"koord.x.decision.scheduler.bind", b"$JS.ACK.s.c.1.1.1.1.0", None, payload))
        assert (delivery.decision is None) != (delivery.error is None)


def test_unknown_fields_are_ignored_and_new_optional_ones_default() -> None:
    newer = msgspec.msgpack.encode(
        {
            "kind": "delete",
            "id": "d",
            "target": {"resource": "pods_core", "namespace": "a", "name": "b", "colour": "blue"},
            "invented": {"deep": [1, 2]},
        }
    )
    assert decode_decision(newer) == Delete("d", ObjectRef("pods_core", "a", "b"))


async def test_deliveries_that_got_lost_on_the_way_are_read_directly(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when they died with a connection: the consumer would bring them again only after its ack_wait."""
    receive, dropped = PullLoop._receive, list[bytes]()

    def lossy(loop: PullLoop, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        if reply.startswith(b"$JS.ACK.") and 2 <= len(dropped) + len(gateway.deliveries) < 5:
            dropped.append(body)
            return
        receive(loop, subject, reply, headers, body)

    monkeypatch.setattr(PullLoop, "_receive", lossy)
    publisher, theirs = DecisionPublisher(bus, "scheduler"), await connect("gateway")
    live = LiveDecisions(theirs)
    live.start()
    gateway = Gateway(DecisionConsumer(theirs, ack_wait=300.0, live=live))
    await gateway.start()
    for number in range(6):
        await publisher.publish(bind(number), TRACE)
        await until(lambda number=number: len(gateway.deliveries) + len(dropped) > number)  # type: ignore[misc]
    assert dropped
    await until(lambda: {d.decision.id for d in gateway.deliveries if d.decision} == {f"claim-{n}" for n in range(6)})
    again = [delivery for delivery in gateway.deliveries if not delivery.settles]
    assert {delivery.body for delivery in again} >= set(dropped) and all(delivery.stored for delivery in again)
    live.close()
    await gateway.stop()
