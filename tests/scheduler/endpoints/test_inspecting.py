"""A close look at a class agrees with what placing does."""

import pytest

from koord.scheduler.engine.cluster import TIE_BITS
from koord.scheduler.engine.inspecting import NearMiss, best, near_misses, refusals
from koord.scheduler.engine.placement import Placed
from tests.scheduler.clusters import Bed


def spec(cpu: str, **more: object) -> dict[str, object]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}], **more}


@pytest.fixture
def bed() -> Bed:
    bed = Bed()
    for number in range(8):
        bed.node(f"n{number}", cpu=4000 + 500 * number, labels={"zone": "ab"[number % 2]})
    bed.node("tainted", cpu=64000, taints=[("only", "gpu", "NoSchedule")])
    bed.node("cordoned", cpu=64000, unschedulable=True)
    return bed


def test_the_best_nodes_are_those_that_placing_takes(bed: Bed) -> None:
    preferred = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}}
            ]
        }
    }
    for number in range(12):
        pod = bed.pod(f"p{number}", spec("1", affinity=preferred))
        table = best(bed.engine, pod.class_, 3)
        assert len(table) == 3
        assert all(sum(row.plugins.values()) == row.total for row in table)
        assert [row.total for row in table] == sorted((row.total for row in table), reverse=True)
        rows, keys = bed.engine.ranked(pod.class_)
        assert rows is None
        assert table[0].total == int(keys.max()) >> TIE_BITS
        placed = bed.engine.place_one(pod)
        assert isinstance(placed, Placed)
        assert (placed.node, placed.score) == (table[0].node, table[0].total)
        assert table[0].plugins["NodeAffinity"] in (0, 200)
    assert best(bed.engine, bed.pod("no", spec("100")).class_, 3) == []


def test_who_refuses_is_named(bed: Bed) -> None:
    found = refusals(bed.engine, bed.pod("big", spec("7")).class_, 3)
    told = {(each.plugin, each.reason): (each.nodes, each.names) for each in found}
    assert told["NodeUnschedulable", "node(s) were unschedulable"] == (1, ("cordoned",))
    assert told["TaintToleration", "node(s) had untolerated taint(s)"] == (1, ("tainted",))
    nodes, names = told["NodeResourcesFit", "Insufficient cpu"]
    assert (nodes, names) == (6, ("n0", "n1", "n2"))
    counted = {
        (reason.plugin, reason.reason): reason.nodes
        for reason in bed.engine.explain(bed.pod("x", spec("7")).class_).reasons
    }
    assert counted == {key: nodes for key, (nodes, _) in told.items()}


def test_the_nearest_nodes_come_first(bed: Bed) -> None:
    *fitting, nearest, next_ = near_misses(bed.engine, bed.pod("big", spec("8")).class_, 4)
    # One plugin refuses each; those are short of nothing, so they come first.
    assert sorted(near.node for near in fitting) == ["cordoned", "tainted"]
    assert all(near.short == {} for near in fitting)
    assert nearest == NearMiss("n7", ("Insufficient cpu",), {"cpu": 500})
    assert next_ == NearMiss("n6", ("Insufficient cpu",), {"cpu": 1000})
    affinity = "node(s) didn't match Pod's node affinity/selector"
    [one] = near_misses(bed.engine, bed.pod("nowhere", spec("1", nodeSelector={"zone": "c"})).class_, 1)
    assert one.reasons == (affinity,)
    both = near_misses(bed.engine, bed.pod("hopeless", spec("100", nodeSelector={"zone": "c"})).class_, 99)
    assert len(both) == 10
    assert all(affinity in near.reasons and "Insufficient cpu" in near.reasons for near in both)


def test_nodes_where_somebody_may_go_are_nearer_than_those_that_labels_rule_out(bed: Bed) -> None:
    wants = {
        "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}],
        "nodeSelector": {"zone": "b"},
    }
    for number in range(4):
        assert isinstance(bed.engine.place_one(bed.pod(f"p{number}", wants)), Placed)
    near = near_misses(bed.engine, bed.pod("late", wants).class_, 5)
    assert [each.node for each in near[:4]] == ["n1", "n3", "n5", "n7"]
    assert near[4].reasons == ("node(s) didn't match Pod's node affinity/selector",)
