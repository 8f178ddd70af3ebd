"""What was heard outside of where one pod may go: whoever was asked about its feasible rows has refused some of them,
and has rated the others.

It was asked a moment ago, so it only ever takes rows away and adds to their scores: which rows are feasible, and what
the plugins give them, is looked at again when the pod is placed.
"""

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from koord.columns.matrix import Ints
from koord.scheduler.engine.cluster import TIE_BITS, Cluster
from koord.scheduler.engine.reserving import Refusal

ASKER = "Extender"
"""Who rejected the pod then, as upstream calls it: no plugin's name, so every event may help."""
MOST_ADDED = 1 << 60


class Advice(msgspec.Struct, frozen=True):
    """What one pod was told. ``passed``: nodes that it may go to, with what is added to their scores. ``refused``: why
    it may not go to each of the others that were asked about (``shown``), and whether taking pods away could help.

    With an ``error`` the rest does not count, and the pod cannot be placed.
    """

    shown: frozenset[str]
    passed: Mapping[str, int]
    refused: Mapping[str, tuple[str, bool]] = {}
    error: str = ""


def advised(cluster: Cluster, rows: Ints | None, keys: Ints, advice: Advice) -> Iterator[tuple[int, int]]:
    """Rows that the pod may go to with their keys, best first; equal ones in the engine's order of ties.

    ``rows`` and ``keys`` are those of its class (no rows: all of them). Scores may be of any size, below 0 too.
    """
    find = cluster.index.find
    told = [(row, score) for name, score in advice.passed.items() if (row := find(name)) is not None]
    if not told or not len(keys):
        return
    at: Ints = np.array([row for row, _ in told], dtype=np.int64)
    added: Ints = np.array([max(-MOST_ADDED, min(MOST_ADDED, score)) for _, score in told], dtype=np.int64)
    if rows is None:
        there = at < len(keys)
        at, added = at[there], added[there]
        own = keys[at]
    else:
        place = {row: index for index, row in enumerate(rows.tolist())}
        there = np.array([row in place for row in at.tolist()], dtype=np.bool_)
        at, added = at[there], added[there]
        own = keys[[place[row] for row in at.tolist()]]
    feasible = own >= 0
    at, own, total = at[feasible], own[feasible], (own >> TIE_BITS)[feasible] + added[feasible]
    tie = own & ((1 << TIE_BITS) - 1)
    for index in np.lexsort((-tie, -total)).tolist():
        yield int(at[index]), (int(total[index]) << TIE_BITS) | int(tie[index])


def withheld(cluster: Cluster, rows: Ints | None, keys: Ints, advice: Advice) -> tuple[list[Refusal], bool]:
    """Feasible rows that the pod may not go to, and why; whether there are some that nobody was asked about."""
    refused: list[Refusal] = []
    unasked = False
    for index in np.flatnonzero(keys >= 0).tolist():
        row = index if rows is None else int(rows[index])
        name = cluster.index.name(row) or ""
        if name in advice.passed:
            continue
        if name in advice.shown:
            text, resolvable = advice.refused[name]
            refused.append(Refusal(ASKER, text, row, resolvable))
        else:
            unasked = True
            refused.append(Refusal(ASKER, "node(s) were not there when extenders were asked", row, True))
    return refused, unasked
