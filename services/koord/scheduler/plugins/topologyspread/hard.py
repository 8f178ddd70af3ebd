"""DoNotSchedule: which domains may take one pod more."""

import numpy as np

from koord.columns.matrix import Bools
from koord.scheduler.engine.domains import DomainSum
from koord.scheduler.engine.podindex import Group
from koord.scheduler.engine.removals import Falling, Leaving
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Reason, Without
from koord.scheduler.plugins.topologyspread.constraints import Constraint

SKEWED = "node(s) didn't match pod topology spread constraints"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
_MANY = float(1 << 60)


class HardConstraint:
    """One constraint: ``passes[code]`` says whether the domain may take one pod more, never a node without the key.

    count + self − min > maxSkew refuses; min is the least count of the domains that have a node that counts, 0 if
    there are fewer than minDomains of them.
    """

    __slots__ = ("_itself", "_least", "_max_skew", "_min_domains", "_present", "_sum", "passes")

    def __init__(self, constraint: Constraint, total: DomainSum, itself: int) -> None:
        self._max_skew = constraint.max_skew
        self._min_domains = constraint.min_domains
        self._itself = itself
        self._sum = total
        self._present: Bools = np.zeros(1, dtype=np.bool_)
        self._least: float | None = None
        self.passes: Bools = np.zeros(1, dtype=np.bool_)

    def sync(self) -> bool:
        """Bring ``passes`` up to date; True if an answer may be another one."""
        changes = self._sum.changes()
        if changes is None:
            size = self._sum.domains.size
            self._present = np.bincount(self._sum.counted, minlength=size) > 0
            self._present[0] = False
        elif not changes:
            return False
        values = self._sum.values
        least = 0.0
        if int(np.count_nonzero(self._present)) >= self._min_domains:
            least = float(values.min(where=self._present, initial=_MANY))
        most = self._max_skew - self._itself + least
        if changes is None or least != self._least:
            self._least = least
            self.passes = values <= most
            self.passes[0] = False
            return True
        moved = False
        for code in changes:
            passes = bool(values[code] <= most)
            if passes != self.passes[code]:
                self.passes[code] = passes
                moved = True
        return moved

    def of(self, window: Window) -> Bools:
        """The answer for each row."""
        return self.passes.take(self._sum.domains.codes[window.rows])

    def known(self, window: Window) -> Bools:
        """Rows that have the key."""
        known: Bools = self._sum.domains.codes[window.rows] != 0
        return known

    def without(self, leaving: Leaving) -> "FallingConstraint":
        """The constraint, which must be up to date, as pods leave."""
        least = 0.0
        if int(np.count_nonzero(self._present)) >= self._min_domains:
            least = float(self._sum.values.min(where=self._present, initial=_MANY))
        return FallingConstraint(Falling(self._sum, leaving), self._max_skew - self._itself + least)


class FallingConstraint:
    """One constraint without some pods of each row. ``most``: how many pods a domain may have.

    That is as it was: the least domain can only become another one if that is the row's own, and the least may always
    have one pod more.
    """

    __slots__ = ("_falling", "_most", "known")

    def __init__(self, falling: Falling, most: float) -> None:
        self._falling = falling
        self._most = most
        self.known: Bools = falling.codes != 0

    def passes(self, gone: Bools) -> Bools:
        """The answer for each row."""
        passes: Bools = self.known & (self._falling.left(gone) <= self._most)
        return passes


class HardWithout(Without):
    """Hard constraints without some pods of each row."""

    def __init__(self, constraints: list[FallingConstraint]) -> None:
        self._constraints = constraints

    def passes(self, gone: Bools, window: Window) -> Bools:
        """Rows that no constraint refuses."""
        answer = self._constraints[0].passes(gone)
        for constraint in self._constraints[1:]:
            answer &= constraint.passes(gone)
        return answer

    def reasons(self, gone: Bools, window: Window) -> list[Reason]:
        """The first constraint that refuses counts."""
        missing: Bools = np.zeros(window.size, dtype=np.bool_)
        skewed = missing.copy()
        for constraint in self._constraints:
            left = ~(missing | skewed)
            missing |= left & ~constraint.known
            skewed |= left & constraint.known & ~constraint.passes(gone)
        return told(missing, skewed)


def told(missing: Bools, skewed: Bools) -> list[Reason]:
    """One of two texts per refused row; no pod that goes brings a label."""
    return [Reason(SKEWED, skewed), Reason(MISSING, missing, resolvable=False)]


class Hard:
    """Terms of the filter. Equal classes share one; compared by identity."""

    __slots__ = ("__weakref__", "_constraints", "_groups", "version")

    def __init__(self, constraints: tuple[HardConstraint, ...], groups: tuple[Group, ...]) -> None:
        self._constraints = constraints
        self._groups = groups  # held, so that they are counted
        self.version = 0

    def sync(self) -> int:
        """Bring everything up to date; the version."""
        moved = False
        for constraint in self._constraints:
            moved |= constraint.sync()
        if moved:
            self.version += 1
        return self.version

    def passes(self, window: Window) -> Bools:
        """Rows that no constraint refuses."""
        self.sync()
        answer = self._constraints[0].of(window)
        for constraint in self._constraints[1:]:
            np.logical_and(answer, constraint.of(window), out=answer)
        return answer

    def refusals(self, window: Window) -> tuple[Bools, Bools]:
        """Rows refused because a key is missing, and because of the skew; the first constraint that refuses counts."""
        self.sync()
        missing: Bools = np.zeros(window.size, dtype=np.bool_)
        skewed: Bools = np.zeros(window.size, dtype=np.bool_)
        for constraint in self._constraints:
            left = ~(missing | skewed)
            known = constraint.known(window)
            missing |= left & ~known
            skewed |= left & known & ~constraint.of(window)
        return missing, skewed

    def without(self, leaving: Leaving) -> HardWithout:
        """What the constraints would say as pods leave."""
        self.sync()
        return HardWithout([constraint.without(leaving) for constraint in self._constraints])
