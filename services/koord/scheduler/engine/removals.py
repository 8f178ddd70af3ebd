"""What sums over domains would be without some pods of a row: preemption asks, and no book is touched.

A pod that goes changes the domains of its own row alone, so what is left of them is a subtraction per row. Who counts
where is looked up only for the pods of rows that have somebody who counts.
"""

from collections.abc import Sequence

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.domains import DomainSum
from koord.scheduler.engine.podindex import PodIndex
from koord.scheduler.engine.tally import Tally
from koord.scheduler.framework.subjects import AssignedPod


class Leaving:
    """Pods that may go: ``pods[i]`` stand on ``rows[i]``, at most ``depth`` on each."""

    def __init__(self, index: PodIndex, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> None:
        self._index = index
        self._tallies: dict[str, list[Tally]] = {}
        self.rows = rows
        self.pods = pods
        self.depth = max(map(len, pods), default=0)

    def share(self, tally: Tally) -> Floats | None:
        """``[i, j]``: 1 where pod ``j`` of row ``i`` counts in the tally; None: nobody does."""
        there = np.flatnonzero(tally.counts(self._index.cluster.high)[self.rows])
        if not len(there):
            return None
        found: Floats = np.zeros((len(self.rows), self.depth))
        for at in there.tolist():
            for place, pod in enumerate(self.pods[at]):
                if tally in self._of(pod):
                    found[at, place] = 1.0
        return found if found.any() else None

    def _of(self, pod: AssignedPod) -> list[Tally]:
        found = self._tallies.get(pod.ref.uid)
        if found is None:
            ref = pod.ref
            found = self._index.tallies_of(ref.namespace, ref.labels, pod.spec.affinity, pod.terminating)
            self._tallies[ref.uid] = found
        return found


class Falling:
    """The domain of each row under one sum, which must be up to date. ``codes``: 0 without the label."""

    __slots__ = ("_drop", "_values", "codes")

    def __init__(self, total: DomainSum, leaving: Leaving) -> None:
        self.codes = total.domains.codes[leaving.rows]
        self._values: Floats = total.values[self.codes]
        self._drop: Floats | None = None
        counted = total.counted[leaving.rows] != 0
        for tally, weight in total.parts if counted.any() else ():
            share = leaving.share(tally)
            if share is not None:
                share *= weight * counted[:, None]
                self._drop = share if self._drop is None else self._drop + share

    def fall(self, gone: Bools) -> Floats | float:
        """By how much each row's domain falls without those that are ``gone``."""
        if self._drop is None:
            return 0.0
        fall: Floats = (self._drop * gone).sum(axis=1)
        return fall

    def left(self, gone: Bools) -> Floats:
        """What is left of each row's domain."""
        left: Floats = self._values - self.fall(gone)
        return left
