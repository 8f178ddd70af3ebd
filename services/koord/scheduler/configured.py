"""The profiles of a scheduler: of its own settings, or of a KubeSchedulerConfiguration that they name.

Such a file stands for everything that it can say. What the settings say of the same is refused, so that nobody wonders
which of the two counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from koord.scheduler.config.errors import ConfigError, Problem, unreadable
from koord.scheduler.config.extenders import ExtenderConfig
from koord.scheduler.config.jobargs import CoschedulingArgs, ElasticQuotaArgs
from koord.scheduler.config.model import A, SchedulerConfiguration
from koord.scheduler.config.reading import read
from koord.scheduler.config.registry import left_out
from koord.scheduler.framework.profile import Profile
from koord.scheduler.gang.book import GangSettings
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.elasticquota import ElasticQuota, ElasticQuotaSettings
from koord.scheduler.plugins.factories import BUILT
from koord.scheduler.plugins.profile import configured_profiles, installed, third_party_points
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings

_DEFAULT = SchedulerSettings()
_WHOLE = ("plugins", "fit", "balanced", "quota", "percentage_of_nodes_to_score")
_PARTS = (
    ("queue", ("initial_backoff_s", "max_backoff_s")),
    ("coscheduling", ("default_timeout_s", "default_match_policy")),
)


class Profiles(NamedTuple):
    """``usual`` is the profile of pods under none of the names in ``others``; ``notes`` are for whoever starts it.

    ``extenders`` are webhooks to ask, about so many pods ``at_once``. ``profiling``: whether what is logged may be
    changed while the service runs (the file's ``enableProfiling``).
    """

    usual: Profile
    others: Mapping[str, Profile]
    coscheduling: Coscheduling
    queue: QueueSettings
    notes: tuple[str, ...] = ()
    profiling: bool = True
    extenders: tuple[ExtenderConfig, ...] = ()
    at_once: int = 16

    @property
    def all(self) -> tuple[Profile, ...]:
        """The usual one first."""
        return (self.usual, *self.others.values())


def profiles_of(settings: SchedulerSettings, scheduler_names: Sequence[str]) -> Profiles:
    """All profiles. ProfileError or ConfigError name what is wrong with the settings or the file."""
    if not settings.config:
        profile, coscheduling = settings.profile()
        profile.scheduler_name = scheduler_names[0]
        return Profiles(profile, {}, coscheduling, settings.queue)
    source = settings.config
    both = ", ".join(f"scheduler.{key}" for key in _given(settings))
    if both:
        text = f"{both} and scheduler.config ({source}) are both given, and mean the same: leave one out"
        raise ConfigError([Problem("", text)])
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"scheduler.config: {source}: {unreadable(error)}")]) from error
    found = read(text, third_party_points(), source=source)
    names = [profile.scheduler_name for profile in found.profiles]
    if set(names) != set(scheduler_names):
        text = f"{', '.join(names)}; but scheduler_names, whose pods koord places, are {', '.join(scheduler_names)}"
        raise ConfigError([Problem("profiles[*].schedulerName", text)], source)
    coscheduling = Coscheduling(_gangs(settings.coscheduling, found))
    quota = _args(found, ElasticQuota.name, ElasticQuotaArgs)
    check = settings.quota if quota is None else ElasticQuotaSettings(check_parents=quota.enable_check_parent_quota)
    try:
        made = configured_profiles(found, coscheduling, ElasticQuota(check))
    except ConfigError as error:
        raise ConfigError(error.problems, source) from error
    queue = replace(
        settings.queue,
        initial_backoff_s=float(found.pod_initial_backoff_s),
        max_backoff_s=float(found.pod_max_backoff_s),
    )
    absent = map(str, left_out(found, BUILT | installed().keys()))
    notes = (*found.warnings, *absent, *(f"{path}: has no effect in koord" for path in found.ignored))
    # Events and metrics that are of no one profile are under the first of scheduler_names.
    usual = made.pop(scheduler_names[0])
    return Profiles(usual, made, coscheduling, queue, notes, found.enable_profiling, found.extenders, found.parallelism)


def _given(settings: SchedulerSettings) -> Iterator[str]:
    """Settings that are not as they are by default, of those that the file takes the place of."""
    for key in _WHOLE:
        if getattr(settings, key) != getattr(_DEFAULT, key):
            yield key
    for key, parts in _PARTS:
        mine, default = getattr(settings, key), getattr(_DEFAULT, key)
        yield from (f"{key}.{part}" for part in parts if getattr(mine, part) != getattr(default, part))


def _gangs(settings: GangSettings, found: SchedulerConfiguration) -> GangSettings:
    args = _args(found, Coscheduling.name, CoschedulingArgs)
    if args is None:
        return settings
    return replace(settings, default_timeout_s=args.default_timeout, default_match_policy=args.default_match_policy)


def _args(found: SchedulerConfiguration, plugin: str, type_: type[A]) -> A | None:
    """The arguments of a plugin of which there is one; all profiles that have it say the same."""
    args = (profile.args.get(plugin) for profile in found.profiles)
    return next((each for each in args if isinstance(each, type_)), None)
