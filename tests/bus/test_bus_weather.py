"""Three nats-servers in bad weather under load: what was confirmed is never missing, and nothing hangs."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from shutil import rmtree

import nats.errors
import nats.js.errors
import pytest
import pytest_asyncio

from koord.bus import unseen
from koord.bus.errors import BusUnavailable
from koord.bus.leaders import stream_leader
from koord.kube.resources import NODES
from koord.localcluster.natscluster import NatsCluster
from tests.bus.conftest import body, until
from tests.bus.traffic import Traffic, traffic

pytestmark = pytest.mark.asyncio(loop_scope="module")
_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three() -> AsyncIterator[NatsCluster]:
    cluster = NatsCluster(3, weather=True)
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def name(three: NatsCluster) -> AsyncIterator[str]:
    """A cluster name of this test alone; afterwards the weather is fair again, whatever came of the test."""
    yield f"w{os.getpid()}-{next(_numbers)}"
    three.weather.clear()
    for server in three.servers:
        server.resume()
        if server.pid is None:
            await server.start()
    await three.ready()


async def leader(load: Traffic, kind: str = "state") -> str:
    found = ""
    deadline = time.monotonic() + 60
    while not found:
        assert time.monotonic() < deadline
        try:
            subjects = load.author.subjects
            found = await stream_leader(load.author, getattr(subjects, f"{kind}_stream"))
        except BusUnavailable:
            await asyncio.sleep(0.1)
    return found


def told(what: str, load: Traffic, since: float) -> None:
    print(f"{what}: publishing paused {load.longest_pause(since):.1f} s at most, {len(load.sent)} decisions")


async def whole(three: NatsCluster, load: Traffic) -> None:
    """Until every stream has all its replicas again, so that the next loss is only one."""

    async def lacking() -> str:
        subjects = load.author.subjects
        for stream in (subjects.state_stream, subjects.decisions_stream, f"KV_{subjects.leases_bucket}"):
            try:
                found = (await load.author.js.stream_info(stream)).cluster
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                return f"{stream}: {error!r}"
            peers = (found.replicas if found else None) or []
            if len(peers) != 2 or not all(peer.current and not peer.offline for peer in peers):
                return f"{stream}: {found}"
        return ""

    await three.ready()
    deadline = time.monotonic() + 60
    while found := await lacking():
        assert time.monotonic() < deadline, found
        # A leader learns only from the next message how far a replica is that was cut off.
        await load.publisher.publish(NODES, "MODIFIED", "", "nudge", "1", body("nudge"))
        await asyncio.sleep(0.2)


async def test_the_leader_is_killed_and_clients_move_on(three: NatsCluster, name: str) -> None:
    """SIGKILL of the stream's leader."""
    async with traffic({"any": three.url}, name) as load:
        victim = three.server(await leader(load))
        since = time.monotonic()
        await victim.kill()
        await load.flowing()
        told("SIGKILL of the leader", load, since)
        await victim.start()
        await load.judge()
        await whole(three, load)


async def test_the_leader_hangs_and_wakes_up_again(three: NatsCluster, name: str) -> None:
    """SIGSTOP for longer than an election takes: what lies in the sleeper's sockets must do no harm later."""
    async with traffic({"any": three.url}, name) as load:
        victim = three.server(await leader(load))
        since = time.monotonic()
        victim.pause()
        try:
            await load.flowing()
            told("SIGSTOP of the leader", load, since)
        finally:
            victim.resume()
        await load.flowing()
        await load.judge()
        await whole(three, load)


async def test_a_short_hang_of_the_server_of_all_clients_loses_nothing(three: NatsCluster, name: str) -> None:
    server = three.server("nats-2")
    async with traffic({"any": server.url}, name) as load:
        since = time.monotonic()
        for _ in range(3):
            server.pause()
            await asyncio.sleep(0.4)
            server.resume()
            await load.flowing()
        told("three hangs of 0.4 s", load, since)
        await load.judge()


async def test_a_rolling_restart_is_hardly_noticed(three: NatsCluster, name: str) -> None:
    async with traffic({"any": three.url}, name) as load:
        since = time.monotonic()
        for server in three.servers:
            await server.restart(empty=False)
            await whole(three, load)
            await load.flowing()
        told("rolling restart", load, since)
        await load.judge()


async def test_all_three_are_killed_at_once_and_come_back(three: NatsCluster, name: str) -> None:
    async with traffic({"any": three.url}, name) as load:
        since = time.monotonic()
        await asyncio.gather(*(server.kill() for server in three.servers))
        await until(lambda: not load.gateway.connected)
        await asyncio.gather(*(server.start() for server in three.servers))
        await load.flowing()
        told("all three killed", load, since)
        await load.judge()
        await whole(three, load)


async def test_a_server_that_lost_its_disk_is_filled_again_and_shows_nothing_half(
    three: NatsCluster, name: str
) -> None:
    async with traffic({"any": three.url, "reader": three.server("nats-3").url}, name) as load:
        victim = three.server("nats-3")
        since = time.monotonic()
        await victim.kill()
        for path in victim._data():
            rmtree(path)
        await victim.start()
        await load.flowing()
        told("a store lost", load, since)
        await load.judge()
        await whole(three, load)


async def test_in_a_cluster_an_object_is_swept_only_when_it_is_missing_twice(
    three: NatsCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unseen, "SWEEP_AFTER_S", 1.0)
    async with traffic({"any": three.url}, name, pause_s=0.05) as load:
        cache, shown = load.cache, list[bool]()
        complete = cache.caught_up

        def caught_up() -> None:
            complete()
            shown.append("default/ghost" in cache.items)

        monkeypatch.setattr(cache, "caught_up", caught_up)
        cache.items["default/ghost"] = cache.items["default/p0"]
        cache.replay("on purpose")
        await until(lambda: "default/ghost" not in cache.items)
        assert shown[0], "not seen once is no proof"
        assert [change.key for change in load.told if change.kind == "DELETED"] == ["default/ghost"]
        load.told.clear()
        await load.judge()
