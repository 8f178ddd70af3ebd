"""Other objects that plugins read: one cache for each kind and type, and every change told to the plugins that want it.

A version that a plugin finds not valid gets an Event; the plugin goes on with the last good one, which is also the
``old`` of the next change that it is told.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from koord.bus.connection import Bus
from koord.bus.statecache import Change, StateCache
from koord.contracts.codec import ContractError
from koord.contracts.decisions import ObjectRef
from koord.kube.meta import split_key
from koord.kube.resources import Resource
from koord.scheduler.framework.contract import PluginError, WatchPlugin
from koord.scheduler.framework.happenings import Happenings
from koord.scheduler.framework.profile import Profile
from koord.scheduler.notices import Notices
from koord.telemetry.logs import Logger


class Watching:
    """The caches of all plugins that watch. ``on_error`` is told when a plugin raised something else than ValueError,
    ``kick`` when something happened that pods may wait for."""

    def __init__(
        self,
        bus: Bus,
        profiles: Iterable[Profile],
        events: Happenings,
        notices: Notices,
        log: Logger,
        *,
        on_error: Callable[[PluginError], None],
        kick: Callable[[], None],
    ) -> None:
        self._events = events
        self._notices = notices
        self._log = log
        self._on_error = on_error
        self._kick = kick
        self._good: dict[tuple[str, str, str], Any] = {}
        """The version that a plugin goes on with while it refuses the present one; by plugin, kind and key."""
        wanted: dict[tuple[str, type[msgspec.Struct]], tuple[Resource, list[WatchPlugin]]] = {}
        for plugin in dict.fromkeys(plugin for profile in profiles for plugin in profile.watching):
            for resource, type_ in plugin.watches():
                wanted.setdefault((resource.token, type_), (resource, []))[1].append(plugin)
        self.caches: tuple[StateCache[Any], ...] = tuple(
            StateCache(
                bus,
                resource,
                type_,
                partial(self._changed, resource, plugins),
                on_bad=partial(self._bad, resource),
            )
            for (_, type_), (resource, plugins) in wanted.items()
        )

    def _changed(self, resource: Resource, plugins: list[WatchPlugin], change: Change[Any]) -> None:
        happened = False
        for plugin in plugins:
            place = (plugin.name, resource.token, change.key)
            old = self._good.pop(place) if place in self._good else change.old
            if old is None and change.new is None:
                continue
            try:
                events = list(plugin.changed(resource, change.key, old, change.new))
            except ValueError as error:
                self._good[place] = old
                self._warn(resource, change.key, change.new, str(error))
                continue
            except Exception as error:
                self._on_error(PluginError(plugin.name, "Watch", error))
                continue
            subject = change.new if change.new is not None else old
            for event in events:
                happened = True
                self._events.add(event, subject)
        if happened:
            self._kick()

    def _bad(self, resource: Resource, key: str, error: ContractError) -> None:
        self._warn(resource, key, None, str(error))

    def _warn(self, resource: Resource, key: str, shown: Any, text: str) -> None:
        self._log.warning(
            "an object is not valid, its last good version stays", kind=resource.kind, key=key, error=text
        )
        namespace, name = split_key(key)
        uid = getattr(getattr(shown, "metadata", None), "uid", "")
        target = ObjectRef(resource.token, namespace, name, uid)
        self._notices.warn(target, resource.kind, f"Invalid{resource.kind}", text, api_version=resource.api_version)
