"""NodePorts: a host port can be had once per address and protocol on a node. Spec 10 section 3.15.

Each port is a slot of the ledger (``port/<node>/<protocol>/<port>``), so that two schedulers cannot give it away twice.
A port of one address is a slot of its own: that somebody has the port on every address, only the filter sees.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from koord.accounting import slots
from koord.accounting.slots import ANY_ADDRESS as ANY
from koord.accounting.slots import HostPort
from koord.columns.matrix import Bools, Floats, Ints
from koord.kube.pods import PodSpec
from koord.scheduler.engine.cluster import Cluster, NodeInfo, RowColumn
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    NodePlugin,
    PodRef,
    Reason,
    ReservePlugin,
    Template,
    Terms,
    Without,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.obstacles import Obstacle, Obstacles

CLASH = "node(s) didn't have free ports for the requested pod ports"
MOST_MASKS = 256


class NodePorts(FilterPlugin, ReservePlugin, AssignPlugin, NodePlugin):
    """Refuses nodes where somebody has a port that the pod wants.

    ``_taken``: by protocol and port, who has it: how many pods by node and address. ``_masks``: the rows where a port
    that was asked for is not to be had, kept up to date.
    """

    name: ClassVar[str] = "NodePorts"
    reads_amounts: ClassVar[bool] = False
    between_pods: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    reserves_what_it_filters: ClassVar[bool] = True
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.POD_DELETE, ClusterEvent.NODE_ADD))

    def __init__(self) -> None:
        self._taken: dict[tuple[str, int], dict[str, Counter[str]]] = {}
        self._masks: OrderedDict[HostPort, Bools] = OrderedDict()
        self._names: dict[int, str] = {}

    def attach(self, cluster: Cluster) -> None:
        """A column that is always 0 but when looking ahead: a second pod of the class clashes with the first."""
        self._cluster = cluster
        self._again = cluster.column()

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The host ports, if any."""
        return host_ports(template.spec) or None

    def per_pod(self, terms: Terms) -> Mapping[RowColumn, float]:
        """See :meth:`attach`."""
        return {self._again: 1.0}

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Nobody has any of the ports."""
        assert isinstance(terms, tuple)
        free: Bools = window.column(self._again) == 0.0
        for port in terms:
            free &= ~self._mask(port)[window.rows]
        return free

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """``node(s) didn't have free ports for the requested pod ports``."""
        return [Reason(CLASH, ~self.filter(terms, window))]

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """Pods that go free their ports."""
        assert isinstance(terms, tuple)
        clashing: Floats = np.zeros(len(rows))
        for port in terms:
            for at in np.flatnonzero(self._mask(port)[rows]).tolist():
                of_node = self._taken[port[:2]][self._cluster.index.name(int(rows[at])) or ""]
                clashing[at] += sum(count for ip, count in of_node.items() if _clashes(port.ip, {ip: count}))
        theirs: Floats = np.zeros((len(rows), max(map(len, pods), default=0)))
        for at in np.flatnonzero(clashing).tolist():
            for place, pod in enumerate(pods[at]):
                theirs[at, place] = sum(clash(want, had) for had in host_ports(pod.spec) for want in terms)
        return Obstacles(Obstacle(CLASH, clashing, theirs))

    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The same as of the filter."""
        return self.filter_terms(template, cluster)

    def looks_ahead(self, terms: Terms) -> bool:
        """A second pod of the class never fits beside the first."""
        return True

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation:
        """The slots; who has them here is counted as soon as the pod is assigned."""
        assert isinstance(terms, tuple)
        node = self._cluster.index.name(row)
        assert node is not None, "only live rows are chosen"
        return Allocation(slots=tuple([slots.port_slot(node, port) for port in terms]))

    def unreserve(self, uid: str) -> None:
        """Nothing is remembered between Reserve and ``assigned``."""

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Only a pod that had one of the ports helps when it goes."""
        if not isinstance(subject, AssignedPod):
            return True
        wanted = host_ports(template.spec)
        return any(clash(want, had) for had in host_ports(subject.spec) for want in wanted)

    def keeps(self, spec: PodSpec) -> bool:
        """Those that take a port of their node."""
        return bool(host_ports(spec))

    def assigned(self, pod: AssignedPod) -> None:
        """Its ports are taken on its node."""
        for port in host_ports(pod.spec):
            of_node = self._taken.setdefault(port[:2], {}).setdefault(pod.node, Counter())
            of_node[port.ip] += 1
            self._update(port[:2], pod.node)

    def unassigned(self, pod: AssignedPod) -> None:
        """They are free again."""
        for port in host_ports(pod.spec):
            nodes = self._taken.get(port[:2], {})
            of_node = nodes.get(pod.node)
            if of_node is None:
                continue
            of_node[port.ip] -= 1
            if not of_node[port.ip]:
                del of_node[port.ip]
            if not of_node:
                del nodes[pod.node]
            if not nodes:
                del self._taken[port[:2]]
            self._update(port[:2], pod.node)

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """A pod's ports cannot change."""
        if old.spec is not pod.spec and host_ports(old.spec) != host_ports(pod.spec):
            self.unassigned(old)
            self.assigned(pod)
            row = self._cluster.index.find(pod.node)
            if row is not None:
                self._cluster.touch(row)

    def node_set(self, row: int, node: NodeInfo) -> None:
        """Rows got another meaning if the node is new."""
        if self._names.get(row) != node.name:
            self._names[row] = node.name
            self._masks.clear()

    def node_removed(self, row: int, name: str) -> None:
        """Its row is free for another node."""
        self._names.pop(row, None)
        self._masks.clear()

    def _mask(self, port: HostPort) -> Bools:
        """Rows where ``port`` is not to be had."""
        mask = self._masks.get(port)
        if mask is None or len(mask) < self._cluster.high:
            mask = self._masks[port] = np.zeros(len(self._cluster.alive), dtype=np.bool_)
            for node, ips in self._taken.get(port[:2], {}).items():
                row = self._cluster.index.find(node)
                if row is not None:
                    mask[row] = _clashes(port.ip, ips)
            if len(self._masks) > MOST_MASKS:
                self._masks.popitem(last=False)
        self._masks.move_to_end(port)
        return mask

    def _update(self, port: tuple[str, int], node: str) -> None:
        row = self._cluster.index.find(node)
        if row is None:
            return
        ips = self._taken.get(port, {}).get(node, Counter())
        for wanted, mask in self._masks.items():
            if wanted[:2] == port and row < len(mask):
                mask[row] = _clashes(wanted.ip, ips)


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """What the pod takes of the node; an unnamed address is every one."""
    if not any(container.ports for container in (*spec.containers, *spec.init_containers)):
        return ()
    return slots.host_ports(spec.containers, spec.init_containers)


def clash(one: HostPort, other: HostPort) -> bool:
    """Whether two pods cannot have these on one node."""
    return one[:2] == other[:2] and (one.ip == other.ip or ANY in (one.ip, other.ip))


def _clashes(ip: str, taken: Mapping[str, int]) -> bool:
    return bool(taken) and (ip == ANY or ip in taken or ANY in taken)
