# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""NodeResourceTopology: the NUMA zones of a node, and by its annotations the layout of its CPUs (spec 10 section 2.7).

Cluster-scoped, ``topology.node.k8s.io/v1alpha1``, named like the node. The annotations are read by
``koord.kube.protocol.numa``.
"""

from typing import Final

import msgspec

from koord.kube.meta import TypedObject, View

NODE_ZONE: Final = "Node"
ZONE_PREFIX: Final = "node-"

Number = str | int | float


class ZoneResource(View, frozen=True):
    """What a zone has of one resource; only ``allocatable`` counts for scheduling."""

    name: str = ""
    capacity: Number = 0
    allocatable: Number = 0
    available: Number = 0


class Zone(View, frozen=True):
    """A part of a node; those of type ``Node`` named ``node-<id>`` are NUMA nodes."""

    name: str = ""
    type: str = ""
    resources: list[ZoneResource] = []

    @property
    def numa_node(self) -> int | None:
        """The id of the NUMA node, None if the zone is none."""
        if self.type != NODE_ZONE or not self.name.startswith(ZONE_PREFIX):
            return None
        text = self.name[len(ZONE_PREFIX) :]
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


class NodeResourceTopology(TypedObject, frozen=True):
    """The NUMA layout of the node of the same name. All of it lies at the top level, there is no spec."""

    topology_policies: list[str] = []
    zones: list[Zone] = msgspec.field(default_factory=list)
