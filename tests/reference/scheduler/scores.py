"""Scores: how much a plugin likes a node, from 0 to 100 once normalised. None: it has no opinion on this pod."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import sqrt, trunc
from typing import Any

from tests.reference.scheduler import interpod, measured, spread
from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.selecting import node_affinity, term_holds, untolerated

Score = Callable[[Pod, Node, World, Rules], int | None]
Normalize = Callable[[dict[str, int]], dict[str, int]]
MIB = 1024 * 1024


def taints(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """Untolerated PreferNoSchedule taints."""
    return untolerated(pod.spec, node, ("PreferNoSchedule",))


def few(raw: dict[str, int]) -> dict[str, int]:
    """100 less the share of the most."""
    most = max(raw.values())
    return {name: 100 - 100 * count // most if most else 100 for name, count in raw.items()}


def affinity(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """The weights of the preferred terms that hold."""
    preferred = [*node_affinity(pod.spec).get("preferredDuringSchedulingIgnoredDuringExecution", [])]
    preferred += rules.added_preferred
    if not preferred:
        return None
    return sum(int(one["weight"]) for one in preferred if term_holds(one["preference"], node))


def share(raw: dict[str, int]) -> dict[str, int]:
    """The share of the most; 0 if nobody has any."""
    most = max(raw.values())
    return {name: 100 * amount // most if most else 0 for name, amount in raw.items()}


def used(pod: Pod, node: Node, world: World, resource: str) -> int:
    """What would be used of a resource, cpu and memory with the floor for containers that do not name them."""
    if resource in ("cpu", "memory"):
        return sum(one.floored[resource] for one in [*world.on(node), pod])
    return world.requested(node, resource) + pod.request.get(resource, 0)


def fit(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """One of the three strategies."""
    total = weights = 0
    capacity = node.capacity
    for resource, weight in rules.resources.items():
        if resource not in ("cpu", "memory") and not pod.request.get(resource, 0):
            continue
        most = capacity.get(resource, 0)
        if not most:
            continue
        amount = used(pod, node, world, resource)
        if rules.strategy == "LeastAllocated":
            one = 0 if amount > most else (most - amount) * 100 // most
        elif rules.strategy == "MostAllocated":
            one = min(amount, most) * 100 // most
        else:
            one = shaped(rules.shape, 100 if amount > most else amount * 100 // most)
            if not one:
                continue
        total += one * weight
        weights += weight
    if not weights:
        return 0
    if rules.strategy == "RequestedToCapacityRatio":
        return (2 * total + weights) // (2 * weights)
    return total // weights


def shaped(shape: list[tuple[int, int]], utilization: int) -> int:
    """The score at a utilization: linear between the points, in whole numbers, points' scores times ten."""
    points = [(x, y * 10) for x, y in shape]
    if utilization <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if utilization <= x1:
            return y0 + trunc((y1 - y0) * (utilization - x0) / (x1 - x0))
    return points[-1][1]


def balanced(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """100 less the deviation of the used shares, by what is really requested."""
    request = pod.request
    names = [name for name in rules.balanced if name in ("cpu", "memory") or request.get(name, 0)]
    if not any(request.get(name, 0) for name in names):
        return None
    balance = evenness(names, node, world, request)
    if not rules.balanced_relative:
        return balance
    return trunc(50 + (50 + balance - evenness(names, node, world, {})) / 2)


def evenness(names: list[str], node: Node, world: World, request: Mapping[str, int]) -> int:
    """100 less the deviation of the shares that would be used of each resource, with ``request`` on top."""
    shares = [
        min(1.0, (world.requested(node, name) + request.get(name, 0)) / node.capacity[name])
        for name in names
        if node.capacity.get(name, 0)
    ]
    if len(shares) == 2:
        deviation = abs(shares[0] - shares[1]) / 2
    elif len(shares) > 2:
        mean = sum(shares) / len(shares)
        deviation = sqrt(sum((one - mean) ** 2 for one in shares) / len(shares))
    else:
        deviation = 0.0
    return trunc((1 - deviation) * 100)


def tagged(image: str) -> str:
    """The name under which nodes list the image."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def images(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """Large images that are on the node already, less so if few nodes have them."""
    containers: list[Mapping[str, Any]] = [*pod.spec.get("initContainers", []), *pod.spec.get("containers", [])]
    total = 0
    for container in containers:
        image = tagged(container.get("image", ""))
        if image in node.images:
            having = sum(image in other.images for other in world.nodes.values())
            total += trunc(node.images[image] * (having / len(world.nodes)))
    low, high = 23 * MIB, 1000 * MIB * len(containers)
    return (min(max(total, low), high) - low) * 100 // (high - low)


def fit_plus(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """Each requested resource that the arguments name, packed or spread as they say."""
    total = weights = 0
    for resource, amount in pod.request.items():
        if not amount or resource not in rules.fit_plus:
            continue
        kind, weight = rules.fit_plus[resource]
        most = node.capacity.get(resource, 0)
        want = used(pod, node, world, resource)
        if not most:
            one = 0
        elif kind == "MostAllocated":
            one = min(want, most) * 100 // most
        else:
            one = 0 if want > most else (most - want) * 100 // most
        total += one * weight
        weights += weight
    return total // weights if weights else 100


def scarce(pod: Pod, node: Node, world: World, rules: Rules) -> int | None:
    """Nodes with scarce things that the pod does not ask for are kept for others."""
    request = pod.request
    spare = {
        name for name, amount in node.capacity.items() if amount > 0 and name != "pods" and not request.get(name, 0)
    }
    wanted = spare & set(rules.scarce)
    if not spare or not wanted:
        return 100
    return (len(spare) - len(wanted)) * 100 // len(spare)


Whole = Callable[[Pod, list[Node], World, Rules], dict[str, int]]
"""Final scores of the feasible nodes by a plugin that must see all of them; empty: no opinion."""

SCORES: dict[str, tuple[Score, Normalize | None]] = {
    "TaintToleration": (taints, few),
    "NodeAffinity": (affinity, share),
    "NodeResourcesFit": (fit, None),
    "NodeResourcesBalancedAllocation": (balanced, None),
    "ImageLocality": (images, None),
    "NodeResourcesFitPlus": (fit_plus, None),
    "ScarceResourceAvoidance": (scarce, None),
    "LoadAwareScheduling": (measured.load_score, None),
    "NodeNUMAResource": (measured.numa_score, None),
}
WHOLE: dict[str, Whole] = {"PodTopologySpread": spread.score, "InterPodAffinity": interpod.score}
