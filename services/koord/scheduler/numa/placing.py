"""One pod on one node, in full: the set of NUMA nodes, the amounts of each, the CPUs. What Reserve does.

The plugin's columns answer the same questions for all nodes at once; tests hold them to this.
"""

from collections.abc import Mapping

import msgspec

from koord.kube.protocol.numa import FULL_PCPUS, RESTRICTED, SINGLE_NUMA_NODE
from koord.scheduler.numa.allocation import MOST_ALLOCATED, CPUWish, allocate, usable
from koord.scheduler.numa.amplification import amplify, scaled
from koord.scheduler.numa.merge import Merged, exclusive_check, merge
from koord.scheduler.numa.scores import mean
from koord.scheduler.numa.state import CPU, NodeState, PodAllocation
from koord.scheduler.numa.take import NOT_ENOUGH, TakeError
from koord.scheduler.numa.zones import INSUFFICIENT, Need, hints, short_of, split, subsets

MISSING = "node(s) missing NUMA resources"
NO_POOL = "node(s) no NUMA node whose shared CPUs cover the cpu limit"


class Scoring(msgspec.Struct, frozen=True):
    """How full is good: ``most`` filled first, or least; resources with their weights."""

    most: bool = False
    weights: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))


class PodWish(msgspec.Struct, frozen=True):
    """What a pod wants on a certain node. ``request``: amounts above 0, cpu in milli. ``cpus`` None: none of its own.

    ``policy`` is the effective one of pod and node; ``alone``: it must have its NUMA nodes as
    ``singleNUMANodeExclusive: Required`` says. ``strategy`` of taking CPUs where the node leaves it open. ``burst``
    (milli) asks for one NUMA node of whose unowned CPUs so many may be used at times; ``burst_required``: or no node.
    """

    request: Mapping[str, int]
    cpus: CPUWish | None = None
    policy: str = ""
    alone: bool = False
    strategy: str = "LeastAllocated"
    scoring: Scoring = Scoring()
    burst: int = 0
    burst_required: bool = False


def needs(state: NodeState, wish: PodWish) -> tuple[Need, ...]:
    """What of the request NUMA nodes list, by name, with what each has of it."""
    layout = state.layout
    zones = layout.zones
    free = [state.zone_free(index) for index in range(len(zones))]
    found = []
    for name in sorted(wish.request):
        if not any(name in zone.allocatable for zone in zones):
            continue
        amount = wish.request[name]
        left = [zone.get(name, 0) for zone in free]
        if name == CPU and wish.cpus is not None:
            unit, left, room = _cpu_room(state, wish.cpus, left)
            found.append(Need(name, amount, unit, tuple(left), tuple(room)))
        else:
            found.append(Need(name, amount, 1, tuple(left), tuple(left)))
    return tuple(found)


def _cpu_room(state: NodeState, cpus: CPUWish, left: list[int]) -> tuple[int, list[int], list[int]]:
    """Unit, what is free (milli, at most what the CPUs there are worth), and the units that makes."""
    layout = state.layout
    topology = layout.topology
    assert topology is not None, "CPUs are bound only where the layout is known"
    ratio = layout.ratio or 1.0
    per_cpu = scaled(max(ratio, 1.0)) * 1000
    there = usable(topology, state.free, cpus.policy, required=cpus.required)
    step = topology.per_core if cpus.required and cpus.policy == FULL_PCPUS else 1
    capped, room = [], []
    for zone, amount in zip(layout.zones, left, strict=True):
        amount = min(amount, amplify(1000 * (there & zone.cpus).bit_count(), ratio))
        capped.append(amount)
        room.append(amount * 1_000_000 // per_cpu // step)
    return 1000 * step, capped, room


def score_of(state: NodeState, wish: PodWish, mask: int, scoring: Scoring) -> int:
    """How well the pod suits a set of NUMA nodes, 0..100: over what they have and what is used of it with the pod."""
    parts = []
    indexes = [index for index in range(len(state.layout.zones)) if mask >> index & 1]
    used = [state.zone_used(index) for index in indexes]
    for name, weight in scoring.weights:
        asked = wish.request.get(name, 0)
        if not asked and name not in ("cpu", "memory"):
            continue
        if name == CPU and wish.cpus is not None:
            asked = state.amplified(asked)
        capacity = sum(state.layout.zones[index].allocatable.get(name, 0) for index in indexes)
        parts.append((capacity, sum(zone.get(name, 0) for zone in used) + asked, weight))
    return mean(parts, most_allocated=scoring.most)


def rating(state: NodeState, wish: PodWish, mask: int, scoring: Scoring) -> int:
    """The plugin's score on a set of NUMA nodes: as :func:`score_of`, but where the pod's CPUs are bound, what is used
    of cpu is the CPUs that pods have there."""
    if wish.cpus is None:
        return score_of(state, wish, mask, scoring)
    zones = state.layout.zones
    inside = [index for index in range(len(zones)) if mask >> index & 1]
    parts = []
    for name, weight in scoring.weights:
        asked = wish.request.get(name, 0)
        if name == CPU:
            cpus = sum((zones[index].cpus & state.allocated).bit_count() for index in inside)
            used, asked = state.amplified(1000 * cpus), state.amplified(asked)
        elif asked or name == "memory":
            used = sum(state.zone_used(index).get(name, 0) for index in inside)
        else:
            continue
        parts.append((sum(zones[index].allocatable.get(name, 0) for index in inside), used + asked, weight))
    return mean(parts, most_allocated=scoring.most)


def align(state: NodeState, wish: PodWish, needed: tuple[Need, ...]) -> Merged:
    """The set of NUMA nodes under the wish's policy, or the reasons against the node.

    Sets are tried by size, and no larger ones once a size has one that is admitted: with every resource it is the
    smallest that counts. Only a refusal needs them all, to be told.
    """
    count = len(state.layout.zones)
    if not count:
        return Merged(None, (MISSING,))
    allowed = exclusive_check(*state.zone_owners()) if wish.alone else _anything
    restricted, single = wish.policy == RESTRICTED, wish.policy == SINGLE_NUMA_NODE
    passing: list[tuple[int, int]] = []
    size = 0
    for mask in subsets(count):
        if mask.bit_count() > size:
            size = mask.bit_count()
            # Under SingleNUMANode a larger set never counts; if there is no single one, all are listed in the refusal.
            if (size == 2 or not single) and any(allowed(one) and _whole(needed, one) for one, _ in passing):
                break
        if not short_of(needed, mask):
            passing.append((mask, score_of(state, wish, mask, wish.scoring)))
    return merge(wish.policy, count, hints(needed, passing, restricted=restricted), allowed)


def _anything(mask: int) -> bool:
    return True


def _whole(needed: tuple[Need, ...], mask: int) -> bool:
    """Whether the set is a hint for every resource: none of its members is without."""
    return all(need.free[index] > 0 for need in needed for index in range(len(need.free)) if mask >> index & 1)


def burst_zone(state: NodeState, wish: PodWish) -> int | None:
    """The NUMA node (by index) for a pod with ConstrainedBurst (spec 10 section 7): CPUs that nobody owns cover its
    limit, and what is free its request; the freest one, or the fullest under MostAllocated. None: there is none."""
    best: tuple[int, int] | None = None
    sign = 1 if (state.layout.strategy or wish.strategy) == MOST_ALLOCATED else -1
    for index, zone in enumerate(state.layout.zones):
        pool = (state.free & zone.cpus).bit_count()
        if 1000 * pool >= wish.burst and state.zone_free(index).get(CPU, 0) >= wish.request[CPU]:
            best = min(best or (sign * pool, index), (sign * pool, index))
    return best[1] if best is not None else None


class Placement(msgspec.Struct, frozen=True, gc=False):
    """What a pod gets on a node. ``mask``: the set of NUMA nodes that it shares with others, None for the whole node;
    where only BestEffort takes the set, all NUMA nodes."""

    allocation: PodAllocation
    mask: int | None = None


def place(state: NodeState, wish: PodWish, *, preferred: int = 0) -> Placement | str:
    """What the pod gets, or the text why it gets nothing. Nothing is counted yet."""
    shares: list[tuple[int, dict[str, int]]] = []
    mask: int | None = None
    layout = state.layout
    if wish.policy:
        needed = needs(state, wish)
        merged = align(state, wish, needed)
        if merged.reasons:
            return merged.reasons[0]
        if merged.mask is not None and needed:
            short = short_of(needed, merged.mask)
            if short:
                return INSUFFICIENT + short
            shares = split(needed, merged.mask)
            mask = merged.mask if merged.preferred else (1 << len(layout.zones)) - 1
    elif wish.burst and wish.cpus is None:
        pool = burst_zone(state, wish)
        if pool is None and wish.burst_required:
            return NO_POOL
        shares = [] if pool is None else [(pool, {CPU: wish.request[CPU]})]
    cpus = 0
    if wish.cpus is not None:
        per_zone = {layout.zones[index].id: taken[CPU] // 1000 for index, taken in shares if CPU in taken}
        try:
            cpus = allocate(state.cpu_state(wish.strategy), wish.cpus, zones=per_zone or None, preferred=preferred)
        except TakeError as error:
            return str(error)
    exclusive = wish.cpus.exclusive if wish.cpus is not None else ""
    zones = tuple((layout.zones[index].id, taken) for index, taken in shares)
    return Placement(PodAllocation(cpus, exclusive, zones), mask)


Amounts = tuple[tuple[str, int], ...]


class Designated(msgspec.Struct, frozen=True, gc=False):
    """What somebody else chose for a pod: CPUs as a mask, amounts by id of the NUMA node."""

    cpus: int = 0
    zones: tuple[tuple[int, Amounts], ...] = ()


def designate(state: NodeState, wish: PodWish, chosen: Designated) -> Placement | str:
    """Just what was chosen, if the node can give it: the amounts named are free there and add up to the request, the
    CPUs named are free, as many as the pod wants, and what its policy takes."""
    layout = state.layout
    index = {zone.id: number for number, zone in enumerate(layout.zones)}
    total: dict[str, int] = {}
    mask = 0
    for zone, amounts in chosen.zones:
        if zone not in index:
            return NOT_ENOUGH
        free = state.zone_free(index[zone])
        mask |= 1 << index[zone]
        for name, amount in amounts:
            needed = state.amplified(amount) if name == CPU and wish.cpus is not None else amount
            if needed > free.get(name, 0):
                return NOT_ENOUGH
            total[name] = total.get(name, 0) + amount
    if chosen.zones:
        for name, amount in wish.request.items():
            if any(name in zone.allocatable for zone in layout.zones) and total.get(name, 0) < amount:
                return NOT_ENOUGH
    if wish.cpus is None:
        if chosen.cpus:
            return NOT_ENOUGH
    else:
        shares = {zone: dict(amounts)[CPU] // 1000 for zone, amounts in chosen.zones if CPU in dict(amounts)}
        try:
            given = allocate(
                state.cpu_state(wish.strategy), wish.cpus, zones=shares or None, preferred=chosen.cpus & state.free
            )
        except TakeError as error:
            return str(error)
        if given != chosen.cpus:
            return NOT_ENOUGH
    exclusive = wish.cpus.exclusive if wish.cpus is not None else ""
    zones = tuple((zone, dict(amounts)) for zone, amounts in chosen.zones)
    return Placement(PodAllocation(chosen.cpus, exclusive, zones), mask or None)
