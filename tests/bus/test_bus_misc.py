"""Streams, leases, questions, and the check that nothing travels without its trace."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.js.kv import KeyValue

from koord.bus import leases
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, DecisionPublisher
from koord.bus.errors import AskRefused, BusTimeout, NobodyThere
from koord.bus.leases import KvLease
from koord.bus.questions import ask, serve
from koord.bus.statepublisher import StatePublisher
from koord.bus.streams import LEASE_TTL_S, StreamLimits, ensure_streams, state_epoch
from koord.bus.tracecheck import TraceCheck
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.contracts.codec import ContractError, encode
from koord.contracts.decisions import Delete, ObjectRef
from koord.contracts.ledger import EpochHint, LedgerHint
from koord.contracts.quota import QuotaRuntime
from koord.contracts.results import Result
from koord.kube.resources import PODS
from koord.localcluster.servers import NatsServer
from koord.telemetry.context import TraceContext
from tests.bus.conftest import Connect, body, until

# Streams ----------------------------------------------------------------------------------------------------------


async def test_ensuring_streams_is_idempotent_and_keeps_the_epoch(bus: Bus, connect: Connect) -> None:
    epoch = await state_epoch(bus)
    await asyncio.gather(*(ensure_streams(bus) for _ in range(5)))
    await connect("other")
    assert await state_epoch(bus) == epoch != ""


async def test_services_that_start_at_once_agree_on_one_epoch(connect: Connect) -> None:
    buses = [await connect(f"s{number}", streams=False) for number in range(6)]
    await asyncio.gather(*(ensure_streams(bus) for bus in buses))
    assert len({await state_epoch(bus) for bus in buses}) == 1


async def test_changed_limits_are_applied_and_the_epoch_stays(bus: Bus) -> None:
    epoch = await state_epoch(bus)
    await ensure_streams(bus, StreamLimits(decisions=1000))
    info = await bus.js.stream_info(bus.subjects.decisions_stream)
    assert info.config.max_msgs == 1000
    assert await state_epoch(bus) == epoch


async def test_two_clusters_share_a_server_without_seeing_each_other(bus: Bus, nats_url: str) -> None:
    other = await Bus.connect(nats_url, f"{bus.subjects.cluster}x", "other")
    await ensure_streams(other)
    try:
        await other.publish_acked(other.subjects.state("pods_core", "a", "b"), b"{}")
        assert (await bus.js.stream_info(bus.subjects.state_stream)).state.messages == 0
        assert await state_epoch(bus) != await state_epoch(other)
    finally:
        for stream in (other.subjects.state_stream, other.subjects.decisions_stream, other.subjects.quota_stream):
            await other.js.delete_stream(stream)
        await other.js.delete_stream(f"KV_{other.subjects.leases_bucket}")
        await other.close()


# Leases -----------------------------------------------------------------------------------------------------------


async def test_one_leads_the_other_follows_at_once_after_a_release(bus: Bus, connect: Connect) -> None:
    first, second = KvLease(bus, "queue", "a", renew=0.2), KvLease(await connect("two"), "queue", "b")
    await asyncio.wait_for(first.acquire(), 60)
    waiting = asyncio.create_task(second.acquire())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 1.0)
    assert first.held
    await first.release()
    assert first.lost.is_set()
    assert (await second._entry())[0] in ("", "b"), "given back, not left to end"
    await asyncio.wait_for(waiting, 60)
    await second.release()


async def test_a_role_that_was_taken_without_an_answer_is_ours_at_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, calls = KeyValue.create, 0

    async def unanswered(bucket: KeyValue, key: str, value: bytes) -> int:
        nonlocal calls
        calls += 1
        revision = await create(bucket, key, value)
        if calls == 1:
            raise nats.errors.TimeoutError
        return revision

    monkeypatch.setattr(KeyValue, "create", unanswered)
    lease = KvLease(bus, "quota", "a-1")
    await asyncio.wait_for(lease.acquire(), 60)
    assert lease.held and calls == 2, "not asked for again and again until it had ended"
    await lease.release()


async def test_a_renewed_lease_outlives_its_ttl(bus: Bus, connect: Connect) -> None:
    first, second = KvLease(bus, "quota", "a", renew=0.2), KvLease(await connect("two"), "quota", "b")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), LEASE_TTL_S + 0.5)
    assert first.held and not first.lost.is_set()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await first.release()


async def test_a_holder_that_vanished_is_followed_after_the_ttl(bus: Bus, connect: Connect) -> None:
    first, second = KvLease(bus, "queue", "a"), KvLease(await connect("two"), "queue", "b")
    begun = time.monotonic()
    await first.acquire()
    assert first._task is not None
    first._task.cancel()  # as if the process had died: no renewal, no release
    await asyncio.wait_for(second.acquire(), 60)
    assert time.monotonic() - begun > LEASE_TTL_S - 0.1
    await second.release()


async def test_a_holder_cut_off_gives_up_before_another_can_lead(
    own_nats: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = KvLease(await connect("one", url=own_nats.url), "queue", "a")
    await lease.acquire()
    until_s = lease._renewed + LEASE_TTL_S - leases.MARGIN_S
    for moment, held in ((until_s - 0.01, True), (until_s + 0.01, False)):
        with monkeypatch.context() as clock:
            clock.setattr(leases, "time", SimpleNamespace(monotonic=lambda moment=moment: moment))
            assert lease.held is held
    await own_nats.kill()
    await asyncio.wait_for(lease.lost.wait(), 60)
    assert not lease.held


async def test_roles_do_not_disturb_each_other_and_a_lease_can_be_taken_again(bus: Bus) -> None:
    queue, quota = KvLease(bus, "queue", "a"), KvLease(bus, "quota", "a")
    await asyncio.wait_for(queue.acquire(), 60)
    await asyncio.wait_for(quota.acquire(), 60)
    await queue.release()
    await asyncio.wait_for(queue.acquire(), 60)
    assert queue.held and quota.held
    await queue.release()
    await quota.release()


# Questions --------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered(bus: Bus, connect: Connect) -> None:
    async def explain(question: ExplainPod) -> PodExplanation:
        return PodExplanation(question.namespace, question.name, "unknown", error="kept apart from a Refusal")

    await serve(await connect("scheduler"), "scheduler", "explain", ExplainPod, explain)
    answer = await ask(bus, "scheduler", "explain", ExplainPod("default", "a"), PodExplanation)
    assert (answer.state, answer.error) == ("unknown", "kept apart from a Refusal")


async def test_what_a_handler_raises_comes_back_as_a_refusal(bus: Bus) -> None:
    async def explain(question: ExplainPod) -> PodExplanation:
        if question.name == "bug":
            raise ZeroDivisionError("on purpose")
        raise LookupError(f"pod {question.namespace}/{question.name}: not known")

    await serve(bus, "scheduler", "explain", ExplainPod, explain)
    with pytest.raises(AskRefused, match="pod default/a: not known"):
        await ask(bus, "scheduler", "explain", ExplainPod("default", "a"), PodExplanation)
    with pytest.raises(AskRefused, match="ZeroDivisionError"):
        await ask(bus, "scheduler", "explain", ExplainPod("default", "bug"), PodExplanation)
    truncated = await bus.ask(bus.subjects.ask("scheduler", "explain"), b"\x81")
    assert b"refusal" in truncated and b"ExplainPod" in truncated


async def test_nobody_there_and_too_slow_are_told_apart(bus: Bus) -> None:
    with pytest.raises(NobodyThere, match=r"ask\.nobody\.explain"):
        await ask(bus, "nobody", "explain", ExplainPod("a", "b"), PodExplanation)

    async def slow(question: bytes) -> bytes:
        await asyncio.Event().wait()
        return question

    await bus.serve(bus.subjects.ask("slow", "explain"), slow)
    with pytest.raises(BusTimeout, match=r"0\.2 s"):
        await ask(bus, "slow", "explain", ExplainPod("a", "b"), PodExplanation, timeout=0.2)


async def test_an_answer_of_another_kind_is_a_contract_error(bus: Bus) -> None:
    async def echo(question: bytes) -> bytes:
        return b"\x93\x01\x02\x03"

    await bus.serve(bus.subjects.ask("odd", "explain"), echo)
    with pytest.raises(ContractError, match="PodExplanation"):
        await ask(bus, "odd", "explain", ExplainPod("a", "b"), PodExplanation)


async def test_an_ordinary_subscription_survives_its_handlers_fault(bus: Bus) -> None:
    got: list[bytes] = []

    async def handler(message: Msg) -> None:
        got.append(message.data)
        if message.data == b"1":
            raise RuntimeError("on purpose")

    await bus.subscribe(bus.subjects.ledger_all, handler)
    for payload in (b"1", b"2"):
        await bus.publish(bus.subjects.ledger("epoch"), payload)
    await until(lambda: got == [b"1", b"2"])


# Traces -----------------------------------------------------------------------------------------------------------


async def test_everything_koord_bus_sends_is_traced_or_exempt(bus: Bus, connect: Connect) -> None:
    check = TraceCheck(await connect("check"))
    await check._bus.barrier()
    state = StatePublisher(bus)
    await state.start()
    await state.publish(PODS, "ADDED", "default", "a.b", "1", body("a.b"))
    await state.publish(PODS, "DELETED", "default", "a.b", "2", body("a.b"))
    await state.listed(PODS, "2")
    publisher = DecisionPublisher(bus, "queue")
    consumer = DecisionConsumer(bus)
    await consumer.start()

    async def execute() -> None:
        async for batch in consumer.batches():
            for delivery in batch:
                assert delivery.decision is not None and delivery.trace is not None
                consumer.answer(delivery.service, Result(delivery.decision.id, "done"), delivery.trace)
                delivery.ack()

    task = asyncio.create_task(execute())
    await publisher.settle(Delete("d.1", ObjectRef("pods_core", "default", "a", uid="u")), TraceContext.new(), 10)
    await bus.publish(bus.subjects.ledger("claim.held"), encode(LedgerHint("held")))
    await bus.publish(bus.subjects.ledger("epoch"), encode(EpochHint(1)))
    await bus.publish_acked(bus.subjects.quota_runtime(""), encode(QuotaRuntime("", 1, [])))

    async def explain(question: ExplainPod) -> PodExplanation:
        return PodExplanation(question.namespace, question.name, "unknown")

    await serve(bus, "scheduler", "explain", ExplainPod, explain)
    await ask(bus, "scheduler", "explain", ExplainPod("a", "b"), PodExplanation)
    kinds = {"State": 3, "Delete": 1, "Result": 1, "LedgerHint": 1, "EpochHint": 1, "QuotaRuntime": 1, "ExplainPod": 1}
    await until(lambda: check.seen == kinds, what=str(check.seen))
    assert check.violations == []
    await consumer.close()
    await task
    check.close()


@pytest.mark.parametrize(
    ("tail", "headers", "complaint"),
    [
        ("decision.queue.bind", None, "Bind without traceparent"),
        ("decision.queue.bind", {"traceparent": "00-zz"}, "not valid"),
        ("decision.queue.bind", {"traceparent": TraceContext.new().traceparent, "X-More": "1"}, "header X-More"),
        ("result.queue.d-1", None, "Result without traceparent"),
        ("ask.scheduler.explain", None, "ExplainPod without traceparent"),
        ("decision.queue.invented", None, "not in the catalogue"),
        ("state.pods_core.a.b", {"Koord": "ADDED 1 e", "traceparent": "x"}, "State carries the header traceparent"),
    ],
)
async def test_the_check_finds_what_it_should(
    bus: Bus, connect: Connect, tail: str, headers: dict[str, str] | None, complaint: str
) -> None:
    check = TraceCheck(await connect("check", streams=False))
    await check._bus.barrier()
    await bus.publish(f"{bus.subjects.root}.{tail}", b"x", headers)
    await until(lambda: check.violations)
    assert len(check.violations) == 1 and complaint in check.violations[0]


class Small(NatsServer):
    """As nats-server is by default."""

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"max_payload": 1 << 20}


async def test_a_server_that_takes_only_small_messages_is_warned_of(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Small()
    await server.start()
    try:
        async with await Bus.connect(server.url, cluster, "one"):
            captured = capsys.readouterr()
        assert "set its max_payload to 8388608" in captured.err + captured.out
    finally:
        await server.stop()
