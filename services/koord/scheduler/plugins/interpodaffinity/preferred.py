"""Preferred terms of a class, and terms of pods with a node that speak for or against its coming."""

import numpy as np

from koord.columns.matrix import Floats
from koord.scheduler.engine.domains import DomainSum
from koord.scheduler.engine.podindex import Group
from koord.scheduler.engine.window import Window
from koord.scheduler.plugins.interpodaffinity.flags import codes


class Preferred:
    """Terms of the score: one weighted sum of pods per topology key. Equal classes share one; compared by identity."""

    __slots__ = ("__weakref__", "_groups", "_sums", "version")

    def __init__(self, sums: tuple[DomainSum, ...], groups: tuple[Group, ...]) -> None:
        self._sums = sums
        self._groups = groups  # held, so that they are counted
        self.version = 0

    def sync(self) -> int:
        """Bring the sums up to date; the version."""
        moved = False
        for total in self._sums:
            changes = total.changes()
            if changes is None or changes:
                moved = True
        if moved:
            self.version += 1
        return self.version

    def raw(self, window: Window) -> Floats:
        """Sum over the topology keys of what the row's domain has for and against it."""
        self.sync()
        answer: Floats | None = None
        for total in self._sums:
            part: Floats = total.values.take(codes(total.domains, window))
            answer = part if answer is None else np.add(answer, part, out=answer)
        assert answer is not None, "terms without any part are None"
        return answer
