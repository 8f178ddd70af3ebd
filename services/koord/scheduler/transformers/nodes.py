"""Nodes as they enter: what is set aside is taken off, deprecated resource names are replaced. Spec 10 3.1, 3.14."""

from collections.abc import Mapping

import msgspec

from koord.accounting.requests import amounts
from koord.kube.protocol import qos
from koord.kube.protocol.nodekeys import RESERVATION, node_reservation
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.transformers import deprecated

_NET = (qos.BATCH_CPU, qos.BATCH_MEMORY, *deprecated.BATCH)


def transform_node(node: NodeInfo) -> tuple[NodeInfo, tuple[str, ...]]:
    """The node with what pods can have of it, and what was not valid about it; the same object if nothing changes.

    A reservation that cannot be read takes nothing off.
    """
    problems: tuple[str, ...] = ()
    allocatable = node.allocatable
    if RESERVATION in node.annotations:
        try:
            allocatable = trimmed(allocatable, node.annotations)
        except ValueError as error:
            problems = (f"Node {node.name}: metadata.annotations: {error}",)
    allocatable = renamed(allocatable, deprecated.ALL)
    if allocatable is node.allocatable:
        return node, problems
    return msgspec.structs.replace(node, allocatable=allocatable), problems


def trimmed(allocatable: Mapping[str, int], annotations: Mapping[str, str]) -> Mapping[str, int]:
    """``allocatable`` less what the node's reservation lists, never below 0; only of what the node has.

    Reserved CPUs by list replace its amount of cpu. Batch resources are net of it already. ValueError names the
    annotation and what is wrong with it.
    """
    reservation = node_reservation(annotations)
    if reservation.cpus_only:
        return allocatable
    reserved = amounts(reservation.resources, f"{RESERVATION}: resources")
    if reservation.cpus is not None:
        reserved["cpu"] = 1000 * reservation.cpus.bit_count()
    for name in _NET:
        reserved.pop(name, None)
    if not any(reserved.get(name) for name in allocatable):
        return allocatable
    return {name: max(0, amount - reserved.get(name, 0)) for name, amount in allocatable.items()}


def renamed(allocatable: Mapping[str, int], names: Mapping[str, str]) -> Mapping[str, int]:
    """Amounts under today's names; a name that is there already wins."""
    if names.keys().isdisjoint(allocatable):
        return allocatable
    made = dict(allocatable)
    for old, new in names.items():
        if old in made and new not in made:
            made[new] = made.pop(old)
    return made
