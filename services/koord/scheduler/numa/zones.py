"""NUMA nodes of one machine for one pod: which sets of them hold it, and how its amounts are split over a set.

Spec 10 section 3.12 "NUMA resources and hints". A set is a mask: bit ``i`` is the i-th NUMA node by id. Amounts are
compared in *units*: 1 for what is divisible; a CPU (or a core's CPUs) where the pod gets CPUs of its own.
"""

from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import msgspec

INSUFFICIENT = "Insufficient NUMA "


class Need(msgspec.Struct, frozen=True):
    """One requested resource that some NUMA node lists.

    ``amount`` as the pod says it; ``unit`` is how much of it cannot be divided. ``free`` by NUMA node, in the terms of
    its allocatable; ``room`` is how many units of the pod's that is.
    """

    name: str
    amount: int
    unit: int
    free: tuple[int, ...]
    room: tuple[int, ...]

    @property
    def units(self) -> int:
        """Units requested, rounded up."""
        return -(-self.amount // self.unit)


class Hint(NamedTuple):
    """A set of NUMA nodes for one resource. ``mask`` None: any."""

    mask: int | None
    preferred: bool
    score: int = 0


@lru_cache
def subsets(count: int) -> tuple[int, ...]:
    """All non-empty sets of ``count`` NUMA nodes: by size, then by index."""
    return tuple(
        sum(1 << index for index in chosen)
        for size in range(1, count + 1)
        for chosen in combinations(range(count), size)
    )


@lru_cache(maxsize=1 << 9)
def members(mask: int) -> tuple[int, ...]:
    """The NUMA nodes of a set, by index."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)


def short_of(needs: tuple[Need, ...], mask: int) -> str:
    """The first resource that the set has too little of; "" if it holds the pod.

    The split of :func:`split` works out exactly where the sum suffices: shares go up with what is free.
    """
    inside = members(mask)
    for need in needs:
        if sum(need.room[index] for index in inside) < need.units:
            return need.name
    return ""


def split(needs: tuple[Need, ...], mask: int) -> list[tuple[int, dict[str, int]]]:
    """What the pod takes of each NUMA node of the set that it takes anything of, by index. The set must hold it.

    Per resource the one with the least free comes first; each gives an equal part of what is left, if it has that much.
    """
    taken: dict[int, dict[str, int]] = {}
    for need in needs:
        order = sorted(members(mask), key=lambda index: (need.free[index], index))
        left = need.units
        for number, index in enumerate(order):
            share = min(need.room[index], left // (len(order) - number))
            if share:
                left -= share
                taken.setdefault(index, {})[need.name] = share * need.unit
        if left:
            raise ValueError(INSUFFICIENT + need.name)
        excess = need.units * need.unit - need.amount
        if excess:
            taken[order[-1]][need.name] -= excess
    return sorted(taken.items())


def hints(needs: tuple[Need, ...], passing: list[tuple[int, int]], *, restricted: bool) -> dict[str, list[Hint]]:
    """Hints per resource from the sets that hold the pod and their scores (in the order of :func:`subsets`).

    A set with a member that has none of a resource is no hint for it. Preferred are the smallest sets of a resource,
    or all if ``restricted``.
    """
    found: dict[str, list[Hint]] = {}
    for need in needs:
        empty = sum(1 << index for index, free in enumerate(need.free) if free <= 0)
        usable = [(mask, score) for mask, score in passing if not mask & empty]
        smallest = usable[0][0].bit_count() if usable else 0
        found[need.name] = [Hint(mask, restricted or mask.bit_count() == smallest, score) for mask, score in usable]
    return found
