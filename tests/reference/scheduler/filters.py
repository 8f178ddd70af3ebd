"""Filters: why a node cannot take a pod. Each answers its reasons, as (text, whether taking pods away could help)."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.reference.scheduler import interpod, measured, spread
from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.selecting import required_terms, term_holds, tolerates, untolerated
from tests.reference.scheduler.volumes import VOLUME_FILTERS

Reasons = list[tuple[str, bool]]
Filter = Callable[[Pod, Node, World, Rules], Reasons]
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def node_unschedulable(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Cordoned nodes take only who tolerates that."""
    if node.unschedulable and not any(tolerates(one, CORDON) for one in pod.spec.get("tolerations", [])):
        return [("node(s) were unschedulable", False)]
    return []


def node_name(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """A pod may name its node."""
    if pod.spec.get("nodeName", "") not in ("", node.name):
        return [("node(s) didn't match the requested node name", False)]
    return []


def taints(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Every NoSchedule and NoExecute taint must be tolerated."""
    if untolerated(pod.spec, node, ("NoSchedule", "NoExecute")):
        return [("node(s) had untolerated taint(s)", False)]
    return []


def node_affinity(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """What the operator added, then the node selector and one of the required terms."""
    if rules.added_affinity is not None and not any(term_holds(term, node) for term in rules.added_affinity):
        return [("node(s) didn't match scheduler-enforced node affinity", False)]
    terms = required_terms(pod.spec)
    selected = all(node.labels.get(key) == value for key, value in pod.spec.get("nodeSelector", {}).items())
    if not selected or (terms is not None and not any(term_holds(term, node) for term in terms)):
        return [("node(s) didn't match Pod's node affinity/selector", False)]
    return []


def named_nodes(pod: Pod, rules: Rules) -> set[str] | None:
    """PreFilter of NodeAffinity: the only nodes that can do, if every required term names some."""
    terms = required_terms(pod.spec)
    if not terms:
        return None
    names: set[str] = set()
    for term in terms:
        sets = [
            set(one.get("values", []))
            for one in term.get("matchFields", [])
            if one["key"] == "metadata.name" and one["operator"] == "In"
        ]
        if not sets:
            return None
        names |= set.intersection(*sets)
    return names


def host_ports(spec: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Address, protocol and port of each host port of the containers that run all the time."""
    containers = list(spec.get("containers", []))
    containers += [one for one in spec.get("initContainers", []) if one.get("restartPolicy") == "Always"]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in containers
        for port in container.get("ports", [])
        if port.get("hostPort")
    ]


def node_ports(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """The same port of the same protocol on the same address, or on all addresses."""
    for address, protocol, port in host_ports(pod.spec):
        for other in world.on(node):
            for theirs, their_protocol, their_port in host_ports(other.spec):
                if (protocol, port) == (their_protocol, their_port) and (
                    address == theirs or "0.0.0.0" in (address, theirs)
                ):
                    return [("node(s) didn't have free ports for the requested pod ports", True)]
    return []


def ignored(resource: str, rules: Rules) -> bool:
    """Extended resources that the arguments exempt, by name or by what stands before the slash."""
    if "/" not in resource or resource.partition("/")[0].endswith("kubernetes.io"):
        return False
    return resource in rules.ignored_resources or resource.partition("/")[0] in rules.ignored_groups


def resources_fit(pod: Pod, node: Node, world: World, rules: Rules) -> Reasons:
    """Room for one more pod, and for each resource that is requested; every one that is short is a reason."""
    reasons: Reasons = []
    capacity = node.capacity
    slots = capacity.get("pods", 0)
    if len(world.on(node)) + 1 > slots:
        reasons.append(("Too many pods", slots >= 1))
    for resource, amount in pod.request.items():
        if not amount or ignored(resource, rules):
            continue
        total = capacity.get(resource, 0)
        if amount > total - world.requested(node, resource):
            reasons.append((f"Insufficient {resource}", amount <= total))
    return reasons


FILTERS: dict[str, Filter] = {
    "NodeUnschedulable": node_unschedulable,
    "NodeName": node_name,
    "TaintToleration": taints,
    "NodeAffinity": node_affinity,
    "NodePorts": node_ports,
    "NodeResourcesFit": resources_fit,
    "PodTopologySpread": spread.filter_,
    "InterPodAffinity": interpod.filter_,
    "LoadAwareScheduling": measured.load_filter,
    "NodeNUMAResource": measured.numa_filter,
    **VOLUME_FILTERS,
}
