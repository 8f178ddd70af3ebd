"""Apiservers and etcd die and come back while jobs run on koord: nothing is lost, nothing is done twice.

The judge reads what etcd stored, so a watch that broke with its server hides nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.controlplane.plane import ControlPlane
from koord.localcluster.httpapi import HttpClusterApi
from tests.integration.exactly_once import create, finished, judge, until
from tests.realcluster.fixtures import MakeControlPlane
from tests.realcluster.koord import READABLE, koord_up, stored_history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

JOBS = 60


async def _bounced_apiserver(plane: ControlPlane) -> None:
    await plane.apiservers[0].bounce()


async def _other_apiserver_gone_for_good(plane: ControlPlane) -> None:
    await plane.apiservers[1].kill()


async def _etcd_leader_dies(plane: ControlPlane) -> None:
    """Each member in turn: one of them leads."""
    for member in plane.etcd.members:
        await member.bounce()


async def _etcd_away(plane: ControlPlane) -> None:
    await plane.etcd.kill()
    await plane.etcd.restart()


FAULTS = (_bounced_apiserver, _etcd_leader_dies, _other_apiserver_gone_for_good, _etcd_away, _bounced_apiserver)


async def test_jobs_finish_exactly_once_over_the_deaths_of_apiservers_and_etcd(
    make_control_plane: MakeControlPlane, tmp_path: Path
) -> None:
    plane = await make_control_plane(apiservers=2, etcd_members=3, **READABLE)
    await plane.start_controller_manager()
    up = await asyncio.to_thread(koord_up, tmp_path, plane, "--nodes", "60", "--gpu-nodes", "12")
    jobs = list(scenario.jobs(JOBS, 2.0))
    try:
        pids = up.ready["pids"]
        async with await connect(str(plane.kubeconfig)) as api:
            for manifest in [*scenario.namespaces(), *scenario.quotas()]:
                await create(api, manifest)
            await asyncio.gather(*(create(api, job) for job in jobs))
            for number, fault in enumerate(FAULTS):
                await until(_finished(api, JOBS * number // (2 * len(FAULTS))), 200)
                assert not await _finished(api, JOBS)(), "the jobs are over too early to show anything"
                await fault(plane)
            await until(_finished(api, JOBS), 300)
            await until(_units_over(api), 60)
        now = up.ready["pids"]
        assert {name for name in pids if now.get(name) != pids[name]} == set(), "a process ended because of it"
    finally:
        await asyncio.to_thread(up.stop)
    phases = judge(await stored_history(plane), jobs)
    assert set(phases.values()) == {"Succeed"}


def _finished(api: HttpClusterApi, count: int) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        try:
            return await finished(api) >= count
        except ApiError:
            return False  # nobody answers just now

    return check


def _units_over(api: HttpClusterApi) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        try:
            units, _ = await api.list("queueunits.scheduling.x-k8s.io")
        except ApiError:
            return False
        return all((unit.get("status") or {}).get("phase") in ("Succeed", "Failed") for unit in units)

    return check
