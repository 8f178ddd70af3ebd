"""PodTopologySpread, node by node and pod by pod (spec 10 section 3.15)."""

from collections.abc import Mapping
from math import floor, log
from typing import Any

from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.selecting import labels_match, required_terms, term_holds, untolerated

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
Constraint = Mapping[str, Any]
Reasons = list[tuple[str, bool]]
TEXT = "node(s) didn't match pod topology spread constraints"


def constraints(pod: Pod, world: World, rules: Rules, action: str) -> tuple[list[Constraint], bool]:
    """The pod's constraints of one action, and whether nodes must have the keys of all of them to be rated."""
    own = pod.spec.get("topologySpreadConstraints", [])
    if own:
        mine: list[Constraint] = [with_own_labels(one, pod) for one in own if one["whenUnsatisfiable"] == action]
        return mine, True
    labels: dict[str, str] = {}
    for namespace, selector in world.services.values():
        if namespace == pod.namespace and selector and all(pod.labels.get(k) == v for k, v in selector.items()):
            labels |= selector
    if not labels:
        return [], True
    built_in = rules.default_constraints is None
    defaults: list[dict[str, Any]] = rules.default_constraints or []
    if built_in:
        defaults = [
            {"topologyKey": HOSTNAME, "maxSkew": 3, "whenUnsatisfiable": "ScheduleAnyway"},
            {"topologyKey": ZONE, "maxSkew": 5, "whenUnsatisfiable": "ScheduleAnyway"},
        ]
    chosen: list[Constraint] = [
        one | {"labelSelector": {"matchLabels": labels}} for one in defaults if one["whenUnsatisfiable"] == action
    ]
    return chosen, not built_in


def with_own_labels(constraint: Constraint, pod: Pod) -> Constraint:
    """The pods that count must have the pod's own values of matchLabelKeys."""
    keys = [key for key in constraint.get("matchLabelKeys", []) if key in pod.labels]
    if not keys or constraint.get("labelSelector") is None:
        return constraint
    selector = dict(constraint["labelSelector"])
    selector["matchExpressions"] = [
        *selector.get("matchExpressions", []),
        *({"key": key, "operator": "In", "values": [pod.labels[key]]} for key in keys),
    ]
    return {**constraint, "labelSelector": selector}


def included(constraint: Constraint, pod: Pod, node: Node) -> bool:
    """Whether the policies let the node count."""
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor":
        selected = all(node.labels.get(key) == value for key, value in pod.spec.get("nodeSelector", {}).items())
        terms = required_terms(pod.spec)
        if not selected or (terms is not None and not any(term_holds(term, node) for term in terms)):
            return False
    if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor":
        return not untolerated(pod.spec, node, ("NoSchedule", "NoExecute"))
    return True


def matching(constraint: Constraint, pod: Pod, node: Node, world: World) -> int:
    """How many pods of the node count; a selector that asks for nothing counts none."""
    selector = constraint.get("labelSelector")
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return 0
    return sum(
        other.namespace == pod.namespace and not other.terminating and labels_match(selector, other.labels)
        for other in world.on(node)
    )


def filter_(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Every DoNotSchedule constraint, in order."""
    hard, _ = constraints(pod, world, rules, "DoNotSchedule")
    for constraint in hard:
        key = constraint["topologyKey"]
        if key not in node.labels:
            return [(f"{TEXT} (missing required label)", False)]
        counts: dict[str, int] = {}
        for other in world.nodes.values():
            if all(one["topologyKey"] in other.labels for one in hard) and included(constraint, pod, other):
                value = other.labels[key]
                counts[value] = counts.get(value, 0) + matching(constraint, pod, other, world)
        least = min(counts.values()) if len(counts) >= constraint.get("minDomains", 1) else 0
        itself = int(labels_match(constraint.get("labelSelector"), pod.labels))
        if counts.get(node.labels[key], 0) + itself - least > constraint["maxSkew"]:
            return [(TEXT, True)]
    return []


def score(pod: Pod, feasible: list[Node], world: World, rules: Rules) -> dict[str, int]:
    """Every ScheduleAnyway constraint."""
    soft, every_key = constraints(pod, world, rules, "ScheduleAnyway")
    if not soft:
        return {}
    rated = [
        node
        for node in feasible
        if not every_key or all(constraint["topologyKey"] in node.labels for constraint in soft)
    ]
    raw: dict[str, int] = {}
    for node in rated:
        total = 0.0
        for constraint in soft:
            key = constraint["topologyKey"]
            if key not in node.labels:
                continue
            if key == HOSTNAME:
                domains = len(rated)
                count = matching(constraint, pod, node, world)
            else:
                domains = len({one.labels[key] for one in rated if key in one.labels})
                count = sum(
                    matching(constraint, pod, other, world)
                    for other in world.nodes.values()
                    if other.labels.get(key) == node.labels[key]
                    and (not every_key or all(one["topologyKey"] in other.labels for one in soft))
                    and included(constraint, pod, other)
                )
            total += count * log(domains + 2) + (constraint["maxSkew"] - 1)
        raw[node.name] = floor(total + 0.5)
    final = {node.name: 0 for node in feasible}
    if raw:
        low, high = min(raw.values()), max(raw.values())
        for name, value in raw.items():
            final[name] = 100 * (high + low - value) // high if high else 100
    return final
