"""Leases when answers are lost and when their bucket has no leader: nobody loses a role, nobody takes one."""

import asyncio
import os
import time

import nats.errors
import nats.js.errors
import pytest
from nats.js.kv import KeyValue

from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.bus.leaders import stream_leader
from koord.bus.leases import KvLease
from koord.bus.streams import CLUSTER_LEASE_TTL_S, LEASE_TTL_S, StreamLimits, ensure_streams
from koord.localcluster.natscluster import NatsCluster
from tests.bus.conftest import until

LONG_S = 120.0


async def ttl(bus: Bus) -> float:
    info = await bus.js.stream_info(f"KV_{bus.subjects.leases_bucket}")
    return float(info.config.max_age or 0)


async def is_whole(bus: Bus, stream: str) -> bool:
    """Whether three servers hold all of the stream."""
    cluster = (await bus.js.stream_info(stream)).cluster
    copies = cluster.replicas or [] if cluster is not None else []
    return len(copies) == 2 and all(copy.current and not copy.offline and not copy.lag for copy in copies)


async def test_a_renewal_that_was_stored_but_not_answered_loses_nothing(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, calls = KeyValue.update, 0

    async def unanswered(bucket: KeyValue, key: str, value: bytes, last: int | None = None) -> int:
        nonlocal calls
        calls += 1
        revision = await update(bucket, key, value, last)
        if calls % 2:
            raise nats.errors.TimeoutError
        return revision

    monkeypatch.setattr(KeyValue, "update", unanswered)
    lease = KvLease(bus, "quota", "a-1", renew=0.2)
    await asyncio.wait_for(lease.acquire(), 60)
    await until(lambda: calls > 8 or lease.lost.is_set(), timeout=60)
    assert lease.held
    await lease.release()


async def test_nothing_is_concluded_while_the_buckets_leader_says_nothing(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict alone does not mean that another has the role: it may be our own word."""
    lease = KvLease(bus, "quota", "a-1", renew=0.2)
    await asyncio.wait_for(lease.acquire(), 60)
    update, silent = KeyValue.update, 0

    async def conflict(bucket: KeyValue, key: str, value: bytes, last: int | None = None) -> int:
        if silent:
            raise nats.js.errors.KeyWrongLastSequenceError
        return await update(bucket, key, value, last)

    entry = lease._entry

    async def unanswered() -> tuple[str, int]:
        nonlocal silent
        if silent:
            silent -= 1
            raise nats.errors.TimeoutError
        return await entry()

    monkeypatch.setattr(KeyValue, "update", conflict)
    monkeypatch.setattr(lease, "_entry", unanswered)
    silent = 3
    await until(lambda: not silent or lease.lost.is_set(), timeout=60)
    renewed = lease._renewed
    await until(lambda: lease._renewed > renewed or lease.lost.is_set(), timeout=60)
    assert lease.held
    await lease.release()


async def test_a_role_outlasts_the_loss_of_the_buckets_leader() -> None:
    """And the bucket of an older version is brought up to date, never back."""
    three, cluster = NatsCluster(3), f"l{os.getpid()}"
    await three.start()
    buses: list[Bus] = []
    try:
        for name, replicas in (("old", 1), ("new", 3), ("other", 1)):
            bus = await Bus.connect(three.url, cluster, name)
            buses.append(bus)
            await ensure_streams(bus, StreamLimits(replicas=replicas))
            assert await ttl(bus) == (LEASE_TTL_S if name == "old" else CLUSTER_LEASE_TTL_S)
        bucket = f"KV_{bus.subjects.leases_bucket}"
        # A busy machine may elect for longer than the bucket's entries live; longer lives are left as they are.
        config = (await bus.js.stream_info(bucket)).config
        config.max_age = LONG_S
        await bus.js.update_stream(config)
        first, second = (KvLease(bus, "queue", bus.name) for bus in buses[:2])
        await asyncio.wait_for(first.acquire(), 60)
        waiting = asyncio.create_task(second.acquire())
        # A replica that was just added and holds nothing yet cannot lead.
        deadline = time.monotonic() + 60
        while not await is_whole(buses[2], bucket):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        victim = await stream_leader(buses[2], bucket)
        await three.server(victim).kill()
        killed = time.monotonic()
        while first._renewed <= killed + 1:  # until elected, and renewed under the new leader
            assert first.held
            assert not waiting.done(), "two have the role"
            await asyncio.sleep(0.02)
        assert await ttl(buses[2]) == LONG_S
        print(f"renewed {first._renewed - killed:.1f} s after the bucket's leader was killed")
        await first.release()
        await asyncio.wait_for(waiting, 60)
        await second.release()
        await end(waiting)
    finally:
        for bus in buses:
            await bus.close()
        await three.stop()
