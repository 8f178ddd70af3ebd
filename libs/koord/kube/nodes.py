# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""Nodes: room, labels, taints, readiness."""

from typing import Final

import msgspec

from koord.kube.conditions import Condition
from koord.kube.meta import ResourceList, TypedObject, View

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"


class Taint(View, frozen=True):
    """What keeps pods off a node unless they tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(View, frozen=True):
    """Whether and for whom a node is open."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(View, frozen=True):
    """A node's room and health."""

    allocatable: ResourceList = {}
    capacity: ResourceList = {}
    conditions: list[Condition] = []


class Node(TypedObject, frozen=True):
    """A node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
