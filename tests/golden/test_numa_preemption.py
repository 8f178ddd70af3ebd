"""Preemption for CPUs and NUMA nodes (spec 10 section 7: #228 across NUMA nodes, #1682 bound and shared pods mixed)."""

from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.preemption.budgets import Budgets
from koord.scheduler.preemption.candidates import Candidate
from koord.scheduler.preemption.search import Search
from tests.scheduler.clusters import requests
from tests.scheduler.numa.machines import LSR, POLICY_LABEL, B, NumaBed, zones

ROOM = {"cpu": "8", "memory": "16Gi"}
HIGH = 9500


def machine(policy: str = "") -> NumaBed:
    bed = NumaBed()
    bed.machine("n", B, zones(ROOM, ROOM), labels={POLICY_LABEL: policy} if policy else {})
    return bed


def victims(bed: NumaBed, pod: PodInfo) -> list[str]:
    before = (bed.plugin.books.state("n").allocated, dict(bed.plugin.books.state("n").pods))
    found = Search(bed.engine, Budgets()).find(pod)
    assert isinstance(found, Candidate), found
    state = bed.plugin.books.state("n")
    assert (state.allocated, state.pods) == before, "the search leaves the books as they were"
    return sorted(victim.ref.name for victim in found.victims)


def bound(bed: NumaBed, cpu: str) -> PodInfo:
    return bed.pod("high", requests(cpu, "1Gi", priority=HIGH), labels=LSR)


def test_who_holds_the_cpus_goes_although_amounts_are_free() -> None:
    bed = machine()
    bed.there("n", "0-7", cpu="1", name="half", priority=9000)
    bed.there("n", "8-15", cpu="1", name="other-half", priority=9100)
    bed.there("n", cpu="1", name="shared", priority=9000)
    assert "not enough cpus" in bed.refusal(bound(bed, "8"))
    # Whole cores are only preferred, so eight CPUs of either will do; the less important pod goes.
    assert victims(bed, bound(bed, "8")) == ["half"]


def test_all_that_is_needed_goes_across_numa_nodes() -> None:
    bed = machine("Restricted")
    for zone, cpuset in enumerate(("0-3,8-11", "4-7,12-15")):
        bed.there("n", cpuset, parts=[(zone, {"cpu": "8"})], cpu="8", name=f"low-{zone}", priority=9000)
    pod = bound(bed, "12")
    assert victims(bed, pod) == ["low-0", "low-1"]
    for zone in range(2):
        bed.engine.uncount(f"uid-low-{zone}")
    placed = bed.status(pod)
    assert [(part["node"], part["resources"]["cpu"]) for part in placed["numaNodeResources"]] == [(0, "6"), (1, "6")]


def test_only_the_numa_node_that_is_needed_is_cleared_of_bound_and_shared_pods() -> None:
    bed = machine("SingleNUMANode")
    bed.there("n", "0-1,8-9", parts=[(0, {"cpu": "4"})], cpu="4", name="bound-0", priority=9200)
    bed.there("n", parts=[(0, {"cpu": "4"})], cpu="4", name="shared-0", priority=9000)
    bed.there("n", "4-5,12-13", parts=[(1, {"cpu": "4"})], cpu="4", name="bound-1", priority=9600)
    bed.there("n", parts=[(1, {"cpu": "4"})], cpu="4", name="shared-1", priority=9000)
    # NUMA node 1 keeps a pod of higher priority with four CPUs, so only there is no room for eight.
    pod = bound(bed, "8")
    assert victims(bed, pod) == ["bound-0", "shared-0"]
    # Four CPUs: the least important pods come back as far as they can; one shared pod is enough.
    few = bound(bed, "4")
    assert victims(bed, few) in (["shared-0"], ["shared-1"])
    bed.engine.uncount("uid-shared-0")
    status = bed.status(few)
    assert status == {
        "cpuset": "2-3,10-11",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "1Gi"}}],
    }
