"""A cluster of real nats-servers: replicates, names its leaders, comes back after kills, can be parted and healed."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import nats
import nats.errors
import pytest

from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable
from koord.bus.leaders import stream_leader
from koord.bus.streams import StreamLimits, ensure_streams
from koord.localcluster.links import Weather
from koord.localcluster.natscluster import NatsCluster

DEADLINE_S = 60.0


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(0.05)


@pytest.fixture
async def three() -> AsyncIterator[NatsCluster]:
    cluster = NatsCluster(3, weather=True)
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.mark.parametrize("size", [0, 1, 4])
def test_a_cluster_has_three_or_five_servers(size: int) -> None:
    with pytest.raises(ValueError, match="3 or 5"):
        NatsCluster(size)


async def test_streams_are_replicated_and_their_leader_is_named(three: NatsCluster, cluster: str) -> None:
    assert list(three.pids) == ["nats-1", "nats-2", "nats-3"]
    with pytest.raises(KeyError, match="nats-9"):
        three.server("nats-9")
    async with await Bus.connect(three.url, cluster, "test") as bus:
        await ensure_streams(bus, StreamLimits(replicas=3))
        await ensure_streams(bus)  # does not lower them
        stream = bus.subjects.state_stream
        for name in (stream, bus.subjects.decisions_stream, bus.subjects.quota_stream):
            assert (await bus.js.stream_info(name)).config.num_replicas == 3
        sequence = await bus.publish_acked(
            bus.subjects.state("pods_core", "default", "a"), b"{}", ("Koord", "ADDED 1 x")
        )
        first = await stream_leader(bus, stream)
        assert first in three.pids
        assert await stream_leader(three.url, stream) == first
        assert (await bus.js.get_msg(stream, sequence)).data == b"{}"
        # tests/bus/test_bus_weather.py kills it under load; here only the names matter.
        before = three.pids[first]
        await three.server(first).kill()
        assert first not in three.pids
        await three.server(first).start()
        assert three.pids[first] != before


async def test_replicas_of_streams_in_use_are_raised(three: NatsCluster, cluster: str) -> None:
    async with await Bus.connect(three.server("nats-2").url, cluster, "test") as bus:
        await ensure_streams(bus)
        stream = bus.subjects.decisions_stream
        await bus.publish_acked(bus.subjects.decision("queue", "bind"), b"x")
        assert (await bus.js.stream_info(stream)).config.num_replicas == 1
        await ensure_streams(bus, StreamLimits(replicas=3))

        async def raised() -> bool:
            info = await bus.js.stream_info(stream)
            peers = (info.cluster.replicas if info.cluster else None) or []
            return info.config.num_replicas == 3 and len(peers) == 2 and all(peer.current for peer in peers)

        await until(raised, "three replicas")
        assert (await bus.js.stream_info(stream)).state.messages == 1


async def test_a_server_can_be_parted_from_the_others(three: NatsCluster) -> None:
    three.weather.delay_s = 0.001
    near, far = await nats.connect(three.server("nats-1").url), await nats.connect(three.server("nats-3").url)
    subscription = await far.subscribe("a")
    await far.flush()

    async def passes() -> bool:
        await near.publish("a", b"x")
        await near.flush()
        try:
            await subscription.next_msg(0.1)
        except nats.errors.TimeoutError:
            return False
        return True

    async def parted() -> bool:
        return not await passes()

    try:
        await until(passes, "a message on its way")
        for silent in (False, True):
            three.weather.part(["nats-3"], ["nats-1", "nats-2"], silent=silent)
            await until(parted, "no message on its way")
            three.weather.clear()
            await until(passes, "a message on its way again")
    finally:
        await near.close()
        await far.close()


async def test_a_given_directory_is_used_again(tmp_path: Path) -> None:
    """JetStream knows its peers by cluster and server name, so both stay."""
    first, second, other = (NatsCluster(3, directory=tmp_path / where) for where in ("nats", "nats", "other"))
    for cluster in (first, second, other):
        await cluster.prepare()
    assert first.name == second.name != other.name
    assert (tmp_path / "nats").stat().st_mode & 0o777 == 0o700
    await first.stop()
    assert (tmp_path / "nats" / "cluster-name").exists()


async def test_a_single_server_has_no_leader_to_name(nats_url: str, cluster: str) -> None:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        await ensure_streams(bus)
        assert await stream_leader(bus, bus.subjects.state_stream) == ""
        with pytest.raises(BusUnavailable, match="no-such-stream"):
            await stream_leader(bus, "no-such-stream")


def test_fair_weather_is_the_default() -> None:
    weather = Weather()
    weather.part(["a"], ["b", "c"])
    assert weather.is_cut("b", "a") and not weather.is_cut("b", "c") and not weather.is_silent("a", "b")
    weather.clear()
    assert not weather.is_cut("a", "b")
