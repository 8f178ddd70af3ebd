"""Where to reconnect and how long to wait; which old copies of a message still matter. Pure, no server."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlparse

import pytest
from nats.aio.client import Server

from koord.bus.failover import MOST_WAIT_S, SOON_WAIT_S, Rotation
from koord.bus.flights import Flight, first_of_each_stream, newest_by_subject, stream_key
from koord.bus.ghosts import DOUBT_S, Ghosts


def servers(count: int) -> list[Server]:
    return [Server(urlparse(f"nats://127.0.0.1:{4000 + number}")) for number in range(count)]


def test_the_server_that_was_lost_is_tried_last() -> None:
    rotation = Rotation()
    pool = servers(3)
    rotation.lost("127.0.0.1:4001")
    tried = [chosen.uri.port for chosen, _ in (rotation.choose(pool, {}) for _ in range(6)) if chosen is not None]
    assert tried == [4000, 4002, 4001, 4000, 4002, 4001]


def test_rounds_wait_longer_each_with_jitter_and_a_bound() -> None:
    assert Rotation(lambda: 0.5).wait(0) == pytest.approx(0.05)
    waits = [Rotation(lambda: 0.5).wait(turn) for turn in range(60)]
    assert waits == sorted(waits) and waits[10] == SOON_WAIT_S and waits[-1] == MOST_WAIT_S
    assert Rotation(lambda: 0.0).wait(5) < Rotation(lambda: 0.99).wait(5) < 2 * SOON_WAIT_S
    assert Rotation().choose([], {})[0] is None


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def flight(
    loop: asyncio.AbstractEventLoop, order: int, subject: str = "koord.c.state.a", *, latest: bool = True
) -> Flight:
    future: asyncio.Future[int] = loop.create_future()
    return Flight(future, subject, b"", b"%d" % order, 0.0, latest, False, order, None)


def test_an_old_copy_behind_the_newest_version_asks_for_it_again(loop: asyncio.AbstractEventLoop) -> None:
    ghosts, old, new = Ghosts(), flight(loop, 5), flight(loop, 6)
    ghosts.suspect(old, new, 0.0)
    assert not ghosts.confirmed(new, 100)
    assert ghosts.late(5, 99) is None, "stored before the newest one: superseded already"
    assert ghosts.late(5, 101) == (old.subject, b"", b"6")
    assert ghosts.late(77, 102) is None, "nobody suspected that one"


def test_an_old_copy_before_the_newest_is_confirmed_is_found_then(loop: asyncio.AbstractEventLoop) -> None:
    ghosts, old, new = Ghosts(), flight(loop, 5), flight(loop, 6)
    ghosts.suspect(old, old, 0.0)
    ghosts.published(new)
    assert ghosts.late(5, 101) is None
    assert ghosts.confirmed(new, 100), "the old copy came behind it"
    again = flight(loop, 7)
    ghosts.published(again)
    assert not ghosts.confirmed(again, 102)


def test_what_turned_up_is_remembered_when_a_newer_version_follows(loop: asyncio.AbstractEventLoop) -> None:
    ghosts, old, new, newest = Ghosts(), flight(loop, 5), flight(loop, 6), flight(loop, 7)
    ghosts.suspect(old, new, 0.0)
    assert ghosts.late(5, 101) is None
    ghosts.suspect(new, newest, 1.0)
    assert ghosts.confirmed(newest, 100), "the old copy came behind this one, too"


def test_the_newest_stored_twice_is_harmless(loop: asyncio.AbstractEventLoop) -> None:
    ghosts, only = Ghosts(), flight(loop, 5)
    ghosts.suspect(only, only, 0.0)
    assert not ghosts.confirmed(only, 10)
    assert ghosts.late(5, 11) is None


def test_ghosts_are_forgotten(loop: asyncio.AbstractEventLoop) -> None:
    ghosts = Ghosts()
    for order in range(100):
        one = flight(loop, order, f"koord.c.state.{order}")
        ghosts.suspect(one, one, float(order))
    ghosts.forget(DOUBT_S + 50.5)
    assert len(ghosts) == 49
    ghosts.drop("koord.c.state.9")
    assert len(ghosts) == 39
    ghosts.forget(10 * DOUBT_S)
    assert not ghosts and not ghosts._subjects and ghosts._bytes == 0


def test_first_of_each_stream_and_newest(loop: asyncio.AbstractEventLoop) -> None:
    flights = [flight(loop, order, f"koord.c.{'state' if order % 2 else 'decision'}.x") for order in range(20)]
    assert [f.order for f in first_of_each_stream(flights, 2)] == [0, 1, 2, 3]
    newer = flight(loop, 50, "koord.c.state.x")
    newest = newest_by_subject(flights, [*flights, newer])
    assert {subject: f.order for subject, f in newest.items()} == {"koord.c.state.x": 50, "koord.c.decision.x": 18}
    assert newest_by_subject([flight(loop, 1, latest=False)], [newer]) == {}
    assert stream_key("koord.c.state.pods_core.a.b") == "koord.c.state"
