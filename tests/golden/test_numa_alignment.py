"""Golden examples of spec 10 section 6 on alignment to NUMA nodes: G22 to G27, through engine and plugin."""

from typing import Any

import pytest

from koord.scheduler.engine.placement import Placed
from koord.scheduler.engine.window import Window
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings, Strategy
from tests.scheduler.numa.machines import POLICY_LABEL, RESOURCE_STATUS, B, NumaBed, zones

ROOM = {"cpu": "8", "memory": "16Gi"}


def machine(policy: str = "", *, settings: NUMASettings | None = None, used: str = "5", **more: Any) -> NumaBed:
    bed = NumaBed(settings)
    bed.machine("n", B, zones(ROOM, ROOM), labels={POLICY_LABEL: policy} if policy else {}, **more)
    if used:
        bed.there("n", parts=[(0, {"cpu": used})], cpu=used)
    return bed


def test_g22_single_numa_node() -> None:
    bed = machine("SingleNUMANode")
    placed = bed.place(bed.named("4", "4Gi"))
    assert isinstance(placed, Placed)
    assert placed.annotations == {
        RESOURCE_STATUS: '{"numaNodeResources":[{"node":1,"resources":{"cpu":"4","memory":"4Gi"}}]}'
    }


def test_g23_restricted_over_both() -> None:
    bed = machine("Restricted")
    assert bed.status(bed.named("10", "4Gi"))["numaNodeResources"] == [
        {"node": 0, "resources": {"cpu": "3", "memory": "2Gi"}},
        {"node": 1, "resources": {"cpu": "7", "memory": "2Gi"}},
    ]


def test_g24_no_single_one() -> None:
    bed = machine("SingleNUMANode")
    assert bed.refusal(bed.named("10", "4Gi")) == (
        "0/1 nodes are available: 1 Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]."
    )


def test_g25_unsatisfied() -> None:
    bed = machine("Restricted", cpu=32_000)
    assert bed.refusal(bed.named("12", "4Gi")) == (
        "0/1 nodes are available: 1 Unsatisfied NUMA cpu, 1 Unsatisfied NUMA memory."
    )


@pytest.mark.parametrize(("strategy", "zone", "score"), [("LeastAllocated", 1, 75), ("MostAllocated", 0, 56)])
def test_g26_which_one(strategy: str, zone: int, score: int) -> None:
    by = Strategy(type=strategy)  # type: ignore[arg-type]
    bed = machine("SingleNUMANode", settings=NUMASettings(zones=by, scoring=by))
    pod = bed.named("2", "4Gi")
    terms = bed.plugin.score_terms(pod.class_.template, bed.cluster)
    assert terms is not None
    assert bed.plugin.score(terms, Window.full(bed.cluster)).tolist() == [score]
    assert [part["node"] for part in bed.status(pod)["numaNodeResources"]] == [zone]


def test_g27_policies_that_differ() -> None:
    bed = machine("SingleNUMANode")
    assert bed.refusal(bed.aligned_pod("Restricted", "2", "4Gi")) == (
        "0/1 nodes are available: 1 node(s) NUMA Topology policy not match."
    )


def test_best_effort_is_judged_by_the_filter() -> None:
    bed = machine("BestEffort", cpu=32_000)
    assert bed.refusal(bed.named("12", "4Gi")) == "0/1 nodes are available: 1 Insufficient NUMA cpu."
    assert [part["node"] for part in bed.status(bed.named("10", "4Gi"))["numaNodeResources"]] == [0, 1]


def test_a_pod_that_asks_for_alignment_itself_keeps_away_from_pods_that_live_on_one() -> None:
    bed = machine()
    assert bed.refusal(bed.aligned_pod("Restricted", "10", "4Gi")) == (
        "0/1 nodes are available: 1 Unaligned NUMA Hint cause cpu prefer [11] among [11] & "
        "memory prefer [11] among [11]."
    )
    placed = bed.status(bed.aligned_pod("Restricted", "10", "4Gi", exclusive="Preferred"))
    assert [part["node"] for part in placed["numaNodeResources"]] == [0, 1]


def test_without_numa_nodes_there_is_nothing_to_align() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    assert bed.refusal(bed.aligned_pod("Restricted", "2")) == (
        "0/1 nodes are available: 1 node(s) missing NUMA resources."
    )
