"""Arguments of Koordinator's core plugins: spec 10 section 2.4."""

from collections.abc import Iterator, Sequence
from typing import Self

import msgspec

from koord.scheduler.config.decoding import Args, Int32, Int64, Seconds
from koord.scheduler.config.errors import Problem, invalid, not_found, unsupported
from koord.scheduler.config.rules import NATIVE_TWO, ResourceSpec, check_aggregation, check_percents, check_resources

EXPIRED_POLICIES = ("Block", "Ignore", "UseStale")
SCORING_MODES = ("LeastUsed", "MostUsed")
TWO_STRATEGIES = ("LeastAllocated", "MostAllocated")


# LoadAwareScheduling --------------------------------------------------------------------------------------------------


class AggregatedArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Percentiles in place of averages; a duration of 0 is the longest window that is reported."""

    usage_thresholds: dict[str, Int64] = msgspec.field(default_factory=dict)
    usage_aggregation_type: str = ""
    usage_aggregated_duration: Seconds = 0.0
    score_aggregation_type: str = ""
    score_aggregated_duration: Seconds = 0.0

    def problems(self, path: str) -> Iterator[Problem]:
        """Thresholds are percents, types known, durations not negative."""
        yield from check_percents(f"{path}.usageThresholds", self.usage_thresholds, "resource Threshold", lowest=0)
        for use in ("usage", "score"):
            type_: str = getattr(self, f"{use}_aggregation_type")
            seconds: float = getattr(self, f"{use}_aggregated_duration")
            yield from check_aggregation(f"{path}.{use}AggregationType", type_)
            if seconds < 0:
                yield invalid(f"{path}.{use}AggregatedDuration", f"{seconds:g}s", "duration must be >= 0")


class LoadAwareSchedulingArgs(Args, frozen=True):
    """Of LoadAwareScheduling. Thresholds and factors are percents; a threshold of 0 is none.

    koord's own are the last six: ``check_node_and_prod`` (a prod pod is checked against both sets of thresholds),
    ``expired_policy`` (what becomes of nodes whose report is too old; ``""``: as the two flags say), ``scoring_mode``,
    ``estimate_native`` (free and mid pods are estimated by cpu and memory if they ask for nothing of their own),
    ``use_predicted_peak`` (where the agent predicts more usage than it reports, that counts) and
    ``eviction_cool_down_seconds`` (for so long a node takes no BE pods after one was evicted from it; 0: at once).
    """

    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: Int64 = 180
    enable_schedule_when_node_metrics_expired: bool = False
    resource_weights: dict[str, Int64] = msgspec.field(default_factory=dict)
    dominant_resource_weight: Int64 = 0
    usage_thresholds: dict[str, Int64] = msgspec.field(default_factory=dict)
    prod_usage_thresholds: dict[str, Int64] = msgspec.field(default_factory=dict)
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimator: str = ""
    estimated_scaling_factors: dict[str, Int64] = msgspec.field(default_factory=dict)
    estimated_seconds_after_pod_scheduled: Int64 | None = None
    estimated_seconds_after_initialized: Int64 | None = None
    allow_customize_estimation: bool = False
    aggregated: AggregatedArgs | None = None
    supported_resources: tuple[str, ...] = ()
    check_node_and_prod: bool = False
    expired_policy: str = ""
    scoring_mode: str = "LeastUsed"
    estimate_native: bool = True
    use_predicted_peak: bool = False
    eviction_cool_down_seconds: Int64 = 0

    def completed(self) -> Self:
        """Weights only if nothing is weighed; factors that are missing."""
        weighs = bool(self.resource_weights) or self.dominant_resource_weight != 0
        return msgspec.structs.replace(
            self,
            resource_weights=self.resource_weights if weighs else {"cpu": 1, "memory": 1},
            usage_thresholds=self.usage_thresholds or {"cpu": 65, "memory": 95},
            estimated_scaling_factors={"cpu": 85, "memory": 70, **self.estimated_scaling_factors},
        )

    def problems(self, path: str) -> Iterator[Problem]:
        """The rules of spec 10 section 2.4."""
        if self.node_metric_expiration_seconds <= 0:
            yield invalid(
                f"{path}.nodeMetricExpirationSeconds",
                self.node_metric_expiration_seconds,
                "nodeMetricExpiredSeconds should be a positive value",
            )
        weights, factors = self.resource_weights, self.estimated_scaling_factors
        yield from check_percents(f"{path}.resourceWeights", weights, "resource Weight", lowest=1)
        dominant = self.dominant_resource_weight
        if dominant < 0:
            rule = "dominantResourceWeight should not be a negative value"
            yield invalid(f"{path}.dominantResourceWeight", dominant, rule)
        elif dominant > 100:
            yield invalid(f"{path}.dominantResourceWeight", dominant, "dominantResourceWeight should be less than 100")
        yield from check_percents(f"{path}.usageThresholds", self.usage_thresholds, "resource Threshold", lowest=0)
        what = "estimated resource ScalingFactor"
        yield from check_percents(f"{path}.estimatedScalingFactors", factors, what, lowest=1)
        for name in weights:
            if name not in factors:
                yield not_found(f"{path}.estimatedScalingFactors", name)
        if self.aggregated is not None:
            yield from self.aggregated.problems(f"{path}.aggregated")
        if self.expired_policy and self.expired_policy not in EXPIRED_POLICIES:
            yield unsupported(f"{path}.expiredPolicy", self.expired_policy, EXPIRED_POLICIES)
        if self.eviction_cool_down_seconds < 0:
            rule = "should not be a negative value"
            yield invalid(f"{path}.evictionCoolDownSeconds", self.eviction_cool_down_seconds, rule)
        if self.scoring_mode not in SCORING_MODES:
            yield unsupported(f"{path}.scoringMode", self.scoring_mode, SCORING_MODES)


# NodeNUMAResource -----------------------------------------------------------------------------------------------------


class StrategyArgs(msgspec.Struct, frozen=True, rename="camel"):
    """How nodes, or NUMA nodes, are rated."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()


def check_strategy(
    path: str, strategy: StrategyArgs, what: str, known: Sequence[str] = TWO_STRATEGIES
) -> Iterator[Problem]:
    """A known type, and weights in (0, 100]."""
    if strategy.type not in known:
        yield invalid(f"{path}.type", strategy.type, f"{what} {strategy.type} is not supported")
    yield from check_resources(f"{path}.resources", strategy.resources)


class NodeNUMAResourceArgs(Args, frozen=True):
    """Of NodeNUMAResource. An explicit "" as bind policy: pods that name none are not bound."""

    default_cpu_bind_policy: str = msgspec.field(name="defaultCPUBindPolicy", default="FullPCPUs")
    scoring_strategy: StrategyArgs = StrategyArgs("LeastAllocated", NATIVE_TWO)
    numa_scoring_strategy: StrategyArgs = StrategyArgs("LeastAllocated", NATIVE_TWO)

    def problems(self, path: str) -> Iterator[Problem]:
        """A known policy and strategies."""
        policy = self.default_cpu_bind_policy
        if policy not in ("", "FullPCPUs", "SpreadByPCPUs"):
            rule = "must specified CPU bind policy FullPCPUs or SpreadByPCPUs"
            yield invalid(f"{path}.defaultCPUBindPolicy", policy, rule)
        yield from check_strategy(f"{path}.scoringStrategy", self.scoring_strategy, "scoring strategy")
        yield from check_strategy(f"{path}.numaScoringStrategy", self.numa_scoring_strategy, "numa scoring strategy")


# The small ones -------------------------------------------------------------------------------------------------------


class FitPlusResource(msgspec.Struct, frozen=True, rename="camel"):
    """How one resource is rated, and its weight."""

    type: str = ""
    weight: Int64 = 0


class NodeResourcesFitPlusArgs(Args, frozen=True):
    """Of NodeResourcesFitPlus; nothing is weighed unless named."""

    resources: dict[str, FitPlusResource] = msgspec.field(default_factory=dict)

    def problems(self, path: str) -> Iterator[Problem]:
        """Known types, weights not negative. The original takes anything here and fails later."""
        for name, resource in self.resources.items():
            if resource.type not in TWO_STRATEGIES:
                yield unsupported(f"{path}.resources[{name}].type", resource.type, TWO_STRATEGIES)
            if resource.weight < 0:
                yield invalid(f"{path}.resources[{name}].weight", resource.weight, "must be non-negative")


class ScarceResourceAvoidanceArgs(Args, frozen=True):
    """Of ScarceResourceAvoidance."""

    resources: tuple[str, ...] = ()


class SchedulingHintArgs(Args, frozen=True):
    """Of SchedulingHint."""

    max_hint_nodes: Int32 = 100

    def problems(self, path: str) -> Iterator[Problem]:
        """A positive number."""
        if self.max_hint_nodes <= 0:
            yield invalid(f"{path}.maxHintNodes", self.max_hint_nodes, "must be a positive value")
