"""Golden examples of spec 70, section 6, that concern queue and quota, at public seams."""

import time
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.accounting.takes import unit_takes
from koord.contracts.decisions import Patch
from koord.contracts.results import Result
from koord.kube.meta import ObjectMeta
from koord.kube.queues import Queue, QueueSpec, QueueUnit
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import QUEUE_UNITS, TFJOBS
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Item, LimitSet, Member, UnitSeen, UnitUnbound
from koord.localcluster.api.patches import merge_patch
from koord.queue.backoff import exponential
from koord.queue.engine import Engine
from koord.queue.headroom import Headroom
from koord.queue.queuesync import details
from koord.queue.views import PodBrief
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


MARK = "koord-queue/job-dequeue-timestamp"
EVICTED = "Evicted"


class Lived:
    """An engine with one running TFJob and its unit; writes are carried out on both and shown again."""

    def __init__(self, now: str, ready: str, spec: dict[str, Any], status: dict[str, Any]) -> None:
        self.engine = engine(quota("q", cpu="8"), queue="q")
        self.version = 10
        self.at(now)
        template = {"spec": {"containers": [{"name": "tf", "resources": {"requests": {"cpu": "1"}}}]}}
        self.job: dict[str, Any] = {
            "metadata": {"name": "j", "namespace": "ns", "uid": "uid-j", "labels": {NAME: "q"}},
            "spec": {
                "runPolicy": {"suspend": False},
                "tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template}},
            },
            "status": {"conditions": [{"type": "Running", "status": "True"}]},
        }
        self.job["metadata"]["annotations"] = {MARK: "2026-03-02T11:00:00Z"}
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "j", "uid": "uid-j", "controller": True}
        conditions = [
            {"type": "QuotaReserved", "status": "True"},
            {"type": "Admitted", "status": "True"},
            {"type": "PodsReady", "status": "True", "reason": "PodsRunning", "lastTransitionTime": ready},
        ]
        self.unit: dict[str, Any] = {
            "metadata": {"name": "u", "namespace": "ns", "uid": "uid-u", "labels": {NAME: "q"}},
            "spec": {
                "resource": {"cpu": "2"},
                "podSet": [{"name": "worker", "count": 2, "template": template}],
                **spec,
            },
            "status": {
                "phase": "Running",
                "lastAllocateTime": "2026-03-02T11:00:00Z",
                "admissions": [{"name": "worker", "replicas": 2, "running": 2, "resources": {"cpu": "2"}}],
                "conditions": conditions,
                **status,
            },
        }
        self.unit["metadata"] |= {"creationTimestamp": "2026-03-02T10:00:00Z", "ownerReferences": [owner]}
        self.unit["spec"]["queue"] = "q"
        self.show()

    def at(self, now: str) -> None:
        self.engine.desk.tick(int(datetime.fromisoformat(now).timestamp() * 1e9))

    def show(self) -> None:
        self.version += 1
        for body in (self.job, self.unit):
            body["metadata"]["resourceVersion"] = str(self.version)
        self.engine.on_job(TFJOBS.token, "ns/j", self.job, 1)
        self.engine.on_unit("ns/u", msgspec.json.decode(msgspec.json.encode(self.unit), type=QueueUnit))

    def step(self) -> list[tuple[str, dict[str, Any]]]:
        """One pass: what was written, object kind and patch; events come as kind ``event``."""
        self.engine.reconcile()
        self.engine.after_admission()
        written: list[tuple[str, dict[str, Any]]] = []
        for decision, _ in self.engine.decisions():
            if not isinstance(decision, Patch):
                written += [("event", {each.reason: each.note}) for each in getattr(decision, "events", ())]
                continue
            body = msgspec.json.decode(decision.body)
            if decision.target.resource == QUEUE_UNITS.token:
                self.unit = merge_patch(self.unit, body)
                written.append(("unit", body))
            elif decision.target.resource == TFJOBS.token:
                self.job = merge_patch(self.job, body)
                written.append(("job", body))
            self.engine.on_result(Result(decision.id, "done", resource_version=str(self.version + 1)))
        self.show()
        return written

    def settle(self) -> list[tuple[str, dict[str, Any]]]:
        """Passes until nothing is written any more."""
        found: list[tuple[str, dict[str, Any]]] = []
        for _ in range(10):
            written = self.step()
            if not written:
                return found
            found += written
        raise AssertionError(f"no end of writes: {found}")

    @property
    def conditions(self) -> dict[str, str]:
        return {each["type"]: f"{each['status']}/{each['reason']}" for each in self.unit["status"]["conditions"]
                if "reason" in each}  # fmt: skip


def pod(name: str, node: str = "n1") -> PodBrief:
    annotations = {"koord-queue/related-queueunit": "ns/u", "koord-queue/related-podset-name": "worker"}
    body = {"metadata": {"annotations": annotations}, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
    return msgspec.json.decode(msgspec.json.encode(body), type=PodBrief)


@pytest.mark.parametrize(
    ("count", "replicas", "live", "expected"), [(1, 3, 3, 3), (2, 4, 2, 2), (2, 4, 3, 3), (2, 4, 1, 2)]
)
def test_g28_over_admission(count: int, replicas: int, live: int, expected: int) -> None:
    lived = Lived("2026-03-02T12:00:00Z", "2026-03-02T12:00:00Z", {}, {})
    lived.job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = count
    lived.unit["status"]["admissions"][0] |= {"replicas": replicas, "running": replicas}
    for number in range(live):
        lived.engine.reporter.put(f"ns/{number}", pod(str(number)))
    lived.show()
    lived.settle()
    for now in ("2026-03-02T12:00:09Z", "2026-03-02T12:00:19Z"):
        lived.at(now)
        lived.settle()
    assert lived.unit["spec"]["podSet"][0]["count"] == count
    (part,) = lived.unit["status"]["admissions"]
    assert (part["replicas"], part["running"]) == (expected, live)


def test_g31_the_maximum_execution_time_counts_earlier_attempts() -> None:
    lived = Lived(
        "2026-03-02T12:09:59Z",
        "2026-03-02T12:00:00Z",
        {"maximumExecutionTimeSeconds": 3600},
        {"accumulatedPastExecutionTimeSeconds": 3000},
    )
    lived.job["metadata"]["annotations"]["scheduling.x-k8s.io/max-exec-time-seconds"] = "3600"
    lived.show()
    assert [each for each in lived.settle() if each[0] != "event"] == []
    lived.at("2026-03-02T12:10:00Z")
    written = lived.settle()
    assert ("event", {"MaximumExecutionTimeExceeded": "The maximum execution time (3600s) was exceeded"}) in written
    assert lived.unit["spec"]["active"] is False
    assert lived.job["spec"]["runPolicy"]["suspend"] is True
    status = lived.unit["status"]
    assert status["phase"] == "Enqueued"
    assert status["message"] == "Evicted because the maximum execution time was exceeded"
    assert "accumulatedPastExecutionTimeSeconds" not in status
    assert lived.conditions["PodsReady"] == "False/Pending"
    assert lived.conditions[EVICTED] == "True/MaximumExecutionTimeExceeded"


def test_g32_a_deactivated_unit_holds_its_quota_until_its_pods_are_gone() -> None:
    lived = Lived("2026-03-02T12:01:30Z", "2026-03-02T12:00:00Z", {"active": False}, {})
    for name in ("a", "b"):
        lived.engine.reporter.put(f"ns/{name}", pod(name))
    written = lived.settle()
    assert [kind for kind, _ in written if kind != "event"] == ["job", "unit", "job"]
    assert lived.job["status"]["conditions"][-1]["message"] == "Job Enqueued"
    assert lived.job["spec"]["runPolicy"]["suspend"] is True
    assert MARK not in lived.job["metadata"]["annotations"]
    status = lived.unit["status"]
    assert (status["phase"], status["message"]) == ("Enqueued", "Evicted because the queue unit is deactivated")
    assert status["accumulatedPastExecutionTimeSeconds"] == 90
    assert lived.conditions[EVICTED] == "True/Deactivated" and lived.conditions["Admitted"] == "False/Deactivated"
    assert status["admissions"][0]["replicas"] == 2
    lived.engine.reporter.drop("ns/a")
    lived.at("2026-03-02T12:01:35Z")
    lived.settle()
    assert [part["replicas"] for part in lived.unit["status"]["admissions"]] == [1]
    lived.engine.reporter.drop("ns/b")
    lived.at("2026-03-02T12:01:40Z")
    lived.settle()
    assert lived.unit["status"]["admissions"] == []
    assert lived.unit["status"]["phase"] == "Enqueued" and not lived.engine.world.queues["q"].waiting
    lived.unit["spec"]["active"] = True
    lived.show()
    lived.settle()
    assert lived.conditions[EVICTED] == "False/Requeued"
    assert len(lived.engine.world.queues["q"].waiting) == 1
