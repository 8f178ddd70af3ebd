"""Reading past a consumer that is gone: nothing is left out, whatever breaks in between."""

import asyncio
from typing import Any

import pytest

from koord.bus.client import HotHandler
from koord.bus.connection import Bus
from koord.bus.directread import read_stored
from koord.bus.statecache import StateCache
from koord.bus.statepublisher import StatePublisher
from koord.kube.resources import PODS
from tests.bus.conftest import Thing, body, until


async def test_an_answer_of_which_a_part_was_lost_ends_before_the_gap(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = bus.subjects
    for number in range(6):
        await bus.publish_acked(subjects.state("pods_core", "default", f"p{number}"), b"%d" % number)
    wanted, count = subjects.state_of("pods_core"), 0
    whole = await read_stored(bus, subjects.state_stream, wanted, 2, most=3)
    assert [(stored.sequence, stored.body) for stored in whole] == [(2, b"1"), (3, b"2"), (4, b"3")]
    subscribe = bus.subscribe_raw

    def lossy(subject: str, handler: HotHandler) -> Any:
        def receive(*message: Any) -> Any:
            nonlocal count
            count += 1
            return None if count == 3 else handler(*message)

        return subscribe(subject, receive)

    monkeypatch.setattr(bus, "subscribe_raw", lossy)
    part = await read_stored(bus, subjects.state_stream, wanted, 1)
    assert [stored.sequence for stored in part] == [1, 2]
    count = 10
    assert len(await read_stored(bus, subjects.state_stream, wanted, 3)) == 4


async def test_what_the_bypass_reads_while_the_leader_is_asked_does_not_end_it(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's answer is older than what was read directly meanwhile; that is no stream that lost its end."""
    publisher = StatePublisher(bus)
    await publisher.start()
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    await publisher.listed(PODS, "1")
    cache = StateCache(bus, PODS, Thing)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    reader = cache._reader
    ask = reader._last_sequence
    asked: list[int] = []

    async def slow() -> int:
        last = await ask()
        reader._bypass.reached = last + 5
        asked.append(last)
        return last

    monkeypatch.setattr(reader, "_last_sequence", slow)
    cache.replay("on purpose")
    await until(lambda: asked and cache.is_synced)
    assert reader._bypass.reached == asked[0] + 5
    monkeypatch.setattr(reader, "_last_sequence", ask)
    cache.replay("now it has lost its end")
    await until(lambda: cache.replays == 3 and cache.is_synced)
    assert reader._bypass.reached == asked[0]
    await cache.close()
