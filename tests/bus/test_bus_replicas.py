"""Whoever runs NATS hears of a server that stays behind: a metric for each copy of a stream, and a warning."""

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest

from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.bus.replicas import AGAIN_S, LATE_S, Lateness, Peer, watch_replicas
from koord.bus.streams import StreamLimits, ensure_streams
from koord.localcluster.natscluster import NatsCluster
from koord.telemetry.metrics import render

GOOD, BEHIND, AWAY = Peer("a", True, False, 0), Peer("a", False, False, 7), Peer("a", False, True, 7)


def series(server: str, stream: str) -> float | None:
    """What /metrics says of a copy."""
    for line in render().decode().splitlines():
        if line.startswith(f'koord_bus_replica_behind_seconds{{server="{server}",stream="{stream}"}}'):
            return float(line.split()[-1])
    return None


@pytest.mark.parametrize("bad", [BEHIND, AWAY])
def test_a_copy_is_warned_of_once_it_is_late_and_again_only_after_minutes(bad: Peer) -> None:
    lateness = Lateness()
    assert not lateness.look(0, "pure", [bad])
    assert not lateness.look(LATE_S - 1, "pure", [bad])
    assert lateness.look(LATE_S, "pure", [bad]) == [(bad, LATE_S)]
    assert series("a", "pure") == LATE_S
    assert not lateness.look(LATE_S + AGAIN_S - 1, "pure", [bad])
    assert lateness.look(LATE_S + AGAIN_S, "pure", [bad])


def test_a_copy_that_was_current_in_between_begins_anew() -> None:
    lateness = Lateness()
    assert not lateness.look(0, "pure", [BEHIND])
    assert not lateness.look(15, "pure", [GOOD])
    assert series("a", "pure") == 0
    assert not lateness.look(30, "pure", [BEHIND])
    assert not lateness.look(49, "pure", [BEHIND])
    assert lateness.look(50, "pure", [BEHIND])


def test_a_copy_that_is_taken_away_is_not_told_any_more() -> None:
    lateness = Lateness()
    lateness.look(0, "pure", [BEHIND])
    assert not lateness.look(100, "pure", [])
    assert series("a", "pure") is None
    assert not lateness.look(101, "pure", [BEHIND])


@pytest.fixture
async def three() -> AsyncIterator[NatsCluster]:
    cluster = NatsCluster(3)
    await cluster.start()
    yield cluster
    await cluster.stop()


async def test_a_server_that_is_away_is_told_and_is_not_when_it_is_back(
    three: NatsCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with await Bus.connect(three.server("nats-1").url, f"r{os.getpid()}", "one") as bus:
        await ensure_streams(bus, StreamLimits(replicas=3))
        stream = bus.subjects.quota_stream

        async def until(wanted: bool) -> None:
            """The server that does not lead the quota stream is behind in it, or is not."""
            deadline = time.monotonic() + 60
            while (known := series(victim, stream)) is None or (known > 0) is not wanted:
                assert time.monotonic() < deadline, render().decode()
                # A leader learns only from a message that a follower is back.
                await bus.publish_acked(bus.subjects.quota_runtime("a"), b"x", timeout=None)
                await asyncio.sleep(0.05)

        info = await bus.js.stream_info(stream)
        assert info.cluster is not None
        victim = next(name for name in ("nats-2", "nats-3") if name != info.cluster.leader)
        watch = asyncio.create_task(watch_replicas(bus, every_s=0.1, late_s=0.3))
        try:
            await until(False)
            await three.server(victim).kill()
            await until(True)
            deadline, printed = time.monotonic() + 60, ""
            while "stays behind" not in printed or f"server={victim}" not in printed:
                assert time.monotonic() < deadline, printed
                captured = capsys.readouterr()
                printed += captured.err + captured.out
                await asyncio.sleep(0.05)
            await three.server(victim).start()
            await until(False)
        finally:
            await end(watch)
        assert series(victim, stream) is None, "who does not lead any more tells nothing"
