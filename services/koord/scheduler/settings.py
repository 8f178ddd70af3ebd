"""Settings of the scheduler, validated before anything starts."""

from typing import Any

import msgspec

from koord.scheduler.auditor.settings import AuditorSettings
from koord.scheduler.debugging import DebugSettings
from koord.scheduler.framework.profile import Profile
from koord.scheduler.gang.book import GangSettings
from koord.scheduler.gates import read_gates
from koord.scheduler.monitor import MonitorSettings
from koord.scheduler.plugins.balanced import BalancedSettings
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.elasticquota import ElasticQuotaSettings
from koord.scheduler.plugins.fit import FitSettings
from koord.scheduler.plugins.profile import default_profile
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.transformers.pods import PodGates


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``disabled`` built-in plugins, third-party ones in ``extra`` with their settings, and weights by plugin."""

    disabled: tuple[str, ...] = ()
    extra: dict[str, dict[str, Any]] = {}
    weights: dict[str, int] = {}


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything under ``scheduler`` in the settings file.

    Whose pods are served is a common setting (``scheduler_names``). ``config``: a KubeSchedulerConfiguration's file,
    in place of ``plugins``, ``fit``, ``balanced``, ``quota`` and what it says of queue and gangs. ``batch``: pods
    planned before they are claimed. ``seed`` fixes how ties between nodes break. ``percentage_of_nodes_to_score`` is
    accepted and has no effect: all nodes are always scored. ``scheduled_events``: whether a Scheduled event is recorded
    for every pod. ``transformers``: what may be changed of a pod before anybody looks at it. ``debug``: what is
    logged of single attempts. ``monitor``: which attempts take too long. ``feature_gates``: those of the original, by
    name (:mod:`koord.scheduler.gates`). ``auditor``: how workloads fare, measured.
    """

    config: str = ""
    batch: int = 512
    seed: str = "koord"
    scheduled_events: bool = True
    percentage_of_nodes_to_score: int = 0
    queue: QueueSettings = QueueSettings()
    plugins: PluginSettings = PluginSettings()
    fit: FitSettings = FitSettings()
    balanced: BalancedSettings = BalancedSettings()
    quota: ElasticQuotaSettings = ElasticQuotaSettings()
    coscheduling: GangSettings = GangSettings()
    transformers: PodGates = PodGates()
    debug: DebugSettings = DebugSettings()
    monitor: MonitorSettings = MonitorSettings()
    feature_gates: dict[str, bool] = {}
    auditor: AuditorSettings = AuditorSettings()

    def __post_init__(self) -> None:
        read_gates(self.feature_gates)
        self.auditor.check()
        if not 1 <= self.batch <= 4096:
            raise ValueError(f"batch: {self.batch} is not in 1..4096")
        if not 0 <= self.percentage_of_nodes_to_score <= 100:
            raise ValueError(f"percentage_of_nodes_to_score: {self.percentage_of_nodes_to_score} is not in 0..100")
        if self.queue.initial_backoff_s <= 0:
            raise ValueError(f"queue.initial_backoff_s: {self.queue.initial_backoff_s} must be greater than 0")
        if self.queue.max_backoff_s < self.queue.initial_backoff_s:
            raise ValueError(
                f"queue.max_backoff_s: {self.queue.max_backoff_s} must not be less than "
                f"queue.initial_backoff_s ({self.queue.initial_backoff_s})"
            )
        if self.queue.flush_after_s <= 0:
            raise ValueError(f"queue.flush_after_s: {self.queue.flush_after_s} must be greater than 0")
        if self.debug.scores < 0:
            raise ValueError(f"debug.scores: {self.debug.scores} must not be negative")
        if self.debug.queue_size < 1:
            raise ValueError(f"debug.queue_size: {self.debug.queue_size} must be at least 1")
        for key in ("period_s", "timeout_s"):
            if getattr(self.monitor, key) <= 0:
                raise ValueError(f"monitor.{key}: {getattr(self.monitor, key)} must be greater than 0")
        for resource in self.fit.resources:
            if not 1 <= resource.weight <= 100:
                raise ValueError(
                    f"fit.resources: {resource.name}: weight {resource.weight} not in valid range (0, 100]"
                )
        if not self.fit.resources:
            raise ValueError("fit.resources: at least one")

    def profile(self) -> tuple[Profile, Coscheduling]:
        """The plugins as set. ProfileError names what is wrong."""
        coscheduling = Coscheduling(self.coscheduling)
        profile = default_profile(
            coscheduling,
            fit=self.fit,
            balanced=self.balanced,
            quota=self.quota,
            weights=self.plugins.weights,
            disabled=frozenset(self.plugins.disabled),
            extra=self.plugins.extra,
        )
        return profile, coscheduling
