"""NodeUnschedulable and NodeName: cordoned nodes, and pods that name their node."""

from typing import ClassVar

import numpy as np

from koord.columns.matrix import Bools
from koord.kube.nodes import NO_SCHEDULE, UNSCHEDULABLE_TAINT
from koord.scheduler.engine.cluster import Cluster, NodeInfo, Taint
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, Locality, Reason, Template, Terms
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.tolerations import tolerated


class NodeUnschedulable(FilterPlugin):
    """Refuses cordoned nodes unless the pod tolerates the taint that goes with it."""

    name: ClassVar[str] = "NodeUnschedulable"
    reads_amounts: ClassVar[bool] = False
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_ADD, ClusterEvent.NODE_TAINT))
    filter_locality: ClassVar[Locality] = "node"

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether the node is open now."""
        return not isinstance(subject, NodeInfo) or not subject.unschedulable

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """None for a pod that tolerates cordoned nodes."""
        taint = Taint(UNSCHEDULABLE_TAINT, "", NO_SCHEDULE)
        return None if any(tolerated(toleration, taint) for toleration in template.spec.tolerations) else ()

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Not cordoned."""
        return ~window.cluster.unschedulable[window.rows]

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """``node(s) were unschedulable``."""
        return [
            Reason("node(s) were unschedulable", window.cluster.unschedulable[window.rows].copy(), resolvable=False)
        ]


class NodeName(FilterPlugin):
    """Only the node that ``spec.nodeName`` names."""

    name: ClassVar[str] = "NodeName"
    reads_amounts: ClassVar[bool] = False
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_ADD,))
    filter_locality: ClassVar[Locality] = "node"

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether it is the node that the pod names."""
        return not isinstance(subject, NodeInfo) or subject.name == template.spec.node_name

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The name, if any."""
        return template.spec.node_name or None

    def filter(self, terms: Terms, window: Window) -> Bools:
        """The row of that node."""
        assert isinstance(terms, str)
        everything = np.zeros(window.cluster.high, dtype=np.bool_)
        row = window.cluster.index.find(terms)
        if row is not None:
            everything[row] = True
        return everything[window.rows]

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """``node(s) didn't match the requested node name``."""
        refused = ~self.filter(terms, window)
        return [Reason("node(s) didn't match the requested node name", refused, resolvable=False)]
