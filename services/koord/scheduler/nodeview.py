"""Nodes as the scheduler reads them."""

from collections.abc import Collection, Mapping
from typing import Any
from weakref import WeakValueDictionary

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

    def info(self, keys: Collection[str] = ()) -> NodeInfo:
        """What the engine keeps of it, with the annotations of ``keys`` only; QuantityError names a bad amount."""
        meta = self.metadata
        return NodeInfo(
            meta.name,
            amounts(self.status.allocatable, f"Node {meta.name}: status.allocatable"),
            meta.labels,
            tuple(Taint(taint.key, taint.value, taint.effect) for taint in self.spec.taints),
            self.spec.unschedulable,
            {key: meta.annotations[key] for key in keys if key in meta.annotations} if meta.annotations else {},
            self.images,
        )

    @property
    def images(self) -> Mapping[str, int]:
        """Bytes of each image that the node has, by each of its names; empty where images are not read."""
        return {}


class _Image(msgspec.Struct, gc=False, rename="camel"):
    names: list[str] | None = None
    size_bytes: int = 0


class _ImagesStatus(_Status, gc=False):
    images: list[_Image] = []


class _Images(dict[str, int]):
    """Bytes by name; nodes that have the same images share one."""

    __slots__ = ("__weakref__",)


_known: WeakValueDictionary[Any, _Images] = WeakValueDictionary()


class ImagesNodeView(NodeView, rename="camel"):
    """One node, with the images that it has: for profiles with a plugin that reads them."""

    status: _ImagesStatus = msgspec.field(default_factory=_ImagesStatus)
    shared: Mapping[str, int] = msgspec.field(name="-shared", default_factory=dict)

    def __post_init__(self) -> None:
        found = {name: image.size_bytes for image in self.status.images for name in image.names or ()}
        self.status.images = []
        key = frozenset(found.items())
        shared = _known.get(key)
        if shared is None:
            shared = _known[key] = _Images(found)
        self.shared = shared

    @property
    def images(self) -> Mapping[str, int]:
        """Bytes of each image that the node has, by each of its names."""
        return self.shared
