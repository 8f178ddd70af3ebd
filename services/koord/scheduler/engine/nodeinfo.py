"""What scheduling knows of a node, and what an update of it changed."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec


class Taint(NamedTuple):
    """One taint of a node."""

    key: str
    value: str
    effect: str


class NodeInfo(msgspec.Struct, frozen=True):
    """What scheduling knows of a node. ``allocatable``: cpu in milli-cores, the rest in whole base units.

    ``annotations`` are those that some plugin reads, ``images`` bytes by name, only where a plugin reads images.
    """

    name: str
    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    annotations: Mapping[str, str] = {}
    images: Mapping[str, int] = {}


class NodeChange(msgspec.Struct, frozen=True):
    """What an update of a node changed; events that wake pods are made of it.

    ``problems``: what plugins found not valid of it; what they knew of the node before is in force.
    """

    row: int
    added: bool = False
    allocatable: bool = False
    labels: bool = False
    taints: bool = False
    annotations: bool = False
    images: bool = False
    problems: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether anything that scheduling looks at changed."""
        return self.added or self.allocatable or self.labels or self.taints or self.annotations or self.images
