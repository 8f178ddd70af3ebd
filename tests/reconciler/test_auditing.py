"""Audits on real NATS and Redis: what is put right, what is damaged beyond that, and that a rebuild changes nothing."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio

from koord.accounting.takes import Take
from koord.bus.connection import Bus
from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.ledger.model import Item, LedgerUnavailable, LimitSet, Observation, PodGone, PodSeen
from koord.reconciler import metrics
from koord.reconciler.auditing import Auditor
from koord.reconciler.world import World
from koord.telemetry.spans import Spans
from tests.reconciler.test_term import Bed, Cluster, opened, reconciling, until

QUOTA = "quota.scheduling.koordinator.sh/"
DEFAULT = "koordinator-default-quota"


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        made = await Cluster.start(bus)
        async with await Ledger.connect(redis_url, cluster, "s", lease_s=3600.0) as ledger:
            yield Bed(made, ledger, Spans())


@asynccontextmanager
async def underneath(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.Redis.from_url(redis_url) as raw:
        yield raw


async def quota(bed: Bed, name: str, parent: str = "", *, gone: bool = False) -> None:
    labels = {QUOTA + "parent": parent} if parent else {}
    meta = {"name": name, "namespace": "koord", "uid": name, "labels": labels}
    await bed.cluster.put(ELASTIC_QUOTAS, {"metadata": meta, "spec": {"max": {"cpu": "64"}}}, gone=gone)


async def pod_of(bed: Bed, name: str, team: str, node: str = "n1") -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {QUOTA + "name": team}}
    await bed.cluster.put(
        PODS, {"metadata": meta, "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": "Running"}}
    )


async def used(bed: Bed, item: str) -> int:
    found = await bed.item(item)
    return found.used.get("cpu", 0) if found is not None else 0


async def is_used(bed: Bed, **wanted: int) -> bool:
    return {name: await used(bed, f"quota/{name}") for name in wanted} == wanted


async def is_free(bed: Bed, uid: str) -> bool:
    return await bed.ledger.record(uid) is None


async def right(bed: Bed) -> bool:
    return all(sums.right for sums in (await bed.ledger.sums(list(await bed.ledger.items()))).values())


async def test_a_rebuild_at_rest_reproduces_the_items(bed: Bed, redis_url: str) -> None:
    for name in ("n1", "n2"):
        await bed.cluster.node(name, cpu="64")
    await quota(bed, "top")
    await quota(bed, "leaf", "top")
    unit = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "uid-j", "labels": {QUOTA + "name": "leaf"}},
        "spec": {"resource": {"cpu": "3"}},
        "status": {"phase": "Dequeued", "admissions": [{"name": "main", "replicas": 3}]},
    }
    async with reconciling(bed.cluster.bus, redis_url, "r1"):
        await opened(bed)
        await bed.cluster.put(QUEUE_UNITS, unit)
        for number in range(40):
            await pod_of(bed, f"p{number}", "leaf" if number % 3 else "top", f"n{1 + number % 2}")
        waits = await bed.cluster.pod("waits")
        await bed.claim(waits)
        await bed.cluster.put(PODS, waits, gone=True)
        await until(lambda: is_used(bed, leaf=26000, top=40000), "all charges", 60)
        await until(lambda: is_free(bed, "uid-waits"), "the end of what was held", 60)
        before = await quiet_items(bed, {"quota/top", "quota/leaf"})
    async with await Ledger.connect(redis_url, bed.cluster.bus.subjects.cluster, "r2") as ledger:
        await ledger.shut(await ledger.lead("reconciler"))
    async with reconciling(bed.cluster.bus, redis_url, "r3"):
        await opened(bed)
        assert await quiet_items(bed, {"quota/top", "quota/leaf"}) == before
        assert await right(bed)
    assert before["admitted/leaf"].used == {"cpu": 3000 + 26000}
    assert bed.cluster.barriers == 2


async def test_a_rebuild_keeps_what_pods_wait_for(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    waits: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {"schedulerName": "koord-scheduler", "priority": 9, "containers": [container]},
        "status": {"phase": "Pending", "nominatedNodeName": "n1"},
    }

    async def noted() -> list[tuple[str, str, bool, int]]:
        return [(one.uid, one.node, one.noted, one.priority) async for one in bed.ledger.nominations()]

    expected = [("uid-a", "n1", True, 9)]
    async with reconciling(bed.cluster.bus, redis_url, "r1"):
        await opened(bed)
        await bed.cluster.put(PODS, waits)

        async def told() -> bool:
            return await noted() == expected

        await until(told, "the nomination")
    async with await Ledger.connect(redis_url, bed.cluster.bus.subjects.cluster, "r2") as ledger:
        await ledger.shut(await ledger.lead("reconciler"))
    async with reconciling(bed.cluster.bus, redis_url, "r3"):
        await opened(bed)
        assert await noted() == expected


async def quiet_items(bed: Bed, limited: set[str]) -> dict[str, Item]:
    """The items once the quota leader has written its limits."""
    limits: list[Observation] = [LimitSet(name, {"cpu": 64000}) for name in sorted(limited)]
    await bed.ledger.status()
    answer = await bed.ledger.observe(limits, role="quota", role_epoch=await bed.ledger.lead("quota"))
    assert answer.status == "ok"
    return await bed.ledger.items()


@pytest.mark.parametrize("away", [0, 2])
async def test_an_item_that_is_not_the_sum_of_its_records_has_the_ledger_rebuilt(
    bed: Bed, redis_url: str, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    """Also when Redis is away for a moment just as the ledger is to be shut."""
    shut = Ledger.shut

    async def shut_later(ledger: Ledger, role_epoch: int) -> int:
        nonlocal away
        if away and metrics.DRIFT.labels("item")._value.get() > found:
            away -= 1
            raise LedgerUnavailable("away")
        return await shut(ledger, role_epoch)

    found = metrics.DRIFT.labels("item")._value.get()
    monkeypatch.setattr(Ledger, "shut", shut_later)
    for name in ("n1", "n2"):
        await bed.cluster.node(name)
    await bed.cluster.pod("a", node="n1", phase="Running")
    async with reconciling(bed.cluster.bus, redis_url, "r"):
        await opened(bed)
        before, items = await bed.ledger.status(), await bed.ledger.items()
        async with underneath(redis_url) as raw:
            key = f"{{koord:{bed.cluster.bus.subjects.cluster}}}:items"
            packed = await raw.hget(key, "node/n2")
            await raw.hset(key, "node/n1", packed)

        async def rebuilt() -> bool:
            status = await bed.ledger.status()
            return status.open and status.epoch > before.epoch

        await until(rebuilt, "the rebuild", 60)
        assert await bed.ledger.items() == items
        assert metrics.DRIFT.labels("item")._value.get() == found + 1


async def test_a_record_that_cannot_be_put_right_has_the_ledger_rebuilt(bed: Bed, redis_url: str) -> None:
    """The ledger believes that a pod has ended, and would for ten minutes."""
    await bed.cluster.node()
    await bed.cluster.pod("a", node="n1", phase="Running")
    async with reconciling(bed.cluster.bus, redis_url, "r"):
        await opened(bed)
        async with await Ledger.connect(redis_url, bed.cluster.bus.subjects.cluster, "r") as same:
            gone = await same.observe([PodGone("uid-a", "ns", "a")], role_epoch=await same.lead("reconciler"))
        assert gone.gone == ("uid-a",)

        async def charged() -> bool:
            return await bed.amounts() == (1000, 0)

        await until(charged, "the charge to come back", 60)
        assert bed.cluster.barriers == 2


async def test_records_and_objects_that_differ_are_put_right_one_by_one(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    stays = await bed.cluster.pod("a", node="n1", phase="Running")
    async with reconciling(bed.cluster.bus, redis_url, "r"):
        await opened(bed)
        async with await Ledger.connect(redis_url, bed.cluster.bus.subjects.cluster, "r") as same:
            takes = (await bed.ledger.record(stays["metadata"]["uid"])).takes  # type: ignore[union-attr]
            ghost = PodSeen("uid-ghost", "ns", "ghost", "n1", takes, "1")
            seen = await same.observe([ghost], role_epoch=await same.lead("reconciler"))
        assert seen.observed == ("uid-ghost",)

        async def ended() -> bool:
            return await bed.ledger.record("uid-ghost") is None and await bed.amounts() == (1000, 0)

        await until(ended, "the record without a pod to end", 60)
        assert bed.cluster.barriers == 1


async def test_a_pod_moves_when_its_quota_appears(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    await quota(bed, DEFAULT)
    async with reconciling(bed.cluster.bus, redis_url, "r1"):
        await opened(bed)
        await pod_of(bed, "a", "team")
        await until(lambda: is_used(bed, **{DEFAULT: 1000, "team": 0}), "the charge to the default quota")
        await quota(bed, "team")
        await until(lambda: is_used(bed, **{DEFAULT: 0, "team": 1000}), "the pod to move")
        # The quota goes: its pods are the default quota's, and so are new ones.
        await quota(bed, "team", gone=True)
        await pod_of(bed, "b", "team")
        await until(lambda: is_used(bed, **{DEFAULT: 2000, "team": 0}), "both")
    # While nobody reconciles the quota comes back: the audit of the next one finds the pod.
    await quota(bed, "team")
    async with reconciling(bed.cluster.bus, redis_url, "r2"):
        await until(lambda: is_used(bed, **{DEFAULT: 0, "team": 2000}), "both to move", 60)
        assert await right(bed)
    assert bed.cluster.barriers == 1


async def test_only_the_first_look_after_taking_over_ends_records_without_waiting(bed: Bed, redis_url: str) -> None:
    """Later ones may look at caches of which a NATS that crashed lost the last messages."""
    await bed.cluster.node()
    bus, told = bed.cluster.bus, list[Observation]()
    async with reconciling(bus, redis_url, "r1"):
        await opened(bed)

    async def tell(found: Sequence[Observation]) -> bool:
        told.extend(found)
        return True

    world = World(bus, Spans())
    await world.start(lambda token: None)
    try:
        world.collect_anew()
        auditor = Auditor(bed.ledger, world, tell, audit_s=3600.0, suspect_s=3600.0)
        assert await auditor.audit() == ""
        auditor.level()  # it takes over once more, because too much had piled up
        assert await auditor.audit() == ""
        ghost = PodSeen("uid-ghost", "ns", "ghost", "n1", (Take("node/n1", {"cpu": 1000}),), "9")
        role = await bed.ledger.lead("reconciler")
        await bed.ledger.observe([ghost], role_epoch=role)
        assert await auditor.audit() == "" and told == []  # a suspect, which has its time
        auditor.level()
        assert await auditor.audit() == ""
        assert told == [PodGone("uid-ghost", "ns", "ghost")]
    finally:
        await world.close()


async def test_a_pod_of_thousands_of_names_is_charged_and_audited(bed: Bed, redis_url: str) -> None:
    """Bound by somebody else, with names that nobody offers; then a node begins to offer one of them."""
    await bed.cluster.node()
    names = {"cpu": "1", **{f"example.com/r{number}": "2" for number in range(5000)}}
    meta = {"name": "wide", "namespace": "ns", "uid": "uid-wide"}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": names}}]}
    columns = f"{{koord:{bed.cluster.bus.subjects.cluster}}}:columns"
    async with reconciling(bed.cluster.bus, redis_url, "r1"), underneath(redis_url) as raw:
        await opened(bed)
        await bed.cluster.put(PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})

        async def charged() -> Mapping[str, int]:
            item = await bed.item("node/n1")
            return item.used if item is not None else {}

        async def is_charged() -> bool:
            return await charged() == {"cpu": 1000, "pods": 1, "*": 10_000}

        await until(is_charged, "the charge", 60)
        offered = {"cpu": "8", "memory": "16Gi", "pods": "110", "example.com/r7": "4"}
        await bed.cluster.put(NODES, {"metadata": {"name": "n1", "uid": "n1"}, "status": {"allocatable": offered}})

        async def is_moved() -> bool:
            return await charged() == {"cpu": 1000, "pods": 1, "*": 9998, "example.com/r7": 2}

        await until(is_moved, "the name's column", 60)
        assert await raw.hlen(columns) < 10
        world = World(bed.cluster.bus, Spans())
        await world.start(lambda token: None)
        try:
            world.collect_anew()
            auditor = Auditor(bed.ledger, world, unwanted, audit_s=3600.0, suspect_s=3600.0)
            assert await auditor.audit() == ""
        finally:
            await world.close()
        assert await right(bed)


async def unwanted(found: Sequence[Observation]) -> bool:
    raise AssertionError(f"nothing is to be put right: {found}")
