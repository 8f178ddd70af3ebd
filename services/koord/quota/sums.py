"""Amounts of quotas summed up their trees, for what is shown on the objects (spec 20 section 3.7).

One row per quota, one column per resource, one pass per level from the deepest up.
"""

import heapq
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.int64]
ByQuota = Mapping[str, Mapping[str, int]]

NO_LIMIT = 2**62
LARGEST = 2**53
"""Amounts are capped here: the ledger counts no further, and 512 of them still fit in an int64."""
MOST_OTHERS = 100
"""Quotas without a max show resources that no quota names: so many, the first by name. A pod may ask for thousands."""


class Level(msgspec.Struct, frozen=True):
    """One quota as the sums need it. ``parent`` is empty at the top of its tree; ``lends`` False lifts its request."""

    name: str
    parent: str
    min: dict[str, int]
    max: dict[str, int]
    lends: bool = True


class Sums(msgspec.Struct, frozen=True):
    """What a quota's subtree uses and asks for, by resource.

    ``child_request`` is the request before one that does not lend lifts it to its min. ``kept_used`` and
    ``kept_request`` are of the pods that must not be preempted alone.
    """

    used: dict[str, int]
    request: dict[str, int]
    child_request: dict[str, int] = {}
    kept_used: dict[str, int] = {}
    kept_request: dict[str, int] = {}


def sums_of(
    levels: Sequence[Level], used: ByQuota, asked: ByQuota, kept_used: ByQuota, kept: ByQuota
) -> dict[str, Sums]:
    """Sums of every quota's subtree from what its own pods and units use and ask for.

    A level whose parent is unknown is taken as a top.
    """
    maps = (used.values(), asked.values(), (level.min for level in levels))
    column = _columns({name for amounts in maps for each in amounts for name in each}, levels)
    if not levels or not column:
        return {level.name: Sums(dict.fromkeys(level.max, 0), dict.fromkeys(level.max, 0)) for level in levels}
    row = {level.name: at for at, level in enumerate(levels)}
    nothing: dict[str, int] = {}

    def own(by_quota: ByQuota) -> Matrix:
        return _matrix(column, [by_quota.get(level.name, nothing) for level in levels])

    plain = [own(used), own(kept_used), own(kept)] if kept else [own(used)]
    request = own(asked)
    least = _matrix(column, [nothing if level.lends else level.min for level in levels])
    most = _matrix(column, [level.max for level in levels], missing=NO_LIMIT)
    parents = np.array([row.get(level.parent, -1) for level in levels], dtype=np.int64)
    below = request.copy()
    for rows in _deepest_first(parents):
        below[rows] = request[rows]
        request[rows] = np.maximum(request[rows], least[rows])
        inner = rows[parents[rows] >= 0]
        for each in plain:
            np.add.at(each, parents[inner], each[inner])
        np.add.at(request, parents[inner], np.minimum(request[inner], most[inner]))
    for each in plain:
        np.maximum(each, 0, out=each)
    found: dict[str, Sums] = {}
    plain_rows, request_rows, below_rows = [each.tolist() for each in plain], request.tolist(), below.tolist()
    for at, level in enumerate(levels):
        shown = [_row(column, rows[at], level.max) for rows in plain_rows] + [nothing, nothing]
        found[level.name] = Sums(
            shown[0],
            _row(column, request_rows[at], level.max),
            _row(column, below_rows[at], level.max),
            shown[1] if kept else {},
            shown[2] if kept else {},
        )
    return found


def _columns(there: set[str], levels: Sequence[Level]) -> dict[str, int]:
    """What is summed up of what is ``there``: all that a quota names, of the rest no more than :data:`MOST_OTHERS`."""
    named = {name for level in levels for each in (level.min, level.max) for name in each if name in there}
    return {name: at for at, name in enumerate(sorted({*named, *heapq.nsmallest(MOST_OTHERS, there - named)}))}


def _matrix(column: Mapping[str, int], rows: Sequence[Mapping[str, int]], missing: int = 0) -> Matrix:
    """Costs what the rows hold, not what they could hold."""
    made = np.full((len(rows), len(column)), missing, np.int64)
    at: list[int] = []
    to: list[int] = []
    values: list[int] = []
    for number, amounts in enumerate(rows):
        for name, amount in amounts.items():
            where = column.get(name)
            if where is not None:
                at.append(number)
                to.append(where)
                values.append(min(amount, LARGEST))
    made[at, to] = values
    return made


def _row(column: Mapping[str, int], row: Sequence[int], maximum: Mapping[str, int]) -> dict[str, int]:
    """Back to a map: every key of the quota's max, or, where it has none, whatever is not zero."""
    if maximum:
        return {name: row[column[name]] if name in column else 0 for name in maximum}
    return {name: value for name, value in zip(column, row, strict=True) if value}


def _deepest_first(parents: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows by depth, the deepest level first. A parent cycle (never in force) counts as depth 0."""
    depth = np.zeros(len(parents), dtype=np.int64)
    at = parents.copy()
    for _ in range(len(parents)):
        alive = at >= 0
        if not alive.any():
            break
        depth[alive] += 1
        at[alive] = parents[at[alive]]
    return [np.flatnonzero(depth == level) for level in range(int(depth.max()), -1, -1)]
