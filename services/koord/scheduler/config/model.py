"""What a configuration file comes to: profiles with merged plugin sets and checked arguments.

``SchedulerConfiguration`` is the answer of :func:`koord.scheduler.config.reading.read`; everything in it is complete
(defaults applied) and valid, so that who builds profiles of it has nothing to check but which plugins exist.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

from koord.scheduler.config.decoding import Args
from koord.scheduler.config.extenders import ExtenderConfig

Point = Literal[
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
]
POINTS: tuple[Point, ...] = get_args(Point)

A = TypeVar("A", bound=Args)


class PluginUse(NamedTuple):
    """A plugin at an extension point; ``weight`` is that of its score, 0 at the other points."""

    name: str
    weight: int = 0


class ProfileConfig(msgspec.Struct, frozen=True):
    """One profile.

    ``points`` holds every extension point, its plugins in the order they are asked. ``plugins`` are the names of all
    plugins at any point: those of ``multiPoint`` first, in its order, then the others as they appear. ``args`` has the
    complete arguments of every plugin in ``plugins`` that takes any; for plugins that koord does not know they are the
    raw mapping. ``percentage_of_nodes_to_score`` is None unless the profile says so itself.
    """

    scheduler_name: str
    plugins: tuple[str, ...]
    points: Mapping[Point, tuple[PluginUse, ...]]
    args: Mapping[str, Args | Mapping[str, Any]] = {}
    percentage_of_nodes_to_score: int | None = None

    def at(self, point: Point) -> tuple[str, ...]:
        """Names of the plugins at a point, in order."""
        return tuple(use.name for use in self.points[point])

    def weights(self) -> dict[str, int]:
        """Weight of every score plugin."""
        return {use.name: use.weight for use in self.points["score"]}

    def arguments(self, plugin: str, type_: type[A]) -> A:
        """The arguments of a plugin; its defaults if the profile does not have the plugin."""
        found = self.args.get(plugin)
        return found if isinstance(found, type_) else type_().completed()


class LeaderElection(msgspec.Struct, frozen=True):
    """Which lease the original would hold; koord's schedulers share the pods and hold none. Durations in seconds."""

    leader_elect: bool = True
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class SchedulerConfiguration(msgspec.Struct, frozen=True):
    """A whole file.

    ``ignored`` are the fields that the file sets and that change nothing in koord, by path (the docs page
    ``scheduler-configuration.md`` says why, each); ``warnings`` are texts for whoever starts the scheduler.
    """

    profiles: tuple[ProfileConfig, ...]
    pod_initial_backoff_s: int = 1
    pod_max_backoff_s: int = 10
    percentage_of_nodes_to_score: int = 0
    parallelism: int = 16
    delay_cache_until_active: bool = False
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    leader_election: LeaderElection = LeaderElection()
    extenders: tuple[ExtenderConfig, ...] = ()
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def profile(self, scheduler_name: str) -> ProfileConfig | None:
        """The profile of that name, if there is one."""
        return next((profile for profile in self.profiles if profile.scheduler_name == scheduler_name), None)
