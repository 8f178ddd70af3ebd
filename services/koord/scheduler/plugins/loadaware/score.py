"""How nodes are rated by what would be left of them. Spec 10 section 3.11, "Score"."""

import numpy as np

from koord.columns.matrix import Floats
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
from koord.scheduler.engine.cluster import RowColumn
from koord.scheduler.engine.window import Window
from koord.scheduler.plugins.loadaware.vectors import CPU, MEMORY

Columns = list[RowColumn]


class Rating:
    """Weights of the resources, and of the worst of them (``dominantResourceWeight``).

    The worst is taken over the resources that are weighed, cpu and memory if none is; one that a node does not have is
    no resource of it. MostUsed turns the rating round: the fuller the better, but nothing for a node that would be used
    beyond its capacity.
    """

    def __init__(self, args: LoadAwareSchedulingArgs, resources: tuple[str, ...]) -> None:
        weights = args.resource_weights
        self._most = args.scoring_mode == "MostUsed"
        self._dominant = float(args.dominant_resource_weight)
        self._weights = [(index, float(weights[name])) for index, name in enumerate(resources) if weights.get(name)]
        judged = [name for name in resources if weights.get(name)] or [CPU, MEMORY]
        self._judged = [resources.index(name) for name in judged] if self._dominant else []
        self._looked_at = sorted({index for index, _ in self._weights}.union(self._judged))
        self._total = sum(weight for _, weight in self._weights) + self._dominant

    @property
    def weighs(self) -> bool:
        """Whether anything is weighed at all."""
        return self._total > 0

    def score(self, window: Window, left: Columns, capacity: Columns, estimate: tuple[float, ...]) -> Floats:
        """Whole numbers 0..100 per row. ``left`` is in hundredths, below 0: too much is used, −inf: nothing is known.
        ``capacity`` inf: the node has none. ``estimate``: what the pod takes of what is left."""
        points: dict[int, Floats] = {}
        for index in self._looked_at:
            share = window.column(left[index]) - 100.0 * estimate[index]
            room = window.column(capacity[index])
            points[index] = _most(share, room) if self._most else _least(share, room)
        total: Floats | None = None
        for index, weight in self._weights:
            part = points[index] if weight == 1.0 else points[index] * weight
            # The worst is taken of the points as they are.
            total = part if total is None and not self._judged else part + (0.0 if total is None else total)
        if self._judged:
            worst = np.full(window.size, np.inf)
            for index in self._judged:
                np.minimum(worst, points[index], out=worst, where=np.isfinite(window.column(capacity[index])))
            worst[np.isinf(worst)] = 0.0
            worst *= self._dominant
            total = worst if total is None else total + worst
        assert total is not None, "asked only if something is weighed"
        if self._total != 1.0:
            total /= self._total
            np.floor(total, out=total)
        return total


def _least(left: Floats, capacity: Floats) -> Floats:
    share = np.maximum(left, 0.0, out=left)
    share /= capacity
    return np.floor(share, out=share)


def _most(left: Floats, capacity: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        used = (capacity * 100.0 - left) / capacity
    return np.floor(np.where(left >= 0.0, used, 0.0))
