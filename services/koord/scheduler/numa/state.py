"""The books of one node: which pod has which CPUs and what of which NUMA node, and what that leaves."""

from collections.abc import Mapping

import msgspec

from koord.kube.protocol.numa import NUMA_NODE_LEVEL, PCPU_LEVEL
from koord.scheduler.numa.allocation import CPUState
from koord.scheduler.numa.amplification import amplify, with_bound
from koord.scheduler.numa.layout import Layout, Zone

CPU = "cpu"


class PodAllocation(msgspec.Struct, frozen=True, gc=False):
    """What one pod has: ``cpus`` as a mask (0: none of its own), amounts per NUMA node id (not amplified)."""

    cpus: int = 0
    exclusive: str = ""
    zones: tuple[tuple[int, Mapping[str, int]], ...] = ()


class NodeState:
    """Allocations on one node, under the layout that the node has now. A CPU is free when nobody has it any more."""

    __slots__ = (
        "_layout",
        "_signature",
        "_zones",
        "allocated",
        "note",
        "numa_owned",
        "pcpu_owned",
        "pods",
        "used",
        "version",
    )

    def __init__(self, layout: Layout | None = None) -> None:
        self._layout = layout or Layout()
        self._signature: tuple[int | str, ...] | None = None
        self.note: object = None
        """What somebody worked out of the present state; gone with the next change."""
        self._zones: list[dict[str, int]] | None = None
        self.version = 0
        """Moves with every change."""
        self.pods: dict[str, PodAllocation] = {}
        self.allocated = 0
        """CPUs that pods have, as a mask; also some that the layout does not know."""
        self.pcpu_owned = 0
        self.numa_owned = 0
        self.used: dict[int, dict[str, int]] = {}
        """What pods have of each NUMA node by id, not amplified."""

    def copy(self) -> "NodeState":
        """The same books once more, to see what would be."""
        made = NodeState(self._layout)
        made.pods = dict(self.pods)
        made.allocated, made.pcpu_owned, made.numa_owned = self.allocated, self.pcpu_owned, self.numa_owned
        made.used = {zone: dict(amounts) for zone, amounts in self.used.items()}
        return made

    @property
    def layout(self) -> Layout:
        """What the node has now."""
        return self._layout

    def lay_out(self, layout: Layout) -> None:
        """The node is another one now; its pods stay."""
        self._layout = layout
        self._moved()

    def _moved(self) -> None:
        self._zones = self._signature = self.note = None
        self.version += 1

    @property
    def signature(self) -> tuple[int | str, ...]:
        """Nodes of equal layout and equal signature answer every question alike, but for :meth:`zone_owners`."""
        if self._signature is None:
            # One flat tuple of numbers and names, of which the collector of cycles need not know.
            parts: list[int | str] = [self.allocated, self.pcpu_owned, self.numa_owned]
            for zone, amounts in self.used.items():
                parts.append(zone)
                parts += amounts
                parts += amounts.values()
            self._signature = tuple(parts)
        return self._signature

    def add(self, uid: str, allocation: PodAllocation) -> None:
        """Count a pod; what it had before is given back."""
        if uid in self.pods:
            self.remove(uid)
        self._moved()
        self.pods[uid] = allocation
        self.allocated |= allocation.cpus
        self._mark(allocation)
        for zone, taken in allocation.zones:
            used = self.used.setdefault(zone, {})
            for name, amount in taken.items():
                used[name] = used.get(name, 0) + amount

    def remove(self, uid: str) -> bool:
        """Give back what a pod has; False if it has nothing here."""
        allocation = self.pods.pop(uid, None)
        if allocation is None:
            return False
        self._moved()
        if allocation.cpus:
            self.allocated = self.pcpu_owned = self.numa_owned = 0
            for other in self.pods.values():
                self.allocated |= other.cpus
                self._mark(other)
        for zone, taken in allocation.zones:
            used = self.used[zone]
            for name, amount in taken.items():
                used[name] -= amount
        return True

    def _mark(self, allocation: PodAllocation) -> None:
        if allocation.exclusive == PCPU_LEVEL:
            self.pcpu_owned |= allocation.cpus
        elif allocation.exclusive == NUMA_NODE_LEVEL:
            self.numa_owned |= allocation.cpus

    @property
    def free(self) -> int:
        """CPUs that a pod can have for itself, as a mask."""
        topology = self.layout.topology
        return topology.mask & ~self.allocated & ~self.layout.reserved if topology is not None else 0

    @property
    def bound(self) -> int:
        """How many CPUs pods have for themselves (the original's B is 1000 times that)."""
        return self.allocated.bit_count()

    def cpu_state(self, strategy: str) -> CPUState:
        """What allocation needs; ``strategy`` where the node leaves it open. The layout must have a topology."""
        topology = self.layout.topology
        assert topology is not None, "CPUs are bound only where the layout is known"
        return CPUState(
            topology,
            self.free,
            topology.touched_cores(self.pcpu_owned) if self.pcpu_owned else 0,
            topology.touched_nodes(self.numa_owned) if self.numa_owned else 0,
            self.layout.strategy or strategy,
        )

    def zone_used(self, index: int) -> dict[str, int]:
        """What is used of a NUMA node, by index, in the same terms as its allocatable: cpu amplified for bound CPUs.

        Do not write."""
        if self._zones is None:
            self._zones = [self._zone_used(zone) for zone in self._layout.zones]
        return self._zones[index]

    def _zone_used(self, zone: Zone) -> dict[str, int]:
        used = dict(self.used.get(zone.id, {}))
        ratio = self.layout.ratio
        if ratio is not None and ratio > 1.0 and used.get(CPU):
            used[CPU] = with_bound(used[CPU], 1000 * (zone.cpus & self.allocated).bit_count(), ratio)
        return used

    def zone_free(self, index: int) -> dict[str, int]:
        """What is left of each resource that the NUMA node lists, at least 0."""
        used = self.zone_used(index)
        allocatable = self.layout.zones[index].allocatable
        return {name: max(0, amount - used.get(name, 0)) for name, amount in allocatable.items()}

    def zone_owners(self) -> tuple[int, int]:
        """NUMA nodes (bit ``i``: the i-th) that pods spanning several use; others on which pods live that span one."""
        shared = single = 0
        zones = self.layout.zones
        for allocation in self.pods.values():
            mask = 0
            named = {zone for zone, _ in allocation.zones}
            for index, zone in enumerate(zones):
                if zone.cpus & allocation.cpus or zone.id in named:
                    mask |= 1 << index
            if mask & mask - 1:
                shared |= mask
            else:
                single |= mask
        return shared, single & ~shared

    def amplified(self, milli: int) -> int:
        """What bound CPUs of that size cost on this node."""
        return amplify(milli, self.layout.ratio or 1.0)
