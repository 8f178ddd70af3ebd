"""Water filling: what each child of a parent may use of the parent's total (spec 20 section 3.8), exactly.

Many parents, and all resources of each, are filled in one pass: a *segment* is one resource of one parent, its entries
are the children in the order of their names. Every number is an integer and every quotient is exact: it is estimated
in floating point, then corrected by its remainder, which 64-bit arithmetic gives exactly although the products
overflow, for it is less than six divisors, and those stay below 2^60. Segments with larger numbers are computed one at
a time with Python's integers by :func:`fill_one`, which the tests hold to the same reference.

The original scales mins in floating point; here they are rounded down from the exact quotient, so that scaled mins
never add up to more than there is. The two differ by a byte in amounts of memory.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_REST = 2**53
"""From this total on a quotient may not be exact in a double; see :func:`exact_quotient`."""
_DIVISOR = 2.0**59
"""Divisors stay below 2^60: six of them fit in 64 bits. Half of it, because the sum is checked in floating point."""


class Segments(msgspec.Struct, frozen=True):
    """One flat entry per child, by segment: ``starts`` has the first entry of each, none is empty.

    ``total`` and ``known`` are per segment: what there is, and whether the total names the resource at all (mins are
    scaled only then). Per child: ``least`` its min, ``guaranteed`` what it keeps anyway, ``request`` the limited
    request, ``weight`` (0 or less takes no part), ``lends`` whether idle min is lent, ``scales`` whether its min is
    scaled. All amounts but ``weight`` are 0 or more, ``total`` may be negative.
    """

    starts: Ints
    total: Ints
    known: Flags
    least: Ints
    guaranteed: Ints
    request: Ints
    weight: Ints
    lends: Flags
    scales: Flags


def fill(given: Segments) -> Ints:
    """The runtime of every child."""
    size = len(given.least)
    if not size:
        return np.zeros(0, np.int64)
    starts = given.starts
    counts = np.diff(starts, append=size)
    segment = np.repeat(np.arange(len(starts)), counts)
    weight = np.maximum(given.weight, 0)
    wide = _wide(given, weight)

    least = np.maximum(_scaled(given, segment, ~wide), given.guaranteed)
    open_ = given.request > least
    runtime = np.where(open_ | ~given.lends, least, given.request)
    rest = given.total - np.add.reduceat(runtime, starts)
    rest[wide] = 0
    at = np.flatnonzero(open_ & (weight > 0) & (rest[segment] > 0))
    _share(runtime, rest, at, segment, weight, given.request)

    for one in np.flatnonzero(wide).tolist():
        rows = slice(int(starts[one]), int(starts[one] + counts[one]))
        runtime[rows] = fill_one(
            int(given.total[one]),
            bool(given.known[one]),
            given.least[rows].tolist(),
            given.guaranteed[rows].tolist(),
            given.request[rows].tolist(),
            weight[rows].tolist(),
            given.lends[rows].tolist(),
            given.scales[rows].tolist(),
        )
    return runtime


def _wide(given: Segments, weight: Ints) -> Flags:
    """Segments whose numbers are too large for the pass in columns."""
    amounts = given.least.astype(np.float64) + given.guaranteed + given.request
    largest = np.maximum(np.add.reduceat(weight.astype(np.float64), given.starts), 1)
    most = np.maximum(np.add.reduceat(amounts, given.starts), largest)
    wide: Flags = (most >= _DIVISOR) | (np.abs(given.total) >= _REST)
    return wide


def _scaled(given: Segments, segment: Ints, usable: Flags) -> Ints:
    """Step 1: mins that add up to more than the total are scaled down to what is left for them."""
    starts = given.starts
    short = usable & given.known & (given.total < np.add.reduceat(given.least, starts))
    if not short.any():
        return given.least
    scaling = np.where(given.scales, given.least, 0)
    together = np.add.reduceat(scaling, starts)
    left = np.maximum(given.total - np.add.reduceat(given.least - scaling, starts), 0)
    at = np.flatnonzero(short[segment] & (scaling > 0))
    least = given.least.copy()
    where = segment[at]
    least[at] = exact_quotient(scaling[at], left[where], together[where])[0]
    return least


def _share(runtime: Ints, rest: Ints, at: Ints, segment: Ints, weight: Ints, request: Ints) -> None:
    """Steps 4 and 5: hand out ``rest`` by weight among the entries ``at``, surplus again, until none is left."""
    missing = request - runtime
    while len(at):
        where = segment[at]
        first = np.flatnonzero(np.diff(where, prepend=-1))
        which = where[first]
        spread = np.repeat(np.arange(len(first)), np.diff(first, append=len(at)))
        need = missing[at]
        # Where there is enough for all, all get what they ask for, whatever the order of the hand-outs.
        enough = rest[which] >= np.add.reduceat(need, first)
        if enough.any():
            served = enough[spread]
            runtime[at[served]] = request[at[served]]
            at = at[~served]
            continue
        shares = weight[at]
        quotient, remainder = exact_quotient(shares, rest[where], np.add.reduceat(shares, first)[spread])
        units = rest[which] - np.add.reduceat(quotient, first)
        order = np.lexsort((-remainder, spread))  # stable: equal remainders stay in the order of names
        rank = np.arange(len(at)) - first[spread]
        quotient[order] += rank < units[spread]
        given = np.minimum(quotient, need)
        runtime[at] += given
        missing[at] -= given
        rest[which] = np.add.reduceat(quotient - given, first)
        at = at[(given < need) & (rest[where] > 0)]


def exact_quotient(factor: Ints, amount: Ints, divisor: Ints) -> tuple[Ints, Ints]:
    """``factor * amount`` divided by ``divisor``: quotient and remainder, exactly.

    Holds for 0 <= factor <= divisor < 2^60, 0 < divisor and 0 <= amount < 2^53. The estimate's relative error is below
    2^-51, so it is off by at most five and the remainder, taken modulo 2^64, is the true one.
    """
    quotient = (factor.astype(np.float64) * amount / divisor).astype(np.int64)
    remainder = factor * amount - quotient * divisor
    off = remainder // divisor
    return quotient + off, remainder - off * divisor


def fill_one(
    total: int,
    known: bool,
    least: Sequence[int],
    guaranteed: Sequence[int],
    request: Sequence[int],
    weight: Sequence[int],
    lends: Sequence[bool],
    scales: Sequence[bool],
) -> list[int]:
    """One segment of any size of numbers."""
    floor = list(least)
    if known and total < sum(least):
        together = sum(amount for amount, scaled in zip(least, scales, strict=True) if scaled)
        left = max(0, total - sum(least) + together)
        share = max(together, 1)
        floor = [amount * left // share if scaled else amount for amount, scaled in zip(least, scales, strict=True)]
    floor = [max(pair) for pair in zip(floor, guaranteed, strict=True)]
    runtime = [
        low if asked > low or not lent else asked for asked, low, lent in zip(request, floor, lends, strict=True)
    ]
    rest = total - sum(runtime)
    part = [i for i, asked in enumerate(request) if asked > floor[i] and weight[i] > 0]
    while rest > 0 and part:
        shares = sum(weight[i] for i in part)
        given = {i: divmod(weight[i] * rest, shares) for i in part}
        units = rest - sum(whole for whole, _ in given.values())
        extra = set(sorted(part, key=lambda i: -given[i][1])[:units])
        rest = 0
        for i in part:
            now = runtime[i] + given[i][0] + (i in extra)
            runtime[i] = min(now, request[i])
            rest += now - runtime[i]
        part = [i for i in part if runtime[i] < request[i]]
    return runtime
