"""A profile: the plugins in force, their order and weights. A node counts under the first plugin that refuses it."""

from collections.abc import Iterable, Mapping

from koord.scheduler.framework.contract import (
    AssignPlugin,
    FilterPlugin,
    NodePlugin,
    Plugin,
    PreEnqueuePlugin,
    PreferPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    TickPlugin,
    WatchPlugin,
)
from koord.scheduler.framework.events import ALL_EVENTS, ClusterEvent

HEAVIEST = 20_000_000
"""Weights of a profile add up to no more: total scores must fit their part of a ranking key."""


class ProfileError(ValueError):
    """A profile that cannot be used; names the plugin and the rule."""


class Profile:
    """Plugins by extension point. A plugin with weight 0 is not asked for scores."""

    def __init__(self, plugins: Iterable[Plugin], weights: Mapping[str, int] | None = None) -> None:
        self.plugins = tuple(plugins)
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
        self.pre_enqueue = tuple(plugin for plugin in self.plugins if isinstance(plugin, PreEnqueuePlugin))
        self.prefilters = tuple(plugin for plugin in self.plugins if isinstance(plugin, PreFilterPlugin))
        self.filters = tuple(plugin for plugin in self.plugins if isinstance(plugin, FilterPlugin))
        self.scores = tuple(
            (plugin, weights.get(plugin.name, 1))
            for plugin in self.plugins
            if isinstance(plugin, ScorePlugin) and weights.get(plugin.name, 1)
        )
        total = sum(weight for _, weight in self.scores)
        if total > HEAVIEST:
            raise ProfileError(f"plugins.weights: they add up to {total}, more than {HEAVIEST}")
        self.preferring = tuple(plugin for plugin in self.plugins if isinstance(plugin, PreferPlugin))
        self.ticking = tuple(plugin for plugin in self.plugins if isinstance(plugin, TickPlugin))
        self.epochs = tuple(plugin for plugin in self.plugins if _has_epoch(plugin))
        """Plugins whose terms for a template may be others later."""
        self.assigning = tuple(plugin for plugin in self.plugins if isinstance(plugin, AssignPlugin))
        self.noding = tuple(plugin for plugin in self.plugins if isinstance(plugin, NodePlugin))
        self.watching = tuple(plugin for plugin in self.plugins if isinstance(plugin, WatchPlugin))
        self.reserving = tuple(plugin for plugin in self.plugins if isinstance(plugin, ReservePlugin))
        self.node_keys = tuple(sorted({key for plugin in self.noding for key in plugin.node_keys}))
        self.pod_keys = tuple(sorted({key for plugin in self.plugins for key in plugin.pod_keys}))
        self._events = {plugin.name: plugin.events for plugin in self.plugins}

    def events(self, plugin: str) -> frozenset[ClusterEvent]:
        """Events that may help a pod which ``plugin`` rejected; every event for a plugin not of this profile."""
        return self._events.get(plugin, ALL_EVENTS)


def _has_epoch(plugin: Plugin) -> bool:
    return "epoch" in vars(plugin) or any("epoch" in vars(kind) for kind in type(plugin).__mro__ if kind is not Plugin)
