"""Upstream's workloads by name, each with the threshold that upstream publishes for it."""

from koord.scheduler.podview import PodView
from koord.scheduler.upstream.bed import Bed, Rate
from koord.scheduler.upstream.koordinator import KOORDINATOR
from koord.scheduler.upstream.large import LARGE
from koord.scheduler.upstream.neighbours import NEIGHBOURS
from koord.scheduler.upstream.objects import NAME, ZONE, node, node_terms, nodes, pod, pods
from koord.scheduler.upstream.workloads import Numbers, Workload


async def _basic(bed: Bed, numbers: Numbers) -> Rate:
    await bed.add_nodes(nodes(numbers["nodes"]))
    await bed.place(pods(numbers["init_pods"], "init"))
    return await bed.place(pods(numbers["pods"], "pod"))


async def _node_affinity(bed: Bed, numbers: Numbers) -> Rate:
    spec = node_terms(labels=[{"key": ZONE, "operator": "In", "values": ["zone1", "zone2"]}])
    await bed.add_nodes(nodes(numbers["nodes"], zones=["zone1"]))
    await bed.place(pods(numbers["init_pods"], "init", spec=spec))
    return await bed.place(pods(numbers["pods"], "pod", spec=spec))


def _named(name: str, target: str) -> PodView:
    return pod(name, requests={}, spec=node_terms(fields=[{"key": NAME, "operator": "In", "values": [target]}]))


async def _daemonset(bed: Bed, numbers: Numbers) -> Rate:
    """All pods name the same one node, as in upstream's workload."""
    await bed.add_nodes([node("the-node", pods=90_000), *nodes(numbers["nodes"])])
    return await bed.place([_named(f"daemon-{number}", "the-node") for number in range(numbers["pods"])])


async def _daemonset_each(bed: Bed, numbers: Numbers) -> Rate:
    """Each pod names a node of its own, as the pods of a daemonset do."""
    count = numbers["nodes"]
    await bed.add_nodes(nodes(count))
    return await bed.place(
        [_named(f"daemon-{number}", f"node-{number % count:05d}") for number in range(numbers["pods"])]
    )


async def _gated(bed: Bed, numbers: Numbers) -> Rate:
    """One node; while pods are placed others are deleted, and gated ones wait."""
    await bed.add_nodes([node("the-node", pods=90_000)])
    gate = {"schedulingGates": [{"name": "test.k8s.io/hold"}]}
    for view in pods(numbers["gated_pods"], "gated", requests={}, spec=gate):
        bed.add_pod(view)
    leaving = pods(numbers["deleted_pods"], "leaving", requests={}, namespace="leaving")
    await bed.place(leaving)
    bed.each(18, lambda: bed.remove_pod(leaving.pop()) if leaving else None)
    return await bed.place(pods(numbers["pods"], "pod", requests={}))


async def _unschedulable(bed: Bed, numbers: Numbers) -> Rate:
    """One pod in a hundred is more important than the others and fits nowhere."""
    await bed.add_nodes(nodes(numbers["nodes"]))
    await bed.place(pods(numbers["init_pods"], "init"))
    misfits = pods(numbers["pods"] // 100, "misfit", requests={"cpu": "9", "memory": "500Mi"}, priority=10)
    bed.each(100, lambda: bed.add_pod(misfits.pop()) if misfits else None)
    return await bed.place(pods(numbers["pods"], "pod"))


async def _preemption(bed: Bed, numbers: Numbers) -> Rate:
    """With each hundred pods one comes for which three of less priority must go; those are nine tenths of all nodes."""
    count = numbers["nodes"]
    await bed.add_nodes(nodes(count))
    await bed.place(pods(4 * count, "low", requests={"cpu": "900m", "memory": "500Mi"}))
    high = pods(numbers["pods"] // 100, "high", requests={"cpu": "3", "memory": "500Mi"}, priority=10)
    bed.each(100, lambda: bed.add_pod(high.pop()) if high else None)
    rate = await bed.place(pods(numbers["pods"], "pod"))
    if numbers["pods"] >= 1_000 and not bed.deleted:
        raise RuntimeError(f"nothing was preempted: {bed.refused}")
    return rate


async def _mixed_churn(bed: Bed, numbers: Numbers) -> Rate:
    """With each hundred pods a node without room and a pod that fits nowhere come, and those before them go."""
    await bed.add_nodes(nodes(numbers["nodes"]))
    misfit = pod("misfit", requests={"cpu": "9", "memory": "500Mi"}, priority=10)
    empty = node("node-churn", pods=0, bare=True)
    there = False

    def churn() -> None:
        nonlocal there
        if there:
            bed.change_node(empty, None)
            bed.remove_pod(misfit)
        bed.change_node(None, empty)
        bed.add_pod(misfit)
        there = True

    bed.each(100, churn)
    return await bed.place(pods(numbers["pods"], "pod"))


async def _extended_resources(bed: Bed, numbers: Numbers) -> Rate:
    """Each node offers one piece of one thing, and each pod asks for one.

    In upstream's workload no two nodes offer the same. The ledger tells 999 names apart, so here a few do.
    """
    count, names = numbers["nodes"], numbers["names"]
    await bed.add_nodes(node(f"node-{one:05d}", more={f"foo.com/bar-{one % names}": "1"}) for one in range(count))
    views = [pod(f"pod-{one}", requests={f"foo.com/bar-{one % names}": "1"}) for one in range(numbers["pods"])]
    return await bed.place(views)


WORKLOADS = [
    Workload(
        "upstream-basic",
        "10,000 equal pods on 5,000 nodes",
        _basic,
        {"nodes": 5_000, "init_pods": 1_000, "pods": 10_000, "runs": 3},
        680.0,
    ),
    Workload(
        "upstream-basic-50k",
        "50,000 equal pods on 5,000 nodes",
        _basic,
        {"nodes": 5_000, "init_pods": 5_000, "pods": 50_000, "runs": 1},
        810.0,
    ),
    Workload(
        "upstream-node-affinity",
        "10,000 pods with a required zone",
        _node_affinity,
        {"nodes": 5_000, "init_pods": 5_000, "pods": 10_000, "runs": 3},
        220.0,
    ),
    Workload(
        "upstream-daemonset",
        "30,000 pods that name the same one of 15,001 nodes",
        _daemonset,
        {"nodes": 15_000, "pods": 30_000, "runs": 1},
        1_100.0,
    ),
    Workload(
        "upstream-daemonset-each",
        "15,000 pods that each name another one of 15,000 nodes",
        _daemonset_each,
        {"nodes": 15_000, "pods": 15_000, "runs": 1},
        1_100.0,
    ),
    Workload(
        "upstream-extended-resources",
        "5,000 pods of 990 kinds, for each of which five of 5,000 nodes have the thing that it asks for",
        _extended_resources,
        {"nodes": 5_000, "names": 990, "pods": 5_000, "runs": 1},
        180.0,
    ),
    Workload(
        "upstream-gated",
        "20,000 pods on one node while 10,000 gated ones wait and others are deleted",
        _gated,
        {"gated_pods": 10_000, "deleted_pods": 20_000, "pods": 20_000, "runs": 1},
        910.0,
    ),
    Workload(
        "upstream-unschedulable",
        "10,000 pods among 20,000, and one in a hundred that fits nowhere",
        _unschedulable,
        {"nodes": 5_000, "init_pods": 20_000, "pods": 10_000, "runs": 1},
        600.0,
    ),
    Workload(
        "upstream-preemption-async",
        "5,000 pods among 20,000, and one in a hundred for which three of those must go",
        _preemption,
        {"nodes": 5_000, "pods": 5_000, "runs": 1},
        570.0,
    ),
    Workload(
        "upstream-mixed-churn",
        "10,000 pods while nodes and pods that fit nowhere come and go",
        _mixed_churn,
        {"nodes": 5_000, "pods": 10_000, "runs": 3},
        710.0,
    ),
]
SCENARIOS = [*(workload.scenario() for workload in (*WORKLOADS, *NEIGHBOURS)), LARGE, *KOORDINATOR]
