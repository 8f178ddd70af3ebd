"""The rules of the plugin contract, checked on a cluster as a test has made it (docs/scheduler-plugins.md).

They are what incremental scheduling stands on: who breaks one places pods well today and badly after some change. Test
with eight nodes or more: of fewer all are asked anew whatever changed, and what was kept wrongly is not seen.
"""

import numpy as np

from koord.columns.matrix import Floats, Ints
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.fewrows import final_score
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, ScorePlugin, Terms
from koord.scheduler.testkit.bench import PluginBench


class ContractError(AssertionError):
    """A plugin breaks the contract; names the plugin and the rule."""


def check(bench: PluginBench, pod: PodInfo) -> None:
    """Ask all plugins about ``pod`` in several ways. Call it after each step of a test; it changes nothing.

    ContractError where answers differ that must not, or are none.
    """
    cluster = bench.cluster
    program = pod.class_.compiled(cluster, bench.engine.verdicts)
    rows = np.flatnonzero(cluster.alive[: cluster.high])
    if not len(rows):
        return
    for plugin, terms in program.steps:
        _check_terms(plugin.name, terms)
        _check_filter(bench, plugin, terms, rows)
    for step in program.scores:
        _check_terms(step.plugin.name, step.terms)
        _check_score(bench, step.plugin, step.terms, rows)
    _check_finals(bench, program, rows)
    _check_kept(bench, pod)


def _check_terms(name: str, terms: Terms) -> None:
    try:
        hash(terms)
    except TypeError as error:
        raise ContractError(f"{name}: terms must be hashable: {error}") from error


def _windows(bench: PluginBench, rows: Ints) -> list[tuple[Window, Ints]]:
    """All rows at once, backwards, one by one, and looking no pods ahead; with the rows that each answers for."""
    cluster = bench.cluster
    nothing = cluster.footprint({}, (0, 0))
    found = [(Window.full(cluster), np.arange(cluster.high)), (Window.some(cluster, rows[::-1]), rows[::-1])]
    found += [(Window.some(cluster, rows[at : at + 1]), rows[at : at + 1]) for at in range(len(rows))]
    found.append((Window.ahead(cluster, rows, nothing, np.zeros(len(rows)), {}), rows))
    return found


def _check_filter(bench: PluginBench, plugin: FilterPlugin, terms: Terms, rows: Ints) -> None:
    version = plugin.filter_version(terms) if plugin.filter_locality == "cluster" else 0
    expected = np.zeros(bench.cluster.high, dtype=np.bool_)
    expected[rows] = plugin.filter(terms, Window.some(bench.cluster, rows))
    for window, of in _windows(bench, rows):
        answer = plugin.filter(terms, window)
        if answer.dtype != np.bool_ or answer.shape != (window.size,):
            raise ContractError(f"{plugin.name}: filter must answer {window.size} booleans, not {answer!r}")
        alive = np.isin(of, rows)
        wrong = of[alive & (answer != expected[of])]
        if len(wrong):
            raise ContractError(f"{plugin.name}: filter of {_names(bench, wrong)} depends on which rows are asked")
        refused = np.zeros(window.size, dtype=np.bool_)
        for reason in plugin.reasons(terms, window):
            refused |= reason.rows
        wrong = of[alive & (refused == answer)]
        if len(wrong):
            rule = "reasons must name exactly the rows that filter refuses"
            raise ContractError(f"{plugin.name}: {rule}: {_names(bench, wrong)}")
    if plugin.filter_locality == "cluster" and plugin.filter_version(terms) != version:
        raise ContractError(f"{plugin.name}: filter_version moves although nothing changed")


def _check_score(bench: PluginBench, plugin: ScorePlugin, terms: Terms, rows: Ints) -> None:
    version = plugin.score_version(terms) if plugin.score_locality == "cluster" else 0
    expected: Floats = np.zeros(bench.cluster.high)
    expected[rows] = plugin.score(terms, Window.some(bench.cluster, rows))
    for window, of in _windows(bench, rows):
        answer = plugin.score(terms, window)
        if answer.dtype != np.float64 or answer.shape != (window.size,):
            raise ContractError(f"{plugin.name}: score must answer {window.size} float64, not {answer!r}")
        wrong = of[np.isin(of, rows) & (answer != expected[of])]
        if len(wrong):
            raise ContractError(f"{plugin.name}: score of {_names(bench, wrong)} depends on which rows are asked")
    if plugin.score_locality == "cluster" and plugin.score_version(terms) != version:
        raise ContractError(f"{plugin.name}: score_version moves although nothing changed")


def _check_finals(bench: PluginBench, program: Program, rows: Ints) -> None:
    window = Window.some(bench.cluster, rows)
    feasible = np.ones(len(rows), dtype=np.bool_)
    for plugin, terms in program.steps:
        feasible &= plugin.filter(terms, window)
    for step in program.scores if feasible.any() else ():
        final = final_score(step, window, feasible)[feasible] / step.weight
        if ((final < 0) | (final > 100) | (final != np.floor(final))).any():
            raise ContractError(f"{step.plugin.name}: final scores must be whole numbers from 0 to 100, not {final}")


def _check_kept(bench: PluginBench, pod: PodInfo) -> None:
    """What the engine kept of earlier answers, brought up to date, is what it finds when it begins anew."""
    kept_rows, kept = bench.engine.ranked(pod.class_)
    before = kept.copy(), None if kept_rows is None else kept_rows.copy()
    bench.engine.forget_evaluations()
    rows, fresh = bench.engine.ranked(pod.class_)
    if not np.array_equal(before[0], fresh):
        high = np.arange(len(fresh)) if rows is None else rows
        names = _names(bench, high[before[0] != fresh]) if len(before[0]) == len(fresh) else "other rows"
        raise ContractError(
            f"what was kept of {names} is not what plugins say now: a row was not touched, a version did not move, or "
            f"per_pod says something else than assigned does ({', '.join(sorted(_having(bench)))})"
        )


def _having(bench: PluginBench) -> set[str]:
    """Plugins that may be to blame."""
    return {plugin.name for plugin in (*bench.profile.filters, *(plugin for plugin, _ in bench.profile.scores))}


def _names(bench: PluginBench, rows: Ints) -> str:
    names = [bench.cluster.index.name(int(row)) or "?" for row in rows[:5]]
    return ", ".join(names) + (", …" if len(rows) > 5 else "")
