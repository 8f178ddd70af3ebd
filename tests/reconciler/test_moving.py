"""A quota gets another parent under running pods: what they are charged moves with it, as a rebuild would have it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.bus.connection import Bus
from koord.kube.resources import ELASTIC_QUOTAS, PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.telemetry.spans import Spans
from tests.reconciler.test_term import Bed, Cluster, opened, reconciling, until

LABEL = "quota.scheduling.koordinator.sh/"
Used = dict[str, dict[str, int]]


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        made = await Cluster.start(bus)
        async with await Ledger.connect(redis_url, cluster, "s", lease_s=3600.0) as ledger:
            yield Bed(made, ledger, Spans())


async def quota(bed: Bed, name: str, parent: str = "", *, gone: bool = False) -> None:
    labels = {LABEL + "parent": parent} if parent else {}
    meta = {"name": name, "namespace": "q", "uid": name, "labels": labels}
    await bed.cluster.put(ELASTIC_QUOTAS, {"metadata": meta, "spec": {"max": {"cpu": "9"}}}, gone=gone)


async def running(bed: Bed) -> None:
    """A pod of a unit, one of none that must not be preempted, and the unit: all of quota leaf."""
    for name, labels, unit in (("owned", {}, "ns/j"), ("plain", {LABEL + "preemptible": "false"}, "")):
        body: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"},
        }
        body["metadata"]["labels"] = {LABEL + "name": "leaf", **labels}
        body["metadata"]["annotations"] = {"koord-queue/related-queueunit": unit} if unit else {}
        await bed.cluster.put(PODS, body)
    meta = {"name": "j", "namespace": "ns", "uid": "uid-j", "labels": {LABEL + "name": "leaf"}}
    status = {"phase": "Dequeued", "admissions": [{"name": "main", "replicas": 1}]}
    await bed.cluster.put(QUEUE_UNITS, {"metadata": meta, "spec": {"resource": {"cpu": "2"}}, "status": status})


async def used(bed: Bed) -> Used:
    """What is charged to quotas, without zeros."""
    items = await bed.ledger.items()
    assert all(not any(item.held.values()) for item in items.values())
    found = {name: {key: n for key, n in item.used.items() if n} for name, item in items.items() if item.used}
    return {name: amounts for name, amounts in found.items() if amounts and not name.startswith("node/")}


def of(*chain: str) -> Used:
    on_every = {f"quota/{name}": {"cpu": 2000} for name in chain} | {
        f"admitted/{name}": {"cpu": 3000} for name in chain
    }
    return on_every | {f"guaranteed/{chain[0]}": {"cpu": 1000}}


async def becomes(bed: Bed, wanted: Used) -> None:
    async def is_so() -> bool:
        return await used(bed) == wanted

    await until(is_so, f"{wanted}, not {await used(bed)}", 60)


async def test_charges_follow_their_quota_to_its_new_parent(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    for name, parent in (("a", ""), ("b", ""), ("leaf", "a")):
        await quota(bed, name, parent)
    await running(bed)
    async with reconciling(bed.cluster.bus, redis_url, "r1"):
        await opened(bed)
        await becomes(bed, of("leaf", "a"))
        await quota(bed, "leaf", "b")
        await becomes(bed, of("leaf", "b"))
        await quota(bed, "b", "a")
        await becomes(bed, of("leaf", "b", "a"))
    await quota(bed, "leaf", "a")  # while nobody reconciles
    epoch = bed.ledger.epoch
    async with reconciling(bed.cluster.bus, redis_url, "r2"):
        await becomes(bed, of("leaf", "a"))
        await bed.ledger.status()
        assert bed.ledger.epoch == epoch  # moved, not rebuilt
        await quota(bed, "leaf", "nowhere")  # a way that is broken moves nobody
        await quota(bed, "b")
        await quota(bed, "leaf", "b")
        await becomes(bed, of("leaf", "b"))
        moved = await used(bed)
        role = await bed.ledger.lead("reconciler")
        await bed.ledger.begin(role)  # the older one gives up, and the ledger is closed
    async with reconciling(bed.cluster.bus, redis_url, "r3"):
        await opened(bed)
        assert await used(bed) == moved  # what a rebuild finds
