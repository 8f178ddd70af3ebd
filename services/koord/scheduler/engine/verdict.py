"""What only node objects decide, kept per terms and shared by every class that has them.

Selectors, taints and cordons change rarely, amounts always. The answers of plugins with locality ``node`` are kept here
for all rows and recomputed for a row only when its node changed.
"""

from collections import OrderedDict
from typing import Any

import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, PluginError, ScorePlugin, Terms

FilterStep = tuple[FilterPlugin, Terms]


class NodeMask:
    """Rows that pass every node-local filter of a class; rows without a node do not."""

    __slots__ = ("_position", "_steps", "mask")

    def __init__(self, steps: tuple[FilterStep, ...]) -> None:
        self._steps = steps
        self._position = -1
        self.mask: Bools = np.zeros(0, dtype=np.bool_)

    def refresh(self, cluster: Cluster) -> Bools:
        """The mask of all rows as of now."""
        journal = cluster.node_journal
        if self._position == journal.end and len(self.mask) == len(cluster.alive):
            return self.mask
        rows = journal.since(self._position) if len(self.mask) == len(cluster.alive) else None
        if rows is None or len(rows) * 4 > cluster.high:
            self.mask = np.zeros(len(cluster.alive), dtype=np.bool_)
            self.mask[: cluster.high] = self._pass(Window.full(cluster))
        else:
            self.mask[rows] = self._pass(Window.some(cluster, rows.copy()))
        self._position = journal.end
        return self.mask

    def _pass(self, window: Window) -> Bools:
        passed: Bools = window.cluster.alive[window.rows].copy()
        timing = window.cluster.timing
        for plugin, terms in self._steps:
            begun = timing.begun()
            try:
                passed &= plugin.filter(terms, window)
            except Exception as error:
                raise PluginError(plugin.name, "Filter", error) from error
            if begun:
                timing.took(plugin.name, "Filter", begun)
        return passed


class NodeScores:
    """Raw scores of one node-local score plugin. ``uniform``: the same on every row, so no extreme can move."""

    __slots__ = ("_plugin", "_position", "_terms", "raw", "uniform")

    def __init__(self, plugin: ScorePlugin, terms: Terms) -> None:
        self._plugin = plugin
        self._terms = terms
        self._position = -1
        self.raw: Floats = np.zeros(0)
        self.uniform = True

    def refresh(self, cluster: Cluster) -> Floats:
        """Raw scores of all rows as of now."""
        journal = cluster.node_journal
        if self._position == journal.end and len(self.raw) == len(cluster.alive):
            return self.raw
        rows = journal.since(self._position) if len(self.raw) == len(cluster.alive) else None
        begun = cluster.timing.begun()
        try:
            if rows is None or len(rows) * 4 > cluster.high:
                self.raw = np.zeros(len(cluster.alive))
                self.raw[: cluster.high] = self._plugin.score(self._terms, Window.full(cluster))
            else:
                self.raw[rows] = self._plugin.score(self._terms, Window.some(cluster, rows.copy()))
        except Exception as error:
            raise PluginError(self._plugin.name, "Score", error) from error
        if begun:
            cluster.timing.took(self._plugin.name, "Score", begun)
        live = self.raw[: cluster.high][cluster.alive[: cluster.high]]
        self.uniform = len(live) == 0 or bool((live == live[0]).all())
        if self.uniform:
            self.raw[:] = live[0] if len(live) else 0.0
        self._position = journal.end
        return self.raw


class Verdicts:
    """The masks and scores in use, least recently used dropped first."""

    def __init__(self, keep: int = 512) -> None:
        self._keep = keep
        self._masks: OrderedDict[Any, NodeMask] = OrderedDict()
        self._scores: OrderedDict[Any, NodeScores] = OrderedDict()

    def mask(self, steps: tuple[FilterStep, ...]) -> NodeMask:
        """The shared mask of these filters with these terms."""
        key = steps
        found = self._masks.get(key)
        if found is None:
            found = self._masks[key] = NodeMask(steps)
            if len(self._masks) > self._keep:
                self._masks.popitem(last=False)
        else:
            self._masks.move_to_end(key)
        return found

    def scores(self, plugin: ScorePlugin, terms: Terms) -> NodeScores:
        """The shared raw scores of this plugin with these terms."""
        key = (plugin, terms)
        found = self._scores.get(key)
        if found is None:
            found = self._scores[key] = NodeScores(plugin, terms)
            if len(self._scores) > self._keep:
                self._scores.popitem(last=False)
        else:
            self._scores.move_to_end(key)
        return found
