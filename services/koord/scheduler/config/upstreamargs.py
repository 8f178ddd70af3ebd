"""Arguments of kube-scheduler's plugins: fields, defaults and rules of Kubernetes 1.35 (spec 10, 2.4 and 3.15)."""

from collections.abc import Iterator
from typing import Any, Literal, Self, get_args

import msgspec

from koord.kube.nodeselectors import compile_node_selector, compile_preferred
from koord.kube.pods import NodeAffinity
from koord.kube.selectors import SelectorError
from koord.scheduler.config.decoding import Args, Int32, Int64, Seconds
from koord.scheduler.config.errors import Problem, duplicate, forbidden, invalid, required, unsupported
from koord.scheduler.config.rules import (
    NATIVE_TWO,
    ResourceSpec,
    ShapePoint,
    check_once,
    check_qualified_name,
    check_resources,
    check_shape,
    weighted,
)

FitStrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
UnsatisfiableAction = Literal["DoNotSchedule", "ScheduleAnyway"]
DefaultingType = Literal["System", "List"]


class RequestedToCapacityRatio(msgspec.Struct, frozen=True, rename="camel"):
    """Score by utilization, linear between the points."""

    shape: tuple[ShapePoint, ...] = ()


class FitStrategy(msgspec.Struct, frozen=True, rename="camel"):
    """How NodeResourcesFit rates nodes; ``type`` is a ``FitStrategyType`` once checked."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


class NodeResourcesFitArgs(Args, frozen=True):
    """Of NodeResourcesFit."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: FitStrategy | None = None

    @property
    def strategy(self) -> FitStrategy:
        """The strategy, which there is once completed."""
        assert self.scoring_strategy is not None, "the arguments are not completed"
        return self.scoring_strategy

    def completed(self) -> Self:
        """LeastAllocated of cpu and memory."""
        given = self.scoring_strategy or FitStrategy("LeastAllocated")
        strategy = msgspec.structs.replace(given, resources=weighted(given.resources, NATIVE_TWO))
        return msgspec.structs.replace(self, scoring_strategy=strategy)

    def problems(self, path: str) -> Iterator[Problem]:
        """Names are qualified, groups have no slash; the strategy is known and its numbers in range."""
        for index, name in enumerate(self.ignored_resources):
            yield from check_qualified_name(f"{path}.ignoredResources[{index}]", name)
        for index, group in enumerate(self.ignored_resource_groups):
            where = f"{path}.ignoredResourceGroups[{index}]"
            if "/" in group:
                yield invalid(where, group, "resource group name can't contain '/'")
            else:
                yield from check_qualified_name(where, group)
        strategy, where = self.strategy, f"{path}.scoringStrategy"
        if strategy.type not in get_args(FitStrategyType):
            yield unsupported(f"{where}.type", strategy.type, get_args(FitStrategyType))
        yield from check_resources(f"{where}.resources", strategy.resources)
        ratio = strategy.requested_to_capacity_ratio
        if ratio is not None or strategy.type == "RequestedToCapacityRatio":
            yield from check_shape(f"{where}.requestedToCapacityRatio.shape", ratio.shape if ratio else ())


class NodeResourcesBalancedAllocationArgs(Args, frozen=True):
    """Of NodeResourcesBalancedAllocation. ``relative`` is koord's own: the rating of Kubernetes 1.36."""

    resources: tuple[ResourceSpec, ...] = ()
    relative: bool = False

    def completed(self) -> Self:
        """Of cpu and memory."""
        return msgspec.structs.replace(self, resources=weighted(self.resources, NATIVE_TWO))

    def problems(self, path: str) -> Iterator[Problem]:
        """No resource twice, weights are 1."""
        yield from check_once(f"{path}.resources[{{}}].name", [resource.name for resource in self.resources])
        for index, resource in enumerate(self.resources):
            if resource.weight != 1:
                yield invalid(f"{path}.resources[{index}].weight", resource.weight, "must be 1")


class NodeAffinityArgs(Args, frozen=True):
    """Of NodeAffinity: an affinity that is added to every pod's."""

    added_affinity: NodeAffinity | None = None

    def problems(self, path: str) -> Iterator[Problem]:
        """The selectors compile."""
        if self.added_affinity is None:
            return
        where = f"{path}.addedAffinity"
        preferred = self.added_affinity.preferred
        try:
            if self.added_affinity.required is not None:
                below = f"{where}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
                compile_node_selector(self.added_affinity.required, below)
            compile_preferred(preferred, f"{where}.preferredDuringSchedulingIgnoredDuringExecution")
        except SelectorError as error:
            yield Problem("", str(error))  # it names the whole path
        for index, term in enumerate(preferred):
            if not 1 <= term.weight <= 100:
                below = f"{where}.preferredDuringSchedulingIgnoredDuringExecution[{index}].weight"
                yield invalid(below, term.weight, "must be in the range 1-100")


class InterPodAffinityArgs(Args, frozen=True):
    """Of InterPodAffinity."""

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def problems(self, path: str) -> Iterator[Problem]:
        """The weight is in 0..100."""
        if not 0 <= self.hard_pod_affinity_weight <= 100:
            yield invalid(f"{path}.hardPodAffinityWeight", self.hard_pod_affinity_weight, "not in valid range [0, 100]")


class SpreadDefault(msgspec.Struct, frozen=True, rename="camel"):
    """A spread constraint for pods that have none; its selector is deduced for each pod."""

    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: Any = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


class PodTopologySpreadArgs(Args, frozen=True):
    """Of PodTopologySpread. ``System``: the built-in constraints (hostname 3, zone 5)."""

    default_constraints: tuple[SpreadDefault, ...] = ()
    defaulting_type: str = ""

    def completed(self) -> Self:
        """``System``."""
        return msgspec.structs.replace(self, defaulting_type=self.defaulting_type or "System")

    def problems(self, path: str) -> Iterator[Problem]:
        """Constraints are complete, without selector, not twice, and only with ``List``."""
        if self.defaulting_type not in get_args(DefaultingType):
            yield unsupported(f"{path}.defaultingType", self.defaulting_type, get_args(DefaultingType))
        elif self.defaulting_type == "System" and self.default_constraints:
            yield invalid(f"{path}.defaultingType", self.defaulting_type, "when .defaultConstraints are not empty")
        for index, constraint in enumerate(self.default_constraints):
            where = f"{path}.defaultConstraints[{index}]"
            if constraint.max_skew <= 0:
                yield invalid(f"{where}.maxSkew", constraint.max_skew, "not in valid range (0, inf)")
            if not constraint.topology_key:
                yield required(f"{where}.topologyKey", "can not be empty")
            else:
                yield from check_qualified_name(f"{where}.topologyKey", constraint.topology_key)
            action = constraint.when_unsatisfiable
            if not action:
                yield required(f"{where}.whenUnsatisfiable", "can not be empty")
            elif action not in get_args(UnsatisfiableAction):
                yield unsupported(f"{where}.whenUnsatisfiable", action, get_args(UnsatisfiableAction))
            if constraint.label_selector is not None:
                yield forbidden(
                    f"{where}.labelSelector",
                    "constraint must not define a selector, as they deduced for each pod",
                )
            pair = (constraint.topology_key, action)
            if any(pair == (c.topology_key, c.when_unsatisfiable) for c in self.default_constraints[:index]):
                yield duplicate(where, f"{{{pair[0]}, {pair[1]}}}")


class VolumeBindingArgs(Args, frozen=True):
    """Of VolumeBinding. A ``shape`` turns on what upstream has behind the gate StorageCapacityScoring: nodes are rated
    by how much of their storage the claims would use."""

    bind_timeout_seconds: Int64 = 600
    shape: tuple[ShapePoint, ...] | None = None

    def problems(self, path: str) -> Iterator[Problem]:
        """The timeout is not negative; a shape has points, rising and in range."""
        if self.bind_timeout_seconds < 0:
            rule = "invalid BindTimeoutSeconds, should not be a negative value"
            yield invalid(f"{path}.bindTimeoutSeconds", self.bind_timeout_seconds, rule)
        if self.shape is not None:
            yield from check_shape(f"{path}.shape", self.shape)


class DefaultPreemptionArgs(Args, frozen=True):
    """Of DefaultPreemption: how many candidates are enough."""

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100

    def problems(self, path: str) -> Iterator[Problem]:
        """In range, and not both 0."""
        percentage, absolute = self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute
        if not 0 <= percentage <= 100:
            yield invalid(f"{path}.minCandidateNodesPercentage", percentage, "not in valid range [0, 100]")
        if absolute < 0:
            yield invalid(f"{path}.minCandidateNodesAbsolute", absolute, "not in valid range [0, inf)")
        if percentage == absolute == 0:
            rule = "cannot be zero at the same time as "
            yield invalid(f"{path}.minCandidateNodesPercentage", percentage, f"{rule}minCandidateNodesAbsolute")
            yield invalid(f"{path}.minCandidateNodesAbsolute", absolute, f"{rule}minCandidateNodesPercentage")


class DynamicResourcesArgs(Args, frozen=True):
    """Of DynamicResources; 0 is no timeout."""

    filter_timeout: Seconds = 10.0
    binding_timeout: Seconds = 600.0

    def problems(self, path: str) -> Iterator[Problem]:
        """Not negative; at least a second to bind."""
        if self.filter_timeout < 0:
            yield invalid(f"{path}.filterTimeout", f"{self.filter_timeout:g}s", "must be zero or positive")
        if self.binding_timeout < 1:
            yield invalid(f"{path}.bindingTimeout", f"{self.binding_timeout:g}s", "must be at least 1 second")
