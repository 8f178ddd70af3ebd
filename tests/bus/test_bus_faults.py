"""The server dies in the middle, with its store and without it: caches, publishers and consumers heal."""

import asyncio
import time
from typing import Any

import pytest

from koord.bus import ordered
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, DecisionPublisher
from koord.bus.errors import EpochChanged
from koord.bus.statecache import Change, StateCache
from koord.bus.statepublisher import StatePublisher
from koord.contracts.decisions import Delete, ObjectRef
from koord.kube.resources import PODS
from koord.localcluster.servers import NatsServer
from koord.telemetry.context import TraceContext
from tests.bus.conftest import Connect, Thing, body, until


async def publish_some(publisher: StatePublisher, count: int, version: int = 1) -> None:
    for number in range(count):
        await publisher.room()
        publisher.publish(PODS, "ADDED", "default", f"p{number}", str(version), body(f"p{number}", version))
    await publisher.listed(PODS, str(version))


async def test_a_restart_with_its_store_tells_only_what_changed(own_nats: NatsServer, connect: Connect) -> None:
    gateway, reader = await connect("gateway", url=own_nats.url), await connect("reader", url=own_nats.url)
    publisher = StatePublisher(gateway)
    await publisher.start()
    await publish_some(publisher, 500)
    told: list[Change[Thing]] = []
    cache = StateCache(reader, PODS, Thing, told.append)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    told.clear()
    await own_nats.kill()
    await until(lambda: not gateway.connected and not reader.connected)
    # Published into the outage: waits, and arrives by itself.
    waiting = publisher.publish(PODS, "MODIFIED", "default", "p7", "2", body("p7", 2))
    await own_nats.restart(empty=False)
    await asyncio.wait_for(waiting, 60)
    await until(lambda: [change.key for change in told] == ["default/p7"], what=str(told[:3]))
    await until(lambda: cache.is_synced)
    assert cache.epoch == publisher.epoch
    assert len(cache.items) == 500
    await cache.close()


async def test_a_lost_store_never_looks_like_an_empty_cluster(own_nats: NatsServer, connect: Connect) -> None:
    gateway, reader = await connect("gateway", url=own_nats.url), await connect("reader", url=own_nats.url)
    epochs: list[str] = []
    publisher = StatePublisher(gateway, on_epoch=epochs.append)
    await publisher.start()
    first = publisher.epoch
    await publish_some(publisher, 300)
    told: list[Change[Thing]] = []
    heard: list[str] = []
    cache = StateCache(reader, PODS, Thing, told.append, on_epoch=heard.append)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    told.clear()
    await own_nats.kill()
    await until(lambda: not gateway.connected and not reader.connected)
    doomed = publisher.publish(PODS, "MODIFIED", "default", "p1", "2", body("p1", 2))
    await own_nats.restart(empty=True)
    with pytest.raises(EpochChanged):
        await asyncio.wait_for(doomed, 60)
    assert epochs == [publisher.epoch] and publisher.epoch != first
    await until(lambda: cache.epoch == publisher.epoch and cache._caught_up)
    assert heard[-1] == publisher.epoch
    # The stream is empty, the cluster is not: everything stays until the gateway has listed again.
    assert len(cache.items) == 300 and told == [] and not cache.is_synced
    assert await publisher.held(PODS) == {}
    await publish_some(publisher, 299, version=3)
    await until(lambda: cache.is_synced)
    assert len(cache.items) == 299
    assert [change.key for change in told if change.kind == "DELETED"] == ["default/p299"]
    assert sum(change.kind == "MODIFIED" for change in told) == 299
    assert all(change.replay and change.epoch == publisher.epoch for change in told)
    await cache.close()


async def test_a_deleted_stream_is_made_again(bus: Bus, connect: Connect) -> None:
    publisher = StatePublisher(bus)
    await publisher.start()
    await publish_some(publisher, 10)
    cache = StateCache(await connect("reader"), PODS, Thing)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    first = publisher.epoch
    await bus.js.delete_stream(bus.subjects.state_stream)
    # The first publish finds no stream: it is made anew, and what was meant for the old one fails.
    with pytest.raises(EpochChanged):
        await asyncio.wait_for(publisher.publish(PODS, "ADDED", "default", "x", "9", body("x")), 60)
    assert publisher.epoch != first
    assert await publisher.held(PODS) == {}
    await publish_some(publisher, 3)
    await until(lambda: cache.is_synced and len(cache.items) == 3, timeout=60)
    await cache.close()


@pytest.mark.parametrize("empty", [False, True])
async def test_decisions_flow_again_after_a_crash(own_nats: NatsServer, connect: Connect, empty: bool) -> None:
    author, gateway = await connect("author", url=own_nats.url), await connect("gateway", url=own_nats.url)
    decisions = DecisionPublisher(author, "queue")
    consumer = DecisionConsumer(gateway, ack_wait=2.0)
    await consumer.start()
    seen: list[str] = []

    async def consume() -> None:
        async for batch in consumer.batches():
            for delivery in batch:
                assert delivery.decision is not None
                seen.append(delivery.decision.id)
                delivery.ack()

    task = asyncio.create_task(consume())
    sent: list[str] = []
    stop = asyncio.Event()

    async def publish() -> None:
        while not stop.is_set():
            decision = Delete(f"d{len(sent)}", ObjectRef("pods_core", "default", "x", uid="u"))
            await decisions.publish(decision, TraceContext.new())
            sent.append(decision.id)

    publishing = [asyncio.create_task(publish())]
    await until(lambda: len(seen) > 300)
    await own_nats.kill()
    await until(lambda: not author.connected and not gateway.connected)
    before = len(sent)
    await own_nats.restart(empty=empty)
    await until(lambda: len(sent) > before + 300)
    stop.set()
    await asyncio.gather(*publishing)
    # With the store nothing published is lost; without it, nothing published after the loss.
    wanted = set(sent[before:] if empty else sent)
    await until(lambda: wanted <= set(seen), timeout=60, what=f"{len(wanted - set(seen))} missing")
    await consumer.close()
    await task


async def test_a_server_that_is_told_to_stop_and_comes_back(own_nats: NatsServer, connect: Connect) -> None:
    """SIGTERM, several times: everything heals without anybody's help."""
    gateway, reader = await connect("gateway", url=own_nats.url), await connect("reader", url=own_nats.url)
    publisher = StatePublisher(gateway)
    await publisher.start()
    await publish_some(publisher, 20)
    cache = StateCache(reader, PODS, Thing)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    for version in range(2, 5):
        await own_nats.restart(empty=False)
        await asyncio.wait_for(publisher.publish(PODS, "MODIFIED", "default", "p1", "9", body("p1", version)), 60)
        await until(lambda wanted=version: cache.items["default/p1"].size == wanted)  # type: ignore[misc]
    assert not gateway.closed.done() and not reader.closed.done()
    await cache.close()


async def test_an_error_line_of_the_server_is_a_reconnect_not_the_end(bus: Bus) -> None:
    await bus.nc._process_err("'maximum control line exceeded'")
    await until(lambda: not bus.connected)
    await until(lambda: bus.connected)
    assert await asyncio.wait_for(bus.publish_acked(bus.subjects.decision("t", "bind"), b"x"), 60) == 1


async def test_a_slow_reader_makes_the_server_wait_and_misses_nothing(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered, "BACKLOG_MESSAGES", 100)
    gateway, reader = await connect("gateway"), await connect("reader")
    publisher = StatePublisher(gateway)
    await publisher.start()
    longest = 0

    def slow(change: Change[Thing]) -> None:
        nonlocal longest
        longest = max(longest, len(cache._reader._backlog))
        until_then = time.perf_counter() + 0.0005
        while time.perf_counter() < until_then:
            pass

    cache = StateCache(reader, PODS, Thing, slow)
    await cache.start()
    await until(lambda: cache._caught_up)  # the bound holds once the consumer is confirmed
    await publish_some(publisher, 3000)
    await asyncio.wait_for(cache.synced(), 60)
    assert len(cache.items) == 3000
    assert cache.replays == 1
    assert longest <= 101
    await cache.close()


async def test_a_reader_the_server_cut_off_replays(connect: Connect, bus: Bus) -> None:
    reader = await connect("reader")
    publisher = StatePublisher(bus)
    await publisher.start()
    await publish_some(publisher, 50)
    cache = StateCache(reader, PODS, Thing)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    transport: Any = reader.nc._transport
    transport._io_writer.transport.abort()  # as a server does with a slow consumer
    await publisher.publish(PODS, "ADDED", "default", "new", "2", body("new"))
    await until(lambda: "default/new" in cache.items and cache.replays >= 2 and cache.is_synced)
    await cache.close()


async def test_closing_in_the_middle_of_a_start_ends(bus: Bus) -> None:
    """A cancellation that a library swallows must not leave the reader running."""
    publisher = StatePublisher(bus)
    await publisher.start()
    await publish_some(publisher, 5)
    for turn in range(60):
        cache = StateCache(bus, PODS, Thing)
        await cache.start()
        for _ in range(turn):
            await asyncio.sleep(0)
        await asyncio.wait_for(cache.close(), 60)
