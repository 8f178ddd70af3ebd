"""A cache that is asked to be level holds all that the stream held when it was asked."""

import asyncio

import pytest

from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable
from koord.bus.statecache import StateCache
from koord.bus.statepublisher import StatePublisher
from koord.kube.resources import PODS
from tests.bus.conftest import Connect, Thing, body


async def test_level_waits_for_what_was_published_before(bus: Bus, connect: Connect) -> None:
    publisher = StatePublisher(bus)
    await publisher.start()
    await publisher.listed(PODS, "1")
    reader = await connect("reader")
    cache = StateCache(reader, PODS, Thing)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    for number in range(300):
        await publisher.publish(PODS, "ADDED", "default", f"p{number}", str(number + 2), body(f"p{number}"))
        if not number % 50:
            await asyncio.wait_for(cache.level(), 60)
            assert f"default/p{number}" in cache.items
    assert cache.position > 0
    await cache.close()


async def test_level_waits_for_a_replay_and_does_not_guess(bus: Bus, connect: Connect) -> None:
    publisher = StatePublisher(bus)
    await publisher.start()
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    cache = StateCache(await connect("reader"), PODS, Thing)
    await cache.start()
    waiting = asyncio.create_task(cache.level())
    await asyncio.wait((waiting,), timeout=0.3)
    assert not waiting.done(), "nobody has listed the resource yet"
    await publisher.listed(PODS, "1")
    await asyncio.wait_for(waiting, 60)
    cache.replay("test")
    await asyncio.wait_for(cache.level(), 60)
    assert cache.is_synced
    await bus.js.delete_stream(bus.subjects.state_stream)
    with pytest.raises(BusUnavailable):
        await asyncio.wait_for(cache.level(), 60)
    await cache.close()
