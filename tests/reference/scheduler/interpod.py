"""InterPodAffinity, node by node and pod by pod (spec 10 section 3.15)."""

from collections.abc import Mapping
from math import trunc
from typing import Any

from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.selecting import labels_match

Term = Mapping[str, Any]
Reasons = list[tuple[str, bool]]


def terms(pod: Pod, side: str, sort: str) -> list[Any]:
    """The terms of ``podAffinity`` or ``podAntiAffinity``, ``required`` or ``preferred``."""
    return list(pod.spec.get("affinity", {}).get(side, {}).get(f"{sort}DuringSchedulingIgnoredDuringExecution", []))


def means(term: Term, owner: Pod, other: Pod, world: World) -> bool:
    """Whether a term of ``owner`` means ``other``."""
    namespaces, selector = term.get("namespaces", []), term.get("namespaceSelector")
    if not namespaces and selector is None:
        namespaces = [owner.namespace]
    if other.namespace not in namespaces and not (
        selector is not None and labels_match(selector, world.namespaces.get(other.namespace, {}))
    ):
        return False
    if not labels_match(term.get("labelSelector"), other.labels):
        return False
    same = all(
        other.labels.get(key) == owner.labels[key] for key in term.get("matchLabelKeys", []) if key in owner.labels
    )
    return same and all(
        other.labels.get(key) != owner.labels[key] for key in term.get("mismatchLabelKeys", []) if key in owner.labels
    )


def together(key: str, one: Node, other: Node) -> bool:
    """Whether two nodes are in the same domain."""
    return key in one.labels and one.labels[key] == other.labels.get(key)


def running(world: World) -> list[tuple[Pod, Node]]:
    """Pods on nodes that there are."""
    return [(pod, node) for node in world.nodes.values() for pod in world.on(node)]


def filter_(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Affinity, anti-affinity, the anti-affinity of others."""
    near, far = terms(pod, "podAffinity", "required"), terms(pod, "podAntiAffinity", "required")
    others = running(world)
    if near:
        wanted = [(other, at) for other, at in others if all(means(term, pod, other, world) for term in near)]
        if not all(term["topologyKey"] in node.labels for term in near):
            return [("node(s) didn't match pod affinity rules", False)]
        nobody = not any(term["topologyKey"] in at.labels for term in near for _, at in wanted)
        first = nobody and all(means(term, pod, pod, world) for term in near)
        if not first and not all(any(together(term["topologyKey"], node, at) for _, at in wanted) for term in near):
            return [("node(s) didn't match pod affinity rules", False)]
    for term in far:
        if any(means(term, pod, other, world) and together(term["topologyKey"], node, at) for other, at in others):
            return [("node(s) didn't match pod anti-affinity rules", True)]
    for other, at in others:
        for term in terms(other, "podAntiAffinity", "required"):
            if means(term, other, pod, world) and together(term["topologyKey"], node, at):
                return [("node(s) didn't satisfy existing pods anti-affinity rules", True)]
    return []


def score(pod: Pod, feasible: list[Node], world: World, rules: Rules) -> dict[str, int]:
    """Preferred terms both ways, and required affinity of others at the weight of the arguments."""
    mine = [(one["weight"], one["podAffinityTerm"]) for one in terms(pod, "podAffinity", "preferred")]
    mine += [(-one["weight"], one["podAffinityTerm"]) for one in terms(pod, "podAntiAffinity", "preferred")]
    if rules.ignore_preferred and not mine:
        return {}
    raw = {node.name: 0 for node in feasible}
    for other, at in running(world):
        speaks: list[tuple[int, Term]] = [(weight, term) for weight, term in mine if means(term, pod, other, world)]
        theirs = [(rules.hard_weight, term) for term in terms(other, "podAffinity", "required")]
        theirs += [(one["weight"], one["podAffinityTerm"]) for one in terms(other, "podAffinity", "preferred")]
        theirs += [(-one["weight"], one["podAffinityTerm"]) for one in terms(other, "podAntiAffinity", "preferred")]
        speaks += [(weight, term) for weight, term in theirs if means(term, other, pod, world)]
        for weight, term in speaks:
            for node in feasible:
                if together(term["topologyKey"], node, at):
                    raw[node.name] += weight
    low, high = min(raw.values()), max(raw.values())
    if low == high:
        return dict.fromkeys(raw, 0)
    return {name: trunc(100 * ((value - low) / (high - low))) for name, value in raw.items()}
