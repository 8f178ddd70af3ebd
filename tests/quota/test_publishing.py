"""Runtimes are published beside everything else: a JetStream that confirms nothing holds up no limit."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord.bus.errors import BusUnavailable
from koord.contracts.codec import decode
from koord.contracts.quota import QuotaRuntime
from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS
from koord.quota import publishing
from koord.quota.service import QuotaService
from koord.quota.settings import QuotaSettings
from koord.telemetry.metrics import render
from tests.queue.harness import MiniCluster, node, quota, running, until
from tests.quota.test_service import pod


@pytest.fixture
async def mini(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[MiniCluster]:
    async with running(nats_url, redis_url, cluster) as made:
        yield made


class Stream:
    """Takes messages like JetStream, and confirms them when it is told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[QuotaRuntime, asyncio.Future[int]]] = []

    def publish(self, subject: str, payload: bytes, *_: Any, **named: Any) -> "asyncio.Future[int]":
        assert named["latest"]
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.sent.append((decode(QuotaRuntime, payload), stored))
        return stored

    @property
    def last(self) -> QuotaRuntime:
        return self.sent[-1][0]


async def started(mini: MiniCluster, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Stream:
    await mini.put(NODES, node("n"))
    host, stream = await mini.host("quota"), Stream()
    monkeypatch.setattr(host.bus, "publish_acked", stream.publish)
    service = QuotaService(host, QuotaSettings(**settings))

    async def slow(decisions: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(service._publisher, "publish_many", slow)
    await service.start()
    return stream


async def limit(mini: MiniCluster, name: str) -> int | None:
    items = await mini.ledger.items(f"admitted/{name}")
    return items[f"admitted/{name}"].limits.get("cpu") if items else None


async def test_limits_are_written_while_nothing_is_confirmed(
    mini: MiniCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("a", "4"))
    stream = await started(mini, monkeypatch, enable_runtime_quota=False)

    async def is_limit(cpu: int) -> bool:
        return await limit(mini, "a") == cpu

    await until(lambda: bool(stream.sent), "the first message")
    for cpu in ("5", "6", "7"):
        await mini.edit(ELASTIC_QUOTAS, "quotas/a", {"spec": {"max": {"cpu": cpu}}})
        await until(lambda cpu=cpu: is_limit(int(cpu) * 1000), f"the limit {cpu}")  # type: ignore[misc]
    # What is newer follows although nothing of before is confirmed.
    await until(lambda: stream.last.quotas[0].max == {"cpu": 7000}, "the newest message")
    for _, stored in stream.sent[:-1]:
        stored.set_exception(BusUnavailable("never confirmed"))  # an older one: nothing follows from that
    count, (newest, stored) = len(stream.sent), stream.sent[-1]
    stored.set_exception(BusUnavailable("never confirmed"))
    await until(lambda: len(stream.sent) > count, "it is published again")
    assert stream.last.quotas == newest.quotas and stream.last.version > newest.version


async def test_what_did_not_change_is_published_again_for_nobody_knows_what_the_stream_still_holds(
    mini: MiniCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NATS that lost its store; a leader of before whose older message came after ours."""
    monkeypatch.setattr(publishing, "REFRESH_S", 0.1)
    await mini.put(ELASTIC_QUOTAS, quota("a", "4"))
    stream = await started(mini, monkeypatch)

    def confirmed(count: int) -> bool:
        for _, stored in stream.sent:
            if not stored.done():
                stored.set_result(1)
        named = [message for message, _ in stream.sent if message.quotas and message.quotas[0].name == "a"]
        return len(named) >= count and all(one == other for one, other in pairs(named[-3:]))

    def pairs(of: list[QuotaRuntime]) -> list[tuple[Any, Any]]:
        return [(one.quotas, other.quotas) for one, other in itertools.pairwise(of)]

    await until(lambda: confirmed(3), "three messages that say the same")
    versions = [message.version for message, _ in stream.sent]
    assert versions == sorted(set(versions))


def series(name: str) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(render().decode()):
        for sample in family.samples:
            if sample.name == name:
                found[tuple(sample.labels[key] for key in sorted(sample.labels))] = sample.value
    return found


async def test_metrics_say_how_old_runtimes_are_and_what_quotas_show(
    mini: MiniCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("top", "9"))
    await mini.put(ELASTIC_QUOTAS, quota("a", "4", "top"))
    await mini.put(PODS, pod("p", "a", "1500m", node="n1", phase="Running"))
    stream = await started(mini, monkeypatch)
    age = "koord_quota_runtime_age_seconds"
    await until(lambda: bool(stream.sent), "the first message")
    await until(lambda: series(age).get(("_",), 0) > 1, "it grows while nothing is confirmed")
    for _, stored in stream.sent:
        stored.set_result(1)

    def current() -> bool:
        for _, stored in stream.sent:
            if not stored.done():
                stored.set_result(1)
        return series(age)[("_",)] < 1

    await until(current, "it falls once all is confirmed")

    def shown(name: str, field: str) -> float | None:
        # labels by name: field, is_parent, name, parent, resource, tree
        found = series("scheduler_elastic_quota_status")
        values = [value for key, value in found.items() if (key[0], key[2], key[4]) == (field, name, "cpu")]
        return values[0] if values else None

    await until(lambda: shown("top", "used") == 1500, "what it uses")
    assert [shown("a", field) for field in ("max", "request", "runtime", "sharedWeight")] == [4000, 1500, 1500, 4000]
    assert series("scheduler_update_elastic_quota_status_duration_seconds_count")[()] > 0
