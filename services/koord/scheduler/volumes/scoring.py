"""How nodes are rated by the room for a pod's volumes: how much of it the volumes would use. Spec 10 section 3.15.

Upstream's gate StorageCapacityScoring. Where the pod would get volumes that exist, what its claims ask for is set
against the size of these; elsewhere against what the drivers say that they can make. Classes count alike.
"""

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.window import Window
from koord.scheduler.volumes.binding import Delayed, Resolved, Verdict
from koord.scheduler.volumes.book import VolumeBook, amount
from koord.scheduler.volumes.places import NOTHING

FULL = 100
_EXACT = 1 << 56
"""Amounts below it can be multiplied by 100."""


def ratings(resolved: Resolved, verdict: Verdict, book: VolumeBook, window: Window, curve: Floats) -> Floats:
    """Scores 0..100 of the rows of ``window``, for which ``verdict`` was made; 0 where nothing is known.

    ``curve``: the score at each whole percentage of use, 0..100. The mean of the classes, rounded half up.
    """
    size = window.size
    exist: Bools = np.zeros(size, dtype=np.bool_)
    for positions in verdict.chosen:
        exist |= positions != NOTHING
    asked: dict[str, Ints] = {}
    there: dict[str, Ints] = {}
    known: dict[str, Bools] = {}
    for one, positions in zip(resolved.delayed, verdict.chosen, strict=True):
        if one.class_ not in asked:
            asked[one.class_], there[one.class_] = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
            known[one.class_] = np.zeros(size, dtype=np.bool_)
        chosen: Bools = positions != NOTHING
        asked[one.class_] += np.where(chosen, one.size, 0)
        there[one.class_] += _sizes(one, positions, book)
        known[one.class_] |= chosen
        if one.checks_room:
            room = book.capacity(one.class_).amounts(one.size, window)
            made: Bools = ~exist & (room >= 0)
            # Several claims of a class share one room.
            np.copyto(there[one.class_], room, where=made)
            asked[one.class_] += np.where(made, one.size, 0)
            known[one.class_] |= made
    total, classes = np.zeros(size), np.zeros(size)
    for name, rows in known.items():
        total += np.where(rows, curve[_use(asked[name], there[name])], 0.0)
        classes += rows
    return np.floor(np.divide(total, classes, out=np.zeros(size), where=classes > 0) + 0.5)


def _sizes(one: Delayed, positions: Ints, book: VolumeBook) -> Ints:
    """Sizes of the volumes that the claim would get, 0 where it gets none."""
    sizes: Ints = np.zeros(len(positions), dtype=np.int64)
    if one.gift is not None:
        sizes[positions == -1] = amount(book.volumes[one.gift[0]].spec.capacity, "spec.capacity")
    free: Bools = (positions >= 0) & (positions != NOTHING)
    if free.any():
        sizes[free] = book.pool(one.class_).sizes[positions[free]]
    return sizes


def _use(asked: Ints, there: Ints) -> Ints:
    """Whole percentages; what is more than there is, or of nothing, uses all of it."""
    if max(int(asked.max(initial=0)), int(there.max(initial=0))) >= _EXACT:
        asked, there = asked >> 7, there >> 7
    use: Ints = np.full(len(asked), FULL, dtype=np.int64)
    np.floor_divide(asked * FULL, there, out=use, where=(there > 0) & (asked <= there))
    return use
