"""What of a class's ranking does not depend on a row alone, kept for all rows until it moves. See ``evaluation``."""

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.outlines import ScoreStep
from koord.scheduler.engine.verdict import FilterStep
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, PluginError, Terms


class Gate:
    """A filter whose answers depend on other rows."""

    __slots__ = ("mask", "plugin", "terms", "version")

    def __init__(self, step: FilterStep, rows: int) -> None:
        self.plugin: FilterPlugin = step[0]
        self.terms: Terms = step[1]
        self.mask: Bools = np.zeros(rows, dtype=np.bool_)
        self.version: int | None = None

    def asked(self) -> int:
        """The plugin's version now."""
        try:
            return self.plugin.filter_version(self.terms)
        except Exception as error:
            raise PluginError(self.plugin.name, "Filter", error) from error

    def filtered(self, window: Window) -> Bools:
        """The plugin's answers now."""
        timing = window.cluster.timing
        begun = timing.begun() if timing.on else 0.0
        try:
            mask = self.plugin.filter(self.terms, window)
        except Exception as error:
            raise PluginError(self.plugin.name, "Filter", error) from error
        if begun:
            timing.took(self.plugin.name, "Filter", begun)
        return mask


class Layer:
    """A score that is kept for all rows: ``raw`` as the plugin said it, ``final`` times its weight."""

    __slots__ = ("final", "high", "low", "raw", "step", "version")

    def __init__(self, step: ScoreStep, rows: int, *, raw: bool) -> None:
        self.step = step
        # No row has a score before it is asked: one that comes and is scored 0 has another one than before.
        self.raw: Floats = np.full(rows if raw else 0, np.nan)
        self.final: Floats = np.zeros(rows)
        self.low = 0.0
        self.high = 0.0
        self.version: int | None = None

    def asked(self) -> int:
        """The plugin's version now."""
        step = self.step
        try:
            return step.plugin.score_version(step.terms)
        except Exception as error:
            raise PluginError(step.plugin.name, "Score", error) from error


class Changed:
    """Rows whose key is another one: a few, or all of them once they are many."""

    __slots__ = ("everything", "high", "rows")

    def __init__(self, high: int, *, everything: bool) -> None:
        self.high = high
        self.everything = everything
        self.rows: slice | Ints = slice(0, high) if everything else np.zeros(0, dtype=np.int64)

    def add(self, rows: slice | Ints) -> None:
        """These, too."""
        if isinstance(self.rows, slice):
            return
        if isinstance(rows, slice) or (len(self.rows) + len(rows)) * 4 > self.high:
            self.rows = slice(0, self.high)
        else:
            self.rows = np.concatenate((self.rows, rows)) if len(self.rows) else rows

    def differing(self, old: Bools | Floats, new: Bools | Floats) -> None:
        """Those where two columns differ, too."""
        if not isinstance(self.rows, slice):
            self.add(np.flatnonzero(old != new))


def scored(step: ScoreStep, window: Window) -> Floats:
    """Raw scores of the window's rows."""
    timing = window.cluster.timing
    begun = timing.begun() if timing.on else 0.0
    try:
        scores = step.plugin.score(step.terms, window)
    except Exception as error:
        raise PluginError(step.plugin.name, "Score", error) from error
    if begun:
        timing.took(step.plugin.name, "Score", begun)
    return scores


def finished(step: ScoreStep, window: Window, feasible: Bools) -> Floats:
    """Final scores, not weighted, of a plugin whose scores depend on other rows and on what is feasible."""
    timing = window.cluster.timing
    begun = timing.begun() if timing.on else 0.0
    try:
        scores = step.plugin.final(step.terms, window, feasible)
    except Exception as error:
        raise PluginError(step.plugin.name, "NormalizeScore", error) from error
    if begun:
        timing.took(step.plugin.name, "Score", begun)
    return scores


def normalized(step: ScoreStep, raw: Floats, low: float, high: float) -> Floats:
    """Final scores from raw ones, not weighted."""
    try:
        return step.plugin.normalize(step.terms, raw, low, high)
    except Exception as error:
        raise PluginError(step.plugin.name, "NormalizeScore", error) from error
