"""NodeNUMAResource: amplified machines, ConstrainedBurst, and what a hint designates."""

import json

from koord.scheduler.engine.placement import Outcome, Placed, PodInfo
from tests.scheduler.clusters import requests
from tests.scheduler.numa.machines import (
    LSR,
    POLICY_LABEL,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    B,
    NumaBed,
    zones,
)

RATIO = "node.koordinator.sh/resource-amplification-ratio"
ROOM = {"cpu": "8", "memory": "16Gi"}


# Amplified ------------------------------------------------------------------------------------------------------------


def test_numa_nodes_of_an_amplified_machine() -> None:
    bed = NumaBed()
    bed.machine(
        "n",
        B,
        zones(ROOM, ROOM),
        cpu=24_000,
        annotations={RATIO: '{"cpu":1.5}'},
        labels={POLICY_LABEL: "SingleNUMANode"},
    )
    bed.there("n", "0-3", parts=[(0, {"cpu": "4"})], cpu="4")
    assert bed.plugin.books.state("n").zone_free(0)["cpu"] == 6000
    assert bed.plugin.books.state("n").zone_free(1)["cpu"] == 12_000
    # Eight CPUs cost all of NUMA node 1; what is written is what the pod asked for.
    assert bed.status(bed.bound_pod("8"))["numaNodeResources"] == [{"node": 1, "resources": {"cpu": "8"}}]
    assert bed.status(bed.named("6"))["numaNodeResources"] == [{"node": 0, "resources": {"cpu": "6"}}]


def test_runs_of_pods_on_amplified_nodes_are_as_one_by_one() -> None:
    def bed() -> NumaBed:
        made = NumaBed()
        for number, cpu in enumerate((9, 12, 15)):
            made.machine(f"n{number}", B, cpu=1000 * cpu, annotations={RATIO: '{"cpu":1.5}'})
            made.there(f"n{number}", "0-3", cpu="4")
        return made

    run, one = bed(), bed()
    pods = [run.pod(f"p{number}", requests("2")) for number in range(14)]
    outcomes: list[Outcome] = []
    while len(outcomes) < len(pods):
        run.engine.place(pods[len(outcomes) :], outcomes)
    singly = [one.place(one.pod(f"p{number}", requests("2"))) for number in range(14)]
    texts = [each.node if isinstance(each, Placed) else each.message for each in outcomes]
    assert texts == [each.node if isinstance(each, Placed) else each.message for each in singly]
    # 9 - 6 for the bound ones leaves room for one, 12 - 6 for three, 15 - 6 for four.
    assert [texts.count(f"n{number}") for number in range(3)] == [1, 3, 4]


# ConstrainedBurst -----------------------------------------------------------------------------------------------------


def test_a_pod_that_bursts_gets_the_numa_node_whose_shared_cpus_cover_its_limit() -> None:
    bed = NumaBed()
    bed.machine("n", B, zones(ROOM, ROOM))
    bed.there("n", "0-1", cpu="2")

    def burst(name: str, limit: str, *, kind: str = "required") -> PodInfo:
        container = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": limit}}
        annotations = {RESOURCE_SPEC: json.dumps({f"{kind}CPUBindPolicy": "ConstrainedBurst"})}
        return bed.pod(name, {"containers": [{"name": "c", "resources": container}]}, annotations=annotations)

    assert bed.status(burst("fits", "8")) == {"numaNodeResources": [{"node": 1, "resources": {"cpu": "1"}}]}
    text = "0/1 nodes are available: 1 node(s) no NUMA node whose shared CPUs cover the cpu limit."
    assert bed.refusal(burst("large", "9")) == text
    assert bed.status(burst("unforced", "9", kind="preferred")) == {}
    bed.there("n", parts=[(1, {"cpu": "7"})])
    assert bed.status(burst("smaller", "6")) == {"numaNodeResources": [{"node": 0, "resources": {"cpu": "1"}}]}


# Designated -----------------------------------------------------------------------------------------------------------


HINT = '{"extensions":{"NodeNUMAResource":{}}}'


def designated(bed: NumaBed, name: str, status: str, cpu: str = "4", memory: str = "", **labels: str) -> PodInfo:
    annotations = {"internal.scheduling.koordinator.sh/scheduling-hint": HINT, RESOURCE_STATUS: status}
    return bed.pod(name, requests(cpu, memory), labels=LSR, annotations=annotations)


def test_a_pod_gets_what_a_hint_designates_or_nothing() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    assert bed.status(designated(bed, "a", '{"cpuset":"5-6,13-14"}')) == {"cpuset": "5-6,13-14"}
    text = "0/1 nodes are available: 1 not enough cpus available to satisfy request."
    assert bed.refusal(designated(bed, "b", '{"cpuset":"6-7,14-15"}')) == text  # CPU 6 is taken
    assert bed.refusal(designated(bed, "c", '{"cpuset":"0-1"}')) == text  # two CPUs, four wanted
    assert bed.refusal(designated(bed, "d", '{"cpuset":"0-3,20"}')) == text
    bad = bed.refusal(designated(bed, "e", '{"cpuset":"x"}'))
    assert bad.startswith(f'0/1 nodes are available: {RESOURCE_STATUS}: cpuset: CPU list "x"')
    # Without the hint the annotation says nothing about a pod that has no node.
    pod = bed.pod("f", requests("2"), labels=LSR, annotations={RESOURCE_STATUS: '{"cpuset":"5-6"}'})
    assert bed.status(pod) == {"cpuset": "0,8"}


def test_designated_amounts_of_numa_nodes() -> None:
    bed = NumaBed()
    bed.machine("n", B, zones(ROOM, ROOM), labels={POLICY_LABEL: "SingleNUMANode"})
    bed.machine("other", B, zones(ROOM))
    bed.there("n", "4-5", parts=[(1, {"cpu": "2"})], cpu="2")

    def one(name: str, node: int, cpu: str, cpuset: str) -> PodInfo:
        zone = {"node": node, "resources": {"cpu": cpu, "memory": "1Gi"}}
        return designated(bed, name, json.dumps({"cpuset": cpuset, "numaNodeResources": [zone]}), "4", "1Gi")

    assert bed.status(one("a", 1, "4", "6-7,14-15"))["numaNodeResources"][0]["node"] == 1
    for name, pod in (("free", one("b", 1, "4", "12-13")), ("short", one("c", 0, "3", "0-1,8-9"))):
        assert "not enough cpus" in bed.refusal(pod), name
