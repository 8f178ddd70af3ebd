"""Settings of NodeNUMAResource: ``NodeNUMAResourceArgs`` in the scheduler's own terms (spec 10 section 2.4)."""

from typing import Literal

import msgspec

from koord.scheduler.config.koordinatorargs import NodeNUMAResourceArgs, StrategyArgs
from koord.scheduler.numa.placing import Scoring


class ResourceWeight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A resource that counts in a score, 1..100."""

    name: str
    weight: int = 1


class Strategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How nodes, or NUMA nodes, are rated."""

    type: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = (ResourceWeight("cpu"), ResourceWeight("memory"))

    @property
    def scoring(self) -> Scoring:
        """As the pure functions take it."""
        weights = tuple((resource.name, resource.weight) for resource in self.resources)
        return Scoring(self.type == "MostAllocated", weights)


class NUMASettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``bind_policy`` is that of pods that name none ("": they are not bound); ``scoring`` rates nodes, ``zones`` sets
    of NUMA nodes, whose type also says which NUMA node is filled first."""

    bind_policy: Literal["", "FullPCPUs", "SpreadByPCPUs"] = "FullPCPUs"
    scoring: Strategy = Strategy()
    zones: Strategy = Strategy()


def from_args(args: NodeNUMAResourceArgs) -> NUMASettings:
    """The settings that checked arguments of a KubeSchedulerConfiguration say."""
    return msgspec.convert(
        {
            "bind_policy": args.default_cpu_bind_policy,
            "scoring": _strategy(args.scoring_strategy),
            "zones": _strategy(args.numa_scoring_strategy),
        },
        NUMASettings,
    )


def _strategy(args: StrategyArgs) -> dict[str, object]:
    resources = tuple({"name": resource.name, "weight": resource.weight} for resource in args.resources)
    return {"type": args.type, "resources": resources} if resources else {"type": args.type}
