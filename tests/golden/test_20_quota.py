"""Golden examples of spec 20 section 6 on quotas: runtime (G1 to G11), what a limit lets pass (G12), what is taken back
(G13), and the total of a tree that a profile makes (G14)."""

from typing import Any

import msgspec
import numpy as np

from koord.contracts.quota import QuotaRuntime, QuotaState
from koord.kube.meta import ObjectMeta
from koord.kube.quotas import ElasticQuota, ElasticQuotaProfile, ElasticQuotaSpec
from koord.quota.filling import Segments, fill, fill_one
from koord.quota.overuse import Candidate, victims
from koord.quota.profiles import Profiles
from koord.quota.runtime import RuntimeTree
from koord.quota.shape import QuotaRow
from koord.quota.views import NodeBrief
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed
from tests.reference.quota import Child
from tests.scheduler.clusters import Bed
from tests.scheduler.test_quota import bed as bed
from tests.scheduler.test_quota import place, plugin, quota


def test_g12_used_plus_request_within_the_limit(bed: Bed) -> None:
    plugin(bed).set_quota(quota("team", {"cpu": "10"}))
    assert isinstance(place(bed, "a", "8"), Placed)
    refused = place(bed, "b", "3")
    assert isinstance(refused, Diagnosis)
    assert refused.message == (
        "0/1 nodes are available: Insufficient quotas, quotaName: team, runtime: cpu:10, used: cpu:8, "
        "pod's request: cpu:3, exceedDimensions: [cpu]."
    )
    assert refused.plugins == {"ElasticQuota"}
    assert isinstance(place(bed, "c", "2"), Placed)


def test_g12_only_requested_keys_are_looked_at(bed: Bed) -> None:
    plugin(bed).set_quota(quota("team", {"cpu": "16", "nvidia.com/gpu": "4"}))
    assert isinstance(place(bed, "a", "12"), Placed)
    plugin(bed).set_quota(quota("team", {"cpu": "10", "nvidia.com/gpu": "4"}))
    assert isinstance(place(bed, "gpu", "", resources={"nvidia.com/gpu": "1"}), Placed)
    assert isinstance(place(bed, "cpu", "1"), Diagnosis)


def test_g12_the_runtime_is_the_limit() -> None:
    bed = Bed()
    bed.node("n", cpu=64_000)
    plugin(bed).set_quota(quota("team", {"cpu": "40"}))
    plugin(bed).set_runtime(QuotaRuntime("_", 1, [QuotaState("team", "quotas", runtime={"cpu": 10_000})]))
    assert isinstance(place(bed, "a", "8"), Placed)
    refused = place(bed, "b", "3")
    assert isinstance(refused, Diagnosis)
    assert "quotaName: team, runtime: cpu:10, used: cpu:8, pod's request: cpu:3" in refused.message
    assert isinstance(place(bed, "c", "2"), Placed)


def test_g12_pods_that_are_not_preemptible_stay_within_min() -> None:
    bed = Bed()
    bed.node("n", cpu=64_000)
    meta = ObjectMeta(name="team", namespace="quotas", uid="team")
    plugin(bed).set_quota(ElasticQuota(metadata=meta, spec=ElasticQuotaSpec(min={"cpu": "4"}, max={"cpu": "10"})))
    assert isinstance(place(bed, "a", "3", preemptible="false"), Placed)
    refused = place(bed, "b", "2", preemptible="false")
    assert isinstance(refused, Diagnosis)
    assert refused.message == (
        "0/1 nodes are available: Insufficient non-preemptible quotas, quotaName: team, min: cpu:4, "
        "nonPreemptibleUsed: cpu:3, pod's request: cpu:2, exceedDimensions: [cpu]."
    )
    assert isinstance(place(bed, "c", "2"), Placed)
    assert isinstance(place(bed, "d", "1", preemptible="false"), Placed)


# G1 to G11: runtime quotas. Plain integers per one resource.


def filled(total: int, *children: Child) -> dict[str, int]:
    """Runtime by name, as the service computes it; whole numbers, in the pass in columns and one by one."""
    columns = fill(
        Segments(
            starts=np.zeros(1, np.int64),
            total=np.array([total]),
            known=np.array([True]),
            least=np.array([child.least for child in children]),
            guaranteed=np.array([child.guaranteed for child in children]),
            request=np.array([child.request for child in children]),
            weight=np.array([child.weight for child in children]),
            lends=np.array([child.lends for child in children]),
            scales=np.array([child.scales for child in children]),
        )
    ).tolist()
    single = fill_one(
        total,
        True,
        [child.least for child in children],
        [child.guaranteed for child in children],
        [child.request for child in children],
        [child.weight for child in children],
        [child.lends for child in children],
        [child.scales for child in children],
    )
    assert columns == single
    return dict(zip((child.name for child in children), columns, strict=True))


def four(weight: int = 80, guaranteed: int = 0) -> list[Child]:
    return [
        Child("a", 40, 5, 10),
        Child("b", 60, 20, 15),
        Child("c", 50, 40, 20),
        Child("d", weight, 70, 15, guaranteed),
    ]


def row(name: str, parent: str = "", *, low: int = 0, most: int = 10**6, lends: bool = True) -> QuotaRow:
    return QuotaRow(name, parent, {"cpu": low}, {"cpu": most}, {"cpu": 1}, lends)


def runtimes(tree: RuntimeTree, total: int, **asked: int) -> dict[str, int]:
    tree.set_total("", {"cpu": total})
    tree.set_all_own({name: {"cpu": amount} for name, amount in asked.items()}, {})
    tree.compute()
    return {name: tree.runtime(tree.row[name])["cpu"] for name in sorted(tree.names)}


def test_g1_water_filling() -> None:
    assert filled(100, *four()) == {"a": 5, "b": 20, "c": 35, "d": 40}


def test_g2_no_weight_no_share() -> None:
    assert filled(100, *four(weight=0)) == {"a": 5, "b": 20, "c": 40, "d": 15}


def test_g3_guaranteed() -> None:
    assert filled(100, *four(weight=0, guaranteed=45)) == {"a": 5, "b": 20, "c": 30, "d": 45}


def test_g4_largest_remainder() -> None:
    runtime = filled(1000, Child("a", 3, 400, 100), Child("b", 2, 900, 200), Child("c", 1, 900, 150))
    assert runtime == {"a": 375, "b": 383, "c": 242}
    assert sum(runtime.values()) == 1000


def test_g5_who_does_not_lend_keeps_its_min() -> None:
    a, b = Child("a", 3, 900, 100), Child("b", 2, 300, 200)
    assert filled(1000, a, b, Child("c", 1, 50, 150, lends=False)) == {"a": 550, "b": 300, "c": 150}
    assert filled(1000, a, b, Child("c", 1, 50, 150)) == {"a": 650, "b": 300, "c": 50}


def test_g6_ties_by_name() -> None:
    borrowers = [Child(f"b{i}", 1, 100, 8 if i < 8 else 7) for i in range(10)]
    runtime = filled(81, *borrowers, Child("donor", 1, 0, 3))
    assert list(runtime.values()) == [9, 9, 9, 8, 8, 8, 8, 8, 7, 7, 0]


def test_g7_each_resource_for_itself() -> None:
    both = {"cpu": 96, "mem": 160}
    tree = RuntimeTree(
        [
            QuotaRow("t1", "", {"cpu": 50, "mem": 80}, both, {"cpu": 1, "mem": 1}),
            QuotaRow("t2", "", {"cpu": 40, "mem": 80}, both, {"cpu": 1, "mem": 1}),
        ]
    )
    tree.set_total("", both)
    tree.set_all_own({"t1": {"cpu": 120, "mem": 200}, "t2": {"cpu": 150, "mem": 210}}, {})
    tree.compute()
    assert tree.runtime(tree.row["t1"]) == {"cpu": 53, "mem": 80}
    assert tree.runtime(tree.row["t2"]) == {"cpu": 43, "mem": 80}


def test_g8_min_scaling() -> None:
    rows = [row("p", low=300_000, most=600_000)]
    rows += [row(name, "p", low=100_000, most=200_000) for name in "abc"]
    tree = RuntimeTree(rows)
    all_ask = dict.fromkeys("abc", 200_000)
    assert runtimes(tree, 200_000, **all_ask) == {"a": 66_667, "b": 66_667, "c": 66_666, "p": 200_000}
    assert runtimes(tree, 200_000, a=200_000, c=200_000) == {"a": 100_000, "b": 0, "c": 100_000, "p": 200_000}
    assert runtimes(tree, 600_000, **all_ask) == {"a": 200_000, "b": 200_000, "c": 200_000, "p": 600_000}
    unscaled = RuntimeTree(rows, scale=False)
    assert runtimes(unscaled, 200_000, **all_ask) == {"a": 100_000, "b": 100_000, "c": 100_000, "p": 300_000}


def test_g9_mixed_scaling() -> None:
    x, y, z = Child("x", 0, 99, 50, scales=False), Child("y", 0, 99, 50), Child("z", 0, 99, 50)
    assert filled(100, x, y, z) == {"x": 50, "y": 25, "z": 25}
    assert filled(50, x, y, z) == {"x": 50, "y": 0, "z": 0}


def test_g10_nested_who_do_not_lend() -> None:
    tree = RuntimeTree(
        [row("p", low=60, lends=False), row("c1", "p", low=20, lends=False), row("c2", "p", low=20, lends=False)]
    )
    assert runtimes(tree, 100) == {"c1": 20, "c2": 20, "p": 60}
    assert runtimes(tree, 100, c1=40) == {"c1": 40, "c2": 20, "p": 60}
    assert runtimes(tree, 100, c1=60) == {"c1": 60, "c2": 20, "p": 80}


def test_g11_guarantee() -> None:
    tree = RuntimeTree([row("q1", low=20), row("q2", "q1", low=10), row("q3", "q1", low=5)], guarantee=True)
    tree.set_total("", {"cpu": 100})
    tree.set_own("q2", {"cpu": 5}, {"cpu": 5})
    tree.compute()
    assert [tree.guaranteed(tree.row[name])["cpu"] for name in ("q1", "q2")] == [20, 10]
    tree.set_own("q2", {"cpu": 25}, {"cpu": 25})
    tree.compute()
    assert [tree.guaranteed(tree.row[name])["cpu"] for name in ("q1", "q2", "q3")] == [30, 25, 5]
    assert tree.runtime(tree.row["q2"])["cpu"] >= 25


# G13 and G14


def test_g13_who_is_revoked() -> None:
    sizes = {1: (10, 20, 0), 2: (9, 10, 1), 3: (8, 20, 0), 4: (7, 40, 0)}
    pods = [Candidate("ns", str(n), "", p, "", {"cpu": cpu, "mem": mem}) for n, (p, cpu, mem) in sizes.items()]
    used = {"cpu": 90, "mem": 1}
    assert {pod.name for pod in victims(pods, used, {"cpu": 50, "mem": 0})} == {"2", "4"}
    assert {pod.name for pod in victims(pods, used, {"cpu": -1, "mem": -1})} == {"1", "2", "3", "4"}
    assert victims(pods, used, {"cpu": 90, "mem": 1}) == []


def test_g14_the_total_of_a_tree() -> None:
    def node(ready: str) -> NodeBrief:
        room = {"cpu": "10", "memory": "100Gi"}
        status = {"allocatable": room, "conditions": [{"type": "Ready", "status": ready}]}
        return msgspec.convert({"metadata": {"name": "n", "labels": {"pool": "a"}}, "status": status}, NodeBrief)

    prefix = "quota.scheduling.koordinator.sh/"
    profiles = Profiles()
    spec: dict[str, Any] = {"quotaName": "root-a", "resourceRatio": "0.8"}
    spec |= {"nodeSelector": {"matchLabels": {"pool": "a"}}, "quotaLabels": {"team": "x"}}
    meta = {"name": "p", "namespace": "ns", "labels": {prefix + "tree-id": "t"}}
    profiles.put("ns/p", msgspec.convert({"metadata": meta, "spec": spec}, ElasticQuotaProfile))
    profiles.put_node("n1", node("True"))
    profiles.put_node("n2", node("False"))
    (step,) = profiles.steps({})
    made = msgspec.convert(step.body, ElasticQuota)
    assert (step.kind, made.key) == ("create", "ns/root-a")
    assert made.metadata.annotations == {
        prefix + "total-resource": '{"cpu":"16","memory":"160Gi"}',
        prefix + "unschedulable-resource": '{"cpu":"8","memory":"80Gi"}',
    }
    labels = {prefix + "tree-id": "t", prefix + "is-root": "true", prefix + "profile": "p", "team": "x"}
    assert made.metadata.labels == labels
    assert made.spec.min == {"cpu": "16", "memory": "160Gi"}
    assert made.spec.max == dict.fromkeys(("cpu", "memory"), "4611686018427387")
    assert list(profiles.steps({made.key: made})) == []
