"""State cache and publisher on the real server: what a reader may rely on, one test per sentence."""

import asyncio
import time

import msgspec
import pytest

from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable, EpochChanged, PublishRefused
from koord.bus.statecache import Change, StateCache
from koord.bus.statepublisher import Held, StatePublisher
from koord.bus.streams import state_epoch
from koord.contracts.codec import ContractError
from koord.kube.resources import NODES, PODS
from tests.bus.conftest import Connect, Thing, body, until

Told = list[tuple[str, str, bool]]


class Recorder:
    """Remembers changes, in short."""

    def __init__(self) -> None:
        self.changes: list[Change[Thing]] = []
        self.bad: list[tuple[str, str]] = []

    def change(self, change: Change[Thing]) -> None:
        self.changes.append(change)

    def on_bad(self, key: str, error: ContractError) -> None:
        self.bad.append((key, str(error)))

    @property
    def told(self) -> Told:
        return [(change.kind, change.key, change.replay) for change in self.changes]


@pytest.fixture
async def publisher(bus: Bus) -> StatePublisher:
    publisher = StatePublisher(bus)
    await publisher.start()
    return publisher


async def cache_of(bus: Bus, recorder: Recorder) -> StateCache[Thing]:
    cache = StateCache(bus, PODS, Thing, recorder.change, on_bad=recorder.on_bad)
    await cache.start()
    return cache


async def synced(cache: StateCache[Thing], timeout: float = 60.0) -> None:
    await asyncio.wait_for(cache.synced(), timeout)


async def test_replays_what_is_there_then_follows(bus: Bus, connect: Connect, publisher: StatePublisher) -> None:
    for name in ("a", "b.with.dots"):
        await publisher.publish(PODS, "ADDED", "default", name, "1", body(name, 1))
    await publisher.publish(NODES, "ADDED", "", "n1", "1", body("n1"))
    await publisher.listed(PODS, "1")
    recorder = Recorder()
    cache = await cache_of(await connect("reader"), recorder)
    await synced(cache)
    assert recorder.told == [("ADDED", "default/a", True), ("ADDED", "default/b.with.dots", True)]
    assert cache.is_synced
    await publisher.publish(PODS, "MODIFIED", "default", "a", "2", body("a", 2))
    await publisher.publish(PODS, "DELETED", "default", "b.with.dots", "3", body("b.with.dots", 1))
    await publisher.publish(PODS, "ADDED", "default", "c", "4", body("c", 3))
    await until(lambda: len(recorder.changes) == 5)
    assert recorder.told[2:] == [
        ("MODIFIED", "default/a", False),
        ("DELETED", "default/b.with.dots", False),
        ("ADDED", "default/c", False),
    ]
    modified, deleted, _ = recorder.changes[2:]
    assert modified.old is not None and modified.old.size == 1
    assert modified.new is not None and modified.new.size == 2
    assert (modified.resource_version, modified.epoch) == ("2", publisher.epoch)
    assert deleted.old is not None and deleted.old.metadata.name == "b.with.dots"
    assert deleted.new is None
    assert {key: thing.size for key, thing in cache.items.items()} == {"default/a": 2, "default/c": 3}
    sequences = [change.sequence for change in recorder.changes]
    assert sequences == sorted(sequences)
    await cache.close()


async def test_an_empty_stream_is_not_an_empty_cluster(bus: Bus, publisher: StatePublisher) -> None:
    recorder = Recorder()
    cache = await cache_of(bus, recorder)
    await until(lambda: cache._caught_up)
    assert not cache.is_synced
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    await until(lambda: len(cache.items) == 1)
    assert not cache.is_synced
    await publisher.listed(PODS, "1")
    await synced(cache)
    assert recorder.told == [("ADDED", "default/a", True)]
    await cache.close()


async def test_a_cluster_scoped_object_has_a_bare_key(bus: Bus, publisher: StatePublisher) -> None:
    await publisher.publish(NODES, "ADDED", "", "ip-10-0-0-1.ec2.internal", "1", body("x"))
    await publisher.listed(NODES, "1")
    cache = StateCache(bus, NODES, Thing)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    assert list(cache.items) == ["ip-10-0-0-1.ec2.internal"]
    await cache.close()


async def test_several_caches_share_a_connection_and_raw_keeps_everything(bus: Bus, publisher: StatePublisher) -> None:
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a", 7))
    await publisher.listed(PODS, "1")
    raws = StateCache(bus, PODS, msgspec.Raw, keep_raw=True)
    picky = StateCache(bus, PODS, Thing, key_filter=lambda key: key.startswith("other/"))
    batches: list[int] = []
    batched = StateCache(bus, PODS.token, Thing, on_batch=lambda changes: batches.append(len(changes)))
    for cache in (raws, picky, batched):
        await cache.start()
    for cache in (raws, picky, batched):
        await asyncio.wait_for(cache.synced(), 60)
    assert bytes(raws.items["default/a"]) == body("a", 7) == raws.raw["default/a"]
    assert picky.items == {}
    assert batches == [1]
    for cache in (raws, picky, batched):
        await cache.close()


@pytest.mark.parametrize("broken", [b"", b"{", b'{"metadata":{"name":1}}', b"\xff\xfe", b"[" * 100_000])
async def test_a_bad_body_is_named_and_the_last_good_version_stays(
    bus: Bus, publisher: StatePublisher, broken: bytes
) -> None:
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a", 1))
    await publisher.listed(PODS, "1")
    recorder = Recorder()
    cache = await cache_of(bus, recorder)
    await synced(cache)
    await publisher.publish(PODS, "MODIFIED", "default", "a", "2", broken)
    await publisher.publish(PODS, "ADDED", "default", "z", "3", body("z", 2))
    await until(lambda: "default/z" in cache.items)
    assert [key for key, _ in recorder.bad] == ["default/a"]
    assert "pods_core default/a" in recorder.bad[0][1]
    assert cache.items["default/a"].size == 1
    assert recorder.told == [("ADDED", "default/a", True), ("ADDED", "default/z", False)]
    cache.replay("test")
    await until(lambda: cache.replays >= 2 and cache.is_synced)
    assert set(cache.items) == {"default/a", "default/z"}
    assert len(recorder.bad) == 1
    await cache.close()


async def test_a_message_without_a_readable_header_is_named(bus: Bus, publisher: StatePublisher) -> None:
    recorder = Recorder()
    cache = await cache_of(bus, recorder)
    await bus.publish_acked(bus.subjects.state("pods_core", "default", "a"), body("a"), ("Koord", "CHANGED 1"))
    await bus.publish_acked(bus.subjects.state("pods_core", "default", "b"), body("b"))
    await publisher.listed(PODS, "1")
    await synced(cache)
    assert [key for key, _ in recorder.bad] == ["default/a", "default/b"]
    assert cache.items == {}
    await cache.close()


async def test_a_callback_that_raises_changes_nothing_else(bus: Bus, publisher: StatePublisher) -> None:
    seen: list[str] = []

    def faulty(change: Change[Thing]) -> None:
        seen.append(change.key)
        raise RuntimeError("on purpose")

    cache = StateCache(bus, PODS, Thing, faulty)
    await cache.start()
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    await publisher.publish(PODS, "ADDED", "default", "b", "2", body("b"))
    await publisher.listed(PODS, "2")
    await synced(cache)
    assert seen == ["default/a", "default/b"]
    assert len(cache.items) == 2
    await cache.close()


async def test_a_tombstone_has_a_ttl_and_one_never_cached_tells_its_object(bus: Bus) -> None:
    publisher = StatePublisher(bus, tombstone_ttl_s=1)
    await publisher.start()
    await publisher.publish(PODS, "DELETED", "default", "gone", "5", body("gone", 9))
    await publisher.listed(PODS, "5")
    recorder = Recorder()
    cache = await cache_of(bus, recorder)
    await synced(cache)
    assert recorder.told == [("DELETED", "default/gone", True)]
    old = recorder.changes[0].old
    assert old is not None and old.size == 9
    cache.replay("told once only")
    await until(lambda: cache.replays >= 2 and cache.is_synced)
    assert len(recorder.changes) == 1

    async def left() -> dict[str, int]:
        info = await bus.js.stream_info(bus.subjects.state_stream, subjects_filter=">")
        return dict(info.state.subjects or {})

    deadline = time.monotonic() + 60
    while bus.subjects.state("pods_core", "default", "gone") in await left():
        assert time.monotonic() < deadline, "the tombstone outlived its TTL"
        await asyncio.sleep(0.1)
    await cache.close()


async def test_a_replay_tells_only_differences_and_sweeps(bus: Bus, publisher: StatePublisher) -> None:
    for name in ("same", "vanishes", "changes"):
        await publisher.publish(PODS, "ADDED", "default", name, "1", body(name, 1))
    await publisher.listed(PODS, "1")
    recorder = Recorder()
    cache = await cache_of(bus, recorder)
    await synced(cache)
    recorder.changes.clear()
    # Behind the cache's back: its consumer is gone while the stream changes and loses a message without a trace.
    subscription = cache._reader._subscription
    assert subscription is not None
    bus.unsubscribe_raw(subscription)
    await publisher.publish(PODS, "MODIFIED", "default", "changes", "2", body("changes", 2))
    await publisher.publish(PODS, "ADDED", "default", "appears", "3", body("appears", 3))
    await bus.js.purge_stream(bus.subjects.state_stream, subject=bus.subjects.state("pods_core", "default", "vanishes"))
    cache.replay("test")
    await until(lambda: cache.replays >= 2 and cache.is_synced)
    assert recorder.told == [
        ("MODIFIED", "default/changes", True),
        ("ADDED", "default/appears", True),
        ("DELETED", "default/vanishes", True),
    ]
    assert recorder.changes[-1].resource_version == "1"
    assert recorder.changes[-1].sequence == 0
    await cache.close()


async def test_a_gap_in_the_consumer_sequence_is_healed(bus: Bus, publisher: StatePublisher) -> None:
    await publisher.listed(PODS, "1")
    recorder = Recorder()
    cache = await cache_of(bus, recorder)
    await synced(cache)
    reader = cache._reader
    receive = reader._receive
    lost: list[bytes] = []

    def lossy(subject: bytes, reply: bytes, headers: bytes | None, payload: bytes) -> object:
        if b"default.a" in subject and not lost:
            lost.append(subject)
            return None
        return receive(subject, reply, headers, payload)

    subscription = reader._subscription
    assert subscription is not None
    bus.nc._hot[subscription._id] = lossy  # type: ignore[assignment]
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    await publisher.publish(PODS, "ADDED", "default", "b", "2", body("b"))
    await until(lambda: set(cache.items) == {"default/a", "default/b"})
    assert lost and cache.replays >= 2
    await cache.close()


async def test_a_lost_last_message_is_noticed_by_the_heartbeat(bus: Bus, publisher: StatePublisher) -> None:
    await publisher.listed(PODS, "1")
    cache = await cache_of(bus, Recorder())
    await synced(cache)
    subscription = cache._reader._subscription
    assert subscription is not None
    receive = bus.nc._hot[subscription._id]
    lost: list[bytes] = []
    bus.nc._hot[subscription._id] = lambda subject, reply, headers, body: lost.append(subject)
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    await until(lambda: lost)
    bus.nc._hot[subscription._id] = receive
    await until(lambda: "default/a" in cache.items)
    assert cache.replays >= 2
    await cache.close()


async def test_a_deleted_consumer_is_noticed(bus: Bus, publisher: StatePublisher) -> None:
    await publisher.listed(PODS, "1")
    cache = await cache_of(bus, Recorder())
    await synced(cache)
    await bus.js.delete_consumer(bus.subjects.state_stream, cache._reader._consumer)
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    await until(lambda: "default/a" in cache.items, timeout=60)
    await cache.close()


async def test_held_says_what_the_stream_holds(bus: Bus, publisher: StatePublisher) -> None:
    assert await publisher.held(PODS) == {}
    await publisher.publish(PODS, "ADDED", "default", "a", "11", body("a"))
    await publisher.publish(PODS, "DELETED", "default", "b", "12", body("b"))
    await publisher.publish(NODES, "ADDED", "", "n", "13", body("n"))
    await publisher.listed(PODS, "12")
    assert await publisher.held(PODS) == {"default/a": Held("ADDED", "11"), "default/b": Held("DELETED", "12")}
    assert await publisher.held(NODES.token) == {"n": Held("ADDED", "13")}


async def test_a_second_publisher_finds_the_same_epoch(connect: Connect, publisher: StatePublisher) -> None:
    other = await connect("other")
    second = StatePublisher(other)
    await second.start()
    assert second.epoch == publisher.epoch == await state_epoch(other) != ""


async def test_publishing_before_start_is_an_error(bus: Bus) -> None:
    with pytest.raises(BusUnavailable, match="not started"):
        StatePublisher(bus).publish(PODS, "ADDED", "default", "a", "1", b"{}")


async def test_fifty_thousand_objects_without_starving_the_loop(
    connect: Connect, publisher: StatePublisher, collected_never: None
) -> None:
    count = 50_000
    payload = body("x", 1, pad=3000)
    for number in range(count):
        await publisher.room()
        publisher.publish(PODS, "ADDED", "default", f"p-{number}", str(number + 1), payload)
    await publisher.listed(PODS, str(count))
    assert len(await publisher.held(PODS)) == count

    reader = await connect("reader")
    worst = 0.0
    stop = asyncio.Event()

    async def watch() -> None:
        nonlocal worst
        while not stop.is_set():
            before = time.thread_time()
            await asyncio.sleep(0)
            worst = max(worst, time.thread_time() - before)
            await asyncio.sleep(0.001)

    task = asyncio.create_task(watch())
    changes = 0

    def count_change(change: Change[Thing]) -> None:
        nonlocal changes
        changes += 1

    cache = StateCache(reader, PODS, Thing, count_change)
    begun = time.thread_time()
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    cache.replay("again")
    await until(lambda: cache.replays >= 2 and cache.is_synced, timeout=60)
    took = time.thread_time() - begun
    stop.set()
    await task
    assert len(cache.items) == changes == count
    # In the thread's own time, so that it is the same on any machine: both replays go in many small pieces.
    assert worst < took / 5, (worst, took)
    await cache.close()


async def test_listed_refuses_to_say_what_is_not_true(bus: Bus, publisher: StatePublisher) -> None:
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    stream = await bus.js.stream_info(bus.subjects.state_stream)
    await bus.js.update_stream(stream.config.evolve(max_msg_size=1000))
    doomed = publisher.publish(PODS, "ADDED", "default", "b", "2", body("b", pad=3000))
    with pytest.raises(EpochChanged, match=r"pods_core is not listed: .*default\.b could not be published"):
        await publisher.listed(PODS, "2")
    with pytest.raises(PublishRefused):
        await doomed
    await publisher.listed(NODES, "2")  # the others are not concerned
    await bus.js.update_stream(stream.config.evolve(max_msg_size=-1))
    assert set(await publisher.held(PODS)) == {"default/a"}
    await publisher.publish(PODS, "ADDED", "default", "b", "2", body("b", pad=3000))
    await publisher.listed(PODS, "2")


async def test_a_stream_that_lost_its_last_messages_is_noticed(bus: Bus, connect: Connect) -> None:
    """As after a power failure: the same epoch, but the sequence counts on from before."""
    told: list[str] = []
    publisher = StatePublisher(bus, on_epoch=told.append)
    await publisher.start()
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a", 1))
    await publisher.listed(PODS, "1")
    recorder = Recorder()
    cache = await cache_of(await connect("reader"), recorder)
    await synced(cache)
    await publisher.publish(PODS, "MODIFIED", "default", "a", "2", body("a", 2))
    await until(lambda: cache.items["default/a"].size == 2)
    stream = await bus.js.stream_info(bus.subjects.state_stream)
    await bus.js.delete_stream(bus.subjects.state_stream)
    await bus.js.add_stream(stream.config)  # with the same epoch in its metadata
    await bus._recover()
    assert told == [publisher.epoch]
    with pytest.raises(EpochChanged, match="lost messages"):
        await publisher.listed(PODS, "3")
    assert await publisher.held(PODS) == {}
    # Sequences 1 to 3 are used again, for other versions.
    await publisher.publish(PODS, "MODIFIED", "default", "a", "3", body("a", 3))
    await publisher.publish(PODS, "ADDED", "default", "b", "4", body("b", 4))
    await publisher.listed(PODS, "4")
    cache.replay("test")
    await until(lambda: {key: thing.size for key, thing in cache.items.items()} == {"default/a": 3, "default/b": 4})
    await cache.close()
