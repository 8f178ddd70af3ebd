"""Arguments of DeviceShare: spec 30 sections 2.6 and 3.15.4."""

from collections.abc import Iterator

import msgspec

from koord.kube.quantity import Quantity
from koord.scheduler.config.decoding import Args, Int32, Seconds
from koord.scheduler.config.errors import Problem, invalid, required, unsupported
from koord.scheduler.config.koordinatorargs import TWO_STRATEGIES, StrategyArgs, check_strategy
from koord.scheduler.config.rules import ResourceSpec

DEVICES = tuple(
    ResourceSpec(f"koordinator.sh/{name}", 1) for name in ("gpu-memory-ratio", "gpu-memory", "rdma", "fpga")
)


class TypicalClass(msgspec.Struct, frozen=True, rename="camel"):
    """A kind of task that is expected; ``cpu`` as a quantity, ``gpuShare`` in thousandths of a GPU."""

    cpu: Quantity = Quantity(0)
    gpu_count: Int32 = 0
    gpu_share: Int32 = 0
    models: tuple[str, ...] = ()
    weight: float = 0.0


class FragmentationArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Of the strategy FragmentationGradientDescent; durations in seconds."""

    measure: str = "Split"
    typical_workload_source: str = "Observed"
    window: Seconds = 86_400.0
    coverage_percent: Int32 = 95
    max_classes: Int32 = 64
    refresh_interval: Seconds = 300.0
    static_classes: tuple[TypicalClass, ...] = ()
    min_samples: Int32 = 100
    model_scarcity_weight: float = 0.5
    rollouts: Int32 = 64
    idle_node_guard: Int32 = 200
    tie_break: str = "NodeOrder"

    def problems(self, path: str) -> Iterator[Problem]:
        """Known words, numbers that make sense."""
        for field, value, known in (
            ("measure", self.measure, ("Classic", "Split", "TerminalWaste")),
            ("typicalWorkloadSource", self.typical_workload_source, ("Observed", "Static")),
            ("tieBreak", self.tie_break, ("NodeOrder", "BestFit", "Random")),
        ):
            if value not in known:
                yield unsupported(f"{path}.{field}", value, known)
        for field, number in (("window", self.window), ("refreshInterval", self.refresh_interval)):
            if number <= 0:
                yield invalid(f"{path}.{field}", f"{number:g}s", "must be greater than zero")
        if not 1 <= self.coverage_percent <= 100:
            yield invalid(f"{path}.coveragePercent", self.coverage_percent, "not in valid range [1, 100]")
        for field, number in (("maxClasses", self.max_classes), ("rollouts", self.rollouts)):
            if number < 1:
                yield invalid(f"{path}.{field}", number, "must be greater than zero")
        for field, number in (
            ("minSamples", self.min_samples),
            ("modelScarcityWeight", self.model_scarcity_weight),
            ("idleNodeGuard", self.idle_node_guard),
        ):
            if number < 0:
                yield invalid(f"{path}.{field}", number, "must be non-negative")
        if self.typical_workload_source == "Static" and not self.static_classes:
            yield required(f"{path}.staticClasses", "at least one, as the source is Static")


class DeviceStrategyArgs(msgspec.Struct, frozen=True, rename="camel"):
    """How DeviceShare rates nodes; koord defaults each field."""

    type: str = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = DEVICES
    fragmentation: FragmentationArgs = FragmentationArgs()


class GPUTemplatesArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Where the templates of shared GPUs are, and which requests must match one; koord defaults each field."""

    config_map_namespace: str = "koordinator-system"
    config_map_name: str = "gpu-shared-resource-templates"
    matched_resources: tuple[str, ...] = ("huawei.com/npu-core",)


class GPUModel(msgspec.Struct, frozen=True, rename="camel"):
    """A model of a vendor."""

    vendor: str = ""
    model: str = ""


class DeviceShareArgs(Args, frozen=True):
    """Of DeviceShare. ``allocator`` has no effect, as in the original."""

    allocator: str = ""
    scoring_strategy: DeviceStrategyArgs = DeviceStrategyArgs()
    disable_device_numa_topology_alignment: bool = msgspec.field(
        name="disableDeviceNUMATopologyAlignment", default=False
    )
    gpu_shared_resource_templates_config: GPUTemplatesArgs = GPUTemplatesArgs()
    gpu_share_unsupported_models: tuple[GPUModel, ...] = ()

    def problems(self, path: str) -> Iterator[Problem]:
        """A known strategy, weights in (0, 100]."""
        given, where = self.scoring_strategy, f"{path}.scoringStrategy"
        known = (*TWO_STRATEGIES, "FragmentationGradientDescent")
        yield from check_strategy(where, StrategyArgs(given.type, given.resources), "scoring strategy", known)
        yield from given.fragmentation.problems(f"{where}.fragmentation")
