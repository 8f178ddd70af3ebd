"""Benchmarks of the engine alone: decisions per second on one core, by the code that the service runs.

Pods are decoded beforehand; timed are finding their class, every filter and score of the shipped profile, the choice
and the assumption. Nothing is sampled: all nodes are filtered and scored for each decision, in full or incrementally.
"""

import gc
import json
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter, process_time

import msgspec

from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.contracts.codec import encode
from koord.scheduler.catalogue import Catalogue
from koord.scheduler.engine.cluster import Cluster, NodeInfo, Taint
from koord.scheduler.engine.placement import Engine, Outcome, Placed
from koord.scheduler.notices import Notices
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.profile import default_profile
from koord.scheduler.podview import PodView

SLICE_S = 0.02
GIB = 1 << 30
# What the classes of engine-basic are in turn: plain, zone selector, GPU with toleration, required affinity.
_KINDS = (0, 0, 1, 0, 2, 0, 0, 3, 0, 1)
BASIC, UNIQUE, IDENTICAL = 10_000.0, 3_000.0, 50_000.0
EXPLAINED_MS = 5.0
_decoder = msgspec.json.Decoder(PodView)


def _nodes(count: int) -> Iterator[NodeInfo]:
    for number in range(count):
        name = f"node-{number:05d}"
        amounts = {
            "pods": 110,
            "cpu": (32_000, 64_000, 96_000)[number % 3],
            "memory": (128, 256, 384)[number % 3] * GIB,
            "ephemeral-storage": 1024 * GIB,
        }
        labels = {
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": f"zone-{number % 3}",
            "pool": "gpu" if number % 10 == 0 else "general",
        }
        taints: tuple[Taint, ...] = ()
        if number % 10 == 0:
            amounts["nvidia.com/gpu"] = 8
            taints = (Taint("nvidia.com/gpu", "", "NoSchedule"),)
        yield NodeInfo(name, amounts, labels, taints)


def _body(number: int, cpu_milli: int, memory_mib: int, kind: int, *, zone: int = 0) -> bytes:
    requests = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    tolerations = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ]
    spec: dict[str, object] = {"schedulerName": "koord-scheduler", "tolerations": tolerations}
    if kind == 1:
        spec["nodeSelector"] = {"topology.kubernetes.io/zone": f"zone-{zone}"}
    elif kind == 2:
        requests["nvidia.com/gpu"] = "1"
        spec["tolerations"] = [*tolerations, {"key": "nvidia.com/gpu", "operator": "Exists"}]
    elif kind == 3:
        zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-0", "zone-1"]}
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}
            }
        }
    spec["containers"] = [{"name": "main", "image": "app", "resources": {"requests": requests}}]
    meta = {"name": f"pod-{number}", "namespace": "bench", "uid": f"uid-{number}"}
    return json.dumps({"metadata": meta, "spec": spec}).encode()


def _run(nodes: int, views: list[PodView]) -> tuple[float, float]:
    """Decisions per wall second and per second of this process's CPU."""
    cluster = Cluster("bench")
    profile = default_profile(Coscheduling())
    engine, catalogue = Engine(cluster, profile), Catalogue(cluster, profile)
    for node in _nodes(nodes):
        engine.set_node(node)
    # As koord.runtime.run sets it for every service.
    gc.set_threshold(50_000, 50, 100)
    gc.collect()
    start, cpu = perf_counter(), process_time()
    infos = [catalogue.pod(view) for view in views]
    outcomes: list[Outcome] = []
    done = 0
    while done < len(infos):
        done += engine.place(infos[done:], outcomes, until=perf_counter() + SLICE_S)
    wall, used = perf_counter() - start, process_time() - cpu
    missed = [outcome for outcome in outcomes if not isinstance(outcome, Placed)]
    if missed:
        raise RuntimeError(f"{len(missed)} of {len(outcomes)} pods found no node: {missed[0]}")
    return len(outcomes) / wall, len(outcomes) / used


def _median(runs: int, nodes: int, pods: int, body: Callable[[int], bytes]) -> tuple[float, float]:
    views = [_decoder.decode(body(number)) for number in range(pods)]
    measured = [_run(nodes, views) for _ in range(runs)]
    return statistics.median(wall for wall, _ in measured), statistics.median(cpu for _, cpu in measured)


def _number(parameters: Parameters, name: str) -> int:
    value = int(str(parameters[name]))
    if value < 1:
        raise ValueError(f"parameter {name}: must be at least 1, got {value}")
    return value


def basic(parameters: Parameters) -> BenchResult:
    """Twenty classes interleaved, then every pod its own class."""
    nodes, pods = _number(parameters, "nodes"), _number(parameters, "pods")
    classes, runs = _number(parameters, "classes"), _number(parameters, "runs")
    unique = _number(parameters, "unique_pods")

    def mixed(number: int) -> bytes:
        which = number % classes
        return _body(number, 100 + 50 * which, 128 + 64 * which, _KINDS[which % len(_KINDS)], zone=which % 3)

    rate, rate_cpu = _median(runs, nodes, pods, mixed)
    unique_rate, unique_cpu = _median(
        runs, nodes, unique, lambda number: _body(number, 100 + number % 500, 128 + number // 500, number % 2)
    )
    return BenchResult(
        "engine-basic",
        dict(parameters),
        {
            "decisions_per_s": rate,
            "unique_decisions_per_s": unique_rate,
            "decisions_per_cpu_s": rate_cpu,
            "unique_decisions_per_cpu_s": unique_cpu,
        },
        ratios={
            "decisions_per_s": rate / BASIC,
            "unique_decisions_per_s": unique_rate / UNIQUE,
        },
        bound_by="one core of the engine's process",
        ok=rate >= BASIC and unique_rate >= UNIQUE,
    )


def identical(parameters: Parameters) -> BenchResult:
    """One class."""
    nodes, pods, runs = (_number(parameters, name) for name in ("nodes", "pods", "runs"))
    rate, rate_cpu = _median(runs, nodes, pods, lambda number: _body(number, 500, 512, 0))
    return BenchResult(
        "engine-identical",
        dict(parameters),
        {"decisions_per_s": rate, "decisions_per_cpu_s": rate_cpu},
        ratios={"decisions_per_s": rate / IDENTICAL},
        bound_by="one core of the engine's process",
        ok=rate >= IDENTICAL,
    )


def _misfit(number: int, pods: int) -> bytes:
    """Room that no node has, in a zone where a third of the nodes are, without the toleration that a tenth asks for."""
    return _body(number, 200_000 + number % pods, 512, 1, zone=number % 3)


def unschedulable(parameters: Parameters) -> BenchResult:
    """Pods that fit nowhere, each a class of its own, until their Events and conditions are encoded.

    CPU time: nothing here waits, so that is what it takes on a machine that has a core for it.
    """
    nodes, pods = _number(parameters, "nodes"), _number(parameters, "pods")
    views = {f"bench/pod-{number}": _decoder.decode(_misfit(number, pods)) for number in range(pods)}
    cluster = Cluster("bench")
    profile = default_profile(Coscheduling())
    engine, catalogue = Engine(cluster, profile), Catalogue(cluster, profile)
    for node in _nodes(nodes):
        engine.set_node(node)
    tainted = len(range(0, nodes, 10))
    notices = Notices("bench", "koord-scheduler", views.get)
    gc.collect()
    spent: list[float] = []
    for number, view in enumerate(views.values()):
        began = process_time()
        outcome = engine.place_one(catalogue.pod(view))
        if isinstance(outcome, Placed):
            raise RuntimeError(f"pod-{number} was placed on {outcome.node}")
        notices.failed(view.uid, "bench", f"pod-{number}", outcome.message, 0.0)
        told = [encode(decision) for decision in notices.take()]
        spent.append((process_time() - began) * 1e3)
        counts = {reason.plugin: reason.nodes for reason in outcome.reasons}
        zone = len([row for row in range(number % 3, nodes, 3) if row % 10])
        expected = {"TaintToleration": tainted, "NodeAffinity": nodes - tainted - zone, "NodeResourcesFit": zone}
        if counts != expected or len(told) != 2:
            raise RuntimeError(f"pod-{number} was told {outcome.message!r}, expected are {expected}")
    cuts = statistics.quantiles(spent, n=100)
    return BenchResult(
        "engine-unschedulable",
        dict(parameters),
        {"p50_ms": cuts[49], "p99_ms": cuts[98]},
        ratios={"p99_ms": cuts[98] / EXPLAINED_MS},
        bound_by="one core of the engine's process",
        ok=cuts[98] < EXPLAINED_MS,
    )


SCENARIOS = [
    Scenario(
        "engine-basic",
        "placement engine alone: 20 classes interleaved, then every pod its own class",
        basic,
        {"nodes": 5_000, "pods": 10_000, "classes": 20, "unique_pods": 3_000, "runs": 5},
    ),
    Scenario(
        "engine-identical",
        "placement engine alone: identical pods",
        identical,
        {"nodes": 5_000, "pods": 20_000, "runs": 5},
    ),
    Scenario(
        "engine-unschedulable",
        "pods that no node fits, each of another class: explanation, event and condition",
        unschedulable,
        {"nodes": 5_000, "pods": 1_000},
    ),
]
