"""One reader that stalls harms nobody else and misses nothing; many clients come back at once."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.bus.connection import Bus
from koord.bus.statecache import StateCache
from koord.bus.statepublisher import StatePublisher
from koord.kube.resources import PODS
from koord.localcluster.servers import NatsServer
from tests.bus.conftest import Connect, Thing, body, until
from tests.bus.test_bus_faults import publish_some

OBJECTS = 2000


class ImpatientServer(NatsServer):
    """Cuts a client off that leaves 16 MiB unread; a replay of these tests' objects fits."""

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"max_payload": 1 << 20, "max_pending": 16 << 20}


@pytest.fixture
async def impatient() -> AsyncIterator[ImpatientServer]:
    server = ImpatientServer()
    await server.start()
    yield server
    await server.stop()


def stall(bus: Bus, subject: str) -> asyncio.Event:
    """From the first message on ``subject`` on, nothing is read from the connection until the event is set."""
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    bus.subscribe_raw(subject, lambda *_: None if gate.is_set() else wait())
    return gate


async def all_at(cache: StateCache[Thing], version: int) -> None:
    await until(
        lambda: (
            cache.is_synced and len(cache.items) == OBJECTS and all(t.size == version for t in cache.items.values())
        ),
        timeout=60,
        what=f"{len(cache.items)} objects at version {version}",
    )


async def test_a_stalled_reader_holds_up_nobody_and_replays_when_it_was_cut_off(
    impatient: ImpatientServer, connect: Connect
) -> None:
    gateway = await connect("gateway", url=impatient.url)
    stalled, healthy = await connect("stalled", url=impatient.url), await connect("healthy", url=impatient.url)
    publisher = StatePublisher(gateway)
    await publisher.start()
    await publish_some(publisher, OBJECTS, 1)
    caches = [StateCache(bus, PODS, Thing) for bus in (stalled, healthy)]
    for cache in caches:
        await cache.start()
        await all_at(cache, 1)
    hint = gateway.subjects.ledger("epoch")
    lost: list[str] = []
    for bus in (gateway, healthy, stalled):
        bus.on_disconnect(lambda bus=bus: lost.append(bus.name))  # type: ignore[misc]
    gate = stall(stalled, hint)
    await stalled.barrier()
    await gateway.publish(hint, b"x")
    for name in range(OBJECTS):
        await publisher.room()
        publisher.publish(PODS, "MODIFIED", "default", f"p{name}", "2", body(f"p{name}", 2, pad=3000))
    await publisher.flush()  # 6 MB are stored, although one reader takes none of it
    await all_at(caches[1], 2)
    assert all(item.size == 1 for item in caches[0].items.values())
    # What is not JetStream's knows no flow control: the server cuts the reader off.
    for _ in range(100):
        await gateway.publish(hint, bytes(1 << 19))
        await gateway.barrier()
    gate.set()
    await all_at(caches[0], 2)
    await until(lambda: caches[0].replays >= 2 and caches[0].is_synced, what=str(caches[0].replays))
    assert lost == ["stalled"]
    for cache in caches:
        await cache.close()


async def test_a_reader_that_only_reads_slowly_is_waited_for(own_nats: NatsServer, connect: Connect) -> None:
    """Longer than a silent server is given: the silence is the reader's own."""
    gateway = await connect("gateway", url=own_nats.url)
    publisher = StatePublisher(gateway)
    await publisher.start()
    for attempt in range(1, 10):
        lost: list[str] = []
        slow, other = [await connect(name, url=own_nats.url, ping_interval=0.2) for name in ("slow", "other")]
        for bus in (slow, other):
            bus.on_disconnect(lambda bus=bus, lost=lost: lost.append(bus.name))  # type: ignore[misc]
        await publish_some(publisher, OBJECTS, 2 * attempt - 1)
        cache = StateCache(slow, PODS, Thing)
        await cache.start()
        await all_at(cache, 2 * attempt - 1)
        hint = gateway.subjects.ledger("epoch")
        gate = stall(slow, hint)
        await slow.barrier()
        await gateway.publish(hint, b"x")
        await publish_some(publisher, OBJECTS, 2 * attempt)
        deadline = time.monotonic() + 1.2  # six ping intervals: three unanswered ones would end the connection
        await until(lambda deadline=deadline: time.monotonic() > deadline)  # type: ignore[misc]
        gate.set()
        await all_at(cache, 2 * attempt)
        replays = cache.replays
        await cache.close()
        for bus in (slow, other):
            await bus.close()
        if "other" not in lost:
            break  # else the server itself was held up for so long, for one that reads as well
    assert (lost, replays) == ([], 1)


async def test_a_crowd_comes_back_at_once(own_nats: NatsServer, connect: Connect) -> None:
    """40 clients with a cache each, three times: every one of them is whole again."""
    gateway = await connect("gateway", url=own_nats.url)
    publisher = StatePublisher(gateway)
    await publisher.start()
    await publish_some(publisher, 50)
    crowd = await asyncio.gather(*(connect(f"c{number}", url=own_nats.url, streams=False) for number in range(40)))
    caches = [StateCache(bus, PODS, Thing) for bus in crowd]
    for cache in caches:
        await cache.start()
    for version in (1, 2, 3):
        await until(lambda: all(cache.is_synced for cache in caches), timeout=60)
        await own_nats.kill()
        await until(lambda: not any(bus.connected for bus in (gateway, *crowd)), timeout=60)
        begun = time.monotonic()
        waiting = publisher.publish(PODS, "MODIFIED", "default", "p7", str(version + 1), body("p7", version + 1))
        await own_nats.restart(empty=False)
        await asyncio.wait_for(waiting, 60)
        await until(
            lambda wanted=version + 1: all(c.is_synced and c.items["default/p7"].size == wanted for c in caches),  # type: ignore[misc]
            timeout=60,
        )
        print(f"40 clients whole again after {time.monotonic() - begun:.1f} s")
    for cache in caches:
        await cache.close()
