"""What preemption asks (``FilterPlugin.without``) of filters that refuse a row while somebody there has something."""

import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, Reason, Terms, Without


class Obstacle:
    """One thing in the way. ``there[i]``: how often it is on row ``i``, ``theirs[i, j]`` how much of that pod ``j`` of
    the row takes with it; ``text`` is what is said of the row."""

    __slots__ = ("text", "theirs", "there")

    def __init__(self, text: str, there: Floats, theirs: Floats) -> None:
        self.text = text
        self.there = there
        self.theirs = theirs

    def stays(self, gone: Bools) -> Bools:
        """Rows where something of it is left."""
        stays: Bools = self.there - (self.theirs * gone).sum(axis=1) > 0.0
        return stays


class Obstacles(Without):
    """A row passes without any of them; the first that is left is why not."""

    def __init__(self, *obstacles: Obstacle) -> None:
        self._obstacles = obstacles

    def passes(self, gone: Bools, window: Window) -> Bools:
        """Rows from which all went."""
        passes: Bools = np.ones(len(gone), dtype=np.bool_)
        for obstacle in self._obstacles:
            passes &= ~obstacle.stays(gone)
        return passes

    def reasons(self, gone: Bools, window: Window) -> list[Reason]:
        """One text per row."""
        found: list[Reason] = []
        left: Bools = np.ones(len(gone), dtype=np.bool_)
        for obstacle in self._obstacles:
            stays = obstacle.stays(gone) & left
            left &= ~stays
            found.append(Reason(obstacle.text, stays))
        return found


class AsItIs(Without):
    """For filters on which pods that go have no bearing: real load is measured, and falls when they are gone."""

    def __init__(self, plugin: FilterPlugin, terms: Terms) -> None:
        self._plugin = plugin
        self._terms = terms

    def passes(self, gone: Bools, window: Window) -> Bools:
        """What the filter says."""
        return self._plugin.filter(self._terms, window)

    def reasons(self, gone: Bools, window: Window) -> list[Reason]:
        """What the filter says."""
        return self._plugin.reasons(self._terms, window)
