"""SIGKILL of each service and of Redis in turn, each time with 100 jobs in flight: every job finishes exactly once."""

import asyncio
from collections.abc import Callable

import pytest

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.cli.demo.history import History
from tests.integration.conftest import Up
from tests.integration.exactly_once import Arriving, create, judge, restarted, units_over, until

JOBS = 200
IN_FLIGHT = 100
"""Jobs that are submitted and not over, at least, whenever a service is killed."""
SERVICES = ("gateway", "reconciler", "redis-server", "quota", "queue", "scheduler")


@pytest.mark.slow
async def test_every_job_finishes_exactly_once(own_up: Callable[..., Up]) -> None:
    up = await asyncio.to_thread(own_up, "--nodes", "200", "--gpu-nodes", "20")
    async with await connect(str(up.kubeconfig)) as api:
        history, arriving = History(api), Arriving(api, 2.0)
        await history.start()
        for manifest in [*scenario.namespaces(), *scenario.quotas()]:
            await create(api, manifest)
        await arriving.more(JOBS)
        # A kill each time some more of the jobs are done: every service dies while jobs are in every stage.
        for number, service in enumerate(SERVICES):
            await arriving.until_over((JOBS - IN_FLIGHT) * number // (2 * len(SERVICES)))
            before = up.ready["pids"][service]
            await arriving.in_flight(IN_FLIGHT)
            up.kill(service)
            await until(restarted(up, service, before), 60)
        await arriving.until_over()
        await units_over(api)
        changes = list(history.changes())
        await history.stop()

    phases = judge(changes, arriving.jobs)
    assert set(phases.values()) == {"Succeed"}
