"""Nodes and pods as the API has them, and the cluster that they make up."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.reference.scheduler.quantities import amounts, floored_request, pod_request


@dataclass(eq=False)
class Node:
    """``allocatable`` as the API writes it. ``images``: size in bytes by every name of the image."""

    name: str
    allocatable: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    unschedulable: bool = False
    images: dict[str, int] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    @cached_property
    def capacity(self) -> dict[str, int]:
        """Allocatable amounts."""
        return amounts(self.allocatable)


@dataclass(eq=False)
class Pod:
    """``spec`` as the API has it; ``node`` once the pod has one. ``owner`` is (kind, name) of its controller."""

    name: str
    spec: dict[str, Any]
    namespace: str = "default"
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node: str = ""
    terminating: bool = False
    owner: tuple[str, str] = ("", "")

    @property
    def uid(self) -> str:
        """What tells pods apart here."""
        return f"{self.namespace}/{self.name}"

    @cached_property
    def request(self) -> dict[str, int]:
        """What it takes of its node."""
        return pod_request(self.spec)

    @cached_property
    def floored(self) -> dict[str, int]:
        """Cpu and memory with the floor for containers that do not name them."""
        return {"cpu": 0, "memory": 0} | floored_request(self.spec)


@dataclass
class World:
    """All nodes, all pods that have a node (which may be gone), the labels of namespaces, and by name the namespace and
    selector of services."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    services: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._on: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            self._on.setdefault(pod.node, []).append(pod)

    def on(self, node: Node) -> list[Pod]:
        """The pods of a node."""
        return self._on.get(node.name, [])

    def put(self, pod: Pod, node: str) -> None:
        """The pod is on that node now."""
        pod.node = node
        self.pods[pod.uid] = pod
        self._on.setdefault(node, []).append(pod)

    def take(self, pod: Pod) -> None:
        """The pod is gone, or waits again."""
        del self.pods[pod.uid]
        self._on[pod.node].remove(pod)
        pod.node = ""

    def requested(self, node: Node, resource: str) -> int:
        """What the pods of a node request of a resource."""
        return sum(pod.request.get(resource, 0) for pod in self.on(node))
