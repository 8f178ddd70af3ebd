"""The books of all nodes, and what of them every node is asked about, as columns.

One per cluster, shared by the plugins of several profiles. A node is found by name: its pods, its Node and its
NodeResourceTopology come in any order.
"""

from collections.abc import Hashable, Iterable

import numpy as np

from koord.kube.protocol.numa import BEST_EFFORT, FULL_PCPUS, RESTRICTED, SINGLE_NUMA_NODE, SPREAD_BY_PCPUS
from koord.scheduler.engine.cluster import Cluster, RowColumn
from koord.scheduler.numa.layout import MOST_ZONES, Layout, Marked, Reported, layout
from koord.scheduler.numa.state import NodeState, PodAllocation

BIND_CODES = {"": 0, FULL_PCPUS: 1, SPREAD_BY_PCPUS: 2}
POLICY_CODES = {"": 0, BEST_EFFORT: 1, RESTRICTED: 2, SINGLE_NUMA_NODE: 3}
UNREPORTED, NO_CPUS, VALID = 0, 1, 2
MOST_RESOURCES = 32
"""Resources of NUMA nodes that are looked at; the names that come first."""


MOST_LAYOUTS = 1024
"""Kinds of machines whose layout is shared."""


class ZoneColumns:
    """One resource of NUMA nodes: whether any lists it, and per index what it may give and what is used of it."""

    __slots__ = ("allocatable", "listed", "used")

    def __init__(self) -> None:
        self.listed: RowColumn
        self.allocatable: list[RowColumn] = []
        self.used: list[RowColumn] = []


class Columns:
    """Everything about a row that Filter and Score look at. Counts of CPUs are in the order all, whole cores, one per
    core, indexed like ``BIND_CODES``: usable without a required policy, by FullPCPUs, by SpreadByPCPUs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.topology = cluster.column(np.int8, UNREPORTED)
        self.bind = cluster.column(np.int8)
        self.policy = cluster.column(np.int8)
        self.ratio = cluster.column(np.float64, 1.0)
        self.bad_ratio = cluster.column(np.bool_)
        self.per_core = cluster.column(np.float64, 1.0)
        self.free = [cluster.column() for _ in BIND_CODES]
        self.bound = cluster.column()
        self.zones = cluster.column(np.int8)
        self.zone_free: list[list[RowColumn]] = []
        self.zone_bound: list[RowColumn] = []
        self.shared: list[RowColumn] = []
        self.single: list[RowColumn] = []
        self.resources: dict[str, ZoneColumns] = {}

    @property
    def most_zones(self) -> int:
        """The most NUMA nodes that any node had."""
        return len(self.zone_free)

    def reserve(self, zones: int, names: Iterable[str]) -> None:
        """Columns for so many NUMA nodes and for these resources."""
        for name in names:
            if name not in self.resources and len(self.resources) < MOST_RESOURCES:
                made = self.resources[name] = ZoneColumns()
                made.listed = self._cluster.column(np.bool_)
                for _ in range(self.most_zones):
                    self._widen(made)
        while self.most_zones < min(zones, MOST_ZONES):
            column = self._cluster.column
            self.zone_free.append([column() for _ in BIND_CODES])
            self.zone_bound.append(column())
            self.shared.append(column(np.bool_))
            self.single.append(column(np.bool_))
            for made in self.resources.values():
                self._widen(made)

    def _widen(self, made: ZoneColumns) -> None:
        made.allocatable.append(self._cluster.column())
        made.used.append(self._cluster.column())

    def write(self, row: int, state: NodeState) -> None:
        """Lay out a node on its row."""
        laid: Layout = state.layout
        topology = laid.topology
        self.topology.data[row] = UNREPORTED if not laid.reported else NO_CPUS if topology is None else VALID
        self.bind.data[row] = BIND_CODES[laid.bind]
        self.policy.data[row] = POLICY_CODES[laid.policy]
        self.bad_ratio.data[row] = laid.ratio is None
        self.ratio.data[row] = laid.ratio or 1.0
        self.per_core.data[row] = topology.per_core if topology is not None else 1.0
        self.zones.data[row] = len(laid.zones)
        self.write_usage(row, state)

    def write_usage(self, row: int, state: NodeState) -> None:
        """What changes when pods come and go."""
        laid = state.layout
        topology = laid.topology
        self.bound.data[row] = state.bound
        masks = (0, 0, 0)
        if topology is not None:
            free = state.free
            masks = (free, *topology.usable(free))
        for column, mask in zip(self.free, masks, strict=True):
            column.data[row] = mask.bit_count()
        if not self.most_zones:
            return
        zones = laid.zones
        shared, single = state.zone_owners() if zones else (0, 0)
        used = [state.zone_used(index) for index in range(len(zones))]
        for index in range(self.most_zones):
            cpus = zones[index].cpus if index < len(zones) else 0
            for column, mask in zip(self.zone_free[index], masks, strict=True):
                column.data[row] = (mask & cpus).bit_count()
            self.zone_bound[index].data[row] = (state.allocated & cpus).bit_count()
            self.shared[index].data[row] = bool(shared >> index & 1)
            self.single[index].data[row] = bool(single >> index & 1)
        for name, made in self.resources.items():
            made.listed.data[row] = any(name in zone.allocatable for zone in zones)
            for index in range(self.most_zones):
                there = index < len(zones)
                made.allocatable[index].data[row] = zones[index].allocatable.get(name, 0) if there else 0
                made.used[index].data[row] = used[index].get(name, 0) if there else 0


class _Node:
    """What is known of one node."""

    __slots__ = ("marked", "reported", "row", "state")

    def __init__(self) -> None:
        self.row: int | None = None
        self.marked: Marked | None = None
        self.reported: Reported | None = None
        self.state = NodeState()


class Books:
    """All nodes. ``special`` says which demands nodes themselves make; ``epoch`` moves when that changes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.columns = Columns(cluster)
        self._nodes: dict[str, _Node] = {}
        self._where: dict[str, str] = {}
        self._given: dict[str, tuple[str, PodAllocation, str]] = {}
        self._dirty: set[_Node] = set()
        self._layouts: dict[Hashable, Layout] = {}
        self._special: dict[str, tuple[bool, bool, bool]] = {}
        self.binding = 0
        """How many nodes bind every pod's CPUs."""
        self.aligning = 0
        """How many nodes have a topology policy."""
        self.amplified = 0
        """How many nodes have a cpu ratio above 1, or one that cannot be read."""
        self.epoch = 0
        self.version = 0
        """Moves with every change."""

    @classmethod
    def of(cls, cluster: Cluster) -> "Books":
        """The books of a cluster, made the first time."""
        found = cluster.shared.get(cls)
        if not isinstance(found, Books):
            found = cluster.shared[cls] = cls(cluster)
        return found

    # Nodes ----------------------------------------------------------------------------------------------------------

    def mark(self, name: str, row: int, marked: Marked) -> None:
        """The Node is on ``row`` and says ``marked``."""
        node = self._nodes.setdefault(name, _Node())
        if node.row == row and node.marked == marked:
            return
        node.row, node.marked = row, marked
        self._lay_out(name, node)

    def marked(self, name: str) -> Marked | None:
        """What the Node said last."""
        node = self._nodes.get(name)
        return node.marked if node is not None else None

    def unmark(self, name: str) -> None:
        """The Node is gone; its pods and its NodeResourceTopology are kept."""
        node = self._nodes.get(name)
        if node is None:
            return
        self.version += 1
        node.row = node.marked = None
        self._count(name, None)
        node.state.lay_out(Layout())
        self._dirty.discard(node)
        self._drop(name, node)

    def report(self, name: str, reported: Reported | None) -> None:
        """The NodeResourceTopology says ``reported``; None: it is gone."""
        node = self._nodes.setdefault(name, _Node())
        node.reported = reported
        if node.marked is not None:
            self._lay_out(name, node)
        self._drop(name, node)

    def _lay_out(self, name: str, node: _Node) -> None:
        assert node.marked is not None and node.row is not None, "only nodes on a row are laid out"
        laid = self._shared(layout(node.marked, node.reported))
        node.state.lay_out(laid)
        self.columns.reserve(len(laid.zones), (resource for zone in laid.zones for resource in zone.allocatable))
        self.columns.write(node.row, node.state)
        self._dirty.discard(node)
        self.version += 1
        self._count(name, laid)
        self.cluster.touch(node.row)

    def _shared(self, laid: Layout) -> Layout:
        """The one object for machines that are alike."""
        zones = tuple((zone.id, zone.cpus, *sorted(zone.allocatable.items())) for zone in laid.zones)
        key = (
            id(laid.topology),
            laid.reported,
            laid.reserved,
            laid.bind,
            laid.policy,
            laid.strategy,
            laid.ratio,
            zones,
        )
        known = self._layouts.get(key)
        if known is not None and known.topology is laid.topology:
            return known
        if len(self._layouts) >= MOST_LAYOUTS:
            self._layouts.clear()
        self._layouts[key] = laid
        return laid

    def _count(self, name: str, laid: Layout | None) -> None:
        before = (self.binding > 0, self.aligning > 0, self.amplified > 0)
        was = self._special.pop(name, (False, False, False))
        now = (False, False, False)
        if laid is not None:
            now = (bool(laid.bind), bool(laid.policy), laid.ratio is None or laid.ratio > 1.0)
            if any(now):
                self._special[name] = now
        self.binding += now[0] - was[0]
        self.aligning += now[1] - was[1]
        self.amplified += now[2] - was[2]
        if before != (self.binding > 0, self.aligning > 0, self.amplified > 0):
            self.epoch += 1

    def _drop(self, name: str, node: _Node) -> None:
        if node.row is None and node.reported is None and not node.state.pods:
            self._nodes.pop(name, None)

    # Pods -----------------------------------------------------------------------------------------------------------

    def state(self, name: str) -> NodeState:
        """The books of one node; empty ones for a node of which nothing is known."""
        node = self._nodes.get(name)
        return node.state if node is not None else NodeState()

    def allocation(self, uid: str) -> PodAllocation | None:
        """What a pod has."""
        name = self._where.get(uid)
        return self.state(name).pods.get(uid) if name is not None else None

    def knows(self, uid: str) -> bool:
        """Whether a pod has, or was given, anything."""
        return uid in self._where or uid in self._given

    def where(self, uid: str) -> str | None:
        """The node on which a pod has something."""
        return self._where.get(uid)

    def add(self, uid: str, name: str, allocation: PodAllocation) -> bool:
        """A pod has something on a node; False if that was known."""
        where = self._where.get(uid)
        if where is not None:
            known = self.state(where).pods.get(uid)
            if where == name and (known is allocation or known == allocation):
                return False
            self.remove(uid)
        node = self._nodes.setdefault(name, _Node())
        node.state.add(uid, allocation)
        self._where[uid] = name
        self._changed(node)
        return True

    def remove(self, uid: str) -> bool:
        """A pod has nothing any more; False if it had nothing."""
        name = self._where.pop(uid, None)
        if name is None:
            return False
        node = self._nodes[name]
        node.state.remove(uid)
        self._changed(node)
        self._drop(name, node)
        return True

    # Planned pods ---------------------------------------------------------------------------------------------------

    def give(self, uid: str, name: str, allocation: PodAllocation, text: str) -> None:
        """A planned pod has something, which its annotation (``text``) says as soon as it is bound; it is remembered
        while the pod is taken off its node and put back (to see what would fit without it), until :meth:`settle`."""
        self._given[uid] = name, allocation, text
        self.add(uid, name, allocation)

    def restore(self, uid: str, name: str) -> bool:
        """The planned pod is on its node (again): count what it was given; False if it was given nothing there."""
        given = self._given.get(uid)
        if given is None or given[0] != name:
            return False
        self.add(uid, name, given[1])
        return True

    def confirmed(self, uid: str, name: str, text: str) -> bool:
        """Whether the pod, bound now, was given just that, so that nothing has to be read."""
        given = self._given.get(uid)
        if given is None or given[0] != name or given[2] != text:
            return False
        self.add(uid, name, given[1])
        self.settle(uid)
        return True

    def settle(self, uid: str) -> None:
        """The pod is planned no longer: it was seen bound, or is forgotten."""
        self._given.pop(uid, None)

    def _changed(self, node: _Node) -> None:
        if node.row is not None:
            self._dirty.add(node)
            self.version += 1
            self.cluster.touch(node.row)

    @property
    def giving(self) -> bool:
        """Whether some node gives every pod CPUs or aligns it."""
        return self.binding > 0 or self.aligning > 0

    @property
    def changed(self) -> int:
        """How many nodes :meth:`flush` has to lay out."""
        return len(self._dirty)

    def flush(self) -> None:
        """Bring the columns up to date: to be called before they are read."""
        for node in self._dirty:
            if node.row is not None:
                self.columns.write_usage(node.row, node.state)
        self._dirty.clear()
