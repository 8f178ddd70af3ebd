"""How nodes are rated by what would be left of them. Spec 10 section 3.11, "Score"."""

import numpy as np

from koord.columns.matrix import Floats
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
from koord.scheduler.plugins.loadaware.vectors import CPU, MEMORY


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
        self._total = sum(weight for _, weight in self._weights) + self._dominant

    @property
    def weighs(self) -> bool:
        """Whether anything is weighed at all."""
        return self._total > 0

    def score(self, left: list[Floats], capacity: list[Floats]) -> Floats:
        """Whole numbers 0..100 per row, of ``[resource][row]``.

        Both are written over by nobody. ``left`` below 0: too much; −inf: nothing is known. ``capacity`` inf: none.
        """
        points = {
            index: self._points(left[index], capacity[index])
            for index in sorted({index for index, _ in self._weights}.union(self._judged))
        }
        total = np.zeros(len(left[0]))
        for index, weight in self._weights:
            total += points[index] * weight if weight != 1.0 else points[index]
        if self._judged:
            worst = np.full(len(total), np.inf)
            for index in self._judged:
                np.minimum(worst, points[index], out=worst, where=np.isfinite(capacity[index]))
            worst[np.isinf(worst)] = 0.0
            total += worst * self._dominant
        if self._total != 1.0:
            total /= self._total
        return np.floor(total, out=total)

    def _points(self, left: Floats, capacity: Floats) -> Floats:
        if self._most:
            with np.errstate(invalid="ignore"):
                used = (capacity - left) * 100.0 / capacity
            return np.floor(np.where(left >= 0.0, used, 0.0))
        share = np.maximum(left, 0.0)
        share *= 100.0
        share /= capacity
        return np.floor(share, out=share)
