"""Required terms of a class, and those of pods with a node that concern it: which rows they let it on."""

import numpy as np

from koord.columns.matrix import Bools
from koord.scheduler.engine.podindex import Group
from koord.scheduler.engine.window import Window
from koord.scheduler.plugins.interpodaffinity.flags import DomainFlags


class Required:
    """Terms of the filter. Equal classes share one; compared by identity.

    ``near``: one entry per topology key of the class's affinity, over pods that match all of its terms. ``alone``: the
    class matches all of them itself, so the first of its pods may go anywhere that has the labels. ``far``: the class's
    own anti-affinity. ``foreign``: anti-affinity that pods with a node have against the class.
    """

    __slots__ = ("__weakref__", "_alone", "_far", "_foreign", "_groups", "_near", "_open", "version")

    def __init__(
        self,
        near: tuple[DomainFlags, ...],
        far: tuple[DomainFlags, ...],
        foreign: tuple[DomainFlags, ...],
        groups: tuple[Group, ...],
        *,
        alone: bool,
    ) -> None:
        self._near = near
        self._far = far
        self._foreign = foreign
        self._groups = groups  # held, so that they are counted
        self._alone = alone
        self._open = False
        self.version = 0

    def sync(self) -> int:
        """Bring everything up to date; the version."""
        moved = False
        for flags in self._near:
            moved |= flags.sync()
        if moved and self._alone:
            self._open = all(flags.empty for flags in self._near)
        for flags in self._far:
            moved |= flags.sync()
        for flags in self._foreign:
            moved |= flags.sync()
        if moved:
            self.version += 1
        return self.version

    def passes(self, window: Window) -> Bools:
        """Rows that all terms let the class on."""
        self.sync()
        answer: Bools | None = None
        for flags in self._near:
            part = flags.known(window) if self._open else flags.of(window)
            answer = part if answer is None else np.logical_and(answer, part, out=answer)
        for flags in (*self._far, *self._foreign):
            part = flags.of(window)
            answer = part if answer is None else np.logical_and(answer, part, out=answer)
        assert answer is not None, "terms without any part are None"
        return answer

    def refusals(self, window: Window) -> tuple[Bools, Bools, Bools]:
        """Rows refused by affinity, else by own anti-affinity, else by that of others."""
        self.sync()
        near, far, foreign = (np.ones(window.size, dtype=np.bool_) for _ in range(3))
        for flags in self._near:
            near &= flags.known(window) if self._open else flags.of(window)
        for flags in self._far:
            far &= flags.of(window)
        for flags in self._foreign:
            foreign &= flags.of(window)
        return ~near, near & ~far, near & far & ~foreign
