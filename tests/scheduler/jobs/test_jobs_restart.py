"""A scheduler process is killed after a job was claimed and before it is bound; the next one binds it, once."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from koord.ledger.model import LEASE_S
from tests.scheduler.jobs.planners import JOB
from tests.scheduler.outside import outside, until
from tests.scheduler.test_gangs_restart import START_S, kill, swept
from tests.scheduler.test_gangs_service import held_cpu, room

CODE = """
import koord.scheduler.plugins.profile as profile
from koord.cli.main import main
from tests.scheduler.jobs.planners import SPREAD
profile.entry_points = lambda group: SPREAD
main()
"""


@contextlib.contextmanager
def process(nats_url: str, redis_url: str, cluster: str) -> "Iterator[subprocess.Popen[bytes]]":
    env = os.environ | {
        "KOORD_NATS__URL": nats_url,
        "KOORD_REDIS__URL": redis_url,
        "KOORD_CLUSTER": cluster,
        "KOORD_SCHEDULER__PLUGINS": "{extra: {Jobs: {}}}",
        "KOORD_SCHEDULER__FEATURE_GATES": "{EnableInlineBatchSchedule: true}",
    }
    child = subprocess.Popen([sys.executable, "-c", CODE, "run", "scheduler"], env=env, stdout=subprocess.DEVNULL)
    try:
        yield child
    finally:
        kill(child)


async def test_killed_while_a_job_is_claimed(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world, swept(world):
        await room(world, 2, cpu="4")
        world.decide = lambda bind: "drop"
        for name in ("p0", "p1", "p2"):
            await world.pod(name, labels={JOB: "a"})
        with process(nats_url, redis_url, cluster) as first:
            await until(lambda: world.binds, "the job is decided", START_S)
            assert await held_cpu(world) == 3000
            kill(first)
        world.decide = lambda bind: "bind"
        with process(nats_url, redis_url, cluster):
            await until(lambda: len(world.bound) == 3, "the job is bound", LEASE_S + START_S)
            assert [world.node_of(name) for name in ("p0", "p1", "p2")] == ["n0", "n1", "n0"]
            assert [len(bind.members) for bind in world.binds] == [3, 3]
            assert await held_cpu(world) == 0
