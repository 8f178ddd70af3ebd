"""Whether what happened may help what was rejected: the plugins' events, and their hints (spec 10 section 3.2 point 5).

A hint is asked with the template of a rejected pod and what the event is about. One that fails counts as yes. So does
what is not asked any more because too much happened at once (:data:`MOST_ASKED`): a pod tried in vain costs little,
a loop that only asks would stand still.
"""

from collections.abc import Iterable, Mapping, Sequence

from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.framework.contract import Plugin
from koord.scheduler.framework.events import ALL_EVENTS, ClusterEvent
from koord.scheduler.framework.profile import Profile

MOST_ASKED = 4096
"""Hints asked about one batch of events, for all that is rejected."""
MOST_CLASSES = 8
"""Of a gang's members so many kinds are asked about."""

Happened = Mapping[ClusterEvent, Sequence[object]]


class Hints:
    """The plugins of all profiles of a queue."""

    def __init__(self, profiles: Iterable[Profile]) -> None:
        self._plugins: dict[tuple[int, str], Plugin] = {}
        self._events: dict[str, frozenset[ClusterEvent]] = {}
        self._kept = tuple(profiles)
        for profile in self._kept:
            for plugin in profile.plugins:
                self._plugins[id(profile), plugin.name] = plugin
                self._events[plugin.name] = self._events.get(plugin.name, frozenset()) | plugin.events
        self._left = MOST_ASKED

    def events(self, plugin: str) -> frozenset[ClusterEvent]:
        """Events that may help what ``plugin`` rejected; every event for a plugin of no profile."""
        return self._events.get(plugin, ALL_EVENTS)

    def begin(self) -> None:
        """Another batch of events is about to be judged."""
        self._left = MOST_ASKED

    def first(
        self, classes: Iterable[SchedulingClass], rejecters: Iterable[str], happened: Happened
    ) -> tuple[ClusterEvent, str] | None:
        """An event that may help pods of ``classes``, which ``rejecters`` rejected, and whose; None: none does."""
        kinds = list(dict.fromkeys(classes))[:MOST_CLASSES]
        for name in rejecters:
            # In the order in which it happened, so that the answer does not depend on hashes.
            for event, subjects in happened.items():
                if event in self.events(name) and self._helps(kinds, name, event, subjects):
                    return event, name
        return None

    def _helps(
        self, classes: Sequence[SchedulingClass], name: str, event: ClusterEvent, subjects: Sequence[object]
    ) -> bool:
        for class_ in classes:
            plugin = self._plugins.get((id(class_.profile), name))
            if plugin is None or type(plugin).helps is Plugin.helps:
                return True
            if event not in plugin.events:
                continue
            for subject in subjects:
                self._left -= 1
                if self._left < 0:
                    return True
                try:
                    if plugin.helps(class_.seen(), event, subject):
                        return True
                except Exception:
                    return True
        return not classes
