"""Every plugin name that a configuration may use: where it may stand and which arguments it takes.

Upstream's in the order and with the weights of its default ``multiPoint`` (spec 10 section 3.15), then Koordinator's
(section 2.1). That a name is here does not say that koord has the plugin built: see :func:`left_out`.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from koord.scheduler.config.decoding import Args
from koord.scheduler.config.deviceargs import DeviceShareArgs
from koord.scheduler.config.errors import Problem
from koord.scheduler.config.jobargs import CoschedulingArgs, ElasticQuotaArgs, ReservationArgs
from koord.scheduler.config.koordinatorargs import (
    LoadAwareSchedulingArgs,
    NodeNUMAResourceArgs,
    NodeResourcesFitPlusArgs,
    ScarceResourceAvoidanceArgs,
    SchedulingHintArgs,
)
from koord.scheduler.config.model import POINTS, Point, ProfileConfig, SchedulerConfiguration
from koord.scheduler.config.upstreamargs import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
)


class PluginKind(msgspec.Struct, frozen=True):
    """The points a plugin implements, its kind of arguments, and its weight in upstream's ``multiPoint`` (0: none)."""

    points: frozenset[Point]
    args: type[Args] | None = None
    weight: int = 0


def _kind(points: str, args: type[Args] | None = None, weight: int = 0) -> PluginKind:
    named = frozenset(point for point in POINTS if point in points.split())
    assert len(named) == len(points.split()), points
    return PluginKind(named, args, weight)


_SCORED = "preFilter filter preScore score"

UPSTREAM: Mapping[str, PluginKind] = {
    "SchedulingGates": _kind("preEnqueue"),
    "PrioritySort": _kind("queueSort"),
    "NodeUnschedulable": _kind("filter"),
    "NodeName": _kind("filter"),
    "TaintToleration": _kind("filter preScore score", weight=3),
    "NodeAffinity": _kind(_SCORED, NodeAffinityArgs, 2),
    "NodePorts": _kind("preFilter filter"),
    "NodeResourcesFit": _kind(_SCORED, NodeResourcesFitArgs, 1),
    "VolumeRestrictions": _kind("preFilter filter"),
    "NodeVolumeLimits": _kind("preFilter filter"),
    "VolumeBinding": _kind(f"{_SCORED} reserve preBind", VolumeBindingArgs),
    "VolumeZone": _kind("preFilter filter"),
    "PodTopologySpread": _kind(_SCORED, PodTopologySpreadArgs, 2),
    "InterPodAffinity": _kind(_SCORED, InterPodAffinityArgs, 2),
    "DynamicResources": _kind("preEnqueue preFilter filter postFilter score reserve preBind", DynamicResourcesArgs, 2),
    "DefaultPreemption": _kind("preEnqueue postFilter", DefaultPreemptionArgs),
    "NodeResourcesBalancedAllocation": _kind("preScore score", NodeResourcesBalancedAllocationArgs, 1),
    "ImageLocality": _kind("score", weight=1),
    "DefaultBinder": _kind("bind"),
}
"""The default ``multiPoint``, in order."""

KOORDINATOR: Mapping[str, PluginKind] = {
    "LoadAwareScheduling": _kind("preFilter filter score reserve", LoadAwareSchedulingArgs),
    "NodeNUMAResource": _kind(f"{_SCORED} reserve preBind", NodeNUMAResourceArgs),
    "NodeResourcesFitPlus": _kind("preScore score", NodeResourcesFitPlusArgs),
    "ScarceResourceAvoidance": _kind("preScore score", ScarceResourceAvoidanceArgs),
    "SchedulingHint": _kind("preFilter", SchedulingHintArgs),
    "DefaultPreBind": _kind("preBind"),
    "Reservation": _kind(f"{_SCORED} postFilter reserve preBind bind", ReservationArgs),
    "Coscheduling": _kind(
        "preEnqueue preFilter postFilter preScore score reserve permit preBind postBind", CoschedulingArgs
    ),
    "DeviceShare": _kind(f"{_SCORED} reserve preBind", DeviceShareArgs),
    "ElasticQuota": _kind("preFilter postFilter reserve", ElasticQuotaArgs),
}

KINDS: Mapping[str, PluginKind] = {**UPSTREAM, **KOORDINATOR}

ALIASES: Mapping[str, str] = {"CompatibleDefaultPreemption": "DefaultPreemption"}
"""Names of old releases of Koordinator for what has another name now."""

WITHOUT_EFFECT: Mapping[str, str] = {
    "BatchResourceFit": "batch resources are ordinary resources of NodeResourcesFit",
}
"""Names of old releases for what needs no plugin any more, and why."""

REMOVED = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
"""Plugins that v1 does not know any more."""


_NO_POST_FILTER: Mapping[str, str] = {
    "Coscheduling": "gangs preempt nobody",
    "ElasticQuota": "nobody is preempted for room in a quota",
}
"""Plugins that are there, but not at postFilter yet, and what that means."""


def left_out(configuration: SchedulerConfiguration, built: Collection[str]) -> tuple[Problem, ...]:
    """What to warn of: plugins of kube-scheduler and Koordinator that are not in ``built``. A file that works with
    those works here, too; what they do is not done. So with what plugins that are there do not do yet."""
    problems = []
    for index, profile in enumerate(configuration.profiles):
        for name in profile.plugins:
            if name not in built:
                at = ", ".join(point for point in POINTS if name in profile.at(point))
                text = f'plugin "{name}" is not there yet in koord: left out (at {at})'
                problems.append(Problem(f"profiles[{index}].plugins", text))
        problems += _preempting(profile, f"profiles[{index}].plugins.postFilter")
    return tuple(problems)


def _preempting(profile: ProfileConfig, path: str) -> Iterator[Problem]:
    """Preemption that a profile asks for and does not get; worst where nothing else at the point preempts."""
    listed = profile.at("postFilter")
    absent = []
    for name, meaning in _NO_POST_FILTER.items():
        args = profile.args.get(name)
        if name in listed and not (isinstance(args, CoschedulingArgs) and not args.enable_preemption):
            absent.append(name)
            yield Problem(path, f'plugin "{name}" is not there yet in koord at this point: {meaning}')
    if absent and "DefaultPreemption" not in listed:
        yield Problem(path, "no pod of this profile preempts; list DefaultPreemption for pods that are in no gang")
