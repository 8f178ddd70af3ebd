"""Golden examples of spec 10 section 6 on CPUs of one's own: G1 to G21, G35 and G36, through engine and plugin."""

from collections.abc import Sequence

import pytest

from koord.kube.protocol.cputopology import CPU
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.inspecting import near_misses
from koord.scheduler.engine.placement import Placed
from tests.scheduler.clusters import GIB
from tests.scheduler.numa.machines import (
    BIND_LABEL,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    STRATEGY_LABEL,
    A,
    B,
    NumaBed,
    S,
    zones,
)

FULL, SPREAD = "FullPCPUs", "SpreadByPCPUs"
LEAST, MOST = "LeastAllocated", "MostAllocated"
PARTLY = "0-3,16-17"


def taken(
    cpus: Sequence[CPU], allocated: str, need: int, policy: str, strategy: str, *, exclusive: str = "", owner: str = ""
) -> str:
    bed = NumaBed()
    bed.machine("n", cpus, labels={STRATEGY_LABEL: strategy})
    if allocated:
        bed.there("n", allocated, exclusive=owner)
    spec = {"preferredCPUBindPolicy": policy} | ({"preferredCPUExclusivePolicy": exclusive} if exclusive else {})
    return str(bed.status(bed.bound_pod(str(need), spec=spec))["cpuset"])


@pytest.mark.parametrize(
    ("cpus", "allocated", "need", "policy", "least", "most"),
    [
        pytest.param(B, "", 2, FULL, "0,8", "0,8", id="G1"),
        pytest.param(B, "", 4, SPREAD, "0-3", "0-3", id="G2"),
        pytest.param(B, "0,8", 4, FULL, "4-5,12-13", "1-2,9-10", id="G3"),
        pytest.param(B, "0,1", 4, FULL, "4-5,12-13", "2-3,10-11", id="G4"),
        pytest.param(B, "0,1", 4, SPREAD, "4-7", "2-3,8-9", id="G5"),
        pytest.param(B, "0,1", 10, FULL, "2,4-7,10,12-15", "2,4-7,10,12-15", id="G6"),
        pytest.param(A, PARTLY, 4, FULL, "24-27", "4-7", id="G11"),
        pytest.param(A, PARTLY, 6, FULL, "24-29", "18-23", id="G12"),
        pytest.param(A, PARTLY, 10, FULL, "18-27", "4-13", id="G13"),
        pytest.param(A, PARTLY, 20, FULL, "4-9,18-31", "4-9,18-31", id="G14"),
        pytest.param(A, PARTLY, 3, FULL, "24-26", "4-6", id="G15"),
        pytest.param(A, PARTLY, 4, SPREAD, "24,26,28,30", "8,10,12,14", id="G16"),
        pytest.param(S, "0", 3, FULL, "4-6", "1-3", id="G17-full"),
        pytest.param(S, "0", 3, SPREAD, "4-6", "1-3", id="G17-spread"),
    ],
)
def test_g1_to_g17_cpus_taken(
    cpus: Sequence[CPU], allocated: str, need: int, policy: str, least: str, most: str
) -> None:
    assert taken(cpus, allocated, need, policy, LEAST) == least
    assert taken(cpus, allocated, need, policy, MOST) == most


@pytest.mark.parametrize(
    ("need", "level", "least", "most"),
    [
        pytest.param(2, "PCPULevel", "4-5", "1-2", id="G8"),
        pytest.param(8, "PCPULevel", "4-7,12-15", "4-7,12-15", id="G9"),
        pytest.param(4, "NUMANodeLevel", "4-7", "4-7", id="G10"),
    ],
)
def test_g8_to_g10_exclusive(need: int, level: str, least: str, most: str) -> None:
    assert taken(B, "0", need, SPREAD, LEAST, exclusive=level, owner=level) == least
    assert taken(B, "0", need, SPREAD, MOST, exclusive=level, owner=level) == most


@pytest.mark.parametrize("strategy", [LEAST, MOST])
def test_g7_not_enough(strategy: str) -> None:
    bed = NumaBed()
    bed.machine("n", B, labels={STRATEGY_LABEL: strategy})
    bed.there("n", "0,1")
    pod = bed.bound_pod("15", spec={"preferredCPUBindPolicy": FULL})
    assert bed.refusal(pod) == "0/1 nodes are available: 1 not enough cpus available to satisfy request."


def test_g18_whole_cores_only() -> None:
    bed = NumaBed()
    bed.machine("a", A)
    bed.machine("b", B)
    pod = bed.bound_pod("3", spec={"requiredCPUBindPolicy": FULL})
    outcome = bed.place(pod)
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == "0/2 nodes are available: 2 node(s) requested cpus not multiple cpus per core."
    assert not outcome.resolvable


def test_g19_no_whole_core_is_free() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    bed.there("n", "0-7")
    pod = bed.bound_pod("2", spec={"requiredCPUBindPolicy": FULL})
    assert bed.refusal(pod) == "0/1 nodes are available: 1 not enough cpus available to satisfy request."
    assert bed.status(bed.bound_pod("2", spec={"preferredCPUBindPolicy": FULL})) == {"cpuset": "8-9"}


def test_g20_annotations_of_a_pod_that_names_no_policy() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    placed = bed.place(bed.bound_pod("2"))
    assert isinstance(placed, Placed)
    assert placed.annotations == {
        RESOURCE_SPEC: '{"preferredCPUBindPolicy":"FullPCPUs"}',
        RESOURCE_STATUS: '{"cpuset":"0,8"}',
    }


def test_g21_reserved_cpus() -> None:
    bed = NumaBed()
    nrt = {
        "kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static","reservedCPUs":"0"}',
        "node.koordinator.sh/reservation": '{"reservedCPUs":"8"}',
        "node.koordinator.sh/system-qos-resource": '{"cpuset":"1,9"}',
        "node.koordinator.sh/pod-cpu-allocs": (
            '[{"namespace":"d","name":"k","uid":"u","cpuset":"4-5","managedByKubelet":true},'
            '{"namespace":"d","name":"l","uid":"v","cpuset":"6"}]'
        ),
    }
    bed.machine("n", B, zones({"cpu": "8", "memory": "16Gi"}, {"cpu": "8", "memory": "16Gi"}), nrt=nrt)
    layout = bed.plugin.books.state("n").layout
    assert layout.reserved == 0b11_0011_0011
    assert [zone.allocatable["cpu"] for zone in layout.zones] == [4000, 6000]
    assert bed.status(bed.bound_pod("10", spec={"preferredCPUBindPolicy": SPREAD})) == {"cpuset": "2-3,6-7,10-15"}


def test_g35_amplified() -> None:
    ratio = {"node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.5}'}
    bed = NumaBed()
    bed.machine("n", A, cpu=48_000, annotations=ratio)
    bed.there("n", "0-3", cpu="4")
    bed.there("n", cpu="10")
    too_much = bed.named("33")
    assert bed.refusal(too_much) == "0/1 nodes are available: 1 Insufficient amplified cpu."
    [near] = near_misses(bed.engine, too_much.class_, 1)
    figures = "the pod asks for 33, 32 of 48 are left; the machine has 32 times 1.5"
    assert f"Insufficient amplified cpu ({figures})" in near.reasons
    [near] = near_misses(bed.engine, bed.bound_pod("28").class_, 1)
    figures = "the pod asks for 28 and counts as 42, 32 of 48 are left; the machine has 32 times 1.5"
    assert f"Insufficient amplified cpu ({figures})" in near.reasons
    bound = bed.bound_pod("8")
    assert bed.status(bound) == {"cpuset": "16-23"}
    bed.engine.forget(bound.uid)
    assert isinstance(bed.place(bed.named("32")), Placed)


def test_g36_reserved_cpus_only_are_never_given() -> None:
    only = {"node.koordinator.sh/reservation": '{"reservedCPUs":"0-3","applyPolicy":"ReservedCPUsOnly"}'}
    bed = NumaBed()
    bed.machine("n", B, annotations=only)
    assert bed.status(bed.bound_pod("12")) == {"cpuset": "4-15"}
    assert "not enough cpus" in bed.refusal(bed.bound_pod("1"))


def test_node_that_binds_every_pod() -> None:
    bed = NumaBed()
    bed.machine("n", B, labels={BIND_LABEL: "FullPCPUsOnly"}, memory=8 * GIB)
    placed = bed.place(bed.named("2"))
    assert isinstance(placed, Placed)
    assert placed.annotations == {
        RESOURCE_SPEC: '{"requiredCPUBindPolicy":"FullPCPUs"}',
        RESOURCE_STATUS: '{"cpuset":"0,8"}',
    }
    assert bed.refusal(bed.named("1500m")) == "0/1 nodes are available: 1 the requested CPUs must be integer."
    conflict = "0/1 nodes are available: 1 node(s) cpu bind policy conflicts with pod's required cpu bind policy."
    assert bed.refusal(bed.bound_pod("2", spec={"requiredCPUBindPolicy": SPREAD})) == conflict
    assert bed.status(bed.bound_pod("2", spec={"preferredCPUBindPolicy": SPREAD})) == {"cpuset": "4,12"}
