"""A close look at one class, for people: the best nodes and why, which nodes refuse, which come nearest to taking it.

Asks the same plugins about the same rows as placing does and changes nothing. Milliseconds for thousands of nodes: only
for questions and debug flags, never on the way of a pod.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.classes import Program, SchedulingClass
from koord.scheduler.engine.evaluation import ranking_keys
from koord.scheduler.engine.fewrows import final_score, rows_of
from koord.scheduler.engine.nominated import reasons
from koord.scheduler.engine.placement import Engine
from koord.scheduler.engine.resources import FIRST
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, PluginError, Terms


class NodeScore(msgspec.Struct, frozen=True):
    """A node that takes the class, its total, and what each plugin adds to it (its weight counted in)."""

    node: str
    total: int
    plugins: Mapping[str, int]


class Refused(msgspec.Struct, frozen=True):
    """What one plugin said of how many nodes, and the first of their names. ``resolvable``: preemption may help."""

    plugin: str
    reason: str
    nodes: int
    names: tuple[str, ...]
    resolvable: bool = True


class NearMiss(msgspec.Struct, frozen=True):
    """A node that refuses the class for few reasons; ``short`` is what is missing of each resource."""

    node: str
    reasons: tuple[str, ...]
    short: Mapping[str, int]


def best(engine: Engine, class_: SchedulingClass, count: int) -> list[NodeScore]:
    """The ``count`` best nodes for the class, best first, as placing ranks them. PluginError: a plugin failed."""
    cluster = engine.cluster
    program = class_.compiled(cluster, engine.verdicts)
    rows = _rows(engine, program)
    window = Window.some(cluster, rows)
    ok = np.ones(len(rows), dtype=np.bool_)
    for plugin, terms in program.steps:
        ok &= _passes(plugin, terms, window)
    if not ok.any():
        return []
    total: Floats = np.zeros(len(rows))
    parts: dict[str, Floats] = {}
    for step in program.scores:
        parts[step.plugin.name] = part = final_score(step, window, ok)
        total += part
    keys = ranking_keys(cluster, rows, ok, total)
    order = [index for index in np.argsort(-keys)[:count].tolist() if keys[index] >= 0]
    return [
        NodeScore(
            cluster.index.name(int(rows[index])) or "",
            int(total[index]),
            {name: int(values[index]) for name, values in parts.items()},
        )
        for index in order
    ]


def refusals(engine: Engine, class_: SchedulingClass, most: int, among: Ints | None = None) -> list[Refused]:
    """What filters say of the nodes that refuse the class, by plugin and reason; ``most`` names of each.

    ``among``: only of nodes on these rows. A node is told under the first plugin that refuses it. PluginError: a plugin
    failed.
    """
    cluster = engine.cluster
    program = class_.compiled(cluster, engine.verdicts)
    rows = _rows(engine, program)
    if among is not None:
        rows = rows[np.isin(rows, among)]
    window = Window.some(cluster, rows)
    left = np.ones(len(rows), dtype=np.bool_)
    found: dict[tuple[str, str, bool], list[int]] = {}
    for plugin, terms in program.steps:
        gone: Bools = np.zeros(len(rows), dtype=np.bool_)
        for reason in reasons(plugin, terms, window):
            refused = reason.rows & left
            if refused.any():
                found.setdefault((plugin.name, reason.text, reason.resolvable), []).extend(rows[refused].tolist())
                gone |= refused
        left &= ~gone
    name = cluster.index.name
    return [
        Refused(plugin, text, len(numbers), tuple(sorted(name(row) or "" for row in numbers[:most])), resolvable)
        for (plugin, text, resolvable), numbers in sorted(found.items())
    ]


def near_misses(engine: Engine, class_: SchedulingClass, count: int) -> list[NearMiss]:
    """The ``count`` nodes that come nearest: refused by the fewest plugins, then short of the least (relative to what
    the node has), then those that could take it if pods went, then by name. PluginError: a plugin failed."""
    cluster = engine.cluster
    program = class_.compiled(cluster, engine.verdicts)
    rows = _rows(engine, program)
    if not len(rows):
        return []
    window = Window.some(cluster, rows)
    refusing = np.zeros(len(rows), dtype=np.int64)
    lasting = np.zeros(len(rows), dtype=np.bool_)
    for plugin, terms in program.steps:
        refusing += ~_passes(plugin, terms, window)
        for reason in reasons(plugin, terms, window):
            if not reason.resolvable:
                lasting |= reason.rows
    vector = class_.template.footprint.vector
    short = np.maximum(vector[FIRST:, None] - cluster.usage[FIRST : len(vector)][:, rows], 0.0)
    short[vector[FIRST:] == 0.0] = 0.0
    room = cluster.allocatable[FIRST : len(vector)][:, rows]
    shortage: Floats = (short / np.maximum(room, 1.0)).sum(axis=0)
    candidates = np.flatnonzero(refusing > 0)
    keys = (rows[candidates], lasting[candidates], shortage[candidates], refusing[candidates])
    order = candidates[np.lexsort(keys)][:count]
    if not len(order):
        return []
    few = Window.some(cluster, rows[order])
    said: list[list[str]] = [[] for _ in order]
    for plugin, terms in program.steps:
        for reason in reasons(plugin, terms, few):
            for index in np.flatnonzero(reason.rows).tolist():
                said[index].append(reason.text + _figures(plugin, terms, reason.text, few, index))
    resources = cluster.resources
    return [
        NearMiss(
            cluster.index.name(int(rows[number])) or "",
            tuple(dict.fromkeys(texts)),
            {resources[field]: int(short[field, number]) for field in np.flatnonzero(short[:, number] > 0.0).tolist()},
        )
        for number, texts in zip(order.tolist(), said, strict=True)
    ]


def _rows(engine: Engine, program: Program) -> Ints:
    """The rows that a pod of the program may look at; none while a plugin has yet to find out about them, which may
    take long. PluginError: a plugin failed."""
    cluster = engine.cluster
    refusal = engine.prefiltered(program)
    if refusal is not None and refusal.pending:
        return np.zeros(0, dtype=np.int64)
    if program.names is not None:
        return rows_of(cluster, sorted(program.names))
    rows: Ints = np.flatnonzero(cluster.alive[: cluster.high])
    return rows


def _figures(plugin: FilterPlugin, terms: Terms, reason: str, window: Window, at: int) -> str:
    try:
        text = plugin.figures(terms, reason, window, at)
    except Exception as error:
        raise PluginError(plugin.name, "Filter", error) from error
    return f" ({text})" if text else ""


def _passes(plugin: FilterPlugin, terms: Terms, window: Window) -> Bools:
    try:
        return plugin.filter(terms, window)
    except Exception as error:
        raise PluginError(plugin.name, "Filter", error) from error
