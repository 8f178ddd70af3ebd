"""What depends on reports and topologies, for the plain reference: LoadAwareScheduling, and NodeNUMAResource's score of
nodes without any topology. Spec 10 sections 3.11 and 3.12."""

from dataclasses import dataclass, field

from tests.reference.scheduler import loadaware
from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.volumes import StorageWorld


@dataclass
class MeasuredWorld(StorageWorld):
    """A cluster with storage whose nodes report what they use. ``load`` is what LoadAwareScheduling is told."""

    metrics: dict[str, loadaware.Metric] = field(default_factory=dict)
    load: loadaware.Args = field(default_factory=lambda: loadaware.Args({}))
    now: float = 0.0


def load_filter(pod: Pod, node: Node, world: World, rules: Rules) -> list[tuple[str, bool]]:
    """Too full, or not known for too long."""
    assert isinstance(world, MeasuredWorld)
    text = loadaware.refusal(_pod(pod), _node(node, world), world.load, world.now)
    return [] if text is None else [(text, True)]


def load_score(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """How much would be left."""
    assert isinstance(world, MeasuredWorld)
    return loadaware.score(_pod(pod), _node(node, world), world.load, world.now)


def numa_score(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """LeastAllocated of cpu and memory, by what is requested really."""
    if not any(pod.request.values()):
        return None
    shares = []
    for name in ("cpu", "memory"):
        capacity = node.capacity.get(name, 0)
        want = world.requested(node, name) + pod.request.get(name, 0)
        if capacity:
            shares.append(0 if want > capacity else (capacity - want) * 100 // capacity)
    return sum(shares) // len(shares) if shares else 0


def _node(node: Node, world: MeasuredWorld) -> loadaware.Node:
    there = [_pod(other) for other in world.on(node)]
    return loadaware.Node(node.capacity, metric=world.metrics.get(node.name), pods=there)


def _pod(pod: Pod) -> loadaware.Pod:
    """Pods without limits and without a class: those that ask for anything are prod pods by default."""
    requests = {name: amount for name, amount in pod.request.items() if name in loadaware.RESOURCES and amount}
    return loadaware.Pod(pod.name, requests, {}, bool(requests))
