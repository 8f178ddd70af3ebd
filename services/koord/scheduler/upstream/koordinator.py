"""What upstream has no workloads for: nodes that report their usage, bound CPUs, amplified nodes.

Each is measured twice, on nodes of the same size with equal pods: without the matter, then with it.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.kube.meta import now_rfc3339
from koord.kube.resources import NODE_METRICS, NODE_RESOURCE_TOPOLOGIES
from koord.scheduler.podview import PodView
from koord.scheduler.upstream.bed import Bed, Rate, new_bed, servers
from koord.scheduler.upstream.objects import nodes, pods

LEAST = 0.5
"""Of the rate without."""
SOCKETS, NUMA_NODES, CPUS = 2, 4, 128
MACHINE = {"cpu": str(CPUS), "memory": "512Gi"}
RATIO = 1.5
_NODE = "node.koordinator.sh/"


class Matter(msgspec.Struct, frozen=True):
    """``objects``: (resource, name, body) of the nodes' other objects, by the node's number; the rest is given to nodes
    and pods that have it."""

    objects: str = ""
    node: Mapping[str, Any] = {}
    pod: Mapping[str, Any] = {}
    ratio: float = 1.0


REPORTED = Matter("metric")
BOUND = Matter(
    "topology",
    {"labels": {_NODE + "numa-topology-policy": "SingleNUMANode"}},
    {"labels": {"koordinator.sh/qosClass": "LSR"}, "priority": 9_500},
)
AMPLIFIED = Matter(
    "topology",
    {
        "annotations": {
            _NODE + "resource-amplification-ratio": json.dumps({"cpu": RATIO}),
            _NODE + "raw-allocatable": json.dumps({"cpu": str(CPUS)}),
        }
    },
    {"labels": {"koordinator.sh/qosClass": "LSR"}, "priority": 9_500},
    RATIO,
)


def _metric(number: int) -> dict[str, Any]:
    """A report of now: a fifth to a half of a machine is used."""
    share = 0.2 + 0.3 * (number % 100) / 100
    usage = {"cpu": f"{int(CPUS * 1000 * share)}m", "memory": f"{int(512 * share)}Gi"}
    return {
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        "status": {"updateTime": now_rfc3339(time.time()), "nodeMetric": {"nodeUsage": {"resources": usage}}},
    }


def _topology(ratio: float) -> dict[str, Any]:
    """Two threads a core, two NUMA nodes a socket."""
    per_numa, per_socket = CPUS // NUMA_NODES, CPUS // SOCKETS
    detail = [
        {"id": cpu, "core": cpu // 2, "socket": cpu // per_socket, "node": cpu // per_numa} for cpu in range(CPUS)
    ]
    amounts = {"cpu": str(int(per_numa * ratio)), "memory": f"{512 // NUMA_NODES}Gi"}
    resources = [{"name": name, "capacity": text, "allocatable": text} for name, text in amounts.items()]
    annotations = {_NODE + "cpu-topology": json.dumps({"detail": detail})}
    if ratio > 1:
        annotations[_NODE + "resource-amplification-ratio"] = json.dumps({"cpu": ratio})
    return {
        "metadata": {"annotations": annotations},
        "zones": [{"name": f"node-{zone}", "type": "Node", "resources": resources} for zone in range(NUMA_NODES)],
    }


def _machines(count: int, matter: Matter) -> Iterator[Any]:
    room = {"cpu": str(int(CPUS * matter.ratio)), "memory": MACHINE["memory"]}
    return nodes(count, more=room, **matter.node)


def _pods(count: int, matter: Matter) -> list[PodView]:
    return pods(count, "pod", requests={"cpu": "4", "memory": "8Gi"}, **matter.pod)


async def _measure(bed: Bed, matter: Matter, count: int, measured: int) -> Rate:
    await bed.add_nodes(_machines(count, matter))
    shared = _topology(matter.ratio) if matter.objects == "topology" else {}
    for number in range(count if matter.objects else 0):
        name = f"node-{number:05d}"
        if matter.objects == "metric":
            body = _metric(number)
            bed.add_object(NODE_METRICS, name, body | {"metadata": {"name": name}})
        else:
            metadata = shared["metadata"] | {"name": name}
            bed.add_object(NODE_RESOURCE_TOPOLOGIES, name, shared | {"metadata": metadata})
    return await bed.place(_pods(measured, matter))


def _scenario(name: str, summary: str, matter: Matter) -> Scenario:
    async def run(parameters: Parameters) -> BenchResult:
        count, measured = int(str(parameters["nodes"])), int(str(parameters["pods"]))
        async with servers() as on:
            async with new_bed(on) as bed:
                plain = await _measure(bed, Matter(ratio=matter.ratio), count, measured)
            async with new_bed(on) as bed:
                rate = await _measure(bed, matter, count, measured)
        share = rate.per_cpu_s / plain.per_cpu_s
        return BenchResult(
            name,
            dict(parameters),
            {
                "decisions_per_s": rate.per_s,
                "decisions_per_cpu_s": rate.per_cpu_s,
                "plain_decisions_per_s": plain.per_s,
                "plain_decisions_per_cpu_s": plain.per_cpu_s,
            },
            ratios={"share_of_plain": share},
            bound_by="one core of the scheduler's process",
            ok=share >= LEAST,
        )

    return Scenario(name, summary, run, {"nodes": 5_000, "pods": 10_000})


KOORDINATOR = [
    _scenario("upstream-loadaware", "10,000 equal pods on 5,000 nodes that report their usage", REPORTED),
    _scenario(
        "upstream-numa",
        "10,000 pods with 4 CPUs of their own each, on one NUMA node of one of 5,000 machines with 128 CPUs in 4",
        BOUND,
    ),
    _scenario("upstream-amplification", "the same on machines with half as much cpu again as they have", AMPLIFIED),
]
