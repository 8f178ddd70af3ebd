"""Which plugins are built, and how each is made from its arguments in a profile's configuration.

Plugins that keep books which other parts of the scheduler read (gangs, quotas) are not here: there is one of each.
"""

from collections.abc import Callable, Mapping

from koord.scheduler.config.koordinatorargs import (
    LoadAwareSchedulingArgs,
    NodeNUMAResourceArgs,
    NodeResourcesFitPlusArgs,
    ScarceResourceAvoidanceArgs,
    SchedulingHintArgs,
)
from koord.scheduler.config.model import ProfileConfig
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
from koord.scheduler.framework.contract import Plugin
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.balanced import BalancedSettings, NodeResourcesBalancedAllocation
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.defaultpreemption import DefaultPreemption
from koord.scheduler.plugins.dynamicresources.plugin import DynamicResources
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit, ShapePoint, curve
from koord.scheduler.plugins.fitplus import NodeResourcesFitPlus
from koord.scheduler.plugins.gates import SchedulingGates
from koord.scheduler.plugins.hint import SchedulingHint
from koord.scheduler.plugins.imagelocality import ImageLocality
from koord.scheduler.plugins.interpodaffinity.plugin import InterPodAffinity
from koord.scheduler.plugins.loadaware.plugin import LoadAwareScheduling
from koord.scheduler.plugins.node_status import NodeName, NodeUnschedulable
from koord.scheduler.plugins.nodenumaresource.plugin import NodeNUMAResource
from koord.scheduler.plugins.nodenumaresource.settings import from_args as numa_settings
from koord.scheduler.plugins.nodeports import NodePorts
from koord.scheduler.plugins.scarce import ScarceResourceAvoidance
from koord.scheduler.plugins.tolerations import TaintToleration
from koord.scheduler.plugins.topologyspread.plugin import PodTopologySpread
from koord.scheduler.plugins.volumebinding import VolumeBinding
from koord.scheduler.plugins.volumecapacity import RatingVolumeBinding
from koord.scheduler.plugins.volumelimits import NodeVolumeLimits
from koord.scheduler.plugins.volumerestrictions import VolumeRestrictions
from koord.scheduler.plugins.volumezone import VolumeZone

Factory = Callable[[ProfileConfig], Plugin]


def _fit(config: ProfileConfig) -> Plugin:
    return NodeResourcesFit(FitSettings.of(config.arguments(NodeResourcesFit.name, NodeResourcesFitArgs)))


def _balanced(config: ProfileConfig) -> Plugin:
    name = NodeResourcesBalancedAllocation.name
    args = config.arguments(name, NodeResourcesBalancedAllocationArgs)
    return NodeResourcesBalancedAllocation(BalancedSettings.of(args))


def _affinity(config: ProfileConfig) -> Plugin:
    return NodeAffinity(config.arguments(NodeAffinity.name, NodeAffinityArgs).added_affinity)


def _load_aware(config: ProfileConfig) -> Plugin:
    return LoadAwareScheduling(config.arguments(LoadAwareScheduling.name, LoadAwareSchedulingArgs))


def _numa(config: ProfileConfig) -> Plugin:
    return NodeNUMAResource(numa_settings(config.arguments(NodeNUMAResource.name, NodeNUMAResourceArgs)))


def _fit_plus(config: ProfileConfig) -> Plugin:
    return NodeResourcesFitPlus(config.arguments(NodeResourcesFitPlus.name, NodeResourcesFitPlusArgs))


def _scarce(config: ProfileConfig) -> Plugin:
    return ScarceResourceAvoidance(config.arguments(ScarceResourceAvoidance.name, ScarceResourceAvoidanceArgs))


def _spread(config: ProfileConfig) -> Plugin:
    return PodTopologySpread(config.arguments(PodTopologySpread.name, PodTopologySpreadArgs))


def _inter_pod_affinity(config: ProfileConfig) -> Plugin:
    return InterPodAffinity(config.arguments(InterPodAffinity.name, InterPodAffinityArgs))


def _preemption(config: ProfileConfig) -> Plugin:
    return DefaultPreemption(config.arguments(DefaultPreemption.name, DefaultPreemptionArgs))


def _dynamic_resources(config: ProfileConfig) -> Plugin:
    return DynamicResources(config.arguments(DynamicResources.name, DynamicResourcesArgs).binding_timeout)


def _volume_binding(config: ProfileConfig) -> Plugin:
    args = config.arguments(VolumeBinding.name, VolumeBindingArgs)
    timeout_s = float(args.bind_timeout_seconds)
    if not args.shape:
        return VolumeBinding(timeout_s)
    return RatingVolumeBinding(curve([ShapePoint(point.utilization, point.score) for point in args.shape]), timeout_s)


FACTORIES: Mapping[str, Factory] = {
    SchedulingGates.name: lambda config: SchedulingGates(),
    NodeUnschedulable.name: lambda config: NodeUnschedulable(),
    NodeName.name: lambda config: NodeName(),
    TaintToleration.name: lambda config: TaintToleration(),
    NodeAffinity.name: _affinity,
    NodeResourcesFit.name: _fit,
    NodeResourcesBalancedAllocation.name: _balanced,
    NodePorts.name: lambda config: NodePorts(),
    PodTopologySpread.name: _spread,
    InterPodAffinity.name: _inter_pod_affinity,
    DynamicResources.name: _dynamic_resources,
    DefaultPreemption.name: _preemption,
    ImageLocality.name: lambda config: ImageLocality(),
    LoadAwareScheduling.name: _load_aware,
    NodeNUMAResource.name: _numa,
    SchedulingHint.name: lambda config: SchedulingHint(config.arguments(SchedulingHint.name, SchedulingHintArgs)),
    NodeResourcesFitPlus.name: _fit_plus,
    ScarceResourceAvoidance.name: _scarce,
    VolumeRestrictions.name: lambda config: VolumeRestrictions(),
    NodeVolumeLimits.name: lambda config: NodeVolumeLimits(),
    VolumeBinding.name: _volume_binding,
    VolumeZone.name: lambda config: VolumeZone(),
}
"""Complete plugins by name."""

NOT_SHIPPED: frozenset[str] = frozenset()
"""Complete plugins of the chart's profile that are not in the profile that ships: not yet compared with the rules."""

SINGLE = frozenset((Coscheduling.name, ElasticQuota.name))
"""Plugins of which a process has one, for all profiles."""

WITHOUT_PLUGIN = frozenset(("PrioritySort", "DefaultBinder", "DefaultPreBind"))
"""What the queue, the claims and the gateway always do: by priority, one Binding, all annotations in it."""

BUILT = frozenset((*FACTORIES, *SINGLE, *WITHOUT_PLUGIN))
