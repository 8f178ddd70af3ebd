"""Golden examples of spec 70, section 6, that concern queue and quota, at public seams."""

import time
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.accounting.takes import unit_takes
from koord.kube.meta import ObjectMeta
from koord.kube.queues import Queue, QueueSpec, QueueUnit
from koord.kube.quotas import ElasticQuota
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Item, LimitSet, Member, UnitSeen, UnitUnbound
from koord.queue.backoff import exponential
from koord.queue.engine import Engine
from koord.queue.headroom import Headroom
from koord.queue.queuesync import details
from koord.telemetry.spans import Spans

PARENT = "quota.scheduling.koordinator.sh/parent"
NAME = "quota.scheduling.koordinator.sh/name"


def quota(name: str, parent: str = "", **maximum: str) -> ElasticQuota:
    body = {
        "metadata": {
            "name": name,
            "namespace": "q",
            "uid": f"uid-{name}",
            "labels": {PARENT: parent} if parent else {},
        },
        "spec": {"max": maximum},
    }
    return msgspec.convert(body, ElasticQuota)


def unit(name: str, quota_name: str, cpu: int, priority: int | None, created: int = 0, queue: str = "") -> QueueUnit:
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": f"2026-03-02T09:00:{created:02d}Z",
            "labels": {NAME: quota_name},
            "annotations": {"koord-queue/queue-name": queue} if queue else {},
        },
        "spec": {"resource": {"cpu": str(cpu)}, "podSet": [{"name": "main", "count": 1}]},
    }
    if priority is not None:
        body["spec"]["priority"] = priority
    return msgspec.convert(body, QueueUnit)


def engine(*quotas: ElasticQuota, queue: str = "shared", policy: str = "Priority") -> Engine:
    made = Engine("test", Spans(), {})
    made.desk.tick(time.time_ns())
    for one in quotas:
        made.on_quota(one.key, one)
    meta = ObjectMeta(name=queue, namespace="koord-queue", uid="uid-queue", resource_version="1")
    made.on_queue(queue, Queue(metadata=meta, spec=QueueSpec(queue_policy=policy)))
    return made


def test_g13_order_and_positions() -> None:
    made = engine(quota("q", cpu="1"))
    for name, priority, created in (("a", 10, 1), ("b", 20, 2), ("c", 15, 0), ("d", None, 0), ("e", 20, 1)):
        one = unit(name, "q", 5, priority, created, "shared")
        made.on_unit(one.key, one)
    made.reconcile()
    shown = details(made.world.queues["shared"])
    assert [(each.name, each.position) for each in shown] == [("e", 1), ("b", 2), ("c", 3), ("a", 4), ("d", 5)]


def g15(policy: str) -> tuple[Engine, list[str]]:
    """Queue ``shared`` with A (9, q1, 5), B (5, q1, 4) and C (1, q2, 2); q1 has 6 of 10 in use: what is planned."""
    made = engine(quota("q1", cpu="10"), quota("q2", cpu="4"), policy=policy)
    for name, name_of_quota, cpu, priority in (("a", "q1", 5, 9), ("b", "q1", 4, 5), ("c", "q2", 2, 1)):
        one = unit(name, name_of_quota, cpu, priority, queue="shared")
        made.on_unit(one.key, one)
    made.reconcile()
    items = {
        "admitted/q1": Item({"cpu": 10_000}, {"cpu": 6000}, {}),
        "admitted/q2": Item({"cpu": 4000}, {}, {}),
    }
    return made, [one.key for one in made.admission.plan(items)]


def test_g15_priority_passes_over_what_does_not_fit() -> None:
    made, planned = g15("Priority")
    assert planned == ["ns/b", "ns/c"]
    waiting = made.world.queues["shared"].waiting
    refused = waiting.get("uid-a")
    assert refused is not None
    refusal = waiting.refusal(refused.shape)
    assert refusal is not None and refusal.message == "limited quotaName:q1, limited resKey:cpu,"


def test_g15_block_holds_the_quota_and_the_others_flow() -> None:
    made, planned = g15("Block")
    assert planned == ["ns/c"]
    waiting = made.world.queues["shared"].waiting
    assert waiting.blocked == {"q1"}
    skipped = waiting.get("uid-b")
    assert skipped is not None and waiting.refusal(skipped.shape) is None


def room(limits: Mapping[str, int], used: Mapping[str, int], rate: str = "1") -> Headroom:
    return Headroom(
        {name: {"cpu": amount} for name, amount in limits.items()},
        {name: {"cpu": amount} for name, amount in used.items()},
        rate=Fraction(rate),
    )


def test_g16_equality_admits_and_the_leaf_is_named_first() -> None:
    chain = ("leaf", "parent")
    held = room({"leaf": 11, "parent": 20}, {"leaf": 8, "parent": 8})
    assert held.check(chain, {"cpu": 3}) is None
    refusal = held.check(chain, {"cpu": 4})
    assert refusal is not None and refusal.message == "limited quotaName:leaf, limited resKey:cpu,"


def test_g17_the_parent_refuses_and_overselling_admits() -> None:
    chain = ("l1", "p")
    refusal = room({"l1": 11, "p": 20}, {"p": 15}).check(chain, {"cpu": 10})
    assert refusal is not None and refusal.message == "limited quotaName:p, limited resKey:cpu,"
    assert room({"l1": 11, "p": 20}, {"p": 15}, "1.5").check(chain, {"cpu": 10}) is None


def test_g18_a_missing_resource_is_unlimited_and_an_empty_max_refuses() -> None:
    held = Headroom({"q": {"cpu": 4000}, "none": {}}, {})
    assert held.check(("q",), {"cpu": 2000, "nvidia.com/gpu": 8}) is None
    refusal = held.check(("none",), {"cpu": 1000})
    assert refusal is not None
    assert refusal.message == "limited quotaName:none, quota spec is empty but queue unit res is not empty"


def test_g19_cycles_and_unknown_quotas_are_named() -> None:
    tree = QuotaTree()
    for name, parent in (("t1", "t2"), ("t2", "t3"), ("t3", "t1")):
        tree.set(quota(name, parent, cpu="1"))
    with pytest.raises(QuotaTreeError, match=r"CheckUsage found cycle reference, item:ns/u.*t1,t2,t3"):
        tree.chain("t1", "ns/u")
    with pytest.raises(QuotaTreeError, match=r"CheckUsage found quota not exist, item:ns/u, quotaName:t, visited"):
        tree.chain("t", "ns/u")
    made = Engine("test", Spans(), {})
    made.desk.tick(time.time_ns())
    for name, parent in (("t1", "t2"), ("t2", "t3"), ("t3", "t1")):
        made.on_quota(f"q/{name}", quota(name, parent, cpu="1"))
    meta = ObjectMeta(name="t1", namespace="koord-queue", uid="uid-queue", resource_version="1")
    made.on_queue("t1", Queue(metadata=meta))
    one = unit("u", "t1", 1, None)
    made.on_unit(one.key, one)
    made.reconcile()
    refusal = made.world.units["ns/u"].refusal
    assert refusal is not None and refusal.reason == "Misconfigured"
    assert "CheckUsage found cycle reference, item:ns/u" in refusal.message


async def test_g20_reserves_go_up_the_tree_once_and_come_back(redis_url: str, cluster: str) -> None:
    tree = QuotaTree()
    for name, parent in (("t1", ""), ("t2", "t1"), ("t31", "t2"), ("t32", "t2")):
        tree.set(quota(name, parent, cpu="100"))
    ledger = await Ledger.connect(redis_url, cluster, "golden-20")
    async with ledger:
        epoch = await ledger.lead("reconciler")
        await ledger.begin(epoch)
        limits = [LimitSet(f"admitted/{name}", {"cpu": 100}) for name in tree]
        await ledger.observe(limits, role_epoch=epoch)
        await ledger.open(epoch)

        async def used() -> dict[str, int]:
            items = await ledger.items("admitted/")
            return {
                name: items[f"admitted/{name}"].used.get("cpu", 0) + items[f"admitted/{name}"].held.get("cpu", 0)
                for name in ("t31", "t32", "t2", "t1")
            }

        async def reserve(quota_name: str, amount: int, claim: str) -> str:
            takes = unit_takes({"cpu": amount}, tree.chain(quota_name))
            member = Member(f"uid-{quota_name}", "ns", quota_name, "", takes)
            return (await ledger.claim([ClaimRequest(claim, (member,))]))[0].status

        wanted = (("t31", 2), ("t32", 3), ("t2", 5), ("t1", 10))
        for name, amount in wanted:
            assert await reserve(name, amount, f"golden-20-{name}") == "ok"
        assert await used() == {"t31": 2, "t32": 3, "t2": 10, "t1": 20}
        assert await reserve("t31", 2, "golden-20-again") == "busy"
        assert await used() == {"t31": 2, "t32": 3, "t2": 10, "t1": 20}
        seen = [
            UnitSeen(f"uid-{name}", "ns", name, unit_takes({"cpu": amount}, tree.chain(name)), "1")
            for name, amount in wanted
        ]
        await ledger.observe(seen, role_epoch=epoch)
        assert await used() == {"t31": 2, "t32": 3, "t2": 10, "t1": 20}
        gone = [UnitUnbound(f"uid-{name}", "ns", name, "2") for name, _ in wanted]
        await ledger.observe(gone, role_epoch=epoch)
        assert await used() == {"t31": 0, "t32": 0, "t2": 0, "t1": 0}


@pytest.mark.parametrize(
    ("attempt", "low", "high"),
    [(1, 9, 11), (2, 18, 22), (3, 36, 44), (7, 576, 704), (8, 810, 990), (9, 810, 990)],
)
def test_g29_backoff_doubles_up_to_fifteen_minutes(attempt: int, low: float, high: float) -> None:
    assert exponential(attempt, 10.0, -1.0) == pytest.approx(low)
    assert exponential(attempt, 10.0, 1.0) == pytest.approx(high)
    assert low < exponential(attempt, 10.0, 0.3) < high
