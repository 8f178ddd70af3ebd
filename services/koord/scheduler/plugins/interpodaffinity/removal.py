"""Required terms as they would be without some pods of each row, for preemption."""

import numpy as np

from koord.columns.matrix import Bools
from koord.scheduler.engine.removals import Falling, Leaving
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Reason, Without
from koord.scheduler.plugins.interpodaffinity.required import Required, told


class RequiredWithout(Without):
    """What :class:`Required` would let on rows as pods leave them."""

    def __init__(self, terms: Required, leaving: Leaving) -> None:
        terms.sync()
        self._near = [(Falling(flags.total, leaving), float(flags.total.values.sum())) for flags in terms.near]
        self._far = [Falling(flags.total, leaving) for flags in terms.far]
        self._foreign = [Falling(flags.total, leaving) for flags in terms.foreign]
        self._alone = terms.alone

    def passes(self, gone: Bools, window: Window) -> Bools:
        """Rows that all terms would let the class on."""
        near, far, foreign = self._sides(gone)
        return near & far & foreign

    def reasons(self, gone: Bools, window: Window) -> list[Reason]:
        """The texts of the filter."""
        near, far, foreign = self._sides(gone)
        return told(~near, near & ~far, near & far & ~foreign)

    def _sides(self, gone: Bools) -> tuple[Bools, Bools, Bools]:
        near, far, foreign = (np.ones(len(gone), dtype=np.bool_) for _ in range(3))
        for falling in self._far:
            far &= falling.left(gone) <= 0.0
        for falling in self._foreign:
            foreign &= falling.left(gone) <= 0.0
        if not self._near:
            return near, far, foreign
        # Without any pod that all terms mean, the first of the class may go wherever the labels are.
        nobody: Bools = np.full(len(gone), self._alone)
        labelled = near.copy()
        for falling, total in self._near:
            near &= falling.left(gone) > 0.0
            nobody &= total - falling.fall(gone) <= 0.0
            labelled &= falling.codes != 0
        return near | nobody & labelled, far, foreign
