"""Live copies: what goes out, when, how often, in which order. A single server never sees one."""

import asyncio
from collections.abc import Iterator

import pytest

from koord.bus.connection import Bus
from koord.bus.flights import Flight
from koord.bus.livecopies import AGAIN_S, LATE_S, MOST_BYTES, MOST_COPIES, LiveCopies
from koord.bus.statecache import StateCache
from koord.bus.statepublisher import StatePublisher
from koord.contracts.subjects import Subjects
from koord.kube.resources import PODS
from koord.localcluster.servers import NatsServer
from tests.bus.conftest import Connect, Thing, body, until

SUBJECTS = Subjects("c")
STATE, DECISION = SUBJECTS.state("pods_core", "ns", "a"), SUBJECTS.decision("scheduler", "bind")


class Copies:
    """Live copies by hand: what is unconfirmed, and what went out."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.out: list[tuple[str, bytes]] = []
        self.wanted = True
        self.flights: list[Flight] = []
        self.stored: dict[str, tuple[int, int]] = {}
        self.copies = LiveCopies(
            lambda subject, reply, headers, payload: self.out.append((subject, payload)),
            SUBJECTS.live_of,
            lambda: self.wanted,
        )

    def publish(self, subject: str, now: float, *, live: bool = True, size: int = 1) -> Flight:
        order = len(self.flights) + 1
        payload = b"%d" % order + bytes(size - 1)
        future: asyncio.Future[int] = self.loop.create_future()
        latest = subject.startswith("koord.c.state.")
        flight = Flight(future, subject, b"", payload, 1e9, latest, False, order, None, live, now)
        self.flights.append(flight)
        if self.copies.active:
            self.copies.published(flight)
        return flight

    def look(self, now: float) -> list[int]:
        """The orders of what went out since the last look, this one included."""
        self.copies.look([flight for flight in self.flights if not flight.future.done()], self.stored, now)
        found = [int(payload.rstrip(bytes(1))) for _, payload in self.out]
        self.out.clear()
        return found


@pytest.fixture
def copies() -> Iterator[Copies]:
    loop = asyncio.new_event_loop()
    yield Copies(loop)
    loop.close()


def test_what_is_not_confirmed_in_time_goes_out_a_few_times_and_not_more(copies: Copies) -> None:
    copies.publish(STATE, 0.0)
    assert copies.look(0.25) == copies.look(0.5) == []
    assert copies.look(LATE_S + 0.05) == [1]
    assert copies.look(LATE_S + 0.3) == []
    for number in range(1, MOST_COPIES):
        assert copies.look(LATE_S + 0.05 + number * AGAIN_S) == [1], "for whoever was reconnecting"
    assert copies.look(20.0) == copies.look(60.0) == []


def test_a_copy_goes_to_the_live_subject(copies: Copies) -> None:
    copies.publish(STATE, 0.0)
    copies.copies.look(copies.flights, {}, 0.3)
    copies.copies.look(copies.flights, {}, 1.0)
    assert copies.out == [("koord.c.live.state.pods_core.ns.a", b"1")]


def test_while_a_stream_confirms_nothing_what_follows_goes_out_at_once_and_other_streams_do_not(copies: Copies) -> None:
    copies.publish(STATE, 0.0)
    copies.look(0.3)
    assert copies.look(1.0) == [1]
    copies.publish(SUBJECTS.state("pods_core", "ns", "b"), 1.1)
    copies.publish(DECISION, 1.1)
    copies.publish(STATE, 1.2, live=False)
    assert [payload for _, payload in copies.out] == [b"2"]


def test_a_stream_that_is_only_slow_is_not_without_a_leader(copies: Copies) -> None:
    """Each look finds messages older than a second, but never the same one as the oldest."""
    for step in range(40):
        copies.publish(DECISION, step * 0.25)
        copies.publish(DECISION, step * 0.25 + 0.01)
        copies.flights[step].done(1)
        assert copies.look(step * 0.25) == []
    assert not copies.copies.active


def test_a_stream_whose_leader_says_not_now_is_not_gone_round(copies: Copies) -> None:
    copies.publish(DECISION, 0.0)
    for step in range(1, 20):
        copies.copies.answered(SUBJECTS.decision("queue", "create"))
        assert copies.look(step * 0.25) == []
    assert copies.look(5.0) == [1], "it says nothing any more"


def test_once_it_confirms_again_nothing_more_goes_out(copies: Copies) -> None:
    first = copies.publish(DECISION, 0.0)
    copies.look(0.3)
    assert copies.look(1.0) == [1]
    second = copies.publish(DECISION, 1.1)
    assert copies.look(1.25) == [2]
    first.done(1)
    assert copies.look(1.5) == []
    copies.publish(DECISION, 1.6)
    assert copies.look(1.75) == []
    second.done(2)


def test_of_several_versions_only_the_newest_goes_out_and_none_that_is_stored_already(copies: Copies) -> None:
    other = SUBJECTS.state("pods_core", "ns", "b")
    for subject in (STATE, other, STATE):
        copies.publish(subject, 0.0)
    copies.stored[other] = (9, 77)  # a newer version of it was confirmed before this one
    copies.look(0.3)
    assert copies.look(1.0) == [3]


def test_an_old_version_does_not_go_out_again_behind_a_newer_one(copies: Copies) -> None:
    copies.publish(STATE, 0.0)
    copies.look(0.3)
    assert copies.look(1.0) == [1]
    copies.publish(STATE, 1.1)
    assert copies.look(1.25) == [2]
    assert copies.look(1.1 + AGAIN_S) == [2], "the first was due, too"


def test_a_version_that_took_the_place_of_another_waits_since_that_one(copies: Copies) -> None:
    first = copies.publish(STATE, 0.0)
    copies.look(0.3)
    second = copies.publish(STATE, 0.5)
    first.follow(second)
    copies.flights.remove(first)
    assert second.first == 0.0
    assert copies.look(0.75) == [2]


def test_copies_are_paced_and_stay_in_order(copies: Copies) -> None:
    for number in range(6):
        copies.publish(SUBJECTS.state("pods_core", "ns", f"n{number}"), 0.0, size=MOST_BYTES // 2)
    copies.look(0.3)
    assert copies.look(1.0) == [1, 2]
    assert not copies.copies.has_room
    copies.publish(DECISION, 1.1)
    copies.publish(STATE, 1.1)
    assert copies.out == [], "not before what is older"
    assert copies.look(1.25) == [3, 4]
    assert copies.look(1.5) == [5, 6]
    assert copies.look(1.75) == [8]


def test_after_a_reconnect_everything_goes_out_although_the_streams_are_not_known_yet(copies: Copies) -> None:
    copies.publish(STATE, 0.0)
    copies.publish(DECISION, 0.1)
    copies.copies.lost()
    copies.copies.reconnected(copies.flights, {}, 0.2)
    copies.publish(DECISION, 0.25)
    assert copies.look(0.3) == [1, 2, 3]
    copies.copies.prepared()
    copies.publish(DECISION, 0.35)
    assert copies.look(0.4) == []


def test_where_there_is_no_cluster_nothing_goes_out(copies: Copies) -> None:
    copies.wanted = False
    copies.publish(STATE, 0.0)
    copies.copies.reconnected(copies.flights, {}, 0.1)
    assert copies.look(0.3) == copies.look(1.0) == copies.look(9.0) == []
    assert not copies.copies.active


async def test_a_single_server_sees_no_copy_whatever_happens_to_it(own_nats: NatsServer, connect: Connect) -> None:
    bus, listener = await connect("gateway", url=own_nats.url), await connect("listener", url=own_nats.url)
    heard: list[str] = []
    listener.subscribe_raw(bus.subjects.root + ".live.>", lambda subject, *_: heard.append(subject.decode()))
    publisher = StatePublisher(bus)
    await publisher.start()
    stream = await bus.js.stream_info(bus.subjects.state_stream)
    await bus.js.update_stream(stream.config.evolve(max_bytes=100))
    waiting = publisher.publish(PODS, "ADDED", "default", "a", "1", body("a", pad=1000))
    await until(lambda: bus.acks.resent > 10 and bus.acks.copies.copied == 0)
    await own_nats.kill()
    await until(lambda: not (bus.connected or listener.connected))
    await own_nats.restart(empty=False)
    await until(lambda: bus.connected and listener.connected)
    stream = await bus.js.stream_info(bus.subjects.state_stream)
    await bus.js.update_stream(stream.config.evolve(max_bytes=-1))
    await asyncio.wait_for(waiting, 60)
    await listener.barrier()
    assert heard == [] and bus.acks.copies.copied == 0


async def test_a_reader_that_knows_no_copies_ends_in_the_same(bus: Bus, connect: Connect) -> None:
    """An older version of a service: it hears nothing live, and all of it through the stream."""
    publisher = StatePublisher(bus)
    await publisher.start()
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a", 1))
    await publisher.listed(PODS, "1")
    old, new = [StateCache(await connect(name), PODS, Thing) for name in ("old", "new")]
    for cache in (old, new):
        await cache.start()
        await asyncio.wait_for(cache.synced(), 60)
    assert old._live is not None
    old._bus.unsubscribe_raw(old._live)
    subject = bus.subjects.live_of(bus.subjects.state("pods_core", "default", "a"))
    await bus.publish(subject, body("a", 2), {"Koord": f"MODIFIED 2 {publisher.epoch}"})
    await until(lambda: new.items["default/a"].size == 2)
    assert old.items["default/a"].size == 1
    await publisher.publish(PODS, "MODIFIED", "default", "a", "2", body("a", 2))
    await publisher.publish(PODS, "MODIFIED", "default", "a", "3", body("a", 3))
    await until(lambda: old.items["default/a"].size == new.items["default/a"].size == 3)
    for cache in (old, new):
        await cache.close()


async def test_a_copy_that_is_broken_of_another_epoch_or_too_early_says_nothing(bus: Bus, connect: Connect) -> None:
    publisher = StatePublisher(bus)
    await publisher.start()
    cache = StateCache(await connect("reader"), PODS, Thing)
    await cache.start()
    await until(lambda: cache.epoch)
    root = bus.subjects.live_of(bus.subjects.state("pods_core", "default", ""))

    async def live(name: str, header: str, payload: bytes) -> None:
        await bus.publish(root + name, payload, {"Koord": header} if header else None)
        await bus.barrier()
        await cache._bus.barrier()

    await live("early", f"ADDED 5 {publisher.epoch}", body("early"))
    await publisher.publish(PODS, "ADDED", "default", "a", "3", body("a", 1))
    await publisher.listed(PODS, "3")
    await asyncio.wait_for(cache.synced(), 60)
    for name, header, payload in (
        ("a", "MODIFIED 9 another", body("a", 9)),
        ("a", "", body("a", 9)),
        ("a", f"MODIFIED 9 {publisher.epoch}", b"{"),
        ("a", f"MODIFIED x9 {publisher.epoch}", body("a", 9)),
        ("a", f"MODIFIED 3 {publisher.epoch}", body("a", 9)),
        ("gone", f"DELETED 9 {publisher.epoch}", b"{"),
        ("a", "MODIFIED 9", body("a", 9)),
    ):
        await live(name, header, payload)
    assert {key: thing.size for key, thing in cache.items.items()} == {"default/a": 1}
    await live("a", f"DELETED 3 {publisher.epoch}", body("a", 1))
    assert not cache.items, "a deletion comes after everything with the same version"
    await cache.close()


async def test_a_handler_that_fails_while_it_holds_the_connection_lets_go_of_it(bus: Bus) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("on purpose")

    bus.subscribe_raw("held", lambda *_: fail())
    await bus.publish("held", b"")
    await bus.barrier()
    assert not bus.nc.is_held
