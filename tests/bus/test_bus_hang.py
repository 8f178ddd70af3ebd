"""A single server that hangs (SIGSTOP) and goes on: the connection neither dies of it nor waits for ever."""

import asyncio
import os
import signal
import time
from pathlib import Path

import nats.errors
import pytest

from koord.bus.errors import BusUnavailable
from koord.bus.statecache import StateCache
from koord.bus.statepublisher import StatePublisher
from koord.kube.resources import PODS
from koord.localcluster.servers import NatsServer
from tests.bus.conftest import Connect, Thing, body, until


def pause(server: NatsServer) -> None:
    """Returns when every thread has stopped: the signal alone lets those on another core answer a little longer."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    deadline = time.monotonic() + 60
    while running := [task.name for task in Path(f"/proc/{server.pid}/task").iterdir() if state(task) not in "Tt"]:
        assert time.monotonic() < deadline, f"threads {running} go on after SIGSTOP"
        time.sleep(0.001)


def state(task: Path) -> str:
    """One letter of proc(5); the name before it may hold spaces and brackets."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def resume(server: NatsServer) -> None:
    if server.pid is not None:
        os.kill(server.pid, signal.SIGCONT)


async def test_an_answer_that_nobody_waits_for_any_more_ends_nothing(own_nats: NatsServer, connect: Connect) -> None:
    bus = await connect("one", url=own_nats.url, ping_interval=60.0)
    lost: list[str] = []
    bus.on_disconnect(lambda: lost.append("lost"))
    pause(own_nats)
    try:
        for _ in range(2):
            with pytest.raises((nats.errors.Error, TimeoutError)):
                await bus.nc.barrier(1.0)
    finally:
        resume(own_nats)
    await asyncio.wait_for(bus.publish_acked(bus.subjects.decision("t", "bind"), b"x"), 60)
    await bus.barrier()
    assert lost == []


async def test_what_cannot_be_written_does_not_hold_up_the_reconnect(own_nats: NatsServer, connect: Connect) -> None:
    """40 MB lie in front of the sleeping server's socket when it is given up."""
    bus = await connect("one", url=own_nats.url, ping_interval=0.2, limit=1000)
    bus.acks._limit_bytes = 64 << 20
    pause(own_nats)
    try:
        subject = bus.subjects.decision("t", "bind")
        futures = [bus.publish_acked(subject, bytes(400_000), timeout=None) for _ in range(100)]
        await until(lambda: not bus.connected, timeout=60)
        assert not any(future.done() for future in futures)
    finally:
        bus.nc.options["ping_interval"] = 60.0  # of the next connection: a busy server has time for 40 MB
        resume(own_nats)
    await asyncio.wait_for(asyncio.gather(*futures), 60)


async def test_a_hanging_server_is_an_error_in_time_when_connecting(own_nats: NatsServer, connect: Connect) -> None:
    pause(own_nats)
    try:
        with pytest.raises(BusUnavailable, match=str(own_nats.port)):
            await asyncio.wait_for(connect("one", url=own_nats.url, timeout=1.0), 60)
    finally:
        resume(own_nats)
    other = await connect("two", url=f"nats://127.0.0.1:1,{own_nats.url}", timeout=60.0)
    assert other.connected


async def test_a_cache_says_that_it_hears_nothing_while_its_picture_stays(
    own_nats: NatsServer, connect: Connect
) -> None:
    """What must not happen on old news (an eviction) asks for more than a complete picture."""
    bus = await connect("one", url=own_nats.url, ping_interval=60.0)
    publisher = StatePublisher(bus)
    await publisher.start()
    await publisher.publish(PODS, "ADDED", "default", "a", "1", body("a"))
    await publisher.listed(PODS, "1")
    cache = StateCache(bus, PODS, Thing)
    await cache.start()
    await asyncio.wait_for(cache.synced(), 60)
    await until(lambda: cache.is_following, timeout=60)
    pause(own_nats)
    try:
        await until(lambda: not cache.is_following, timeout=60)
        assert bus.connected and "default/a" in cache.items
    finally:
        resume(own_nats)
    await until(lambda: cache.is_following, timeout=60)
    await cache.close()
