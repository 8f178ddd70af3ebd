"""The best rows of one class for a run of equal pods, looked ahead."""

import heapq

import numpy as np

from koord.columns.matrix import Ints
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.evaluation import Evaluation
from koord.scheduler.engine.resources import Footprint


class Ranking:
    """The best rows for at most ``wanted`` pods, with the keys of what comes after each."""

    def __init__(self, cluster: Cluster, evaluation: Evaluation, footprint: Footprint, keys: Ints, wanted: int) -> None:
        self._cluster = cluster
        self._evaluation = evaluation
        self._footprint = footprint
        # Each pod uses at most one row that was untouched before it, so the best `wanted` rows always hold the choice.
        if len(keys) > wanted:
            best = np.argpartition(keys, len(keys) - wanted)[len(keys) - wanted :]
        else:
            best = np.arange(len(keys))
        best = best[keys[best] >= 0]
        order = best[np.argsort(-keys[best])]
        self._heap: list[tuple[int, int]] = list(zip((-keys[order]).tolist(), order.tolist(), strict=True))
        self._ahead: dict[int, list[int]] = {}
        self._level: dict[int, int] = {}
        if len(order):
            depth = int(min(8, max(1, 2 * wanted // len(order) + 1)))
            rows = np.repeat(order, depth)
            counts = np.tile(np.arange(1, depth + 1, dtype=np.float64), len(order))
            ahead = evaluation.ahead(cluster, self._footprint, rows, counts).reshape(len(order), depth).tolist()
            self._ahead = dict(zip(order.tolist(), ahead, strict=True))

    def take(self) -> tuple[int, int] | None:
        """Key and row of the best choice, which is used up by this; None: no row is feasible."""
        heap = self._heap
        if not heap:
            return None
        negative, row = heap[0]
        level = self._level.get(row, 0)
        ahead = self._ahead[row]
        if level == len(ahead):
            depth = min(2 * level, 256)
            counts = np.arange(level + 1, level + depth + 1, dtype=np.float64)
            rows = np.full(depth, row, dtype=np.int64)
            ahead.extend(self._evaluation.ahead(self._cluster, self._footprint, rows, counts).tolist())
        self._level[row] = level + 1
        following = ahead[level]
        if following >= 0:
            heapq.heapreplace(heap, (-following, row))
        else:
            heapq.heappop(heap)
        return -negative, row
