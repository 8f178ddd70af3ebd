"""How far each ReplicaSet of a Deployment goes in the next step of a rollout: pure arithmetic, no objects.

Scaling up is bounded by `maxSurge`, scaling down by what must stay available (`maxUnavailable`); pods that are not
ready are given up first, as a rollout that is stuck could not be replaced otherwise.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Size(NamedTuple):
    """A ReplicaSet: what is asked for, what is there, and what of it is available."""

    name: str
    desired: int
    replicas: int
    available: int


class Limits(NamedTuple):
    """How many pods more than wanted there may be, and how many fewer may be available."""

    surge: int
    unavailable: int


def limits_of(strategy: Mapping[str, Any], wanted: int) -> Limits:
    """The limits of a rolling update; at least one of them is not 0, or nothing would ever move."""
    rolling = strategy.get("rollingUpdate") or {}
    surge = _part(rolling.get("maxSurge", "25%"), wanted, up=True)
    unavailable = _part(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Limits(surge, min(unavailable, wanted))


def _part(value: Any, wanted: int, *, up: bool) -> int:
    if isinstance(value, str):
        share = wanted * int(value.rstrip("%")) / 100
        return math.ceil(share) if up else math.floor(share)
    return int(value)


def new_size(new: Size, old: list[Size], wanted: int, limits: Limits) -> int:
    """What to ask of the newest set."""
    if new.desired >= wanted:
        return wanted
    current = new.desired + sum(size.desired for size in old)
    room = wanted + limits.surge - current
    return min(wanted, new.desired + max(0, room))


def old_sizes(new: Size, old: list[Size], wanted: int, limits: Limits) -> dict[str, int]:
    """What to ask of the older sets (oldest first in `old`); those that are left out stay as they are."""
    sizes = {size.name: size.desired for size in old}
    total = new.desired + sum(sizes.values())
    least = wanted - limits.unavailable
    may_go = total - least - max(0, new.desired - new.available)
    if may_go <= 0:
        return {}
    for size in old:
        gone = min(may_go, max(0, size.desired - size.available))
        sizes[size.name] -= gone
        may_go -= gone
    spare = sum(size.available for size in old) + new.available - least
    for size in old:
        if spare <= 0:
            break
        gone = min(spare, sizes[size.name])
        sizes[size.name] -= gone
        spare -= gone
    return {size.name: sizes[size.name] for size in old if sizes[size.name] != size.desired}


class Share(NamedTuple):
    """A ReplicaSet that has pods: what is asked for, and the most there might be of all sets when that was said.

    `most` is 0 when nobody said it; `born` orders sets of one size.
    """

    name: str
    desired: int
    most: int
    born: str


def spread(shares: list[Share], wanted: int, limits: Limits, present: int) -> dict[str, int]:
    """What to ask of each set when the wanted number changes in the middle of a rollout: each keeps its proportion.

    Larger sets come first; of sets of one size the newer ones grow first and the older ones shrink first. What
    rounding leaves over is the largest one's. `present`: how many pods there are, for sets that do not say the most.
    """
    most = wanted + limits.surge if wanted else 0
    change = most - sum(share.desired for share in shares)
    ordered = sorted(shares, key=lambda share: share.born, reverse=change > 0)
    ordered.sort(key=lambda share: -share.desired)
    sizes = {share.name: share.desired for share in shares}
    left = change
    for share in ordered:
        before = share.most or present
        if not left or not before:
            continue
        part = -share.desired if not wanted else _rounded(share.desired * most, before) - share.desired
        part = min(part, left) if change > 0 else max(part, left)
        sizes[share.name] += part
        left -= part
    if ordered:
        largest = ordered[0].name
        sizes[largest] = max(0, sizes[largest] + left)
    return sizes


def _rounded(number: int, by: int) -> int:
    """A quotient to the nearest whole number, halves up."""
    return (2 * number + by) // (2 * by)
