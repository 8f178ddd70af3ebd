"""Keys on nodes (and, copied, on NodeResourceTopologies): reserved room, amplification, CPU policies (spec 10 2.6).

Parsers raise ValueError that names the key and the rule; an absent key is the empty answer.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from koord.kube.meta import ResourceList, without_nulls
from koord.kube.protocol.cpulist import parse_cpus

PREFIX: Final = "node.koordinator.sh/"

CPU_BIND_POLICY: Final = PREFIX + "cpu-bind-policy"
"""Label: how every pod's CPUs are bound on this node: None, FullPCPUsOnly, SpreadByPCPUs."""
NUMA_ALLOCATE_STRATEGY: Final = PREFIX + "numa-allocate-strategy"
"""Label: which NUMA node is filled first: MostAllocated, LeastAllocated, DistributeEvenly."""
NUMA_TOPOLOGY_POLICY: Final = PREFIX + "numa-topology-policy"
"""Label: how pods are aligned to NUMA nodes: None, BestEffort, Restricted, SingleNUMANode."""
RESERVATION: Final = PREFIX + "reservation"
AMPLIFICATION_RATIO: Final = PREFIX + "resource-amplification-ratio"
RAW_ALLOCATABLE: Final = PREFIX + "raw-allocatable"
SYSTEM_QOS_RESOURCE: Final = PREFIX + "system-qos-resource"

RESERVED_CPUS_ONLY: Final = "ReservedCPUsOnly"
_APPLY_POLICIES: Final = ("", "Default", RESERVED_CPUS_ONLY)
_MOST_RATIO: Final = 1000.0

T = TypeVar("T")


class NodeReservation(msgspec.Struct, frozen=True):
    """Room of a node that is not for pods: ``cpus`` is a mask, None if no list was given.

    ``cpus_only``: allocatable stays as it is, only the CPUs may not be given away.
    """

    resources: ResourceList = {}
    cpus: int | None = None
    cpus_only: bool = False


class _Reservation(msgspec.Struct, rename="camel"):
    resources: ResourceList = {}
    reserved_cpus: str = msgspec.field(name="reservedCPUs", default="")
    apply_policy: str = ""


class _SystemQOS(msgspec.Struct, rename="camel"):
    cpuset: str = ""
    cpuset_exclusive: bool = True


def decode_value(key: str, text: str, type_: type[T]) -> T:
    """JSON of one annotation, nulls left out as Kubernetes does. ValueError names the key and the rule."""
    try:
        try:
            return msgspec.json.decode(text, type=type_)
        except msgspec.ValidationError:
            plain: Any = without_nulls(msgspec.json.decode(text))
            return msgspec.convert(plain, type=type_)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{key}: {error}") from None


def node_reservation(annotations: Mapping[str, str]) -> NodeReservation:
    """What of the node is not for pods. ValueError names the key and the rule."""
    text = annotations.get(RESERVATION)
    if not text:
        return NodeReservation()
    value = decode_value(RESERVATION, text, _Reservation)
    if value.apply_policy not in _APPLY_POLICIES:
        raise ValueError(
            f'{RESERVATION}: applyPolicy must be Default or {RESERVED_CPUS_ONLY}, got "{value.apply_policy}"'
        )
    cpus = cpus_of(f"{RESERVATION}: reservedCPUs", value.reserved_cpus) if value.reserved_cpus else None
    return NodeReservation(value.resources, cpus, value.apply_policy == RESERVED_CPUS_ONLY)


def system_cpus(annotations: Mapping[str, str]) -> int:
    """CPUs that system pods have for themselves, as a mask. ValueError names the key and the rule."""
    text = annotations.get(SYSTEM_QOS_RESOURCE)
    if not text:
        return 0
    value = decode_value(SYSTEM_QOS_RESOURCE, text, _SystemQOS)
    mask = cpus_of(f"{SYSTEM_QOS_RESOURCE}: cpuset", value.cpuset)
    return mask if value.cpuset_exclusive else 0


def amplification(annotations: Mapping[str, str]) -> dict[str, float]:
    """Ratios above 1 by resource: how many times what the machine has its allocatable says. ValueError."""
    text = annotations.get(AMPLIFICATION_RATIO)
    if not text:
        return {}
    ratios = decode_value(AMPLIFICATION_RATIO, text, dict[str, float])
    for resource, ratio in ratios.items():
        if not math.isfinite(ratio) or ratio > _MOST_RATIO:
            raise ValueError(
                f"{AMPLIFICATION_RATIO}: {resource} must be a number of at most {_MOST_RATIO:g}, got {ratio}"
            )
    return {resource: ratio for resource, ratio in ratios.items() if ratio > 1.0}


def raw_allocatable(annotations: Mapping[str, str]) -> ResourceList:
    """Cpu and memory before amplification. ValueError names the key and the rule."""
    text = annotations.get(RAW_ALLOCATABLE)
    return decode_value(RAW_ALLOCATABLE, text, ResourceList) if text else {}


def cpus_of(field: str, text: str) -> int:
    """A list of CPUs as a mask; ValueError names ``field`` and the rule."""
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None
