"""The gateway as a process: killed in the middle of its work, followed by another, nothing lost and nothing twice."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.accounting.takes import pod_takes
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionPublisher
from koord.bus.streams import ensure_streams
from koord.contracts.decisions import Bind, BindMember, ClaimRef
from koord.contracts.results import Result
from koord.kube.resources import PODS
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, NodeSeen
from koord.localcluster.ports import free_port
from koord.telemetry.context import TraceContext
from tests.gateway.conftest import ApiProcess, Kube, until

RUN = """
import sys
from koord.gateway.service import SPEC
from koord.runtime.run import run_service
from koord.runtime.settings import load_service
sys.exit(run_service(SPEC, *load_service(SPEC)))
"""


class GatewayProcess:
    def __init__(self, environment: dict[str, str]) -> None:
        self.port = free_port()
        environment = {**os.environ, **environment, "KOORD_HTTP__PORT": str(self.port)}
        self.process = subprocess.Popen([sys.executable, "-c", RUN], env=environment)

    async def ready(self) -> bool:
        return await asyncio.to_thread(self._ask, "/readyz") is not None

    def _ask(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return str(answer.read().decode())
        except OSError:
            return None

    async def metric(self, pattern: str) -> float:
        text = await asyncio.to_thread(self._ask, "/metrics") or ""
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))

    def end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


class Bed:
    def __init__(self, bus: Bus, ledger: Ledger, kube: Kube, environment: dict[str, str]) -> None:
        self.bus = bus
        self.ledger = ledger
        self.kube = kube
        self.environment = environment
        self.processes: list[GatewayProcess] = []

    def start(self) -> GatewayProcess:
        process = GatewayProcess(self.environment)
        self.processes.append(process)
        return process


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str, api_process: ApiProcess, kube: Kube) -> AsyncIterator[Bed]:
    environment = {
        "KOORD_NATS__URL": nats_url,
        "KOORD_REDIS__URL": redis_url,
        "KOORD_CLUSTER": cluster,
        "KOORD_KUBECONFIG": api_process.kubeconfig,
        "KOORD_GATEWAY__LEASE_NAMESPACE": kube.namespace,
        "KOORD_GATEWAY__LEASE_DURATION_S": "8",
        "KOORD_GATEWAY__LEASE_RENEW_S": "0.5",
    }
    bus = await Bus.connect(nats_url, cluster, "test")
    await ensure_streams(bus)
    ledgers = [await Ledger.connect(redis_url, cluster, name, lease_s=3600.0) for name in ("s", "r")]
    epoch = await ledgers[1].lead("reconciler")
    await ledgers[1].observe([NodeSeen("node/n1", {"cpu": 10**6, "pods": 10**4}, "1")], role_epoch=epoch)
    await ledgers[1].open(epoch)
    await ledgers[0].status()
    made = Bed(bus, ledgers[0], kube, environment)
    yield made
    for process in made.processes:
        process.end(signal.SIGKILL)
    for ledger in ledgers:
        await ledger.close()
    await bus.close()


async def claimed(bed: Bed, pods: list[dict[str, Any]]) -> list[Bind]:
    members = [
        Member(
            pod["metadata"]["uid"],
            bed.kube.namespace,
            pod["metadata"]["name"],
            "n1",
            pod_takes({"cpu": 1000}, "n1", (), unit_owned=True),
        )
        for pod in pods
    ]
    answers = await bed.ledger.claim([ClaimRequest(f"s-{m.name}", (m,)) for m in members])
    return [
        Bind(f"s-{m.name}", ClaimRef(f"s-{m.name}", a.token, a.epoch), [BindMember(m.uid, m.namespace, m.name, "n1")])
        for m, a in zip(members, answers, strict=True)
    ]


async def test_a_killed_gateway_is_followed_within_the_lease_and_every_pod_is_bound_once(bed: Bed) -> None:
    count, before = 200, 100
    results: dict[str, Result] = {}
    publisher = DecisionPublisher(bed.bus, "scheduler")
    first = bed.start()

    def heard(result: Result) -> None:
        results[result.id] = result
        if len(results) == 10:
            first.process.send_signal(signal.SIGKILL)

    publisher.on_result(heard)
    pods = list(await asyncio.gather(*(bed.kube.pod(f"p{i}") for i in range(count))))
    decisions = await claimed(bed, pods)
    await until(first.ready, "the first gateway to be ready", 60)
    trace = TraceContext.new()
    # The other half comes when it is dead: it cannot have been through with everything.
    publishing = asyncio.create_task(publisher.publish_many([(one, trace) for one in decisions[:before]]))
    await asyncio.to_thread(first.process.wait, 60)
    await publishing
    await publisher.publish_many([(one, trace) for one in decisions[before:]])
    # A busy machine must not lose the second one the role; the Lease of the dead one lasts 3 s.
    bed.environment["KOORD_GATEWAY__LEASE_DURATION_S"] = "30"
    second = bed.start()

    async def all_bound() -> bool:
        listing = await bed.kube.get(PODS.path(bed.kube.namespace))
        assert listing is not None
        return all(item["spec"].get("nodeName") == "n1" for item in listing["items"])

    # The second has to start, and what the dead one had in its hands comes again when its time is over.
    await until(all_bound, "every pod to be bound", 180)

    async def leads() -> bool:
        return await second.metric(r"koord_gateway_leader 1") == 1

    await until(leads, "the second gateway to lead", 60)

    async def settled() -> bool:
        info = await bed.bus.js.stream_info(bed.bus.subjects.decisions_stream)
        return info.state.messages == 0

    await until(settled, "every decision to be settled", 60)
    records = [await bed.ledger.record(pod["metadata"]["uid"]) for pod in pods]
    assert {record.state for record in records if record is not None} == {"BINDING"}
    assert None not in records
    assert {result.outcome for result in results.values()} == {"done"}
    assert (await bed.ledger.items("node/n1"))["node/n1"].held["cpu"] == count * 1000
    # One binding per pod: the second write of a nodeName would have been refused with a conflict and counted here.
    assert await second.metric(r'koord_gateway_decisions_total\{.*outcome="(conflict|gone|rejected)"') == 0
    # A tidy end leaves the lease, so that the next one need not wait.
    assert second.end(signal.SIGTERM) == 0
    third = bed.start()
    await until(third.ready, "the third gateway to lead", 60)


async def test_a_kubeconfig_that_is_not_there_is_named(bed: Bed, capfd: pytest.CaptureFixture[str]) -> None:
    bed.environment["KOORD_KUBECONFIG"] = "nowhere.yaml"
    assert await asyncio.to_thread(bed.start().process.wait, 60) == 1
    assert "nowhere.yaml: no such file (setting kubeconfig)" in capfd.readouterr().err
