"""A cluster, an engine and the plugins under test, fed with plain objects as the API has them. No services, no I/O."""

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec

from koord.kube.resources import Resource
from koord.scheduler.catalogue import Catalogue
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.inspecting import best, refusals
from koord.scheduler.engine.placement import Engine, Placed, PodInfo
from koord.scheduler.framework.contract import Plugin
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.profile import Profile
from koord.scheduler.nodeview import ImagesNodeView
from koord.scheduler.podview import PodView

_ROOM = {"cpu": "32", "memory": "128Gi", "pods": "110"}


class PluginBench:
    """Places pods with ``plugins`` and nothing else; list built-in ones where a test needs them.

    Times are seconds since the epoch. A plugin that raises makes the next ``place`` raise what it raised.
    """

    def __init__(self, *plugins: Plugin, weights: Mapping[str, int] | None = None, seed: str = "seed") -> None:
        self.profile = Profile(plugins, weights)
        self.cluster = Cluster(seed)
        self.engine = Engine(self.cluster, self.profile)
        self._catalogue = Catalogue(self.cluster, self.profile)
        self._keys = {key for plugin in self.profile.noding for key in plugin.node_keys}
        self._objects: dict[tuple[str, str], Any] = {}
        self._bodies: dict[str, dict[str, Any]] = {}
        self._numbers = itertools.count()

    # The cluster ----------------------------------------------------------------------------------------------------

    def node(self, name: str, *, allocatable: Mapping[str, str] = _ROOM, **meta: Any) -> tuple[str, ...]:
        """A node comes or changes (``labels=``, ``annotations=``); answers what plugins found not valid of it."""
        body = {"metadata": {"name": name, "uid": name, **meta}, "status": {"allocatable": dict(allocatable)}}
        info = msgspec.convert(body, ImagesNodeView).info(self._keys)
        change = self.engine.set_node(info)
        self._raise()
        return change.problems

    def remove_node(self, name: str) -> None:
        """A node goes. Its pods stay, in case that it comes back."""
        self.engine.remove_node(name)
        self._raise()

    def object(self, resource: Resource, key: str, body: Mapping[str, Any] | None) -> list[ClusterEvent]:
        """An object that plugins watch comes, changes or (None) goes; which events that amounts to.

        ValueError: a plugin found it not valid.
        """
        events: list[ClusterEvent] = []
        for plugin in self.profile.watching:
            for watched, type_ in plugin.watches():
                if watched != resource:
                    continue
                place = (plugin.name, f"{resource.token}/{key}")
                new = None if body is None else msgspec.convert(body, type_)
                events += plugin.changed(resource, key, self._objects.get(place), new)
                if new is None:
                    self._objects.pop(place, None)
                else:
                    self._objects[place] = new
        return events

    def tick(self, now: float) -> list[ClusterEvent]:
        """Time passes."""
        events = self.engine.tick(now)
        self._raise()
        return events

    # Pods -----------------------------------------------------------------------------------------------------------

    def pod(self, name: str = "", *, spec: Mapping[str, Any] | None = None, **meta: Any) -> PodInfo:
        """A pod to be placed (``annotations=``, ``labels=``, ``namespace=``); by default it asks for nothing."""
        name = name or f"pod-{next(self._numbers)}"
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": name, **meta},
            "spec": {"containers": [{"name": "main"}], **(spec or {})},
        }
        self._bodies[name] = body
        return self._catalogue.renewed(self._catalogue.pod(_view(body)))

    def place(self, pod: PodInfo) -> Placed | Diagnosis:
        """Place one pod: where it goes and what it got, or why nowhere. It counts there, as planned."""
        outcome = self.engine.place_one(pod)
        self._raise()
        return outcome

    def bind(self, pod: PodInfo, placed: Placed) -> None:
        """The API shows the pod on its node, with the annotations that it was given."""
        self.bound(pod.ref.name, placed.node, placed.annotations)
        self.engine.confirm(pod.uid)

    def bound(self, name: str, node: str, annotations: Mapping[str, str] | None = None, **meta: Any) -> None:
        """A pod is seen on a node, whoever placed it; one made by :meth:`pod` keeps what it was made with."""
        body = self._bodies.get(name)
        if body is None:
            self.pod(name, **meta)
            body = self._bodies[name]
        held = body["metadata"].setdefault("annotations", {})
        body["metadata"]["annotations"] = {**held, **(annotations or {})}
        self.engine.count(self._catalogue.assigned(_view(body), node))
        self._raise()

    def end(self, pod: PodInfo | str) -> None:
        """A pod that has a node ends: one that is only planned is given back, one that is bound leaves."""
        uid = pod if isinstance(pod, str) else pod.uid
        if not self.engine.forget(uid):
            self.engine.uncount(uid)
        self._raise()

    # Answers --------------------------------------------------------------------------------------------------------

    def scores(self, pod: PodInfo) -> dict[str, int]:
        """The total score of each node that can take the pod now; placing takes the highest."""
        return {found.node: found.total for found in best(self.engine, pod.class_, len(self.cluster))}

    def refusals(self, pod: PodInfo) -> dict[str, tuple[str, ...]]:
        """The nodes that each reason refuses, by ``plugin: reason``."""
        found = refusals(self.engine, pod.class_, len(self.cluster))
        return {f"{one.plugin}: {one.reason}": one.names for one in found}

    def _raise(self) -> None:
        if self.engine.errors:
            raise self.engine.errors.popleft()


def _view(body: Mapping[str, Any]) -> PodView:
    return msgspec.json.decode(msgspec.json.encode(body), type=PodView)
