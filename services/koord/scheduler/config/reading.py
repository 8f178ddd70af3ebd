"""A ``KubeSchedulerConfiguration`` text to a configuration: read, merge, complete, check; all that is wrong at once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from koord.scheduler.config.arguments import read_arguments
from koord.scheduler.config.checking import check_document
from koord.scheduler.config.decoding import Args, Decoder
from koord.scheduler.config.document import Document, Profile
from koord.scheduler.config.errors import ConfigError, Problem, duplicate, invalid, required, unsupported
from koord.scheduler.config.extenders import Extender, completed, idle, ignored_resources
from koord.scheduler.config.merging import merge
from koord.scheduler.config.model import (
    LeaderElection,
    Point,
    ProfileConfig,
    SchedulerConfiguration,
)
from koord.scheduler.config.registry import KINDS, PluginKind
from koord.scheduler.config.text import load
from koord.scheduler.config.upstreamargs import NodeResourcesFitArgs
from koord.scheduler.config.versions import GROUP, KIND, VERSIONS

DEFAULT_SCHEDULER = "default-scheduler"
_FIT = "NodeResourcesFit"
_OLD_FIELDS = ("healthzBindAddress", "metricsBindAddress")
"""Of v1beta2 alone."""

IGNORED = (
    "parallelism",
    "percentageOfNodesToScore",
    "leaderElection",
    "clientConnection",
    "enableContentionProfiling",
    "delayCacheUntilActive",
)
"""Fields that are read and checked and change nothing here: ``docs/scheduler-configuration.md`` says why, each."""


def read(
    text: str, plugins: Mapping[str, frozenset[Point]] | None = None, *, source: str = ""
) -> SchedulerConfiguration:
    """The configuration in ``text``: YAML or JSON of a ``KubeSchedulerConfiguration``, or of a ConfigMap with one.

    ``plugins`` are plugins besides the known ones, by name, with the points they implement; their arguments are not
    looked into. ``source`` stands before the message of a ConfigError, which names every problem by path.
    """
    content, key = _configuration(load(text, source), source)
    source = f"{source}: data[{key}]" if source and key else source or (f"data[{key}]" if key else "")
    kinds = {**KINDS, **{name: PluginKind(points) for name, points in (plugins or {}).items()}}
    return _Reader(kinds, source).read(content)


def _configuration(content: dict[str, Any], source: str) -> tuple[dict[str, Any], str]:
    """The configuration's own mapping and, if it was in a ConfigMap, its key there."""
    if content.get("kind") != "ConfigMap":
        return content, ""
    data = content.get("data")
    found: dict[str, dict[str, Any]] = {}
    for key, text in data.items() if isinstance(data, dict) else ():
        if isinstance(text, str) and KIND in text:
            inner = load(text, f"{source}: data[{key}]" if source else f"data[{key}]")
            if inner.get("kind") == KIND:
                found[key] = inner
    if len(found) != 1:
        names = ", ".join(found) or "none"
        rule = f"a ConfigMap must hold exactly one {KIND}, found in: {names}"
        raise ConfigError([Problem("data", rule)], source)
    [(key, inner)] = found.items()
    return inner, key


class _Reader:
    """Reads one configuration."""

    def __init__(self, kinds: Mapping[str, PluginKind], source: str) -> None:
        self._kinds = kinds
        self._source = source
        self._problems: list[Problem] = []
        self._warnings: list[Problem] = []

    def read(self, content: dict[str, Any]) -> SchedulerConfiguration:
        """Everything; ConfigError with all problems."""
        self._check_kind(content)
        old = [field for field in _OLD_FIELDS if content.get("apiVersion") == VERSIONS[2] and field in content]
        for field in old:
            self._warnings.append(Problem(field, "has no effect: koord serves where its own setting http says"))
        content = {key: value for key, value in content.items() if key not in old}
        decoder = Decoder()
        document = decoder.what_can_be(Document, content)
        given = document.profiles or (Profile(),)
        if len(given) == 1 and given[0].scheduler_name is None:
            given = (msgspec.structs.replace(given[0], scheduler_name=DEFAULT_SCHEDULER),)
        leader = _leader_election(document)
        self._problems += check_document(document, leader)
        self._warnings += idle(document.extenders)
        profiles = tuple(self._profile(profile, f"profiles[{index}]") for index, profile in enumerate(given))
        if decoder.problems:  # what a field that could not be decoded would have said is not known
            self._problems = [*decoder.problems, *_apart(self._problems, decoder.problems)]
        else:
            self._check_profiles(profiles)
        if self._problems:
            raise ConfigError(dict.fromkeys(self._problems), self._source)
        ignored = [
            field for field in IGNORED if field in content and not (field == "parallelism" and document.extenders)
        ]
        ignored += [
            f"profiles[{index}].percentageOfNodesToScore"
            for index, profile in enumerate(given)
            if profile.percentage_of_nodes_to_score is not None
        ]
        return SchedulerConfiguration(
            _ignoring(profiles, document.extenders),
            pod_initial_backoff_s=_or(document.pod_initial_backoff_seconds, 1),
            pod_max_backoff_s=_or(document.pod_max_backoff_seconds, 10),
            percentage_of_nodes_to_score=_or(document.percentage_of_nodes_to_score, 0),
            parallelism=_or(document.parallelism, 16),
            delay_cache_until_active=document.delay_cache_until_active,
            enable_profiling=document.enable_profiling is not False,
            enable_contention_profiling=document.enable_contention_profiling is not False,
            leader_election=leader,
            extenders=completed(document.extenders),
            ignored=tuple(ignored),
            warnings=tuple(str(warning) for warning in dict.fromkeys(self._warnings)),
        )

    def _check_kind(self, content: dict[str, Any]) -> None:
        """ConfigError if this is something else altogether."""
        version, kind = content.get("apiVersion"), content.get("kind")
        problems = []
        if not version:
            problems.append(required("apiVersion", f"{GROUP}/v1"))
        elif version not in VERSIONS:
            problems.append(unsupported("apiVersion", version, VERSIONS))
        elif version != VERSIONS[0]:
            self._warnings.append(Problem("apiVersion", f"{version} is read as {VERSIONS[0]}, with its defaults"))
        if not kind:
            problems.append(required("kind", KIND))
        elif kind != KIND:
            problems.append(unsupported("kind", kind, [KIND]))
        if problems:
            raise ConfigError(problems, self._source)

    def _profile(self, profile: Profile, path: str) -> ProfileConfig:
        name = profile.scheduler_name or ""
        if not name:
            self._problems.append(required(f"{path}.schedulerName"))
        percentage = profile.percentage_of_nodes_to_score
        if percentage is not None and not 0 <= percentage <= 100:
            self._problems.append(invalid(f"{path}.percentageOfNodesToScore", percentage, "not in valid range [0-100]"))
        merged = merge(profile.plugins, self._kinds, f"{path}.plugins")
        found = read_arguments(profile.plugin_config, self._kinds, merged.plugins, f"{path}.pluginConfig")
        self._problems += (*merged.problems, *found.problems)
        self._warnings += (*merged.warnings, *found.warnings)
        return ProfileConfig(name, merged.plugins, merged.points, found.args, percentage)

    def _check_profiles(self, profiles: tuple[ProfileConfig, ...]) -> None:
        """Names differ; queueSort does not, for there is one queue."""
        first, seen = profiles[0], set()
        sort = first.at("queueSort")
        for index, profile in enumerate(profiles):
            path = f"profiles[{index}]"
            if profile.scheduler_name in seen:
                self._problems.append(duplicate(f"{path}.schedulerName", profile.scheduler_name))
            seen.add(profile.scheduler_name)
            if profile.at("queueSort") != sort:
                names = list(profile.at("queueSort"))
                self._problems.append(invalid(f"{path}.plugins.queueSort", names, "must be the same for all profiles"))
            elif any(_plain(profile.args.get(name)) != _plain(first.args.get(name)) for name in sort):
                shown = _plain(profile.args.get(sort[0]))
                self._problems.append(
                    invalid(f"{path}.pluginConfig.args", shown, "queueSort must be the same for all profiles")
                )


def _apart(problems: Iterable[Problem], others: Sequence[Problem]) -> Iterator[Problem]:
    """Those that are about neither a field of ``others`` nor one above or below it."""
    for problem in problems:
        if not any(problem.path.startswith(other.path) or other.path.startswith(problem.path) for other in others):
            yield problem


def _leader_election(document: Document) -> LeaderElection:
    given = document.leader_election
    return LeaderElection(
        leader_elect=given.leader_elect is not False,
        lease_duration=given.lease_duration or 15.0,
        renew_deadline=given.renew_deadline or 10.0,
        retry_period=given.retry_period or 2.0,
        resource_lock=given.resource_lock or "leases",
        resource_name=given.resource_name or "kube-scheduler",
        resource_namespace=given.resource_namespace or "kube-system",
    )


def _ignoring(profiles: tuple[ProfileConfig, ...], extenders: Sequence[Extender]) -> tuple[ProfileConfig, ...]:
    """What extenders want to be ignored NodeResourcesFit ignores, besides what its arguments name."""
    names = ignored_resources(extenders)
    if not names:
        return profiles
    changed: list[ProfileConfig] = []
    for profile in profiles:
        args = profile.args.get(_FIT)
        if isinstance(args, NodeResourcesFitArgs):
            more = tuple(name for name in names if name not in args.ignored_resources)
            args = msgspec.structs.replace(args, ignored_resources=(*args.ignored_resources, *more))
            profile = msgspec.structs.replace(profile, args={**profile.args, _FIT: args})
        changed.append(profile)
    return tuple(changed)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _plain(args: Args | Mapping[str, Any] | None) -> object:
    return msgspec.to_builtins(args, enc_hook=str) if isinstance(args, Args) else args
