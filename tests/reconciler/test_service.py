"""The reconciler as a process: killed, followed by another, the ledger goes on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from nats.aio.msg import Msg

from koord.bus.connection import Bus
from koord.contracts.codec import decode
from koord.contracts.decisions import RecordEvents
from koord.ledger.client import Ledger
from koord.telemetry.spans import Spans
from tests.reconciler.test_term import Bed, Cluster, opened, until

RUN = """
import sys
from koord.reconciler.service import SPEC
from koord.runtime.run import run_service
from koord.runtime.settings import load_service
sys.exit(run_service(SPEC, *load_service(SPEC)))
"""


def start(environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", RUN], env=environment)


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        made = await Cluster.start(bus)
        async with await Ledger.connect(redis_url, cluster, "s", lease_s=3600.0) as ledger:
            yield Bed(made, ledger, Spans())


async def test_what_cannot_be_charged_and_nodes_below_zero_are_told(
    bed: Bed, nats_url: str, redis_url: str, cluster: str
) -> None:
    bus, told = bed.cluster.bus, set[tuple[str, str, str, str]]()

    async def heard(message: Msg) -> None:
        events = decode(RecordEvents, message.data).events
        told.update((event.kind, event.target.name, event.reason, event.note) for event in events)

    await bus.subscribe(bus.subjects.decision("reconciler", "event"), heard)
    settings = {"KOORD_NATS__URL": nats_url, "KOORD_REDIS__URL": redis_url, "KOORD_CLUSTER": cluster}
    await bed.cluster.node(cpu="1500m")
    await bed.cluster.node("n2", cpu="1500m")
    for name in ("x", "y"):  # found so by the rebuild
        await bed.cluster.pod(name, node="n2", phase="Running")
    process = start({**os.environ, **settings})
    try:
        await opened(bed)
        for name in ("a", "b"):
            await bed.cluster.pod(name, node="n1", phase="Running")
        await bed.cluster.pod("c", node="n1", cpu="lots")

        over = "cpu: 2 taken of 1500m; nothing more is placed there"
        nodes = {("Node", name, "LedgerOvercommit", f"node {name}: {over}") for name in ("n1", "n2")}

        async def all_three() -> bool:
            return nodes <= told and "CannotBeCharged" in {reason for _, _, reason, _ in told}

        await until(all_three, f"all events, got {told}", 60)
        (bad,) = (note for kind, name, _, note in told if (kind, name) == ("Pod", "c"))
        assert 'quantity "lots"' in bad
        assert "cpu" in bad
    finally:
        process.kill()
        process.wait(60)


async def test_a_killed_reconciler_is_followed_and_what_it_missed_is_folded(
    bed: Bed, nats_url: str, redis_url: str, cluster: str
) -> None:
    settings = {"KOORD_NATS__URL": nats_url, "KOORD_REDIS__URL": redis_url, "KOORD_CLUSTER": cluster}
    environment = {**os.environ, **settings}
    await bed.cluster.node()
    processes = [start(environment)]
    try:
        await opened(bed)
        epoch = bed.ledger.epoch
        await bed.cluster.pod("a", node="n1")

        async def charged(amount: int) -> bool:
            return await bed.amounts() == (amount, 0)

        await until(lambda: charged(1000), "the first pod")
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait(60)
        await bed.cluster.pod("b", node="n1")
        await bed.cluster.pod("a", node="n1", phase="Succeeded")
        await bed.cluster.pod("c", node="n1")
        processes.append(start(environment))
        await until(lambda: charged(2000), "what happened meanwhile", 60)
        await bed.ledger.status()
        assert bed.ledger.epoch == epoch
        processes[1].send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(processes[1].wait, 60) == 0
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait(60)
