"""The quota service on real NATS and Redis."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.msg import Msg

from koord.bus.errors import BusUnavailable
from koord.contracts.codec import decode
from koord.contracts.decisions import Patch, RecordEvents
from koord.contracts.quota import QuotaRuntime
from koord.kube.resources import ELASTIC_QUOTAS, NAMESPACES, NODES, PODS
from koord.quota.service import QuotaService
from koord.quota.settings import QuotaSettings
from tests.queue.harness import MiniCluster, node, quota, running, until

PREFIX = "quota.scheduling.koordinator.sh/"


@pytest.fixture
async def mini(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[MiniCluster]:
    async with running(nats_url, redis_url, cluster) as made:
        yield made


async def start(mini: MiniCluster, **settings: Any) -> QuotaService:
    await mini.put(NODES, node("n"))
    service = QuotaService(await mini.host("quota"), QuotaSettings(**settings))
    await service.start()
    return service


def pod(name: str, quota_name: str, cpu: str, node: str = "", phase: str = "Pending") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team", "labels": {PREFIX + "name": quota_name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }


def patched(mini: MiniCluster) -> int:
    return sum(isinstance(each, Patch) and each.target.namespace == "quotas" for _, each in mini.decisions)


async def test_special_quotas_and_their_namespace_are_made(mini: MiniCluster) -> None:
    await start(mini)
    names = ("koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota")
    await until(lambda: all(mini.get(ELASTIC_QUOTAS, f"koord-system/{name}") for name in names), "three quotas")
    assert mini.get(NAMESPACES, "koord-system") is not None
    default = mini.get(ELASTIC_QUOTAS, f"koord-system/{names[2]}")
    assert default is not None and default["spec"]["max"]["cpu"] == "1844674407370955161"


async def test_limits_reach_the_ledger_and_follow_edits(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("a", "4"))
    await start(mini, queue_limit="max", enable_runtime_quota=False)

    async def limit(item: str) -> Any:
        items = await mini.ledger.items()
        return items[item].limits.get("cpu") if item in items and items[item].open else None

    async def is_limit(item: str, value: int | None) -> bool:
        return bool(await limit(item) == value)

    for item in ("quota/a", "admitted/a"):
        await until(lambda item=item: is_limit(item, 4000), item)  # type: ignore[misc]
    await mini.edit(ELASTIC_QUOTAS, "quotas/a", {"spec": {"max": {"cpu": "6"}}})
    await until(lambda: is_limit("admitted/a", 6000), "the edit")
    await mini.edit(ELASTIC_QUOTAS, "quotas/a", {"spec": {"max": {"cpu": "-6"}}})
    await until(lambda: any(reason == "InvalidQuota" for _, _, reason, _ in mini.events), "told")
    assert await limit("admitted/a") == 6000
    await mini.delete(ELASTIC_QUOTAS, "quotas/a")
    await until(lambda: is_limit("admitted/a", None), "closed")


async def test_what_the_bus_did_not_take_is_told_later(mini: MiniCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("bad", "-4"))
    host = await mini.host("quota")
    await mini.put(NODES, node("n"))
    service = QuotaService(host, QuotaSettings())
    publish, refused = service._publisher.publish_many, 0

    async def away(decisions: Any) -> None:
        nonlocal refused
        if any(isinstance(decision, RecordEvents) for decision, _ in decisions) and refused < 2:
            refused += 1
            raise BusUnavailable("the bus is away")
        await publish(decisions)

    monkeypatch.setattr(service._publisher, "publish_many", away)
    await service.start()
    await until(lambda: any(reason == "InvalidQuota" for _, _, reason, _ in mini.events), "told in the end")
    assert refused == 2
    await until(lambda: mini.get(NAMESPACES, "koord-system"), "written in the end")


async def test_an_edit_while_the_ledger_answers_is_not_lost(mini: MiniCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("a", "4"))
    host = await mini.host("quota")
    await mini.put(NODES, node("n"))
    service = QuotaService(host, QuotaSettings(enable_runtime_quota=False))
    observe, edits = host.ledger.observe, ["5", "6"]

    async def slow(*arguments: Any, **named: Any) -> Any:
        answer = await observe(*arguments, **named)
        if edits and "quota/a" in repr(arguments[0]):
            limit = edits.pop(0)
            await mini.edit(ELASTIC_QUOTAS, "quotas/a", {"spec": {"max": {"cpu": limit}}})
            await until(lambda: service._keeper.tree.limits("a")["cpu"] == int(limit) * 1000, "seen")
        return answer

    monkeypatch.setattr(host.ledger, "observe", slow)
    await service.start()

    async def written() -> bool:
        items = await mini.ledger.items("quota/a")
        return "quota/a" in items and items["quota/a"].limits.get("cpu") == 6000

    await until(written, "the last edit's limit")


async def test_limits_come_back_after_the_ledger_was_rebuilt(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("a", "4"))
    await start(mini)

    async def has() -> bool:
        return "admitted/a" in await mini.ledger.items("admitted/")

    await until(has, "first")
    await mini.ledger.begin(mini.reconciler_epoch)
    await mini.ledger.open(mini.reconciler_epoch)
    await until(has, "again", timeout=60)


async def test_used_and_request_are_shown_and_published(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("top", "10"))
    await mini.put(ELASTIC_QUOTAS, quota("a", "4", "top"))
    heard: list[QuotaRuntime] = []

    async def hear(message: Msg) -> None:
        heard.append(decode(QuotaRuntime, message.data))

    await mini.bus.subscribe(mini.bus.subjects.quota_runtime_all, hear)
    await start(mini)
    await mini.put(PODS, pod("p1", "a", "1500m", node="n1", phase="Running"))
    await mini.put(PODS, pod("p2", "a", "1"))

    def shown(name: str) -> tuple[Any, Any]:
        body = mini.get(ELASTIC_QUOTAS, f"quotas/{name}") or {}
        annotations = body.get("metadata", {}).get("annotations", {})
        return body.get("status", {}).get("used"), annotations.get(PREFIX + "request")

    await until(lambda: shown("a") == ({"cpu": "1500m"}, '{"cpu":"2500m"}'), "the leaf")
    await until(lambda: shown("top") == ({"cpu": "1500m"}, '{"cpu":"2500m"}'), "its parent")
    assert heard and {state.name: state.used for state in heard[-1].quotas}["top"] == {"cpu": 1500}
    await mini.delete(PODS, "team/p1")
    await until(lambda: shown("a") == shown("top") == ({"cpu": "0"}, '{"cpu":"1"}'), "after the pod")
    writes = patched(mini)
    await mini.edit(PODS, "team/p2", {"metadata": {"labels": {"irrelevant": "x"}}})
    await mini.put(PODS, pod("p3", "a", "1"))
    await until(lambda: shown("a")[1] == shown("top")[1] == '{"cpu":"2"}', "p3")
    assert patched(mini) <= writes + 2  # the leaf and its parent, once each


async def test_what_thousands_of_broken_quotas_quote_stops_nothing_else(mini: MiniCluster) -> None:
    """Together they quote more than fits into one message, which is tried before what follows it."""
    await mini.put(ELASTIC_QUOTAS, quota("good", "4"))
    for number in range(20):
        broken = quota(f"broken{number}", "1")
        broken["spec"]["max"] = {f"example.com/{'x' * 500_000}": "two"}
        await mini.put(ELASTIC_QUOTAS, broken)
    await mini.put(PODS, pod("p", "good", "1", node="n", phase="Running"))
    service = await start(mini)

    def shown() -> bool:
        found = service._keeper.quotas.objects.get("quotas/good")
        return found is not None and found.status.used.get("cpu") == "1"

    await until(shown, "what the good one uses")
