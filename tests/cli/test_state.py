"""Reading a cluster whose bus answers but has no state to give: the API is read, and the bus is tried only once."""

import asyncio
from typing import Any

import pytest

from koord.bus.statecache import StateCache
from koord.cli import state
from koord.cli.clusters import ClusterFile
from koord.cli.state import Reader
from koord.kube import resources
from koord.kube.resources import Resource


async def test_a_bus_without_the_state_is_tried_once(
    nats_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No gateway ever wrote to this cluster's streams, so no list of theirs gets whole."""
    read: list[str] = []

    async def from_api(_: Reader, resource: Resource) -> list[dict[str, Any]]:
        read.append(resource.plural)
        return [{"metadata": {"name": resource.plural}}]

    caches: list[str] = []
    make = StateCache

    def counted(bus: Any, resource: Resource, kind: Any) -> Any:
        caches.append(resource.plural)
        return make(bus, resource, kind)

    monkeypatch.setattr(Reader, "_from_api", from_api)
    monkeypatch.setattr(state, "StateCache", counted)
    monkeypatch.setattr(state, "_SYNC_S", 0.5)
    before = len(asyncio.all_tasks())
    async with Reader(ClusterFile("", nats_url, "", cluster=cluster)) as reader:
        for resource in (resources.QUEUES, resources.PODS, resources.ELASTIC_QUOTAS):
            assert await reader.objects(resource) == [{"metadata": {"name": resource.plural}}]
    assert read == ["queues", "pods", "elasticquotas"]
    assert caches == ["queues"]
    assert len(asyncio.all_tasks()) == before
