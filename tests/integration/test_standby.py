"""Two of each service: whoever leads is killed or stopped among jobs, the other takes over, each job finishes once."""

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Awaitable, Callable

import pytest

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.cli.demo.history import History
from tests.integration.conftest import REAL, Up
from tests.integration.exactly_once import create, finished, judge, until

JOBS = 160
LEADERS = ("gateway", "reconciler", "quota", "queue")
STOPPED_S = 5.0
"""Longer than the lease of any role."""
GRACE_S = 90.0 if REAL else 30.0
"""A gateway that is stopped, not dead, in the middle of a gang holds the rest of it until its Lease is over (15 s on a
real API server), and the machine that holds a control plane as well takes its time to go on."""


class Replicas:
    """The processes of a cluster that was started with ``--replicas 2``."""

    def __init__(self, up: Up) -> None:
        self.up = up

    def leads(self, slot: str) -> list[str]:
        try:
            with urllib.request.urlopen(self.up.ready["http"][slot] + "/readyz", timeout=2) as answer:
                return list(json.loads(answer.read())["leads"])
        except OSError:
            return []  # it does not run, is stopped, or is not ready

    def slots(self, service: str) -> list[str]:
        return [slot for slot in self.up.ready["http"] if slot.startswith(f"{service}-")]

    async def leader(self, service: str, but: str = "") -> str:
        """The slot that leads, once there is one other than ``but``."""
        found: list[str] = []

        async def one() -> bool:
            for slot in self.slots(service):
                if slot != but and service in await asyncio.to_thread(self.leads, slot):
                    found.append(slot)
                    return True
            return False

        await until(one, 60)
        return found[0]

    async def ready(self, slot: str) -> None:
        """Return once the slot's process is ready (again)."""

        def asked() -> bool:
            try:
                with urllib.request.urlopen(self.up.ready["http"][slot] + "/readyz", timeout=2) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        async def is_ready() -> bool:
            return await asyncio.to_thread(asked)

        await until(is_ready, 60)


@pytest.mark.slow
async def test_whoever_leads_may_die_or_sleep(own_up: Callable[..., Up], capsys: pytest.CaptureFixture[str]) -> None:
    up = await asyncio.to_thread(own_up, "--nodes", "200", "--gpu-nodes", "20", "--replicas", "2")
    replicas = Replicas(up)
    jobs = list(scenario.jobs(JOBS, 2.0))
    took: dict[str, float] = {}
    async with await connect(str(up.kubeconfig)) as api:
        history = History(api)
        await history.start()
        for manifest in [*scenario.namespaces(), *scenario.quotas()]:
            await create(api, manifest)
        await asyncio.gather(*(create(api, job) for job in jobs[: JOBS // 2]))

        def reached(count: int) -> Callable[[], Awaitable[bool]]:
            async def check() -> bool:
                return await finished(api) >= count

            return check

        for number, service in enumerate(LEADERS):
            await until(reached(5 * number), 120)
            slot = await replicas.leader(service)
            up.kill(slot)
            killed = time.monotonic()
            assert await replicas.leader(service, but=slot) != slot
            took[service] = time.monotonic() - killed
        up.kill("scheduler-1")
        # One that was only stopped finds another in its place and does no harm.
        await asyncio.gather(*(create(api, job) for job in jobs[JOBS // 2 :]))
        for service in ("gateway", "queue"):
            for slot in replicas.slots(service):
                await replicas.ready(slot)
            done = await finished(api)
            assert done < JOBS, "the jobs are over too early to show anything"
            slot = await replicas.leader(service)
            pid = up.ready["pids"][slot]
            os.kill(pid, signal.SIGSTOP)
            begun = time.monotonic()
            try:
                await replicas.leader(service, but=slot)
                took[f"{service}, stopped"] = time.monotonic() - begun
                await until(_passed(begun + STOPPED_S), 2 * STOPPED_S)
            finally:
                os.kill(pid, signal.SIGCONT)
        await until(reached(JOBS), 180)

        async def units_over() -> bool:
            units, _ = await api.list("queueunits.scheduling.x-k8s.io")
            return all((unit.get("status") or {}).get("phase") in ("Succeed", "Failed") for unit in units)

        await until(units_over, 60)
        changes = list(history.changes())
        await history.stop()
    phases = judge(changes, jobs, gang_grace_s=GRACE_S)
    assert set(phases.values()) == {"Succeed"}
    with capsys.disabled():
        print("\nseconds until another led:", ", ".join(f"{who} {seconds:.2f}" for who, seconds in took.items()))


def _passed(moment: float) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return time.monotonic() >= moment

    return check


@pytest.mark.slow
def test_whichever_scheduler_is_asked_the_owner_explains(own_up: Callable[..., Up]) -> None:
    up = own_up("--nodes", "3", "--replicas", "scheduler=2")
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"giant-{number}", "namespace": "default"},
            "spec": {
                "schedulerName": "koord-scheduler",
                "containers": [{"name": "c", "image": "x/y:1", "resources": {"requests": {"cpu": "9999"}}}],
            },
        }
        for number in range(4)
    ]
    up.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    for number in range(4):  # whoever owns it: the answer does not depend on who is asked
        name = f"default/giant-{number}"
        up.wait(lambda name=name: "0/3 nodes" in up.koord("explain", "pod", name), f"{name} is explained")  # type: ignore[misc]
        for _ in range(3):
            assert json.loads(up.koord("explain", "pod", name, "--json"))["state"] == "unschedulable"
