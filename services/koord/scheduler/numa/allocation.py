"""CPUs for one pod on one node: what may be taken under a policy, from which NUMA nodes, in which order.

Spec 10 section 3.12 "CPU allocation"; shares of ``DistributeEvenly`` as section 7 proposes: equal per NUMA node, the
remainder to the freest.
"""

from collections.abc import Mapping

import msgspec

from koord.kube.protocol.numa import FULL_PCPUS, SPREAD_BY_PCPUS
from koord.scheduler.numa.take import NOT_ENOUGH, TakeError, take
from koord.scheduler.numa.topology import CPUTopology

UNVERIFIED = "insufficient CPUs to satisfy required cpu bind policy "

MOST_ALLOCATED = "MostAllocated"
LEAST_ALLOCATED = "LeastAllocated"
DISTRIBUTE_EVENLY = "DistributeEvenly"


class CPUWish(msgspec.Struct, frozen=True):
    """What a pod wants of a node's CPUs: how many, bound how, and whether that is a must."""

    count: int
    policy: str
    required: bool = False
    exclusive: str = ""


class CPUState(msgspec.Struct, frozen=True):
    """What of a node's CPUs can be had: masks as in :func:`koord.scheduler.numa.take.take`."""

    topology: CPUTopology
    free: int
    pcpu_marks: int = 0
    numa_marks: int = 0
    strategy: str = LEAST_ALLOCATED


def usable(topology: CPUTopology, free: int, policy: str, *, required: bool) -> int:
    """Those of ``free`` that a policy can use: whole cores, or one CPU of each core, if it is required; else all."""
    if required and policy == FULL_PCPUS:
        return topology.full_cores(free)
    if required and policy == SPREAD_BY_PCPUS:
        return topology.first_of_cores(free)
    return free


def allocate(state: CPUState, wish: CPUWish, *, zones: Mapping[int, int] | None = None, preferred: int = 0) -> int:
    """The CPUs for a pod, as a mask; TakeError with the original's text.

    ``zones``: how many CPUs from which NUMA node (by id); they must add up to the wish. ``preferred`` are taken before
    others, as far as they are free.
    """
    topology = state.topology
    free = usable(topology, state.free & topology.mask, wish.policy, required=wish.required)
    if free.bit_count() < wish.count:
        raise TakeError(NOT_ENOUGH)
    if zones is None and state.strategy == DISTRIBUTE_EVENLY and len(topology.nodes) > 1:
        zones = even_shares(topology, free, wish)
    if zones is None:
        result = _take(state, free, wish, wish.count, preferred)
    else:
        result = 0
        for zone, share in sorted(zones.items()):
            there = free & topology.node_mask(zone)
            share = min(share, there.bit_count())
            if share > 0:
                result |= _take(state, there, wish, share, preferred)
        if result.bit_count() != wish.count:
            raise TakeError(NOT_ENOUGH)
    if wish.required and not verified(topology, result, wish.policy):
        raise TakeError(UNVERIFIED + wish.policy)
    return result


def _take(state: CPUState, free: int, wish: CPUWish, count: int, preferred: int) -> int:
    preferred &= free
    most = state.strategy == MOST_ALLOCATED
    result = 0
    if preferred:
        first = min(count, preferred.bit_count())
        result = take(
            state.topology,
            preferred,
            first,
            wish.policy,
            exclusive=wish.exclusive,
            pcpu_marks=state.pcpu_marks,
            numa_marks=state.numa_marks,
            most=most,
        )
    if count > result.bit_count():
        result |= take(
            state.topology,
            free & ~preferred,
            count - result.bit_count(),
            wish.policy,
            exclusive=wish.exclusive,
            pcpu_marks=state.pcpu_marks,
            numa_marks=state.numa_marks,
            most=most,
        )
    return result


def verified(topology: CPUTopology, cpus: int, policy: str) -> bool:
    """Whether ``cpus`` are what a required policy says: whole cores, or no two of one core."""
    if policy == FULL_PCPUS:
        return topology.full_cores(cpus) == cpus
    if policy == SPREAD_BY_PCPUS:
        return topology.first_of_cores(cpus) == cpus
    return True


def even_shares(topology: CPUTopology, free: int, wish: CPUWish) -> dict[int, int] | None:
    """CPUs per NUMA node (by id): equal shares as far as each has them, what is left over to the freest, whole cores
    where the policy is FullPCPUs. None if whole cores do not add up to the wish."""
    unit = topology.per_core if wish.policy == FULL_PCPUS else 1
    if unit > 1:
        if wish.count % unit:
            return None
        free = topology.full_cores(free)
    room = {group.id: (free & group.mask).bit_count() // unit for group in topology.nodes}
    left = wish.count // unit
    if sum(room.values()) < left:
        return None
    shares = dict.fromkeys(room, 0)
    while left:
        open_ = [zone for zone, units in room.items() if units > shares[zone]]
        each = left // len(open_)
        if each:
            for zone in open_:
                given = min(each, room[zone] - shares[zone])
                shares[zone] += given
                left -= given
        else:
            open_.sort(key=lambda zone: (shares[zone] - room[zone], zone))
            for zone in open_[:left]:
                shares[zone] += 1
            left = 0
    return {zone: units * unit for zone, units in shares.items() if units}
