"""The layout of a node's logical CPUs: cores, NUMA nodes and sockets as bit masks (bit ``n`` is CPU ``n``)."""

from collections.abc import Iterable

from koord.kube.protocol.cputopology import CPU


class Group:
    """A NUMA node or a socket: its id, its CPUs, and its cores by index, ascending by core."""

    __slots__ = ("cores", "id", "mask", "socket")

    def __init__(self, id_: int, socket: int) -> None:
        self.id = id_
        self.socket = socket
        self.mask = 0
        self.cores: list[int] = []


class CPUTopology:
    """Immutable. ``cores`` are masks in the order (socket, core); groups say which of them are theirs.

    ``per_core``, ``per_node`` and ``per_socket`` are whole-number quotients, as the original has them, so uneven
    machines count as the average one.
    """

    __slots__ = (
        "core_ids",
        "core_node",
        "core_socket",
        "cores",
        "count",
        "cpus",
        "mask",
        "nodes",
        "per_core",
        "per_node",
        "per_socket",
        "sockets",
    )

    def __init__(self, cpus: Iterable[CPU]) -> None:
        self.cpus = tuple(sorted(cpus, key=lambda cpu: cpu.id))
        self.mask = 0
        masks: dict[tuple[int, int], int] = {}
        where: dict[tuple[int, int], int] = {}
        for cpu in self.cpus:
            self.mask |= 1 << cpu.id
            key = (cpu.socket, cpu.core)
            masks[key] = masks.get(key, 0) | 1 << cpu.id
            where.setdefault(key, cpu.node)
        keys = sorted(masks)
        self.core_ids = tuple(keys)
        self.cores = tuple(masks[key] for key in keys)
        nodes: dict[int, Group] = {}
        sockets: dict[int, Group] = {}
        for key in keys:
            node = where[key]
            if node not in nodes:
                nodes[node] = Group(node, key[0])
            if key[0] not in sockets:
                sockets[key[0]] = Group(key[0], key[0])
        self.nodes = tuple(nodes[node] for node in sorted(nodes))
        self.sockets = tuple(sockets[socket] for socket in sorted(sockets))
        node_index = {group.id: number for number, group in enumerate(self.nodes)}
        socket_index = {group.id: number for number, group in enumerate(self.sockets)}
        self.core_node = tuple(node_index[where[key]] for key in keys)
        self.core_socket = tuple(socket_index[key[0]] for key in keys)
        for number, core in enumerate(self.cores):
            node_group, socket_group = self.nodes[self.core_node[number]], self.sockets[self.core_socket[number]]
            node_group.cores.append(number)
            node_group.mask |= core
            socket_group.cores.append(number)
            socket_group.mask |= core
        for group in self.nodes:
            group.socket = socket_index[group.socket]
        self.count = len(self.cpus)
        self.per_core = self.count // len(self.cores) if self.cores else 0
        self.per_node = self.count // len(self.nodes) if self.nodes else 0
        self.per_socket = self.count // len(self.sockets) if self.sockets else 0

    def node_mask(self, id_: int) -> int:
        """CPUs of the NUMA node ``id_``; 0 if there is none."""
        for group in self.nodes:
            if group.id == id_:
                return group.mask
        return 0

    def full_cores(self, free: int) -> int:
        """Those of ``free`` whose core is free as a whole."""
        kept = 0
        for core in self.cores:
            if core & free == core:
                kept |= core
        return kept

    def first_of_cores(self, free: int) -> int:
        """The lowest CPU in ``free`` of each core."""
        kept = 0
        for core in self.cores:
            left = core & free
            kept |= left & -left
        return kept

    def usable(self, free: int) -> tuple[int, int]:
        """:meth:`full_cores` and :meth:`first_of_cores` in one go."""
        whole = first = 0
        for core in self.cores:
            left = core & free
            if left:
                first |= left & -left
                if left == core:
                    whole |= core
        return whole, first

    def touched_cores(self, cpus: int) -> int:
        """All CPUs of the cores that have one of ``cpus``."""
        kept = 0
        for core in self.cores:
            if core & cpus:
                kept |= core
        return kept

    def touched_nodes(self, cpus: int) -> int:
        """All CPUs of the NUMA nodes that have one of ``cpus``."""
        kept = 0
        for group in self.nodes:
            if group.mask & cpus:
                kept |= group.mask
        return kept
