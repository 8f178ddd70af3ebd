"""Machines and pods drawn at random, for tests of NodeNUMAResource."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from koord.kube.protocol.cpulist import format_cpus
from koord.kube.protocol.cputopology import CPU
from koord.scheduler.engine.placement import PodInfo
from tests.scheduler.clusters import GIB
from tests.scheduler.numa.machines import BIND_LABEL, NUMA_SPEC, POLICY_LABEL, RESOURCE_SPEC, NumaBed, zones

POLICIES = ("", "BestEffort", "Restricted", "SingleNUMANode")
Node = dict[str, Any]

nodes = st.fixed_dictionaries(
    {
        "zones": st.integers(0, 4),
        "cores": st.integers(1, 3),
        "policy": st.sampled_from(POLICIES),
        "bind": st.sampled_from(("", "", "FullPCPUsOnly", "SpreadByPCPUs")),
        "ratio": st.sampled_from(("", "", '{"cpu":1.5}')),
        "memory": st.integers(1, 8),
        "lists": st.sampled_from((("cpu", "memory"), ("cpu", "memory"), ("memory",), ("cpu", "memory", "x.io/a"))),
        "pods": st.lists(
            st.tuples(st.integers(0, 2**24 - 1), st.integers(0, 2**24 - 1), st.integers(0, 15), st.integers(0, 3)),
            max_size=4,
        ),
    }
)
wishes = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(("", "1", "2", "3", "4", "6", "500m", "2500m")),
        "memory": st.sampled_from(("", "1Gi", "3Gi", "6Gi")),
        "other": st.sampled_from(("", "", "2")),
        "bound": st.booleans(),
        "spec": st.sampled_from(
            (
                "",
                '{"requiredCPUBindPolicy":"FullPCPUs"}',
                '{"requiredCPUBindPolicy":"SpreadByPCPUs"}',
                '{"requiredCPUBindPolicy":"ConstrainedBurst"}',
                '{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}',
            )
        ),
        "policy": st.sampled_from(POLICIES),
        "exclusive": st.sampled_from(("", "Preferred", "Required")),
    }
)


def build(bed: NumaBed, name: str, node: Node) -> None:
    count, cores = node["zones"], node["cores"]
    cpus = [CPU(i, i // 2, 0, i // (2 * cores)) for i in range(2 * cores * max(count, 1))]
    amounts = {"cpu": str(2 * cores), "memory": f"{node['memory']}Gi", "x.io/a": "3"}
    labels = {POLICY_LABEL: node["policy"], BIND_LABEL: node["bind"]}
    ratio = {"node.koordinator.sh/resource-amplification-ratio": node["ratio"]} if node["ratio"] else {}
    bed.machine(
        name,
        cpus,
        zones(*[{key: amounts[key] for key in node["lists"]}] * count),
        labels={key: value for key, value in labels.items() if value},
        annotations=ratio,
        cpu=1500 * len(cpus) if ratio else 0,
        memory=node["memory"] * max(count, 1) * GIB,
    )
    taken = 0
    for one, other, where, gib in node["pods"]:
        mask = one & other & (1 << len(cpus)) - 1 & ~taken
        taken |= mask
        parts = [
            (
                zone,
                {
                    "cpu": str(min((mask >> 2 * cores * zone & (1 << 2 * cores) - 1).bit_count() + gib // 2, 9)),
                    "memory": f"{gib}Gi",
                },
            )
            for zone in range(count)
            if where >> zone & 1
        ]
        bed.there(name, format_cpus(mask), parts=parts, cpu=str(mask.bit_count()), memory=f"{gib}Gi")


def pod(bed: NumaBed, wish: Mapping[str, Any], name: str = "wish") -> PodInfo:
    annotations = {RESOURCE_SPEC: wish["spec"]} if wish["spec"] else {}
    if wish["policy"] or wish["exclusive"]:
        annotations[NUMA_SPEC] = (
            f'{{"numaTopologyPolicy":"{wish["policy"]}","singleNUMANodeExclusive":"{wish["exclusive"]}"}}'
        )
    wanted = {"cpu": wish["cpu"], "memory": wish["memory"], "x.io/a": wish["other"]}
    container = {"name": "c", "resources": {"requests": {key: amount for key, amount in wanted.items() if amount}}}
    labels = {"koordinator.sh/qosClass": "LSR"} if wish["bound"] else {}
    return bed.pod(name, {"containers": [container]}, labels=labels, annotations=annotations)
