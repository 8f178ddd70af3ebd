"""What depends on reports and topologies, for the plain reference: LoadAwareScheduling and NodeNUMAResource. Spec 10
sections 3.11 and 3.12."""

import json
from dataclasses import dataclass, field

from koord.kube.protocol.cputopology import CPU
from tests.reference.scheduler import loadaware, numa
from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.volumes import StorageWorld

SPEC, ALIGNED = "scheduling.koordinator.sh/resource-spec", "scheduling.koordinator.sh/numa-topology-spec"
POLICY, BIND = "node.koordinator.sh/numa-topology-policy", "node.koordinator.sh/cpu-bind-policy"


@dataclass
class MeasuredWorld(StorageWorld):
    """A cluster with storage whose nodes report what they use. ``load`` is what LoadAwareScheduling is told."""

    metrics: dict[str, loadaware.Metric] = field(default_factory=dict)
    load: loadaware.Args = field(default_factory=lambda: loadaware.Args({}))
    now: float = 0.0
    topologies: dict[str, tuple[list[CPU], dict[int, dict[str, int]]]] = field(default_factory=dict)
    """By node: its CPUs, and what each of its NUMA nodes has."""
    given: dict[str, numa.Pod] = field(default_factory=dict)
    """By pod: what it has of its machine."""


def load_filter(pod: Pod, node: Node, world: World, rules: Rules) -> list[tuple[str, bool]]:
    """Too full, or not known for too long."""
    assert isinstance(world, MeasuredWorld)
    text = loadaware.refusal(_pod(pod), _node(node, world), world.load, world.now)
    return [] if text is None else [(text, True)]


def load_score(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """How much would be left."""
    assert isinstance(world, MeasuredWorld)
    return loadaware.score(_pod(pod), _node(node, world), world.load, world.now)


def numa_wish(pod: Pod, node: Node) -> numa.Wish | None:
    """What the pod wants on the node; None: it asks for nothing at all. Pods that are labelled LSR are prod pods here,
    ask for whole CPUs, and have their policies from annotations."""
    request = {name: amount for name, amount in pod.request.items() if amount}
    if not request:
        return None
    own = json.loads(pod.annotations.get(SPEC, "{}"))
    bind, required = "", False
    if pod.labels.get("koordinator.sh/qosClass") == "LSR" and request.get("cpu"):
        required = "requiredCPUBindPolicy" in own
        bind = own.get("requiredCPUBindPolicy") or own.get("preferredCPUBindPolicy") or "FullPCPUs"
    told = _bind(node)
    if told and request.get("cpu"):
        bind, required = told, True
    aligned = json.loads(pod.annotations.get(ALIGNED, "{}")).get("numaTopologyPolicy", "")
    exclusive = own.get("preferredCPUExclusivePolicy", "")
    return numa.Wish(request, bind, required, exclusive, aligned or node.labels.get(POLICY, ""), bool(aligned))


def _bind(node: Node) -> str:
    return {"FullPCPUsOnly": "FullPCPUs"}.get(node.labels.get(BIND, ""), node.labels.get(BIND, ""))


def machine(node: Node, world: MeasuredWorld) -> numa.Machine:
    """The node's CPUs and NUMA nodes with what pods have of them."""
    cpus, zones = world.topologies.get(node.name, ([], {}))
    return numa.Machine(cpus, zones, [world.given[pod.uid] for pod in world.on(node) if pod.uid in world.given])


def numa_filter(pod: Pod, node: Node, world: World, rules: Rules) -> list[tuple[str, bool]]:
    """Policies that differ, CPUs that cannot be bound, NUMA nodes that do not hold the pod."""
    assert isinstance(world, MeasuredWorld)
    wish, here = numa_wish(pod, node), machine(node, world)
    if wish is None:
        return []
    own = json.loads(pod.annotations.get(SPEC, "{}")).get("requiredCPUBindPolicy", "")
    lsr = pod.labels.get("koordinator.sh/qosClass") == "LSR"
    if wish.alone and node.labels.get(POLICY, wish.policy) != wish.policy:
        return [("node(s) NUMA Topology policy not match", False)]
    if wish.bind:
        count = wish.request["cpu"] // 1000
        if wish.request["cpu"] % 1000:
            return [("the requested CPUs must be integer", False)]
        if not here.cpus:
            return [("node(s) invalid CPU Topology", False)]
        if lsr and own and _bind(node) and own != _bind(node):
            return [("node(s) cpu bind policy conflicts with pod's required cpu bind policy", False)]
        if wish.required and wish.bind == "FullPCPUs" and count % numa.per_core(here):
            return [("node(s) requested cpus not multiple cpus per core", False)]
        if len(numa.usable(here, wish)) < count:
            return [(numa.NOT_ENOUGH, True)]
    if wish.policy == "Restricted" and here.zones:
        unsatisfied = [name for name, hints in numa.hints(here, wish).items() if hints == []]
        if unsatisfied:
            return [(f"Unsatisfied NUMA {name}", True) for name in unsatisfied]
    found = numa.place(here, wish)
    return [(found, bool(here.zones) or not wish.policy)] if isinstance(found, str) else []


def numa_score(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """LeastAllocated of cpu and memory: of the NUMA nodes that the pod is aligned on, else of the node."""
    assert isinstance(world, MeasuredWorld)
    wish, here = numa_wish(pod, node), machine(node, world)
    if wish is None:
        return None
    mask = numa.align(here, wish) if wish.policy else None
    if isinstance(mask, int) and any(name in listed for listed in here.zones.values() for name in wish.request):
        zones = [zone for index, zone in enumerate(sorted(here.zones)) if mask >> index & 1]
        if not wish.bind:
            return numa.score(here, wish, zones)
        owned = {cpu for other in here.pods for cpu in other.cpus}
        used = {"cpu": 1000 * sum(len(here.ids(zone) & owned) for zone in zones)}
        used["memory"] = sum(here.used(zone, "memory") for zone in zones)
        capacity = {name: sum(here.zones[zone].get(name, 0) for zone in zones) for name in used}
    else:
        used = {name: world.requested(node, name) for name in ("cpu", "memory")}
        capacity = {name: node.capacity.get(name, 0) for name in used}
    shares = []
    for name, room in capacity.items():
        want = used[name] + pod.request.get(name, 0)
        if room:
            shares.append(0 if want > room else (room - want) * 100 // room)
    return sum(shares) // len(shares) if shares else 0


def numa_give(pod: Pod, node: Node, world: MeasuredWorld) -> None:
    """The pod has what it gets on the node."""
    wish = numa_wish(pod, node)
    if wish is None or not (wish.bind or wish.policy):
        return
    found = numa.place(machine(node, world), wish)
    assert not isinstance(found, str), found
    world.given[pod.uid] = numa.Pod(found[0], wish.exclusive if wish.bind else "", found[1])


def _node(node: Node, world: MeasuredWorld) -> loadaware.Node:
    there = [_pod(other) for other in world.on(node)]
    return loadaware.Node(node.capacity, metric=world.metrics.get(node.name), pods=there)


def _pod(pod: Pod) -> loadaware.Pod:
    """Pods without limits and without a class: those that ask for anything are prod pods by default."""
    requests = {name: amount for name, amount in pod.request.items() if name in loadaware.RESOURCES and amount}
    return loadaware.Pod(pod.name, requests, {}, bool(requests))
