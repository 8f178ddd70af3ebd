"""Apiservers and etcd die and come back while jobs run on koord: nothing is lost, nothing is done twice.

The judge reads what etcd stored, so a watch that broke with its server hides nothing.
"""

import asyncio
from pathlib import Path

import pytest

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.localcluster.controlplane.plane import ControlPlane
from tests.integration.exactly_once import Arriving, create, judge, units_over
from tests.realcluster.fixtures import MakeControlPlane
from tests.realcluster.koord import READABLE, koord_up, stored_history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

JOBS = 60
IN_FLIGHT = 30
"""Jobs that are submitted and not over, at least, whenever something dies."""


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
    try:
        pids = up.ready["pids"]
        async with await connect(str(plane.kubeconfig)) as api:
            for manifest in [*scenario.namespaces(), *scenario.quotas()]:
                await create(api, manifest)
            arriving = Arriving(api, 2.0)
            await arriving.more(JOBS)
            for number, fault in enumerate(FAULTS):
                await arriving.until_over(JOBS * number // (2 * len(FAULTS)))
                await arriving.in_flight(IN_FLIGHT)
                await fault(plane)
            await arriving.until_over()
            await units_over(api)
        now = up.ready["pids"]
        assert {name for name in pids if now.get(name) != pids[name]} == set(), "a process ended because of it"
    finally:
        await asyncio.to_thread(up.stop)
    phases = judge(await stored_history(plane), arriving.jobs, repeating={"Job"})
    assert set(phases.values()) == {"Succeed"}
