"""How full: LeastAllocated and MostAllocated over whole numbers (spec 10 sections 3.12 and 3.15)."""

from collections.abc import Iterable


def least(capacity: int, used: int) -> int:
    """floor((capacity − used)·100 / capacity); 0 if it is over."""
    return (capacity - used) * 100 // capacity if 0 <= used <= capacity and capacity > 0 else 0


def most(capacity: int, used: int) -> int:
    """floor(min(used, capacity)·100 / capacity)."""
    return min(max(used, 0), capacity) * 100 // capacity if capacity > 0 else 0


def mean(parts: Iterable[tuple[int, int, int]], *, most_allocated: bool) -> int:
    """Floor of the weighted mean over (capacity, used, weight); capacity 0 is left out; nothing left: 0."""
    total = weights = 0
    score = most if most_allocated else least
    for capacity, used, weight in parts:
        if capacity > 0:
            total += score(capacity, used) * weight
            weights += weight
    return total // weights if weights else 0
