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
from tests.integration.conftest import Up
from tests.integration.exactly_once import Arriving, create, judge, units_over, until

JOBS = 80
MORE = 10
LEADERS = ("gateway", "reconciler", "quota", "queue")
STOPPED_S = 5.0
"""Longer than the lease of any role."""


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
    took: dict[str, float] = {}
    async with await connect(str(up.kubeconfig)) as api:
        history, arriving = History(api), Arriving(api, 2.0)
        await history.start()
        for manifest in [*scenario.namespaces(), *scenario.quotas()]:
            await create(api, manifest)
        await arriving.more(JOBS)
        # What comes while nobody leads is bound to be in flight, however fast the machine is.
        for number, service in enumerate(LEADERS):
            await arriving.until_over(5 * number)
            slot = await replicas.leader(service)
            up.kill(slot)
            killed = time.monotonic()
            await arriving.more(MORE)
            assert await replicas.leader(service, but=slot) != slot
            took[service] = time.monotonic() - killed
        up.kill("scheduler-1")
        # One that was only stopped finds another in its place and does no harm.
        for service in ("gateway", "queue"):
            for slot in replicas.slots(service):
                await replicas.ready(slot)
            slot = await replicas.leader(service)
            pid = up.ready["pids"][slot]
            os.kill(pid, signal.SIGSTOP)
            begun = time.monotonic()
            try:
                await arriving.more(2 * MORE)
                await replicas.leader(service, but=slot)
                took[f"{service}, stopped"] = time.monotonic() - begun
                await until(_passed(begun + STOPPED_S), 2 * STOPPED_S)
            finally:
                os.kill(pid, signal.SIGCONT)
        await arriving.until_over()
        await units_over(api)
        changes = list(history.changes())
        await history.stop()
    phases = judge(changes, arriving.jobs)
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
