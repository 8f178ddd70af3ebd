"""A profile: the plugins in force, their order and weights. A node counts under the first plugin that refuses it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from koord.scheduler.framework.contract import (
    AssignPlugin,
    FilterPlugin,
    NodePlugin,
    PlanPlugin,
    Plugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
    PreferPlugin,
    PreFilterPlugin,
    RefusedPlugin,
    ReservePlugin,
    ResizePlugin,
    ScorePlugin,
    TickPlugin,
    TransformPlugin,
    WatchPlugin,
)
from koord.scheduler.framework.events import ALL_EVENTS, ClusterEvent

HEAVIEST = 20_000_000
"""Weights of a profile add up to no more: total scores must fit their part of a ranking key."""


class ProfileError(ValueError):
    """A profile that cannot be used; names the plugin and the rule."""


P = TypeVar("P", bound=Plugin)


class Profile:
    """Plugins by extension point. A plugin with weight 0 is not asked for scores.

    ``points`` says by name which plugins are asked, in which order, at ``preEnqueue``, ``preFilter``, ``filter``,
    ``postFilter``, ``score`` and ``reserve``; at a point that it does not have, all plugins that can be, in the order
    of ``plugins``.
    ``scheduler_name`` is that of its pods, for metrics. ``quiet``: plugins that are asked for a way out though the
    configuration does not list them there, so they say nothing where they know none.
    """

    def __init__(
        self,
        plugins: Iterable[Plugin],
        weights: Mapping[str, int] | None = None,
        *,
        points: Mapping[str, Sequence[str]] | None = None,
        scheduler_name: str = "",
        quiet: Iterable[str] = (),
    ) -> None:
        self.plugins = tuple(plugins)
        self.scheduler_name = scheduler_name
        self.quiet = frozenset(quiet)
        self._points = points or {}
        weights = weights or {}
        names = [plugin.name for plugin in self.plugins]
        for name in names:
            if names.count(name) > 1:
                raise ProfileError(f"plugin {name}: listed twice")
        for name, weight in weights.items():
            if name not in names:
                raise ProfileError(f"plugins.weights.{name}: no such plugin; known: {', '.join(names)}")
            if not 0 <= weight <= HEAVIEST:
                raise ProfileError(f"plugins.weights.{name}: {weight} is not in 0..{HEAVIEST}")
        self.pre_enqueue = self._at("preEnqueue", [each for each in self.plugins if isinstance(each, PreEnqueuePlugin)])
        self.prefilters = self._at("preFilter", [each for each in self.plugins if isinstance(each, PreFilterPlugin)])
        self.filters = self._at("filter", [each for each in self.plugins if isinstance(each, FilterPlugin)])
        self.scores = tuple(
            (plugin, weights.get(plugin.name, 1))
            for plugin in self._at("score", [each for each in self.plugins if isinstance(each, ScorePlugin)])
            if weights.get(plugin.name, 1)
        )
        total = sum(weight for _, weight in self.scores)
        if total > HEAVIEST:
            raise ProfileError(f"plugins.weights: they add up to {total}, more than {HEAVIEST}")
        self.preferring = tuple(plugin for plugin in self.plugins if isinstance(plugin, PreferPlugin))
        self.ticking = tuple(plugin for plugin in self.plugins if isinstance(plugin, TickPlugin))
        self.epochs = tuple(plugin for plugin in self.plugins if _has_epoch(plugin))
        """Plugins whose terms for a template may be others later."""
        self.epochal = frozenset(self.epochs)
        self.remarking = tuple(plugin for plugin in self.plugins if type(plugin).remarks is not Plugin.remarks)
        self.assigning = tuple(plugin for plugin in self.plugins if isinstance(plugin, AssignPlugin))
        self.noding = tuple(plugin for plugin in self.plugins if isinstance(plugin, NodePlugin))
        self.watching = tuple(plugin for plugin in self.plugins if isinstance(plugin, WatchPlugin))
        ways_out = [each for each in self.plugins if isinstance(each, PostFilterPlugin)]
        self.post_filters = self._at("postFilter", ways_out)
        self.transforming = tuple(each for each in self.plugins if isinstance(each, TransformPlugin))
        self.refused = tuple(each for each in self.plugins if isinstance(each, RefusedPlugin))
        self.planner = next((each for each in self.plugins if isinstance(each, PlanPlugin)), None)
        self.resizing: tuple[ResizePlugin, ...] = ()
        """Empty unless :meth:`allow_resizing`."""
        self.reserving = self._reserving([each for each in self.plugins if isinstance(each, ReservePlugin)])
        self.node_keys = tuple(sorted({key for plugin in self.noding for key in plugin.node_keys}))
        self.pod_keys = tuple(sorted({key for plugin in self.plugins for key in plugin.pod_keys}))
        self._events = {plugin.name: plugin.events for plugin in self.plugins}

    def _at(self, point: str, able: Sequence[P]) -> tuple[P, ...]:
        """The plugins of a point, in order, of those ``able`` to be there."""
        found = {plugin.name: plugin for plugin in able}
        names = self._points.get(point, found)
        return tuple(found[name] for name in names if name in found)

    def _reserving(self, able: Sequence[ReservePlugin]) -> tuple[ReservePlugin, ...]:
        """Those of the point, and before them those that go with their filter."""
        names = {plugin.name for plugin in self.filters}
        first = tuple(each for each in able if each.reserves_what_it_filters and each.name in names)
        return first + tuple(each for each in self._at("reserve", able) if each not in first)

    def allow_resizing(self) -> None:
        """The gate ResizePod is on; to be called before any class is compiled."""
        self.resizing = tuple(plugin for plugin in self.plugins if isinstance(plugin, ResizePlugin))

    def events(self, plugin: str) -> frozenset[ClusterEvent]:
        """Events that may help a pod which ``plugin`` rejected; every event for a plugin not of this profile."""
        return self._events.get(plugin, ALL_EVENTS)


def _has_epoch(plugin: Plugin) -> bool:
    return "epoch" in vars(plugin) or any("epoch" in vars(kind) for kind in type(plugin).__mro__ if kind is not Plugin)
