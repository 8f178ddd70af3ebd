"""Profiles of the plugins that are built: the one that ships, and those of a KubeSchedulerConfiguration.

What ships is the chart's profile (spec 10 section 2.2) without the plugins that are not there yet. Which plugin is
asked at which point, and in which order, is the configuration's doing.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from koord.scheduler.config.errors import ConfigError, Problem
from koord.scheduler.config.model import POINTS, Point, ProfileConfig, SchedulerConfiguration
from koord.scheduler.config.registry import KINDS
from koord.scheduler.config.shipped import shipped
from koord.scheduler.config.text import child
from koord.scheduler.framework.contract import (
    FilterPlugin,
    Plugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
)
from koord.scheduler.framework.profile import Profile, ProfileError
from koord.scheduler.plugins.balanced import BalancedSettings, NodeResourcesBalancedAllocation
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.dynamicresources.plugin import DynamicResources
from koord.scheduler.plugins.elasticquota import ElasticQuota, ElasticQuotaSettings
from koord.scheduler.plugins.factories import FACTORIES, NOT_SHIPPED, SINGLE, Factory
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit
from koord.scheduler.plugins.gates import ScheduleAdmission, SchedulingGates

GROUP = "koord.scheduler.plugins"
_CLASSES: Mapping[Point, type[Any]] = {
    "preEnqueue": PreEnqueuePlugin,
    "preFilter": PreFilterPlugin,
    "filter": FilterPlugin,
    "postFilter": PostFilterPlugin,
    "score": ScorePlugin,
    "reserve": ReservePlugin,
}
"""The points at which koord asks plugins, by the class that such a plugin derives from."""
_GIVING_BACK = (DynamicResources.name,)
"""Plugins that give back what keeps a pod from every node. The chart's profile lists none, and such pods would wait for
ever; here they are asked wherever they filter."""


@cache
def shipped_profile() -> ProfileConfig:
    """The chart's profile with ``scheduler.enableJobPreemption`` off: pods preempt one by one, for gangs do not yet."""
    [profile] = shipped(job_preemption=False).profiles
    return profile


def default_profile(
    coscheduling: Coscheduling,
    *,
    fit: FitSettings | None = None,
    balanced: BalancedSettings | None = None,
    quota: ElasticQuotaSettings | None = None,
    weights: Mapping[str, int] | None = None,
    disabled: frozenset[str] = frozenset(),
    extra: Mapping[str, Mapping[str, Any]] | None = None,
    scheduler_name: str = "",
) -> Profile:
    """The plugins that ship less ``disabled``, then the third-party ones named in ``extra`` with their settings."""
    config = shipped_profile()
    factories: dict[str, Factory] = {name: make for name, make in FACTORIES.items() if name not in NOT_SHIPPED}
    if fit is not None:
        factories[NodeResourcesFit.name] = lambda config: NodeResourcesFit(fit)
    if balanced is not None:
        factories[NodeResourcesBalancedAllocation.name] = lambda config: NodeResourcesBalancedAllocation(balanced)
    known = {name for name in config.plugins if name in factories or name in SINGLE} | {ScheduleAdmission.name}
    for name in disabled:
        if name not in known:
            raise ProfileError(f"plugins.disabled: {name}: no such plugin; known: {', '.join(sorted(known))}")
    made: dict[str, Plugin] = {coscheduling.name: coscheduling, ElasticQuota.name: ElasticQuota(quota)}
    for name in config.plugins:
        if name in factories and name not in disabled:
            made[name] = factories[name](config)
    third = [_extra(name, settings) for name, settings in (extra or {}).items()]
    return _profile(config, made, third, disabled=disabled, weights=weights or {}, scheduler_name=scheduler_name)


def configured_profiles(
    configuration: SchedulerConfiguration, coscheduling: Coscheduling, quota: ElasticQuota
) -> dict[str, Profile]:
    """The profiles of a configuration by their scheduler's name, in its order.

    Plugins with equal arguments are one for all profiles that have them; what is not built is left out. ConfigError
    names every plugin of which there is one but whose arguments differ.
    """
    third_party = installed()
    problems = _differing(configuration)
    if problems:
        raise ConfigError(problems)
    made: list[tuple[str, Any, Plugin]] = [
        (coscheduling.name, None, coscheduling),
        (quota.name, None, quota),
    ]
    profiles: dict[str, Profile] = {}
    for index, config in enumerate(configuration.profiles):
        plugins: dict[str, Plugin] = {}
        for name in config.plugins:
            args = None if name in SINGLE else config.args.get(name)
            plugin = next((plugin for known, same, plugin in made if known == name and same == args), None)
            if plugin is None and (name in FACTORIES or name in third_party):
                plugin = _made(name, config, index)
                made.append((name, args, plugin))
            if plugin is not None:
                plugins[name] = plugin
        profiles[config.scheduler_name] = _profile(config, plugins, (), scheduler_name=config.scheduler_name)
    return profiles


def third_party_points() -> dict[str, frozenset[Point]]:
    """Installed plugins by name, with the points at which a configuration may list them; all, if nobody can say."""
    points: dict[str, frozenset[Point]] = {}
    for name, entry in installed().items():
        try:
            made = entry.load()
        except Exception:
            made = None  # named when it is used
        able = [point for point, class_ in _CLASSES.items() if inspect.isclass(made) and issubclass(made, class_)]
        points[name] = frozenset(able or POINTS)
    return points


def installed() -> dict[str, EntryPoint]:
    """Third-party plugins by name; a name of koord's own is not among them."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in KINDS}


def load(name: str, settings: Mapping[str, Any]) -> Plugin:
    """A third-party plugin by the name of its entry point; ProfileError names what is wrong, ConfigError of its
    arguments what is wrong with them, by path."""
    found: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
    point = found.get(name)
    if point is None:
        raise ProfileError(f"plugins.extra: {name}: no entry point in {GROUP}; installed: {', '.join(found) or 'none'}")
    try:
        factory: Callable[[Mapping[str, Any]], Plugin] = point.load()
        plugin = factory(settings)
    except ConfigError:
        raise
    except Exception as error:
        raise ProfileError(f"plugins.extra: {name}: {type(error).__name__}: {error}") from error
    if not isinstance(plugin, Plugin):
        raise ProfileError(f"plugins.extra: {name}: {type(plugin).__name__} is not a Plugin")
    return plugin


def _extra(name: str, settings: Mapping[str, Any]) -> Plugin:
    try:
        return load(name, settings)
    except ConfigError as error:
        below = "; ".join(str(Problem(child(name, problem.path), problem.text)) for problem in error.problems)
        raise ProfileError(f"plugins.extra.{below}") from error


def _made(name: str, config: ProfileConfig, index: int) -> Plugin:
    try:
        if name in FACTORIES:
            return FACTORIES[name](config)
        args = config.args.get(name, {})
        plugin = load(name, args if isinstance(args, Mapping) else {})
        if plugin.name != name:
            raise ProfileError(f"calls itself {plugin.name}: a configuration names a plugin by its entry point")
        return plugin
    except ConfigError as error:
        path = f"profiles[{index}].pluginConfig[{name}].args"
        raise ConfigError([Problem(child(path, each.path), each.text) for each in error.problems]) from error
    except ValueError as error:
        raise ConfigError([Problem(f"profiles[{index}].pluginConfig[{name}]", str(error))]) from error


def _differing(configuration: SchedulerConfiguration) -> list[Problem]:
    """Plugins of which there is one must be told the same in every profile that has them."""
    problems: list[Problem] = []
    for name in sorted(SINGLE):
        having = [(i, config) for i, config in enumerate(configuration.profiles) if name in config.plugins]
        for index, config in having[1:]:
            first, told = having[0]
            if config.args.get(name) != told.args.get(name):
                text = f"must be as in profiles[{first}]: there is one {name} for all profiles"
                problems.append(Problem(f"profiles[{index}].pluginConfig[{name}]", text))
    return problems


def _profile(
    config: ProfileConfig,
    made: Mapping[str, Plugin],
    third: Sequence[Plugin],
    *,
    disabled: Collection[str] = (),
    weights: Mapping[str, int] | None = None,
    scheduler_name: str = "",
) -> Profile:
    """``made`` at the points and with the weights of ``config``; then koord's own gate, and ``third`` wherever it can
    be."""
    admission = () if ScheduleAdmission.name in disabled else (ScheduleAdmission(),)
    listed = [made[name] for name in config.plugins if name in made and name not in disabled]
    plugins = [*listed, *admission, *third]
    points: dict[str, tuple[str, ...]] = {}
    for point, class_ in _CLASSES.items():
        names = [name for name in config.at(point) if name not in disabled]
        if point == "preEnqueue":
            # Its text comes second, as users of both kinds of gates know it.
            names.insert(1 if names[:1] == [SchedulingGates.name] else 0, ScheduleAdmission.name)
        points[point] = (*names, *(plugin.name for plugin in third if isinstance(plugin, class_)))
    quiet = [
        name for name in _GIVING_BACK if name in made and name in points["filter"] and name not in points["postFilter"]
    ]
    points["postFilter"] = (*quiet, *points["postFilter"])
    there = {plugin.name for plugin in plugins}
    merged = {name: weight for name, weight in config.weights().items() if name in there}
    return Profile(plugins, {**merged, **(weights or {})}, points=points, scheduler_name=scheduler_name, quiet=quiet)
