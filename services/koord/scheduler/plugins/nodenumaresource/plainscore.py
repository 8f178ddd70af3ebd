"""The usual score: a pod that gets nothing special, on nodes that demand nothing, rated by cpu and memory alone.

What :class:`koord.scheduler.plugins.nodenumaresource.rows.Rows` would answer, on both resources at once.
"""

import numpy as np

from koord.columns.matrix import Floats
from koord.scheduler.engine.constants import same
from koord.scheduler.engine.window import Window
from koord.scheduler.numa.placing import Scoring

_MAX_SCORE = 100.0


class PlainScore:
    """Made once for a setting; ``usable`` if it rates by cpu and memory and nothing else."""

    def __init__(self, scoring: Scoring) -> None:
        weights = dict(scoring.weights)
        self.usable = sorted(weights) == ["cpu", "memory"] and len(scoring.weights) == 2
        self._most = scoring.most
        self._total = float(sum(weights.values()))
        self._weights: Floats | None = None
        if self.usable and self._total != len(weights):
            self._weights = np.array([[float(weights["cpu"])], [float(weights["memory"])]])

    def rate(self, window: Window, added: Floats) -> Floats | None:
        """Scores with ``added`` ([[cpu], [memory]]) more requested; None: some node has no cpu or no memory at all."""
        both = window.natives(nonzero=False)
        if both is None:
            return None
        free, capacity = both
        left = free - added
        np.maximum(left, same(0.0, window.size), out=left)
        if self._most:
            np.subtract(capacity, left, out=left)
        left *= _MAX_SCORE
        left /= capacity
        np.floor(left, out=left)
        if self._weights is not None:
            left *= self._weights
        mean: Floats = left[0]
        mean += left[1]
        mean /= self._total
        return np.floor(mean, out=mean)
