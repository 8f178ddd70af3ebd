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
        return {resource: floored_request(self.spec, resource) for resource in ("cpu", "memory")}


@dataclass
class World:
    """All nodes, all pods that have a node (which may be gone), and the labels of namespaces."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)

    def on(self, node: Node) -> list[Pod]:
        """The pods of a node."""
        return [pod for pod in self.pods.values() if pod.node == node.name]

    def put(self, pod: Pod, node: str) -> None:
        """The pod is on that node now."""
        pod.node = node
        self.pods[pod.uid] = pod

    def take(self, pod: Pod) -> None:
        """The pod is gone, or waits again."""
        self.pods.pop(pod.uid, None)
        pod.node = ""

    def requested(self, node: Node, resource: str) -> int:
        """What the pods of a node request of a resource."""
        return sum(pod.request.get(resource, 0) for pod in self.on(node))
