"""Ranking a few rows of a class and nothing else: the nodes that PreFilter plugins named, or preferred ones.

Every plugin is asked about these rows alone and nothing is kept, so a class of which there is one pod costs what one
row costs, however many nodes there are.
"""

from collections.abc import Iterable

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.evaluation import INFEASIBLE, ranking_keys
from koord.scheduler.engine.layers import finished, normalized, scored
from koord.scheduler.engine.outlines import ScoreStep
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import PluginError


def rows_of(cluster: Cluster, names: Iterable[str]) -> Ints:
    """The rows of those of ``names`` that are nodes, in their order."""
    find = cluster.index.find
    return np.array([row for name in names if (row := find(name)) is not None], dtype=np.int64)


def rank_few(program: Program, cluster: Cluster, rows: Ints) -> Ints:
    """Keys of ``rows``; normalised scores look at these rows only. PluginError: a plugin raised."""
    if len(rows) == 1:
        return rank_few(program, cluster, np.repeat(rows, 2))[:1]
    window = Window.some(cluster, rows)
    ok = cluster.alive[rows]
    timing = cluster.timing
    for plugin, terms in program.steps:
        begun = timing.begun()
        try:
            ok &= plugin.filter(terms, window)
        except Exception as error:
            raise PluginError(plugin.name, "Filter", error) from error
        if begun:
            timing.took(plugin.name, "Filter", begun)
        if not ok.any():
            return np.full(len(rows), INFEASIBLE, dtype=np.int64)
    total: Floats = np.zeros(len(rows))
    for step in program.scores:
        total += final_score(step, window, ok)
    return ranking_keys(cluster, rows, ok, total)


def final_score(step: ScoreStep, window: Window, ok: Bools) -> Floats:
    """What one plugin adds to each row, its weight counted in. PluginError: it raised.

    Normalised among the rows that are ``ok``, of which there are some.
    """
    plugin = step.plugin
    if not plugin.normalized:
        return scored(step, window) * step.weight
    if plugin.score_locality == "cluster":
        return finished(step, window, ok) * step.weight
    raw = scored(step, window)
    among = raw[ok]
    return normalized(step, raw, float(among.min()), float(among.max())) * step.weight
