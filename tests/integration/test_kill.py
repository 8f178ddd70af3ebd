"""SIGKILL of each service and of Redis in turn, each time with 100 jobs in flight: every job finishes exactly once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.cli.demo.history import History
from tests.integration.conftest import Up
from tests.integration.exactly_once import create, finished, judge, restarted, until

JOBS = 200
IN_FLIGHT = 100
"""Jobs that are submitted and not over, at least, whenever a service is killed."""
SERVICES = ("gateway", "reconciler", "redis-server", "quota", "queue", "scheduler")


@pytest.mark.slow
async def test_every_job_finishes_exactly_once(own_up: Callable[..., Up]) -> None:
    up = await asyncio.to_thread(own_up, "--nodes", "200", "--gpu-nodes", "20")
    jobs = list(scenario.jobs(JOBS, 2.0))
    async with await connect(str(up.kubeconfig)) as api:
        history = History(api)
        await history.start()
        for manifest in [*scenario.namespaces(), *scenario.quotas()]:
            await create(api, manifest)
        creating = asyncio.gather(*(create(api, job) for job in jobs))

        def reached(count: int) -> Callable[[], Awaitable[bool]]:
            async def check() -> bool:
                return await finished(api) >= count

            return check

        # A kill each time some more of the jobs are done: every service dies while jobs are in every stage.
        for number, service in enumerate(SERVICES):
            await until(reached((JOBS - IN_FLIGHT) * number // (2 * len(SERVICES))), 120)
            await creating
            done = await finished(api)
            assert JOBS - done >= IN_FLIGHT, f"{done} of {JOBS} jobs are over before {service} is killed"
            before = up.ready["pids"][service]
            up.kill(service)
            await until(restarted(up, service, before), 60)
        await until(reached(JOBS), 180)

        async def units_over() -> bool:
            units, _ = await api.list("queueunits.scheduling.x-k8s.io")
            return all((unit.get("status") or {}).get("phase") in ("Succeed", "Failed") for unit in units)

        await until(units_over, 60)  # each follows its job
        changes = list(history.changes())
        await history.stop()

    phases = judge(changes, jobs)
    assert set(phases.values()) == {"Succeed"}
