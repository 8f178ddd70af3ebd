"""A scheduler process is killed in the middle of a gang; the next one finishes it (spec 20 section 3.12, row 4).

The processes are real and die by SIGKILL: nothing is drained, released or renewed.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import redis.asyncio

from koord.ledger.model import LEASE_S
from tests.scheduler.outside import Outside, outside, until
from tests.scheduler.test_gangs_service import gang, held_cpu, room

START_S = 60.0


@contextlib.asynccontextmanager
async def swept(world: Outside) -> AsyncIterator[None]:
    """The reconciler's sweep: ends the claims whose lease is over."""

    async def sweep() -> None:
        while True:
            await world.sweep()
            await asyncio.sleep(0.5)

    task = asyncio.create_task(sweep())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.contextmanager
def process(nats_url: str, redis_url: str, cluster: str) -> "Iterator[subprocess.Popen[bytes]]":
    env = os.environ | {"KOORD_NATS__URL": nats_url, "KOORD_REDIS__URL": redis_url, "KOORD_CLUSTER": cluster}
    command = [sys.executable, "-c", "from koord.cli.main import main; main()", "run", "scheduler"]
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        yield child
    finally:
        kill(child)


def kill(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    child.wait(60)


async def outlast(redis_url: str, cluster: str) -> None:
    """The leases of what is held now last longer than any test."""
    async with redis.asyncio.Redis.from_url(redis_url) as raw:
        leases = f"{{koord:{cluster}}}:leases"
        held: list[Any] = list(await raw.zrange(leases, 0, -1))
        assert await raw.zadd(leases, dict.fromkeys(held, 2**52), xx=True) == 0 < len(held)


async def test_killed_while_a_nonstrict_group_waits(nats_url: str, redis_url: str, cluster: str) -> None:
    """What it held is given back by the next scheduler, not when its lease is over, and the group is completed."""
    groups = '["default/a","default/b"]'
    async with outside(nats_url, redis_url, cluster) as world, swept(world):
        await room(world, 3)
        with process(nats_url, redis_url, cluster) as first:
            names = ("a0", "a1", "b0", "b1")
            for name in names:
                await world.pod(name, annotations=gang(name[0], 2, groups=groups, mode="NonStrict"))
            await until(lambda: any(world.told(name) for name in names), "three of four fit", START_S)
            assert await held_cpu(world) == 3000
            kill(first)
            await outlast(redis_url, cluster)
        with process(nats_url, redis_url, cluster):
            await world.node("n3", cpu="1")
            await until(lambda: len(world.bound) == 4, "the group is bound")
            assert await held_cpu(world) == 0
            items = await world.ledger.items("node/")
            assert sorted(item.used["cpu"] for item in items.values()) == [1000] * 4


async def test_killed_while_gangs_are_bound_in_part(nats_url: str, redis_url: str, cluster: str) -> None:
    """Nobody remembers that a bind left a member out; it is found out from what the API shows."""
    policies = ("once-satisfied", "only-waiting", "waiting-and-running")
    async with outside(nats_url, redis_url, cluster) as world, swept(world):
        await room(world, 9)
        world.decide = lambda bind: f"all but {bind.members[0].name[:-1]}1" if len(bind.members) == 3 else "drop"
        with process(nats_url, redis_url, cluster) as first:
            for policy in policies:
                for number in range(3):
                    member = gang(policy, 3, match_policy=policy)
                    await world.pod(f"{policy}-{number}", annotations=member)
            # The missing members are claimed again, and the scheduler dies before anybody binds them.
            await until(lambda: len(world.binds) == 6, "the missing are decided", START_S)
            assert len(world.bound) == 6
            assert not any(world.node_of(f"{policy}-1") for policy in policies)
            kill(first)
        world.decide = lambda bind: "bind"
        with process(nats_url, redis_url, cluster):
            await until(lambda: len(world.bound) == 9, "every gang is whole", LEASE_S + START_S)
            assert sorted(len(bind.members) for bind in world.binds) == [1] * 6 + [3] * 3
            assert await held_cpu(world) == 0
