"""Required terms of a class, and those of pods with a node that concern it: which rows they let it on."""

import numpy as np

from koord.columns.matrix import Bools
from koord.scheduler.engine.podindex import Group
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Reason
from koord.scheduler.plugins.interpodaffinity.flags import DomainFlags

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


def told(near: Bools, far: Bools, foreign: Bools) -> list[Reason]:
    """One of three texts per refused row; taking pods away does not help against a lack of affinity."""
    return [Reason(AFFINITY, near, resolvable=False), Reason(ANTI_AFFINITY, far), Reason(EXISTING, foreign)]


class Required:
    """Terms of the filter. Equal classes share one; compared by identity.

    ``near``: one entry per topology key of the class's affinity, over pods that match all of its terms. ``alone``: the
    class matches all of them itself, so the first of its pods may go anywhere that has the labels. ``far``: the class's
    own anti-affinity. ``foreign``: anti-affinity that pods with a node have against the class.
    """

    __slots__ = ("__weakref__", "_groups", "_open", "alone", "far", "foreign", "near", "version")

    def __init__(
        self,
        near: tuple[DomainFlags, ...],
        far: tuple[DomainFlags, ...],
        foreign: tuple[DomainFlags, ...],
        groups: tuple[Group, ...],
        *,
        alone: bool,
    ) -> None:
        self.near = near
        self.far = far
        self.foreign = foreign
        self._groups = groups  # held, so that they are counted
        self.alone = alone
        self._open = False
        self.version = 0

    def sync(self) -> int:
        """Bring everything up to date; the version."""
        moved = False
        for flags in self.near:
            moved |= flags.sync()
        if moved and self.alone:
            self._open = all(flags.empty for flags in self.near)
        for flags in self.far:
            moved |= flags.sync()
        for flags in self.foreign:
            moved |= flags.sync()
        if moved:
            self.version += 1
        return self.version

    def passes(self, window: Window) -> Bools:
        """Rows that all terms let the class on."""
        self.sync()
        answer: Bools | None = None
        for flags in self.near:
            part = flags.known(window) if self._open else flags.of(window)
            answer = part if answer is None else np.logical_and(answer, part, out=answer)
        for flags in (*self.far, *self.foreign):
            part = flags.of(window)
            answer = part if answer is None else np.logical_and(answer, part, out=answer)
        assert answer is not None, "terms without any part are None"
        return answer

    def refusals(self, window: Window) -> tuple[Bools, Bools, Bools]:
        """Rows refused by affinity, else by own anti-affinity, else by that of others."""
        self.sync()
        near, far, foreign = (np.ones(window.size, dtype=np.bool_) for _ in range(3))
        for flags in self.near:
            near &= flags.known(window) if self._open else flags.of(window)
        for flags in self.far:
            far &= flags.of(window)
        for flags in self.foreign:
            foreign &= flags.of(window)
        return ~near, near & ~far, near & far & ~foreign
