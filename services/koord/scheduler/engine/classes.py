"""Scheduling classes: pods whose scheduling-relevant spec is equal share one compiled program."""

from collections.abc import Hashable
from weakref import WeakValueDictionary

import msgspec

from koord.scheduler.engine.cluster import Cluster, RowColumn
from koord.scheduler.engine.outlines import ASK, Asked, Outline, Outlines, ScoreStep, Watching, epoch_of
from koord.scheduler.engine.transforming import transformed
from koord.scheduler.engine.verdict import FilterStep, NodeMask
from koord.scheduler.framework.contract import (
    Plugin,
    PluginError,
    PreEnqueuePlugin,
    PreferPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ResizePlugin,
    Template,
    Terms,
)
from koord.scheduler.framework.profile import Profile

NAMED_BY = "NodeAffinity"
"""The plugin whose say it is that a pod may run on one node only."""


class Program:
    """What the profile's plugins made of one template; ``version`` is that of its footprint.

    ``names``: the only nodes that PreFilter plugins leave. Such a program is asked about their rows alone, and nothing
    is kept of all rows for it: a DaemonSet has as many classes as there are nodes. A single one needs no scores.
    ``fresh``: no pod was placed by it yet. ``between``: the filters whose rules are about other pods, once asked for.
    """

    __slots__ = (
        "_ahead",
        "_watching",
        "between",
        "epoch",
        "filters",
        "fresh",
        "names",
        "names_from",
        "node_mask",
        "outline",
        "per_pod",
        "prefers",
        "prefilters",
        "reserves",
        "resizes",
        "row_local",
        "scores",
        "steps",
        "version",
        "whole",
    )

    def __init__(
        self,
        template: Template,
        profile: Profile,
        cluster: Cluster,
        verdicts: Outlines,
        known: Outline | None = None,
    ) -> None:
        self.whole: Program | None = None
        self.fresh = True
        self._ahead: bool | None = None
        self.between: tuple[FilterStep, ...] | None = None
        self.version = template.footprint.version
        self.epoch = epoch_of(profile)
        self._watching = Watching(profile)
        self.prefilters: list[tuple[PreFilterPlugin, Terms]] = []
        self.names: frozenset[str] | None = None
        self.names_from: list[str] = []
        self.steps: list[FilterStep] = []
        self.scores: list[ScoreStep] = []
        self.prefers: list[tuple[PreferPlugin, Terms]] = []
        self.reserves: list[tuple[ReservePlugin, Terms]] = []
        self.resizes: list[tuple[ResizePlugin, Terms]] = []
        self.per_pod: dict[RowColumn, float] = {}
        asked = Asked()
        try:
            self.outline = verdicts.outline(template, profile, cluster, asked, known)
            self._compile(template, profile, cluster, verdicts, asked)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(asked.plugin, asked.point, error) from error

    def _compile(
        self, template: Template, profile: Profile, cluster: Cluster, verdicts: Outlines, asked: Asked
    ) -> None:
        """A DaemonSet brings a class per pod, so this is short on calls: ``asked`` tells the handler who raised."""
        outline, ask = self.outline, self._watching.ask
        asked.point = "PreFilter"
        for prefilter, terms in outline.prefilters:
            asked.plugin = prefilter.name
            if terms is ASK:
                terms = ask(prefilter, "PreFilter", prefilter.prefilter_terms, template, cluster)
                if terms is None:
                    continue
            self.prefilters.append((prefilter, terms))
            names = prefilter.node_names(terms)
            if names is not None:
                self.names = names if self.names is None else self.names & names
                self.names_from.append(prefilter.name)
        self.names_from.sort()
        few = self.names is not None
        asked.point = "Filter"
        for plugin, terms in outline.filters:
            if terms is ASK:
                asked.plugin = plugin.name
                terms = ask(plugin, "Filter", plugin.filter_terms, template, cluster)
                if terms is None:
                    continue
            self.steps.append((plugin, terms))
        self.filters = [step for step in self.steps if step[0].filter_locality != "node"]
        self.node_mask: NodeMask | None = None if few else outline.mask(verdicts, self.steps)
        asked.point = "PreScore"
        for step in outline.scores if self.names is None or len(self.names) > 1 else ():
            score, terms = step.plugin, step.terms
            if terms is ASK:
                asked.plugin = score.name
                terms = ask(score, "PreScore", score.score_terms, template, cluster)
                if terms is None:
                    continue
                kept = verdicts.scores(score, terms) if score.score_locality == "node" and not few else None
                step = ScoreStep(score, terms, step.weight, kept)
            elif few and step.kept is not None:
                step = ScoreStep(score, terms, step.weight, None)
            self.scores.append(step)
        asked.point = "PreFilter"
        for prefer, terms in outline.prefers:
            if terms is ASK:
                asked.plugin = prefer.name
                terms = ask(prefer, "PreFilter", prefer.prefer_terms, template, cluster)
                if terms is None:
                    continue
            self.prefers.append((prefer, terms))
        asked.point = "Reserve"
        for reserve, terms in outline.reserves:
            if terms is ASK:
                asked.plugin = reserve.name
                terms = ask(reserve, "Reserve", reserve.reserve_terms, template, cluster)
                if terms is None:
                    continue
            self.reserves.append((reserve, terms))
        asked.point = "ResizePod"
        for resize in profile.resizing:
            asked.plugin = resize.name
            terms = ask(resize, "ResizePod", resize.resize_terms, template, cluster)
            if terms is not None:
                self.resizes.append((resize, terms))
        self.row_local = not any(plugin.filter_locality == "cluster" for plugin, _ in self.filters) and not any(
            step.plugin.score_locality == "cluster" for step in self.scores
        )

    def looks_ahead(self) -> bool:
        """Whether plugins let equal pods be placed in runs; ``per_pod`` is there then. PluginError: one raised."""
        if self._ahead is None:
            self._ahead = self.row_local and self.names is None and self._look_ahead()
        return self._ahead

    def _look_ahead(self) -> bool:
        """What one more pod of the class adds to plugins' columns; only runs of equal pods need it."""
        usage: list[tuple[Plugin, Terms]] = [step for step in self.steps if step[0].filter_locality == "usage"]
        usage += [(step.plugin, step.terms) for step in self.scores if step.plugin.score_locality == "usage"]
        judging: list[Plugin] = [plugin for plugin, _ in self.prefilters]
        for plugin, terms in usage:
            try:
                adds = plugin.per_pod(terms)
            except Exception as error:
                raise PluginError(plugin.name, "PreScore", error) from error
            if adds and plugin in judging:
                return False  # its books must be right for the next pod's PreFilter, and as before for looking ahead
            self.per_pod.update(adds)
        return True

    def at(self, node: str, by: str = NAMED_BY) -> "Program":
        """The same for pods that may run on one node only, as the plugin ``by`` says."""
        made = Program.__new__(Program)
        made.whole, made.fresh, made._ahead, made.between = self, True, False, None
        made.version, made.epoch, made._watching = self.version, self.epoch, self._watching
        made.outline = self.outline
        made.prefilters, made.prefers, made.reserves = self.prefilters, self.prefers, self.reserves
        made.resizes = self.resizes
        made.steps, made.filters, made.row_local, made.per_pod = self.steps, self.filters, self.row_local, self.per_pod
        made.node_mask, made.scores = None, []
        made.names = frozenset((node,)) if self.names is None else self.names & {node}
        made.names_from = sorted({*self.names_from, by})
        return made

    def holds(self, template: Template, profile: Profile, cluster: Cluster, verdicts: Outlines) -> bool:
        """Whether plugins whose epoch moved make the same of the template as they did. PluginError: one raised."""
        asked = Asked()
        try:
            outline = verdicts.outline(template, profile, cluster, asked, self.outline)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(asked.plugin, asked.point, error) from error
        return outline is self.outline and self._watching.holds(template, cluster)


class SchedulingClass:
    """One class: its template, its profile, and its program once it was needed. Compared by identity.

    ``base``: the class of pods like these that may run anywhere; these may on one node only (:meth:`at`). ``gates``
    and ``remarks`` are kept here by whoever makes them: the plugins that may hold its pods back, and what is to be said
    of them.
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "_by",
        "_seen",
        "base",
        "gates",
        "key",
        "profile",
        "program",
        "remarks",
        "template",
    )

    def __init__(
        self,
        key: Hashable,
        template: Template,
        profile: Profile,
        base: "SchedulingClass | None" = None,
        by: str = NAMED_BY,
    ) -> None:
        self.key = key
        self.template = template
        self.profile = profile
        self.base = base
        self._by = by
        self._seen: Template | None = None
        self.program: Program | None = None
        self.gates: tuple[PreEnqueuePlugin, ...] | None = None
        self.remarks: tuple[str, ...] | None = None
        self._at: WeakValueDictionary[str, SchedulingClass] | None = None

    def at(self, node: str) -> "SchedulingClass":
        """The class of pods that are like these but may run on one node only. It shares the program."""
        if self._at is None:
            self._at = WeakValueDictionary()
        found = self._at.get(node)
        if found is None:
            template = msgspec.structs.replace(self.template, only=node)
            found = self._at[node] = SchedulingClass(self.key, template, self.profile, self)
        return found

    def narrowed(self, node: str, by: str) -> "SchedulingClass":
        """As :meth:`at`, but it is the plugin ``by`` that says so, for one attempt: it is not kept."""
        return SchedulingClass(self.key, msgspec.structs.replace(self.template, only=node), self.profile, self, by)

    def seen(self) -> Template:
        """The template as plugins see it. PluginError: one that changes it failed."""
        if not self.profile.transforming:
            return self.template
        if self._seen is None:
            self._seen = transformed(self.template, self.profile.transforming)
        return self._seen

    def compiled(self, cluster: Cluster, verdicts: Outlines) -> Program:
        """The program, compiled if it is the first time, if resources that pods of the class ask for gained or lost
        their columns, or if a plugin with an epoch makes other terms. PluginError: a plugin failed on the template."""
        program = self.program
        if self.base is not None:
            whole = self.base.compiled(cluster, verdicts)
            if program is None or program.whole is not whole:
                program = self.program = whole.at(self.template.only, self._by)
            return program
        if program is not None and program.version == self.template.footprint.version:
            if not self.profile.epochs or program.epoch == (epoch := epoch_of(self.profile)):
                return program
            if program.holds(self.seen(), self.profile, cluster, verdicts):
                program.epoch = epoch
                return program
        outline = None if program is None else program.outline
        program = self.program = Program(self.seen(), self.profile, cluster, verdicts, outline)
        return program
