"""Placement one pod at a time, one node at a time, with Python integers: spec 10 section 3.15 read literally."""

import hashlib
import math
from dataclasses import dataclass, field

from koord.accounting.requests import nonzero_request, pod_request
from koord.kube.nodeselectors import compile_term, matches_node_selector
from koord.kube.pods import NodeSelector, PodSpec, Toleration


@dataclass
class RefNode:
    name: str
    allocatable: dict[str, int]
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[tuple[str, str, str]] = field(default_factory=list)
    unschedulable: bool = False
    pods: list[PodSpec] = field(default_factory=list)

    def requested(self, resource: str) -> int:
        return sum(pod_request(pod).get(resource, 0) for pod in self.pods)

    def nonzero(self, which: int) -> int:
        return sum(nonzero_request(pod)[which] for pod in self.pods)


def tolerates(toleration: Toleration, taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    if toleration.effect not in ("", effect):
        return False
    if toleration.key == "" and toleration.operator == "Exists":
        return True
    if toleration.key != key:
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == value)


def untolerated(spec: PodSpec, node: RefNode, effects: tuple[str, ...]) -> int:
    return sum(t[2] in effects and not any(tolerates(tol, t) for tol in spec.tolerations) for t in node.taints)


def named_nodes(spec: PodSpec) -> set[str] | None:
    """The nodes that PreFilter narrows to, or None."""
    if not spec.affinity or not spec.affinity.node_affinity or not spec.affinity.node_affinity.required:
        return None
    names: set[str] = set()
    for term in spec.affinity.node_affinity.required.node_selector_terms:
        sets = [set(field.values) for field in term.match_fields if field.operator == "In"]
        if not sets:
            return None
        names |= set.intersection(*sets)
    return names if spec.affinity.node_affinity.required.node_selector_terms else None


def refusals(spec: PodSpec, node: RefNode) -> list[str]:
    """Reasons of the first plugin that refuses the node; empty: it fits."""
    cordon = ("node.kubernetes.io/unschedulable", "", "NoSchedule")
    if node.unschedulable and not any(tolerates(t, cordon) for t in spec.tolerations):
        return ["node(s) were unschedulable"]
    if untolerated(spec, node, ("NoSchedule", "NoExecute")):
        return ["node(s) had untolerated taint(s)"]
    required: NodeSelector | None = None
    if spec.affinity and spec.affinity.node_affinity:
        required = spec.affinity.node_affinity.required
    selector_ok = all(node.labels.get(key) == value for key, value in spec.node_selector.items())
    if not selector_ok or (required is not None and not matches_node_selector(required, node.labels, node.name)):
        return ["node(s) didn't match Pod's node affinity/selector"]
    reasons = []
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        reasons.append("Too many pods")
    for resource, amount in pod_request(spec).items():
        if amount and amount > node.allocatable.get(resource, 0) - node.requested(resource):
            reasons.append(f"Insufficient {resource}")
    return reasons


def fit_score(spec: PodSpec, node: RefNode, strategy: str, resources: dict[str, int]) -> int:
    total = weights = 0
    request = pod_request(spec)
    for resource, weight in resources.items():
        capacity = node.allocatable.get(resource, 0)
        if resource in ("cpu", "memory"):
            which = ("cpu", "memory").index(resource)
            wanted = node.nonzero(which) + nonzero_request(spec)[which]
        elif request.get(resource, 0):
            wanted = node.requested(resource) + request[resource]
        else:
            continue
        if capacity == 0:
            continue
        if strategy == "MostAllocated":
            part = min(wanted, capacity) * 100 // capacity
        else:
            part = 0 if wanted > capacity else (capacity - wanted) * 100 // capacity
        total += part * weight
        weights += weight
    return total // weights if weights else 0


def balanced_score(spec: PodSpec, node: RefNode) -> int:
    request = pod_request(spec)
    if not request.get("cpu", 0) and not request.get("memory", 0):
        return 0
    fractions = []
    for resource in ("cpu", "memory"):
        capacity = node.allocatable.get(resource, 0)
        if capacity:
            fractions.append(min(1.0, (node.requested(resource) + request.get(resource, 0)) / capacity))
    std = abs(fractions[0] - fractions[1]) / 2 if len(fractions) == 2 else 0.0
    return math.trunc((1 - std) * 100)


def affinity_raw(spec: PodSpec, node: RefNode) -> int:
    if not spec.affinity or not spec.affinity.node_affinity:
        return 0
    total = 0
    for preferred in spec.affinity.node_affinity.preferred:
        term = preferred.preference
        empty = not term.match_expressions and not term.match_fields
        if not empty and compile_term(term).matches(node.labels, node.name):
            total += preferred.weight
    return total


def tie(seed: str, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, key=seed.encode()).digest(), "big") >> 24


def place(
    nodes: list[RefNode], spec: PodSpec, *, seed: str, strategy: str, resources: dict[str, int]
) -> tuple[str, int] | str:
    """Node and total score, or the failure text. The pod is put on the node."""
    counts: dict[str, int] = {}
    feasible: list[RefNode] = []
    if not nodes:
        return "no nodes available to schedule pods"
    names = named_nodes(spec)
    if names is not None and not names:
        return f"0/{len(nodes)} nodes are available: pod affinity terms conflict."
    for node in nodes:
        if names is not None and node.name not in names:
            why = ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
        else:
            why = refusals(spec, node)
        if not why:
            feasible.append(node)
        for reason in why:
            counts[reason] = counts.get(reason, 0) + 1
    if not feasible:
        parts = sorted(f"{count} {reason}" for reason, count in counts.items())
        return f"0/{len(nodes)} nodes are available: {', '.join(parts)}."
    taints = {node.name: untolerated(spec, node, ("PreferNoSchedule",)) for node in feasible}
    most_taints = max(taints.values())
    raws = {node.name: affinity_raw(spec, node) for node in feasible}
    most_raw = max(raws.values())
    best: tuple[int, int, RefNode] | None = None
    has_preferred = bool(spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.preferred)
    for node in feasible:
        taint_score = 100 if not most_taints else 100 - 100 * taints[node.name] // most_taints
        affinity_score = 100 * raws[node.name] // most_raw if has_preferred and most_raw else 0
        total = (
            3 * taint_score
            + 2 * affinity_score
            + fit_score(spec, node, strategy, resources)
            + balanced_score(spec, node)
        )
        ranked = (total, tie(seed, node.name), node)
        if best is None or ranked[:2] > best[:2]:
            best = ranked
    assert best is not None
    best[2].pods.append(spec)
    return best[2].name, best[0]
