"""Scheduling classes: pods whose scheduling-relevant spec is equal share one compiled program."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from koord.scheduler.engine.cluster import Cluster, RowColumn
from koord.scheduler.engine.verdict import FilterStep, NodeMask, NodeScores, Verdicts
from koord.scheduler.framework.contract import (
    Plugin,
    PluginError,
    PreFilterPlugin,
    ScorePlugin,
    Template,
    Terms,
)
from koord.scheduler.framework.profile import Profile

_Answer = TypeVar("_Answer")


class ScoreStep:
    """One score plugin with its terms and weight; ``kept`` where its raw scores depend on node objects alone."""

    __slots__ = ("kept", "plugin", "terms", "weight")

    def __init__(self, plugin: ScorePlugin, terms: Terms, weight: int, kept: NodeScores | None) -> None:
        self.plugin = plugin
        self.terms = terms
        self.weight = weight
        self.kept = kept


class Program:
    """What the profile's plugins made of one template; ``version`` is that of its footprint."""

    __slots__ = (
        "filters",
        "names",
        "names_from",
        "node_mask",
        "per_pod",
        "prefilters",
        "row_local",
        "scores",
        "steps",
        "version",
    )

    def __init__(self, template: Template, profile: Profile, cluster: Cluster, verdicts: Verdicts) -> None:
        self.version = template.footprint.version
        self.prefilters: list[tuple[PreFilterPlugin, Terms]] = []
        self.names: frozenset[str] | None = None
        self.names_from: list[str] = []
        for prefilter in profile.prefilters:
            terms = _compile(prefilter.name, "PreFilter", prefilter.prefilter_terms, template, cluster)
            if terms is None:
                continue
            self.prefilters.append((prefilter, terms))
            names = prefilter.node_names(terms)
            if names is not None:
                self.names = names if self.names is None else self.names & names
                self.names_from.append(prefilter.name)
        self.names_from.sort()
        self.steps: list[FilterStep] = []
        for plugin in profile.filters:
            terms = _compile(plugin.name, "Filter", plugin.filter_terms, template, cluster)
            if terms is not None:
                self.steps.append((plugin, terms))
        self.node_mask: NodeMask = verdicts.mask(
            tuple(step for step in self.steps if step[0].filter_locality == "node")
        )
        self.filters = [step for step in self.steps if step[0].filter_locality != "node"]
        self.scores: list[ScoreStep] = []
        for score, weight in profile.scores:
            terms = _compile(score.name, "PreScore", score.score_terms, template, cluster)
            if terms is None:
                continue
            kept = verdicts.scores(score, terms) if score.score_locality == "node" else None
            self.scores.append(ScoreStep(score, terms, weight, kept))
        self.per_pod: dict[RowColumn, float] = {}
        asked: list[tuple[Plugin, Terms]] = [step for step in self.steps if step[0].filter_locality == "usage"]
        asked += [(step.plugin, step.terms) for step in self.scores if step.plugin.score_locality == "usage"]
        for each, terms in asked:
            self.per_pod.update(_call(each.name, "PreScore", each.per_pod, terms))
        self.row_local = all(plugin.filter_locality != "cluster" for plugin, _ in self.steps) and all(
            step.plugin.score_locality != "cluster" for step in self.scores
        )


class SchedulingClass:
    """One class: its template, its profile, and its program once it was needed. Compared by identity."""

    __slots__ = ("__weakref__", "key", "profile", "program", "template")

    def __init__(self, key: Hashable, template: Template, profile: Profile) -> None:
        self.key = key
        self.template = template
        self.profile = profile
        self.program: Program | None = None

    def compiled(self, cluster: Cluster, verdicts: Verdicts) -> Program:
        """The program, compiled if it is the first time or resources that pods of the class ask for gained or lost
        their columns. PluginError: a plugin failed on the template."""
        if self.program is None or self.program.version != self.template.footprint.version:
            self.program = Program(self.template, self.profile, cluster, verdicts)
        return self.program


def _compile(
    name: str,
    point: str,
    method: Callable[[Template, Cluster], Terms | None],
    template: Template,
    cluster: Cluster,
) -> Terms | None:
    return _call(name, point, method, template, cluster)


def _call(name: str, point: str, method: Callable[..., _Answer], *arguments: Any) -> _Answer:
    try:
        return method(*arguments)
    except Exception as error:
        raise PluginError(name, point, error) from error
