"""Asking PlanPlugins (the original's FindOneNode, spec 10 section 3.4), and what their answers come to.

Whether a plugin may plan for a class at all is asked once per class. A plugin that raises, or that plans without the
pod it was asked about, makes the pod unschedulable with the plugin's name in the message; the loop goes on.
"""

from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.engine.diagnosis import Diagnosis, failed, rejected
from koord.scheduler.engine.placement import Engine, Outcome, PodInfo
from koord.scheduler.framework.contract import JobPlan, PlanPlugin, PluginError
from koord.scheduler.plugins.hint import HINT, LEGACY_HINT

POINT = "FindOneNodePlugin"


class Asked(NamedTuple):
    """A plan, and whose it is."""

    plugin: PlanPlugin
    plan: JobPlan


class JobPlans:
    """``inline``: whether the pods of a plan are placed together (gate EnableInlineBatchSchedule). ``waiting``: all
    pods that are to be placed, by uid."""

    def __init__(self, engine: Engine, waiting: Mapping[str, PodInfo], *, inline: bool) -> None:
        self.inline = inline
        self._engine = engine
        self._waiting = waiting
        self._concerned: WeakKeyDictionary[SchedulingClass, tuple[int, bool]] = WeakKeyDictionary()

    @property
    def any(self) -> bool:
        """Whether any profile has a plugin to ask."""
        return any(profile.planner is not None for profile in self._engine.profiles)

    def concerns(self, pod: PodInfo) -> bool:
        """Whether a plugin may have a plan for the pod. One that raises here is asked for the plan, and named then."""
        class_ = pod.class_
        plugin = class_.profile.planner
        if plugin is None:
            return False
        known = self._concerned.get(class_)
        if known is None or known[0] != plugin.epoch:
            try:
                may = bool(plugin.plans(class_.template))
            except Exception:
                may = True
            known = self._concerned[class_] = (plugin.epoch, may)
        return known[1]

    def ask(self, pod: PodInfo) -> Asked | Diagnosis | None:
        """The plan of the pod's job, the pod in it; why the pod cannot be placed; or None: as usual."""
        plugin, cluster = pod.class_.profile.planner, self._engine.cluster
        if plugin is None or not len(cluster):
            return None
        try:
            if not plugin.plans(pod.class_.template):
                return None
            begun = cluster.timing.begun()
            found = plugin.plan(pod, self._engine, self._waiting)
            if begun:
                cluster.timing.took(plugin.name, POINT, begun)
            if found is not None and not isinstance(found, JobPlan | str):
                raise TypeError(f"plan answers {type(found).__name__}, not JobPlan, str or None")
        except Exception as error:
            return failed(cluster, PluginError(plugin.name, POINT, error))
        if found is None:
            return None
        if isinstance(found, str):
            return rejected(cluster, plugin.name, found, plugin.plan_resolvable)
        if not found.nodes.get(pod.uid):
            text = f'{POINT} "{plugin.name}" succeeded but produced no node for pod {pod.ref.namespace}/{pod.ref.name}'
            return Diagnosis(text, frozenset((plugin.name,)), (), len(cluster), 0, True)
        return Asked(plugin, found)

    def place_alone(self, pod: PodInfo, now: float) -> Outcome:
        """Place a pod without its job: on its planned node or nowhere, as usual without a plan."""
        if not self.concerns(pod):
            return self._engine.place_one(pod, now)
        asked = self.ask(pod)
        if asked is None:
            return self._engine.place_one(pod, now)
        if isinstance(asked, Diagnosis):
            return asked
        return self._engine.place_one(confined(pod, asked.plan.nodes[pod.uid], asked.plugin.name), now)


def confined(pod: PodInfo, node: str, plugin: str) -> PodInfo:
    """The pod as one that may go to ``node`` only, because ``plugin`` says so."""
    return msgspec.structs.replace(pod, class_=pod.class_.narrowed(node, plugin))


class Undesignated:
    """Pods as they are in an inline batch: what a hint designates of cpus and NUMA nodes does not count there."""

    def __init__(self) -> None:
        self._classes: WeakKeyDictionary[SchedulingClass, SchedulingClass] = WeakKeyDictionary()

    def pod(self, pod: PodInfo) -> PodInfo:
        """The pod, in another class if its hint has extensions."""
        class_ = pod.class_
        annotations = class_.template.annotations
        if not annotations or not (annotations.get(HINT) or annotations.get(LEGACY_HINT)):
            return pod
        base = class_.base or class_
        other = self._classes.get(base)
        if other is None:
            template = msgspec.structs.replace(
                base.template, annotations=_without_extensions(base.template.annotations)
            )
            other = SchedulingClass(base.key, template, base.profile)
            self._classes[base] = other
        return msgspec.structs.replace(pod, class_=other.at(class_.template.only) if class_.base else other)


def _without_extensions(annotations: Mapping[str, str]) -> dict[str, str]:
    found = dict(annotations)
    for key in (HINT, LEGACY_HINT):
        try:
            hint = msgspec.json.decode(found.get(key, ""))
        except msgspec.DecodeError:
            continue  # whoever reads it says so
        if isinstance(hint, dict) and hint.pop("extensions", None) is not None:
            found[key] = msgspec.json.encode(hint).decode()
    return found
