"""The points by which a plugin keeps state of its own: pods on nodes, nodes, other objects, time."""

import abc
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from koord.kube.pods import PodSpec
from koord.kube.resources import Resource
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.plugin import Plugin
from koord.scheduler.framework.subjects import AssignedPod


class AssignPlugin(Plugin):
    """Keeps books on pods that have a node, whoever gave it to them; the node itself may not be known yet."""

    def keeps(self, spec: PodSpec) -> bool:
        """Whether anything is kept of pods with this spec. False: the plugin is not told of them at all. The answer is
        kept with the spec, which equal pods share."""
        return True

    @abc.abstractmethod
    def assigned(self, pod: AssignedPod) -> None:
        """A pod counts as having a node now."""

    @abc.abstractmethod
    def unassigned(self, pod: AssignedPod) -> None:
        """It no longer does; ``pod`` is what was told last."""

    def assigned_run(self, pods: Sequence[AssignedPod]) -> None:
        """Many pods of one class, placed one after the other. To override where that is cheaper than one by one."""
        for pod in pods:
            self.assigned(pod)

    def expected(self, pod: AssignedPod) -> None:
        """A pod waits for room on ``pod.node`` (it is nominated): until :meth:`unexpected` it is counted there for a
        moment now and then, to see who fits beside it. To override where a class's terms depend on who is there."""

    def unexpected(self, pod: AssignedPod) -> None:
        """It waits no longer; ``pod`` is what was told."""

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """The pod changed on its node (labels, annotations, times, planned to bound); ``old`` is what was told last.

        To override where this is cheaper, for most changes mean nothing to most plugins. Whoever overrides it must
        ``touch`` the row if its answers changed; otherwise that is done.
        """
        self.unassigned(old)
        self.assigned(pod)


class NodePlugin(Plugin):
    """Keeps something of every node. ``node_keys`` are the annotations that it reads; all labels are told."""

    node_keys: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def node_set(self, row: int, node: NodeInfo) -> None:
        """A node is on ``row`` from now on, or it changed there. The row is asked again anyway.

        ValueError: something of the node is not valid (names the annotation and the rule); the node gets an Event, and
        what the plugin knew of it before must stay in force.
        """

    @abc.abstractmethod
    def node_removed(self, row: int, name: str) -> None:
        """The node is gone and the row free for another one; columns from ``cluster.column`` are cleared already."""


class Watch(NamedTuple):
    """Objects that a plugin reads: what kind, and which of their fields (``type`` is decoded from their JSON)."""

    resource: Resource
    type: type[msgspec.Struct]


class WatchPlugin(Plugin):
    """Reads objects besides pods and nodes. Nothing is placed before all that exist have been told."""

    @abc.abstractmethod
    def watches(self) -> tuple[Watch, ...]:
        """What to watch; the gateway must carry it (``koord.kube.resources.WATCHED``)."""

    @abc.abstractmethod
    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """An object (``ns/name`` or ``name``) came, changed or went; which events for rejected pods that amounts to.

        Rows whose answers changed are told by ``cluster.touch``. ValueError: the object is not valid (names the field
        and the rule); it gets an Event, and the last good version must stay in force.
        """


class TickPlugin(Plugin):
    """Something that time alone changes."""

    @abc.abstractmethod
    def tick(self, now: float) -> Iterable[ClusterEvent]:
        """It is ``now`` (epoch seconds). Called before anything is placed and about every second; which events for
        rejected pods it amounts to. Rows whose answers changed are told by ``cluster.touch``."""
