"""The profile that ships: which plugins, in which order, with which weights (spec 10 sections 2.2 and 3.15)."""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from koord.scheduler.framework.contract import Plugin
from koord.scheduler.framework.profile import Profile, ProfileError
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.balanced import BalancedSettings, NodeResourcesBalancedAllocation
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.elasticquota import ElasticQuota, ElasticQuotaSettings
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit
from koord.scheduler.plugins.gates import ScheduleAdmission, SchedulingGates
from koord.scheduler.plugins.node_status import NodeName, NodeUnschedulable
from koord.scheduler.plugins.tolerations import TaintToleration

GROUP = "koord.scheduler.plugins"
WEIGHTS: Mapping[str, int] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
}


def default_profile(
    coscheduling: Coscheduling,
    *,
    fit: FitSettings | None = None,
    balanced: BalancedSettings | None = None,
    quota: ElasticQuotaSettings | None = None,
    weights: Mapping[str, int] | None = None,
    disabled: frozenset[str] = frozenset(),
    extra: Mapping[str, Mapping[str, Any]] | None = None,
) -> Profile:
    """The built-in plugins less ``disabled``, then the third-party ones named in ``extra`` with their settings."""
    built_in: list[Plugin] = [
        SchedulingGates(),
        ScheduleAdmission(),
        coscheduling,
        NodeUnschedulable(),
        NodeName(),
        TaintToleration(),
        NodeAffinity(),
        NodeResourcesFit(fit),
        NodeResourcesBalancedAllocation(balanced),
        ElasticQuota(quota),
    ]
    names = {plugin.name for plugin in built_in}
    for name in disabled:
        if name not in names:
            raise ProfileError(f"plugins.disabled: {name}: no such plugin; known: {', '.join(sorted(names))}")
    plugins = [plugin for plugin in built_in if plugin.name not in disabled]
    plugins += [load(name, settings) for name, settings in (extra or {}).items()]
    merged = {name: weight for name, weight in WEIGHTS.items() if name not in disabled}
    return Profile(plugins, {**merged, **(weights or {})})


def load(name: str, settings: Mapping[str, Any]) -> Plugin:
    """A third-party plugin by the name of its entry point; ProfileError names what is wrong."""
    found: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
    point = found.get(name)
    if point is None:
        raise ProfileError(f"plugins.extra: {name}: no entry point in {GROUP}; installed: {', '.join(found) or 'none'}")
    try:
        factory: Callable[[Mapping[str, Any]], Plugin] = point.load()
        plugin = factory(settings)
    except Exception as error:
        raise ProfileError(f"plugins.extra: {name}: {type(error).__name__}: {error}") from error
    if not isinstance(plugin, Plugin):
        raise ProfileError(f"plugins.extra: {name}: {type(plugin).__name__} is not a Plugin")
    return plugin
