"""Nodes as the scheduler reads them."""

import msgspec

from koord.accounting.requests import amounts
from koord.kube.nodes import NodeSpec
from koord.scheduler.engine.cluster import NodeInfo, Taint


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct, gc=False):
    allocatable: dict[str, str | int | float] = {}


class NodeView(msgspec.Struct, rename="camel"):
    """One node."""

    metadata: _Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: _Status = msgspec.field(default_factory=_Status)

    def info(self) -> NodeInfo:
        """What the engine keeps of it; QuantityError names a bad amount."""
        meta = self.metadata
        return NodeInfo(
            meta.name,
            amounts(self.status.allocatable, f"Node {meta.name}: status.allocatable"),
            meta.labels,
            tuple(Taint(taint.key, taint.value, taint.effect) for taint in self.spec.taints),
            self.spec.unschedulable,
        )
