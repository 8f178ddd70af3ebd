"""What plugins that do not look at amounts make of pods that are alike but for what they ask for.

Pods that are all different mostly differ in amounts. Most plugins do not care: what they make of a pod is made once for
its outline, and each class that has it asks those alone that do. A class without an outline has one for itself.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.verdict import FilterStep, NodeMask, NodeScores, Verdicts
from koord.scheduler.framework.contract import (
    FilterPlugin,
    Plugin,
    PluginError,
    PreferPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Template,
    Terms,
)
from koord.scheduler.framework.profile import Profile

_P = TypeVar("_P", bound=Plugin)
TermsOf = Callable[[Template, Cluster], Terms | None]

ASK: Final[Any] = object()
"""In place of terms: the class is to ask the plugin."""
MOST_OUTLINES = 1024
"""How many are kept."""


class Asked:
    """Which plugin is asked at which point at the moment."""

    __slots__ = ("plugin", "point")

    def __init__(self) -> None:
        self.plugin = ""
        self.point = ""


class ScoreStep:
    """One score plugin with its terms and weight; ``kept`` where its raw scores depend on node objects alone."""

    __slots__ = ("kept", "plugin", "terms", "weight")

    def __init__(self, plugin: ScorePlugin, terms: Terms, weight: int, kept: NodeScores | None) -> None:
        self.plugin = plugin
        self.terms = terms
        self.weight = weight
        self.kept = kept


class Watched:
    """What one plugin with an epoch made of a template, and its epoch before that."""

    __slots__ = ("_made", "epoch", "plugin")

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.epoch = plugin.epoch
        self._made: list[tuple[str, TermsOf, Terms | None]] = []

    def made(self, point: str, terms_of: TermsOf, terms: Terms | None) -> None:
        """It made these terms at a point."""
        self._made.append((point, terms_of, terms))

    def holds(self, template: Template, cluster: Cluster) -> bool:
        """Whether it makes the same still; it is asked only if its epoch moved. PluginError: it raised."""
        epoch = self.plugin.epoch
        if epoch == self.epoch:
            return True
        for point, terms_of, terms in self._made:
            try:
                same = terms_of(template, cluster) == terms
            except Exception as error:
                raise PluginError(self.plugin.name, point, error) from error
            if not same:
                return False
        self.epoch = epoch
        return True


class Watching:
    """The plugins with an epoch that were asked about one template."""

    __slots__ = ("_by_plugin", "_epochal")

    def __init__(self, profile: Profile) -> None:
        self._epochal = profile.epochal
        self._by_plugin: dict[Plugin, Watched] = {}

    def ask(self, plugin: Plugin, point: str, terms_of: TermsOf, template: Template, cluster: Cluster) -> Terms | None:
        """The terms that a plugin makes now."""
        if plugin not in self._epochal:
            return terms_of(template, cluster)
        watched = self._by_plugin.get(plugin)
        if watched is None:
            watched = self._by_plugin[plugin] = Watched(plugin)
        terms = terms_of(template, cluster)
        watched.made(point, terms_of, terms)
        return terms

    def holds(self, template: Template, cluster: Cluster) -> bool:
        """Whether all of them make the same still. PluginError: one raised."""
        return all(watched.holds(template, cluster) for watched in self._by_plugin.values())


class Outline:
    """Per point, in the profile's order: plugins with their terms, those without any left out; ``ASK`` for those that
    the class has to ask. Not to be written by whoever has it."""

    __slots__ = ("_mask", "_node_steps", "_watching", "epoch", "filters", "prefers", "prefilters", "reserves", "scores")

    def __init__(
        self, template: Template, profile: Profile, cluster: Cluster, verdicts: Verdicts, asked: Asked
    ) -> None:
        self.epoch = epoch_of(profile)
        self._watching = watching = Watching(profile)

        def terms(plugin: Plugin, point: str, terms_of: TermsOf) -> Any:
            if plugin.reads_amounts:
                return ASK
            asked.plugin, asked.point = plugin.name, point
            return watching.ask(plugin, point, terms_of, template, cluster)

        def having(found: list[tuple[_P, Any]]) -> list[tuple[_P, Any]]:
            return [(plugin, made) for plugin, made in found if made is not None]

        self.prefilters: list[tuple[PreFilterPlugin, Any]] = having(
            [(plugin, terms(plugin, "PreFilter", plugin.prefilter_terms)) for plugin in profile.prefilters]
        )
        self.filters: list[tuple[FilterPlugin, Any]] = having(
            [(plugin, terms(plugin, "Filter", plugin.filter_terms)) for plugin in profile.filters]
        )
        self.scores: list[ScoreStep] = []
        for plugin, weight in profile.scores:
            made = terms(plugin, "PreScore", plugin.score_terms)
            if made is not None:
                kept = made is not ASK and plugin.score_locality == "node"
                self.scores.append(ScoreStep(plugin, made, weight, verdicts.scores(plugin, made) if kept else None))
        self.prefers: list[tuple[PreferPlugin, Any]] = having(
            [(plugin, terms(plugin, "PreFilter", plugin.prefer_terms)) for plugin in profile.preferring]
        )
        self.reserves: list[tuple[ReservePlugin, Any]] = having(
            [(plugin, terms(plugin, "Reserve", plugin.reserve_terms)) for plugin in profile.reserving]
        )
        self._mask: NodeMask | None = None
        of_node = [step for step in self.filters if step[0].filter_locality == "node"]
        self._node_steps: tuple[FilterStep, ...] | None = (
            None if any(made is ASK for _, made in of_node) else tuple(of_node)
        )

    def mask(self, verdicts: Verdicts, steps: list[FilterStep]) -> NodeMask:
        """The mask of the filters among ``steps``, which a class made of this, that look at node objects alone."""
        if self._node_steps is None:
            return verdicts.mask(tuple(step for step in steps if step[0].filter_locality == "node"))
        if self._mask is None:
            self._mask = verdicts.mask(self._node_steps)
        return self._mask

    def holds(self, template: Template, cluster: Cluster) -> bool:
        """Whether it would be the same now. PluginError: a plugin raised."""
        return self._watching.holds(template, cluster)


class Outlines(Verdicts):
    """The outlines in use, and the verdicts that classes share; least recently used dropped first."""

    def __init__(self) -> None:
        super().__init__()
        self._outlines: OrderedDict[Hashable, Outline] = OrderedDict()

    def outline(
        self, template: Template, profile: Profile, cluster: Cluster, asked: Asked, known: Outline | None = None
    ) -> Outline:
        """The outline of a template as of now: ``known``, which it had last, if that is the same still."""
        key = (profile, template.outline)
        found = known if template.outline is None else self._outlines.get(key, known)
        epoch = epoch_of(profile)
        if found is None or (found.epoch != epoch and not found.holds(template, cluster)):
            found = Outline(template, profile, cluster, self, asked)
        else:
            found.epoch = epoch
        if template.outline is not None:
            self._outlines[key] = found
            self._outlines.move_to_end(key)
            if len(self._outlines) > MOST_OUTLINES:
                self._outlines.popitem(last=False)
        return found


def epoch_of(profile: Profile) -> int:
    """Another number if the epoch of any plugin moved."""
    total = 0
    for plugin in profile.epochs:
        total += plugin.epoch
    return total
