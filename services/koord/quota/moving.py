"""Runtimes moved between siblings, so that those who were handed idle room have it: in columns, level by level.

Every number is exact. Groups whose amounts are too large for 64-bit products are computed one at a time with Python's
integers by :func:`move_one`, which the tests hold to the same reference.
"""

from collections.abc import Sequence

import numpy as np

from koord.quota.filling import Flags, Ints, exact_quotient
from koord.quota.runtime import RuntimeTree

_WIDE = 2.0**52
"""From such sums on a group is computed by itself; below, :func:`~koord.quota.filling.exact_quotient` is exact."""


def settled(tree: RuntimeTree, wanted: Ints) -> Ints:
    """Runtimes such that every row has what is wanted below it, as far as there is idle room among its siblings."""
    if not (wanted > tree.runtimes).any():
        return tree.runtimes
    runtime = tree.runtimes.copy()
    for depth, (begin, end, owner, starts) in enumerate(tree.levels()):
        total = runtime[:, owner] if depth else tree.totals[:, -1 - owner]
        lowered = total < tree.runtimes[:, owner] if depth else np.zeros(total.shape, np.bool_)
        want, has = wanted[:, begin:end], runtime[:, begin:end]
        short = np.add.reduceat((want > has).astype(np.int64), starts, axis=1) > 0
        stir = np.flatnonzero((short | lowered).any(axis=0))
        if not len(stir):
            continue
        counts = np.diff(starts, append=end - begin)[stir]
        first = np.cumsum(counts) - counts
        at = np.arange(int(counts.sum())) + np.repeat(starts[stir] - first, counts)
        moved = _moved(has[:, at], want[:, at], total[:, stir], lowered[:, stir], (short | lowered)[:, stir], first)
        runtime[:, begin + at] = moved
    return runtime


def _moved(has: Ints, want: Ints, total: Ints, lowered: Flags, stir: Flags, first: Ints) -> Ints:
    """Groups of siblings side by side, each from ``first`` on; a line per resource. Only those that ``stir`` move."""
    size = has.shape[1]
    missing, slack = np.maximum(want - has, 0), np.maximum(has - want, 0)
    sums = [np.add.reduceat(each.astype(np.float64), first, axis=1) for each in (has, want)]
    wide = stir & (sums[0] + sums[1] + np.abs(total) >= _WIDE)
    usable = stir & ~wide
    lacking, idle, together = (np.add.reduceat(each, first, axis=1) for each in (missing, slack, has))
    rest = np.where(usable, total - together, 0)
    give = np.minimum(lacking, np.maximum(0, rest + idle))
    take = np.where((rest >= 0) | lowered, give - rest, give)
    take = np.minimum(np.maximum(0, take), idle)
    give, take = np.where(usable, give, 0), np.where(usable, take, 0)
    moved = has + _parts(missing, give, lacking, first) - _parts(slack, take, idle, first)
    last = np.append(first[1:], size)
    for line, group in zip(*np.nonzero(wide), strict=True):
        rows = slice(int(first[group]), int(last[group]))
        moved[line, rows] = move_one(
            has[line, rows].tolist(),
            want[line, rows].tolist(),
            int(total[line, group]),
            owner_lowered=bool(lowered[line, group]),
        )
    return moved


def _parts(of: Ints, amount: Ints, whole: Ints, first: Ints) -> Ints:
    """``amount`` of each group divided in proportion to ``of``, whose sum is ``whole``; the odd units to the first."""
    some = amount > 0
    if not some.any():
        return np.zeros_like(of)
    group = np.repeat(np.arange(len(first)), np.diff(first, append=of.shape[1]))
    factor = np.where(some[:, group], of, 0)
    parts = exact_quotient(factor, amount[:, group], np.maximum(whole, 1)[:, group])[0]
    odd = np.where(some, amount - np.add.reduceat(parts, first, axis=1), 0)
    open_ = parts < factor
    rank: Ints = np.cumsum(open_, axis=1) - open_
    parts += open_ & (rank - rank[:, first][:, group] < odd[:, group])
    return parts


def move_one(has: Sequence[int], wants: Sequence[int], total: int, *, owner_lowered: bool) -> list[int]:
    """One resource of one group of siblings, of any size of numbers."""
    missing = [max(0, want - have) for have, want in zip(has, wants, strict=True)]
    slack = [max(0, have - want) for have, want in zip(has, wants, strict=True)]
    rest, idle = total - sum(has), sum(slack)
    give = min(sum(missing), max(0, rest + idle))
    take = give - rest if rest >= 0 or owner_lowered else give
    take = min(max(0, take), idle)
    return [
        have + more - less for have, more, less in zip(has, _divided(missing, give), _divided(slack, take), strict=True)
    ]


def _divided(of: Sequence[int], amount: int) -> list[int]:
    """``amount`` divided in proportion to ``of``, of which it is at most the sum; the odd units to the first."""
    whole = sum(of)
    if not whole or not amount:
        return [0] * len(of)
    parts = [each * amount // whole for each in of]
    odd = amount - sum(parts)
    for i, each in enumerate(of):
        if odd and parts[i] < each:
            parts[i] += 1
            odd -= 1
    return parts
