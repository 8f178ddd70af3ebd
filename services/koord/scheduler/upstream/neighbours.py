"""Upstream's workloads whose pods care where other pods are: affinity, anti-affinity and spreading."""

from collections.abc import Mapping
from typing import Any

from koord.kube.resources import NAMESPACES, SERVICES
from koord.scheduler.upstream.bed import Bed, Rate
from koord.scheduler.upstream.objects import HOSTNAME, ZONE, nodes, pods
from koord.scheduler.upstream.workloads import Numbers, Workload

SPACES = ["sched-1", "sched-0"]
TEAM = {"team": "devops"}
MOONS = ["moon-1", "moon-2", "moon-3"]


def _term(labels: Mapping[str, str], key: str, **spaces: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": key, **spaces}


def _required(kind: str, term: Mapping[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _preferred(kind: str, term: Mapping[str, Any]) -> dict[str, Any]:
    weighted = {"weight": 1, "podAffinityTerm": term}
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}}


GREEN, BLUE, RED, YELLOW = ({"color": color} for color in ("green", "blue", "red", "yellow"))
APART = _required("podAntiAffinity", _term(GREEN, HOSTNAME, namespaces=SPACES))
TOGETHER = _required("podAffinity", _term(BLUE, ZONE, namespaces=SPACES))
NEAR = _preferred("podAffinity", _term(RED, HOSTNAME, namespaces=SPACES))
FAR = _preferred("podAntiAffinity", _term(YELLOW, HOSTNAME, namespaces=SPACES))


async def _alike(bed: Bed, numbers: Numbers, labels: Mapping[str, str], spec: Mapping[str, Any], *zones: str) -> Rate:
    """The first pods in one namespace, the measured ones, which are like them, in another."""
    await bed.add_nodes(nodes(numbers["nodes"], zones=zones))
    await bed.place(pods(numbers["init_pods"], "init", namespace="sched-0", labels=labels, spec=spec))
    return await bed.place(pods(numbers["pods"], "pod", namespace="sched-1", labels=labels, spec=spec))


async def _anti_affinity(bed: Bed, numbers: Numbers) -> Rate:
    return await _alike(bed, numbers, GREEN, APART)


async def _affinity(bed: Bed, numbers: Numbers) -> Rate:
    return await _alike(bed, numbers, BLUE, TOGETHER, "zone1")


async def _preferred_affinity(bed: Bed, numbers: Numbers) -> Rate:
    return await _alike(bed, numbers, RED, NEAR)


async def _preferred_anti_affinity(bed: Bed, numbers: Numbers) -> Rate:
    return await _alike(bed, numbers, YELLOW, FAR)


async def _matching(bed: Bed, numbers: Numbers) -> Rate:
    """Pods without any affinity, which those that are there keep off their nodes."""
    await bed.add_nodes(nodes(numbers["nodes"]))
    await bed.place(pods(numbers["init_pods"], "init", namespace="sched-0", labels=GREEN, spec=APART))
    return await bed.place(pods(numbers["pods"], "pod", namespace="sched-1", labels=GREEN))


async def _mixed(bed: Bed, numbers: Numbers) -> Rate:
    """Plain pods among pods with all sorts of affinity."""
    await bed.add_nodes(nodes(numbers["nodes"], zones=["zone1"]))
    sorts: list[tuple[Mapping[str, str], Mapping[str, Any]]] = [
        ({}, {}),
        (BLUE, TOGETHER),
        (GREEN, APART),
        (RED, NEAR),
        (YELLOW, FAR),
    ]
    for number, (labels, spec) in enumerate(sorts):
        await bed.place(pods(numbers["init_pods"], f"init-{number}", namespace="sched-0", labels=labels, spec=spec))
    return await bed.place(pods(numbers["pods"], "pod"))


async def _by_namespace(bed: Bed, numbers: Numbers, spec: Mapping[str, Any]) -> Rate:
    """A hundred namespaces with 40 pods each, then one with the measured ones; all are selected by their labels."""
    await bed.add_nodes(nodes(numbers["nodes"]))
    spaces = [f"init-ns-{number}" for number in range(numbers["namespaces"])]
    for space in [*spaces, "measure-ns-0"]:
        bed.add_object(NAMESPACES, space, {"metadata": {"name": space, "labels": TEAM}})
    init = numbers["init_pods"] // numbers["namespaces"]
    for space in spaces:
        await bed.place(pods(init, "init", namespace=space, labels=GREEN, spec=spec))
    return await bed.place(pods(numbers["pods"], "pod", namespace="measure-ns-0", labels=GREEN, spec=spec))


async def _namespace_required(bed: Bed, numbers: Numbers) -> Rate:
    term = _term(GREEN, HOSTNAME, namespaceSelector={"matchLabels": TEAM})
    return await _by_namespace(bed, numbers, _required("podAntiAffinity", term))


async def _namespace_preferred(bed: Bed, numbers: Numbers) -> Rate:
    term = _term(GREEN, HOSTNAME, namespaceSelector={"matchLabels": TEAM})
    return await _by_namespace(bed, numbers, _preferred("podAntiAffinity", term))


def _constraint(labels: Mapping[str, str], when: str, **more: Any) -> dict[str, Any]:
    constraint = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": labels},
    }
    return {"topologySpreadConstraints": [constraint | more]}


async def _spread_over_zones(bed: Bed, numbers: Numbers, when: str) -> Rate:
    await bed.add_nodes(nodes(numbers["nodes"], zones=MOONS))
    await bed.place(pods(numbers["init_pods"], "init"))
    return await bed.place(pods(numbers["pods"], "pod", labels=BLUE, spec=_constraint(BLUE, when)))


async def _spread(bed: Bed, numbers: Numbers) -> Rate:
    return await _spread_over_zones(bed, numbers, "DoNotSchedule")


async def _spread_preferred(bed: Bed, numbers: Numbers) -> Rate:
    return await _spread_over_zones(bed, numbers, "ScheduleAnyway")


async def _spread_default(bed: Bed, numbers: Numbers) -> Rate:
    """Pods without constraints that a Service selects are spread over hosts and zones."""
    await bed.add_nodes(nodes(numbers["nodes"], zones=MOONS))
    labels = {"app": "scheduler-perf"}
    service = {"metadata": {"name": "service", "namespace": "service-ns"}, "spec": {"selector": labels}}
    bed.add_object(SERVICES, "service-ns/service", service)
    await bed.place(pods(numbers["init_pods"], "init"))
    return await bed.place(pods(numbers["pods"], "pod", namespace="service-ns", labels=labels, requests={}))


async def _spread_inclusion(bed: Bed, numbers: Numbers) -> Rate:
    """One pod a node; a fifth of the nodes has a taint, and is not to count."""
    tainted = numbers["nodes"] // 5
    taint = [{"key": "foo", "effect": "NoSchedule"}]
    await bed.add_nodes(nodes(numbers["nodes"] - tainted))
    await bed.add_nodes(nodes(tainted, prefix="taint-node", taints=taint))
    policies = {"maxSkew": 1, "topologyKey": HOSTNAME, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor"}
    labels = {"foo": "bar"}
    return await bed.place(
        pods(numbers["pods"], "pod", labels=labels, spec=_constraint(labels, "DoNotSchedule", **policies))
    )


_LIKE_THEM: dict[str, object] = {"nodes": 5_000, "init_pods": 5_000, "pods": 5_000, "runs": 1}
NEIGHBOURS = [
    Workload(
        "upstream-anti-affinity",
        "2,000 pods, at most one on a node with 1,000 like them",
        _anti_affinity,
        {"nodes": 5_000, "init_pods": 1_000, "pods": 2_000, "runs": 1},
        60.0,
    ),
    Workload(
        "upstream-matching-anti-affinity",
        "5,000 pods that 1,000 others keep off their nodes",
        _matching,
        {"nodes": 5_000, "init_pods": 1_000, "pods": 5_000, "runs": 1},
        595.0,
    ),
    Workload("upstream-affinity", "5,000 pods in the zone of 5,000 like them", _affinity, _LIKE_THEM, 35.0),
    Workload(
        "upstream-preferred-affinity",
        "5,000 pods, better on a node with some like them",
        _preferred_affinity,
        _LIKE_THEM,
        90.0,
    ),
    Workload(
        "upstream-preferred-anti-affinity",
        "5,000 pods, better on a node with none like them",
        _preferred_anti_affinity,
        _LIKE_THEM,
        90.0,
    ),
    Workload(
        "upstream-mixed",
        "5,000 plain pods among 10,000 of which most care for others",
        _mixed,
        {"nodes": 5_000, "init_pods": 2_000, "pods": 5_000, "runs": 1},
        140.0,
    ),
    Workload(
        "upstream-ns-anti-affinity",
        "2,000 pods on nodes without any like them in 101 namespaces, which a selector finds",
        _namespace_required,
        {"nodes": 6_000, "namespaces": 100, "init_pods": 4_000, "pods": 2_000, "runs": 1},
        24.0,
    ),
    Workload(
        "upstream-ns-preferred-anti-affinity",
        "2,000 pods, better on nodes without any like them in 101 namespaces, which a selector finds",
        _namespace_preferred,
        {"nodes": 5_000, "namespaces": 100, "init_pods": 4_000, "pods": 2_000, "runs": 1},
        55.0,
    ),
    Workload("upstream-spread", "5,000 pods, even over three zones", _spread, _LIKE_THEM, 460.0),
    Workload(
        "upstream-spread-preferred", "5,000 pods, better even over three zones", _spread_preferred, _LIKE_THEM, 340.0
    ),
    Workload(
        "upstream-spread-default",
        "50,000 pods of a Service, spread by default",
        _spread_default,
        {"nodes": 5_000, "init_pods": 5_000, "pods": 50_000, "runs": 1},
        160.0,
    ),
    Workload(
        "upstream-spread-inclusion",
        "4,000 pods, one a node, while tainted nodes do not count",
        _spread_inclusion,
        {"nodes": 5_000, "pods": 4_000, "runs": 1},
        270.0,
    ),
]
