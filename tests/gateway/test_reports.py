"""NodeMetrics: written for the manager, the newest of a node alone, and never in the way of binds."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from koord.accounting.takes import pod_takes
from koord.bus.decisions import DecisionPublisher
from koord.bus.statecache import StateCache
from koord.cli.benchmarks.apiweather import Proxy, Sky, Weather
from koord.contracts.decisions import Bind, BindMember, ClaimRef, Create, ObjectRef, Patch
from koord.contracts.results import Result
from koord.gateway import metrics
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient
from koord.gateway.reports import Report, ReportWriter
from koord.gateway.writes import Writer
from koord.kube.resources import NODE_METRICS
from koord.ledger.model import ClaimRequest, Member
from koord.runtime.ending import end
from koord.telemetry.context import TraceContext
from tests.gateway.conftest import Kube, until
from tests.gateway.test_session import leading, new_id


def status(cpu: int) -> bytes:
    used = {"resources": {"cpu": f"{cpu}m", "memory": "1Gi"}}
    return json.dumps(
        {"status": {"updateTime": "2026-01-01T00:00:00Z", "nodeMetric": {"nodeUsage": used, "systemUsage": used}}}
    ).encode()


def patch(name: str, cpu: int) -> Patch:
    return Patch(new_id(), ObjectRef(NODE_METRICS.token, "", name), status(cpu), subresource="status", lane="metric")


async def cpu_of(kube: Kube, name: str) -> str | None:
    found = await kube.get(NODE_METRICS.path("", name))
    assert found is not None
    usage: dict[str, Any] = found.get("status", {}).get("nodeMetric", {}).get("nodeUsage", {}).get("resources", {})
    return usage.get("cpu")


@pytest.fixture
async def node_metric(kube: Kube) -> Callable[[str], Any]:
    async def make(name: str) -> str:
        name = f"{kube.namespace}-{name}"
        body = {"apiVersion": NODE_METRICS.api_version, "kind": NODE_METRICS.kind, "metadata": {"name": name}}
        await kube.call("create", NODE_METRICS.path(), body)
        return name

    return make


class Told:
    """Results by id, in the order in which they came."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}

    def report(self, decision: Patch) -> Report:
        return Report(decision, "manager", None, self._ended)

    def _ended(self, report: Report, result: Result) -> None:
        assert report.decision.id == result.id
        assert result.id not in self.results
        self.results[result.id] = result

    def outcomes(self, *decisions: Patch) -> list[str]:
        return [self.results[decision.id].outcome for decision in decisions]


async def test_they_give_way_and_the_newest_of_a_node_is_written(
    api: Api, kube: Kube, node_metric: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.gateway.reports.YIELD_S", 3600.0)
    a, b = await node_metric("a"), await node_metric("b")
    busy, told = True, Told()
    writer = ReportWriter(Writer(api).patch, lambda: busy)
    task = asyncio.create_task(writer.run())
    first, second, other, absent = patch(a, 100), patch(a, 200), patch(b, 300), patch(f"{kube.namespace}-none", 1)
    for decision in (first, second, second, other, absent):
        writer.add(told.report(decision))
    assert writer.depth == 3
    assert told.outcomes(first) == ["conflict"]
    assert f"superseded by {second.id}" in told.results[first.id].reason
    waited, _ = await asyncio.wait({task}, timeout=0.4)
    assert (not waited, len(told.results), await cpu_of(kube, a)) == (True, 1, None)
    busy = False
    await until(lambda: len(told.results) == 4, "all are answered")
    assert told.outcomes(second, other, absent) == ["done", "done", "gone"]
    assert (await cpu_of(kube, a), await cpu_of(kube, b)) == ("200m", "300m")
    await end(task)


async def test_they_do_not_give_way_for_ever(
    api: Api, kube: Kube, node_metric: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.gateway.reports.YIELD_S", 0.2)
    a, told = await node_metric("a"), Told()
    writer = ReportWriter(Writer(api).patch, lambda: True)
    task = asyncio.create_task(writer.run())
    decision = patch(a, 100)
    writer.add(told.report(decision))
    await until(lambda: told.results, "it is written although others always need the API")
    assert told.outcomes(decision) == ["done"]
    await end(task)


async def test_what_does_not_fit_is_dropped_and_told(api: Api) -> None:
    told = Told()
    writer = ReportWriter(Writer(api).patch, lambda: True, backlog=2)
    before = metrics.REPORTS_DROPPED.labels("backlog")._value.get()
    decisions = [patch(f"n{number}", 1) for number in range(4)]
    for decision in decisions:
        writer.add(told.report(decision))
    assert told.outcomes(*decisions[2:]) == ["conflict", "conflict"]
    assert "2 reports wait already" in told.results[decisions[2].id].reason
    assert (writer.depth, metrics.REPORTS_DROPPED.labels("backlog")._value.get() - before) == (2, 2)


async def test_a_refusal_of_the_schema_is_told(api: Api, node_metric: Callable[[str], Any]) -> None:
    a, told = await node_metric("a"), Told()
    writer = ReportWriter(Writer(api).patch, lambda: False)
    task = asyncio.create_task(writer.run())
    wrong = b'{"status":{"nodeMetric":{"nodeUsage":{"resources":{"cpu":"much"}}}}}'
    decision = Patch(new_id(), ObjectRef(NODE_METRICS.token, "", a), wrong, subresource="status", lane="metric")
    writer.add(told.report(decision))
    await until(lambda: told.results, "it is answered")
    result = told.results[decision.id]
    assert (result.outcome, result.code) == ("rejected", 422)
    assert "status.nodeMetric.nodeUsage.resources.cpu" in result.reason
    await end(task)


@pytest.fixture
async def weather(api_process: Any, access: ApiAccess, tmp_path: Any) -> AsyncIterator[tuple[Sky, Api]]:
    """An API whose weather can be made bad, and the way through it."""
    sky = Sky(1)
    proxy = Proxy(access, sky)
    await proxy.start()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(proxy.kubeconfig())
    through = await load_access(str(kubeconfig))
    client = LeanClient(through, connections=16, timeout_s=10)
    yield sky, Api(client, through, patience_s=60)
    await client.close()
    await proxy.stop()


async def test_a_bind_overtakes_them_while_the_server_throttles(
    nats_url: str, redis_url: str, cluster: str, access: ApiAccess, kube: Kube, weather: tuple[Sky, Api]
) -> None:
    sky, through = weather
    names = [f"{kube.namespace}-m{number:03d}" for number in range(150)]
    async with leading(nats_url, redis_url, cluster, access, through, kube) as bed:
        manager, trace, told = DecisionPublisher(bed.bus, "manager"), TraceContext.new(), list[Result]()
        meta = {"apiVersion": NODE_METRICS.api_version, "kind": NODE_METRICS.kind}
        bodies = [json.dumps({**meta, "metadata": {"name": name}}).encode() for name in names]
        creates = [
            Create(new_id(), NODE_METRICS.token, "", name, body) for name, body in zip(names, bodies, strict=True)
        ]
        made = await asyncio.gather(*(manager.settle(create, trace, 60) for create in creates))
        assert {result.outcome for result in made} == {"done"}
        pod = await kube.pod("a")
        uid = pod["metadata"]["uid"]
        takes = pod_takes({"cpu": 1000}, "n1", (), unit_owned=True)
        request = ClaimRequest(new_id(), (Member(uid, kube.namespace, "a", "n1", takes),))
        answer = (await bed.ledger.claim([request]))[0]
        claim = ClaimRef(request.id, answer.token, answer.epoch)

        sky.change(Weather(per_s=15), asyncio.get_running_loop().time())
        manager.on_result(told.append)
        await manager.publish_many((patch(name, 100), trace) for name in names)
        # More than the server has room for wait; what the queue holds is the bind alone.
        await until(lambda: sky.refused["metric"] > 5, "reports are answered 429")
        bound = await bed.settle("scheduler", Bind(request.id, claim, [BindMember(uid, kube.namespace, "a", "n1")]))
        assert (bound.outcome, len(told) < len(names)) == ("done", True), (bound, len(told))
        assert await bed.waiting() < len(names)
        sky.change(Weather(), asyncio.get_running_loop().time())
        await until(lambda: len(told) == len(names), "all reports are answered")
        assert {result.outcome for result in told} == {"done"}
        cache = StateCache(bed.bus, NODE_METRICS, dict)
        await cache.start()
        await until(
            lambda: all(cache.items.get(name, {}).get("status", {}).get("nodeMetric") for name in names),
            "the state shows them",
        )
        await cache.close()
        manager.close()
