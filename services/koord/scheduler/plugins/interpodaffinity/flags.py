"""Domains that pods open or close for others, kept as one flag per domain."""

import numpy as np

from koord.columns.matrix import Bools
from koord.scheduler.engine.domains import Domains, DomainSum, RowCodes
from koord.scheduler.engine.window import Window


class DomainFlags:
    """``passes[code]``: whether a domain lets a pod in. ``near``: only those with pods do, and no node without the
    label; otherwise only those without pods, and every node without the label."""

    __slots__ = ("_near", "_sum", "passes")

    def __init__(self, total: DomainSum, *, near: bool) -> None:
        self._sum = total
        self._near = near
        self.passes: Bools = np.zeros(1, dtype=np.bool_)

    @property
    def total(self) -> DomainSum:
        """The sum that the flags are of."""
        return self._sum

    @property
    def domains(self) -> Domains:
        """The domains that the flags are of."""
        return self._sum.domains

    @property
    def empty(self) -> bool:
        """No domain has a pod."""
        return not self._sum.values.any()

    def sync(self) -> bool:
        """Bring the flags up to date; True if any is another one, or a row is in another domain."""
        changes = self._sum.changes()
        values = self._sum.values
        if changes is None:
            self.passes = values > 0 if self._near else values <= 0
            return True
        moved = False
        for code in changes:
            passes = bool(values[code] > 0) is self._near
            if passes != self.passes[code]:
                self.passes[code] = passes
                moved = True
        return moved

    def of(self, window: Window) -> Bools:
        """The flag of each row's domain."""
        return self.passes.take(codes(self.domains, window))

    def known(self, window: Window) -> Bools:
        """Rows that have the label."""
        known: Bools = codes(self.domains, window) != 0
        return known


def codes(domains: Domains, window: Window) -> RowCodes:
    """The domain of each row of a window."""
    return domains.codes[window.rows]
