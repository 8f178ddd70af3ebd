"""Which CPUs to take: the original's accumulator (spec 10 section 3.12 "CPU allocation", steps S0 to S4) on bit masks.

A list of CPUs in an order is a list of masks here, each in turn given away from its lowest bit upwards: whole cores for
full cores, one CPU per core and round when spread. No CPU is shared (the original's maxRefCount is 1).
"""

from koord.kube.protocol.numa import FULL_PCPUS, NUMA_NODE_LEVEL, PCPU_LEVEL
from koord.scheduler.numa.topology import CPUTopology

NOT_ENOUGH = "not enough cpus available to satisfy request"
FAILED = "failed to allocate cpus"


class TakeError(Exception):
    """The CPUs cannot be had; the text is for users."""


def take(
    topology: CPUTopology,
    free: int,
    need: int,
    policy: str,
    *,
    exclusive: str = "",
    pcpu_marks: int = 0,
    numa_marks: int = 0,
    most: bool = False,
) -> int:
    """``need`` of the CPUs ``free``, as a mask; TakeError with the original's text.

    ``exclusive`` is the pod's own wish; ``pcpu_marks`` and ``numa_marks`` are all CPUs of the cores (NUMA nodes) where
    a pod lives that wants its cores (NUMA nodes) for itself. ``most``: fill the fullest NUMA node first.
    """
    if need <= 0:
        return 0
    free &= topology.mask
    if need > free.bit_count():
        raise TakeError(NOT_ENOUGH)
    taken = _Taken(topology, free, need, exclusive, pcpu_marks, numa_marks, 1 if most else -1)
    full = policy == FULL_PCPUS
    if (full or topology.per_core == 1) and _whole_cores(taken):
        return taken.result
    if not full and _spread_in_one(taken):
        return taken.result
    return _anywhere(taken)


class _Taken:
    """What is left to take, and what was taken."""

    __slots__ = ("exclusive", "free", "marks", "need", "result", "sign", "topology")

    def __init__(
        self, topology: CPUTopology, free: int, need: int, exclusive: str, pcpu: int, numa: int, sign: int
    ) -> None:
        self.topology = topology
        self.free = free
        self.need = need
        self.exclusive = exclusive
        self.marks = pcpu if exclusive == PCPU_LEVEL else numa if exclusive == NUMA_NODE_LEVEL else 0
        self.sign = sign
        self.result = 0

    def give(self, cpus: int) -> None:
        self.result |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()
        if self.exclusive == PCPU_LEVEL:
            self.marks |= self.topology.touched_cores(cpus)
        elif self.exclusive == NUMA_NODE_LEVEL:
            self.marks |= self.topology.touched_nodes(cpus)

    def give_first(self, order: list[int], count: int) -> None:
        """The first ``count`` CPUs of masks in order."""
        given = 0
        for mask in order:
            size = mask.bit_count()
            if size > count:
                mask = lowest(mask, count)
                size = count
            given |= mask
            count -= size
            if not count:
                break
        self.give(given)


def lowest(mask: int, count: int) -> int:
    """The ``count`` lowest bits that are set."""
    kept = 0
    for _ in range(count):
        low = mask & -mask
        kept |= low
        mask ^= low
    return kept


def _whole_cores(taken: _Taken) -> bool:
    """S1: cores that are free as a whole, of one NUMA node, of one socket, of several. True: all is taken."""
    topology, need, sign = taken.topology, taken.need, taken.sign
    full = topology.full_cores(taken.free)
    if need <= topology.per_node:
        filters = (taken.marks, 0) if taken.exclusive == NUMA_NODE_LEVEL and taken.marks else (0,)
        for marks in filters:
            best = None
            left = full & ~marks
            free = taken.free & ~marks
            for number, node in enumerate(topology.nodes):
                size = (left & node.mask).bit_count()
                if size >= need:
                    key = (sign * size, sign * (free & topology.sockets[node.socket].mask).bit_count(), number)
                    if best is None or key < best:
                        best = key
            if best is not None:
                cores = topology.nodes[best[2]].cores
                taken.give_first([core for c in cores if (core := topology.cores[c]) & left], need)
                return True
    sizes = sorted((sign * (full & socket.mask).bit_count(), number) for number, socket in enumerate(topology.sockets))
    if need <= topology.per_socket:
        for size, number in sizes:
            if sign * size >= need:
                cores = topology.sockets[number].cores
                taken.give_first([core for c in cores if (core := topology.cores[c]) & full], need)
                return True
    aside = []
    for size, number in sorted(sizes, key=lambda entry: -sign * entry[0]):
        size *= sign
        if size and taken.need >= size:
            taken.give(full & topology.sockets[number].mask)
            if not taken.need:
                return True
        elif size:
            aside.append((size, number))
    aside.sort(key=lambda entry: entry[0])
    for _, number in aside:
        for c in topology.sockets[number].cores:
            core = topology.cores[c]
            if taken.need < max(topology.per_core, core.bit_count()):
                break
            if core & full:
                taken.give(core)
                if not taken.need:
                    return True
    return False


def _spread_in_one(taken: _Taken) -> bool:
    """S2: one CPU per core in turn, within one NUMA node, else one socket. True: all is taken."""
    topology, need, sign = taken.topology, taken.need, taken.sign
    if need <= topology.per_node:
        for single in (True, False):
            free = taken.free & ~taken.marks if single else taken.free
            order = sorted(
                (sign * size, sign * (free & topology.sockets[node.socket].mask).bit_count(), number)
                for number, node in enumerate(topology.nodes)
                if (size := (free & node.mask).bit_count()) >= need
            )
            for *_, number in order:
                if _spread(taken, free & topology.nodes[number].mask, single=single):
                    return True
    if need <= topology.per_socket:
        for single in (True, False):
            marks = taken.marks if single and taken.exclusive == PCPU_LEVEL else 0
            free = taken.free & ~marks
            if single:
                free = _lowest_of_cores(topology, free)
            order = sorted(
                (sign * size, number, 0)
                for number, socket in enumerate(topology.sockets)
                if (size := (free & socket.mask).bit_count()) >= need
            )
            for _, number, _ in order:
                if _spread(taken, free & topology.sockets[number].mask, single=single):
                    return True
    return False


def _lowest_of_cores(topology: CPUTopology, free: int) -> int:
    return free if topology.per_core == 1 else topology.first_of_cores(free)


def _spread(taken: _Taken, free: int, *, single: bool) -> bool:
    """Take the rest from ``free``, one CPU per core and round, ascending; ``single``: the first round alone."""
    topology, need = taken.topology, taken.need
    if single:
        free = _lowest_of_cores(topology, free)
        if free.bit_count() < need:
            return False
        taken.give(lowest(free, need))
        return True
    if free.bit_count() <= topology.per_core:
        taken.give(lowest(free, need))
        return True
    given = 0
    while need:
        turn = _lowest_of_cores(topology, free)
        size = turn.bit_count()
        if size > need:
            turn = lowest(turn, need)
            size = need
        given |= turn
        free &= ~turn
        need -= size
    taken.give(given)
    return True


def _anywhere(taken: _Taken) -> int:
    """S3: cores near what was taken first, then those with the fewest free CPUs; one CPU per core and round."""
    topology, sign = taken.topology, taken.sign
    for filtered in (True, False):
        free = taken.free & ~taken.marks if filtered else taken.free
        near = [-(taken.result & socket.mask).bit_count() for socket in topology.sockets]
        room = [sign * (free & socket.mask).bit_count() for socket in topology.sockets]
        node_room = [sign * (free & node.mask).bit_count() for node in topology.nodes]
        order = []
        for number, core in enumerate(topology.cores):
            left = core & free
            if left:
                socket = topology.core_socket[number]
                size = left.bit_count()
                key = (near[socket], room[socket], node_room[topology.core_node[number]], size, socket, number)
                order.append((key, left))
        order.sort()
        lists = [left for _, left in order]
        if free.bit_count() <= topology.per_core:
            taken.give_first(lists, min(taken.need, free.bit_count()))
        else:
            given, need = 0, taken.need
            while need and lists:
                rest = []
                for left in lists:
                    low = left & -left
                    given |= low
                    need -= 1
                    if not need:
                        break
                    if left != low:
                        rest.append(left ^ low)
                lists = rest
            taken.give(given)
        if not taken.need:
            return taken.result
        if not taken.marks:
            break
    raise TakeError(FAILED)
