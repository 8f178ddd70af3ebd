"""What was heard outside of where one pod may go: whoever was asked about its feasible rows has refused some of them,
and has rated the others.

It was asked a moment ago, so it only ever takes rows away and adds to their scores: which rows are feasible, and what
the plugins give them, is looked at again when the pod is placed.
"""

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from koord.columns.matrix import Ints
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.cluster import TIE_BITS, Cluster
from koord.scheduler.engine.fewrows import rank_few, rows_of
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


def advised(cluster: Cluster, program: Program, advice: Advice) -> Iterator[tuple[int, int]]:
    """Rows that a pod of the program may go to with their keys, best first; equal ones in the engine's order of ties.

    Normalised scores look at these rows only, as upstream's do. Totals may be of any size, below 0 too. PluginError: a
    plugin raised.
    """
    names = [name for name in advice.passed if program.names is None or name in program.names]
    names = [name for name in names if cluster.index.find(name) is not None]
    if not names:
        return
    rows = rows_of(cluster, names)
    own = rank_few(program, cluster, rows)
    added: Ints = np.array([max(-MOST_ADDED, min(MOST_ADDED, advice.passed[name])) for name in names], dtype=np.int64)
    feasible = own >= 0
    rows, own = rows[feasible], own[feasible]
    total, tie = (own >> TIE_BITS) + added[feasible], own & ((1 << TIE_BITS) - 1)
    for index in np.lexsort((-tie, -total)).tolist():
        yield int(rows[index]), (int(total[index]) << TIE_BITS) | int(tie[index])


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
