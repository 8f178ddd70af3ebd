"""Arguments of the plugins for gangs, quotas and reservations: spec 20 section 2.2."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

import msgspec

from koord.kube.quantity import NANO, Quantity
from koord.scheduler.config.decoding import Args, Int32, Int64, Seconds
from koord.scheduler.config.errors import Problem, invalid, not_found
from koord.scheduler.config.rules import check_qualified_name, is_extended

QUOTA_MAX: Mapping[str, Quantity] = {name: Quantity((2**63 - 1) // 5 * NANO) for name in ("cpu", "memory")}


class CoschedulingArgs(Args, frozen=True):
    """Of Coscheduling. ``skip_check_schedule_cycle`` has no effect, as in the original."""

    default_timeout: Seconds = 600.0
    controller_workers: Int64 = 1
    skip_check_schedule_cycle: bool = False
    enable_preemption: bool = False
    aware_network_topology: bool = False
    default_match_policy: str = "once-satisfied"

    def problems(self, path: str) -> Iterator[Problem]:
        """The timeout is not negative, at least one worker."""
        if self.default_timeout < 0:
            rule = "coeSchedulingArgs DefaultTimeoutSeconds invalid"
            yield invalid(f"{path}.defaultTimeout", f"{self.default_timeout:g}s", rule)
        if self.controller_workers < 1:
            rule = "coeSchedulingArgs ControllerWorkers invalid"
            yield invalid(f"{path}.controllerWorkers", self.controller_workers, rule)


class HookPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A hook into quotas, made by a factory."""

    key: str = ""
    factory_key: str = ""
    factory_args: str = ""


class ElasticQuotaArgs(Args, frozen=True):
    """Of ElasticQuota; durations in seconds."""

    delay_evict_time: Seconds = 120.0
    revoke_pod_interval: Seconds = 1.0
    default_quota_group_max: dict[str, Quantity] = msgspec.field(default_factory=dict)
    system_quota_group_max: dict[str, Quantity] = msgspec.field(default_factory=dict)
    quota_group_namespace: str = "koordinator-system"
    monitor_all_quotas: bool = False
    enable_check_parent_quota: bool = False
    enable_runtime_quota: bool = True
    enable_min_quota_scale: bool = True
    disable_default_quota_preemption: bool = True
    enable_queue_hint: bool = False
    quota_snapshot_update_interval: Seconds = 120.0
    hook_plugins: tuple[HookPlugin, ...] = ()

    def completed(self) -> Self:
        """The two maxima are without end unless given; an empty namespace is the default one."""
        return msgspec.structs.replace(
            self,
            default_quota_group_max=self.default_quota_group_max or dict(QUOTA_MAX),
            system_quota_group_max=self.system_quota_group_max or dict(QUOTA_MAX),
            quota_group_namespace=self.quota_group_namespace or "koordinator-system",
        )

    def problems(self, path: str) -> Iterator[Problem]:
        """Nothing negative; hooks are not known to koord."""
        error = "elasticQuotaArgs error, {} should be a positive value"
        if self.delay_evict_time < 0:
            yield invalid(f"{path}.delayEvictTime", f"{self.delay_evict_time:g}s", error.format("DelayEvictTime"))
        if self.revoke_pod_interval < 0:
            text = f"{self.revoke_pod_interval:g}s"
            yield invalid(f"{path}.revokePodInterval", text, error.format("RevokePodCycle"))
        for field, amounts in (
            ("defaultQuotaGroupMax", self.default_quota_group_max),
            ("systemQuotaGroupMax", self.system_quota_group_max),
        ):
            for name, amount in amounts.items():
                if amount.nanos < 0:
                    rule = f"{error.format(field)}, resourceName:{name}, got {amount}"
                    yield invalid(f"{path}.{field}[{name}]", str(amount), rule)
        for index, hook in enumerate(self.hook_plugins):
            yield not_found(f"{path}.hookPlugins[{index}].factoryKey", hook.factory_key)


class PreAllocationArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Which pods a pre-allocating reservation may take over."""

    enable_cluster_mode: bool = False
    cluster_label_key: str = "pod.koordinator.sh/is-pre-allocatable"
    cluster_priority_annotation_key: str = "pod.koordinator.sh/pre-allocatable-priority"
    prefer_no_pre_allocated_pods: bool = False


class SelectorIndexArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Which labels of reservations are indexed."""

    enabled: bool = False
    key_prefixes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


class ReservationArgs(Args, frozen=True):
    """Of Reservation. 0 seconds are the default."""

    enable_preemption: bool = False
    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100
    controller_workers: Int32 = 1
    gc_duration_seconds: Int64 = 86_400
    gc_interval_seconds: Int64 = 60
    disable_garbage_collection: bool = False
    resync_interval_seconds: Int64 = 60
    pre_allocation_config: PreAllocationArgs = PreAllocationArgs()
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    reservation_selector_index: SelectorIndexArgs = SelectorIndexArgs()

    def completed(self) -> Self:
        """Seconds that are 0 become the default."""
        changes: dict[str, Any] = {
            "gc_duration_seconds": self.gc_duration_seconds or 86_400,
            "gc_interval_seconds": self.gc_interval_seconds or 60,
            "resync_interval_seconds": self.resync_interval_seconds or 60,
        }
        return msgspec.structs.replace(self, **changes)

    def problems(self, path: str) -> Iterator[Problem]:
        """Ranges of spec 20 section 2.2; only extended resources can be ignored."""
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            where = f"{path}.minCandidateNodesPercentage"
            yield invalid(where, self.min_candidate_nodes_percentage, "must be in the range [0, 100]")
        for field, number in (
            ("minCandidateNodesAbsolute", self.min_candidate_nodes_absolute),
            ("gcDurationSeconds", self.gc_duration_seconds),
            ("gcIntervalSeconds", self.gc_interval_seconds),
            ("resyncIntervalSeconds", self.resync_interval_seconds),
        ):
            if number < 0:
                yield invalid(f"{path}.{field}", number, "must be non-negative")
        for index, name in enumerate(self.ignored_resources):
            where = f"{path}.ignoredResources[{index}]"
            found = list(check_qualified_name(where, name))
            yield from found
            if not found and not is_extended(name):
                yield invalid(where, name, "must be an extended resource")
        for index, group in enumerate(self.ignored_resource_groups):
            where = f"{path}.ignoredResourceGroups[{index}]"
            if "/" in group:
                yield invalid(where, group, "resource group name can't contain '/'")
            elif group == "kubernetes.io":
                yield invalid(where, group, "must be the prefix of extended resources")
            else:
                yield from check_qualified_name(where, group)
