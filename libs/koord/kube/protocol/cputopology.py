"""Annotations of NodeResourceTopologies: the layout of the CPUs, and whose they are already (spec 10 section 2.7).

Parsers raise ValueError that names the key and the rule; an absent key is the empty answer.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from koord.kube.protocol.cpulist import MOST
from koord.kube.protocol.nodekeys import cpus_of, decode_value

CPU_TOPOLOGY: Final = "node.koordinator.sh/cpu-topology"
POD_CPU_ALLOCS: Final = "node.koordinator.sh/pod-cpu-allocs"
CPU_SHARED_POOLS: Final = "node.koordinator.sh/cpu-shared-pools"
BE_CPU_SHARED_POOLS: Final = "node.koordinator.sh/be-cpu-shared-pools"
KUBELET_CPU_MANAGER_POLICY: Final = "kubelet.koordinator.sh/cpu-manager-policy"

STATIC: Final = "static"
FULL_PCPUS_ONLY_OPTION: Final = "full-pcpus-only"
DISTRIBUTE_OPTION: Final = "distribute-cpus-across-numa"


class CPU(msgspec.Struct, frozen=True):
    """One logical CPU: ids of its core (within the socket), socket and NUMA node."""

    id: int
    core: int = 0
    socket: int = 0
    node: int = 0


class KubeletPolicy(msgspec.Struct, frozen=True):
    """How the kubelet hands out CPUs; ``reserved`` is a mask."""

    policy: str = ""
    options: Mapping[str, str] = {}
    reserved: int = 0

    @property
    def full_pcpus_only(self) -> bool:
        """Whether the kubelet refuses pods that do not take whole cores."""
        return self.policy == STATIC and self.options.get(FULL_PCPUS_ONLY_OPTION) == "true"

    @property
    def distributes(self) -> bool:
        """Whether the kubelet spreads a pod's CPUs over the NUMA nodes."""
        return self.policy == STATIC and self.options.get(DISTRIBUTE_OPTION) == "true"


class _Topology(msgspec.Struct):
    detail: list[CPU] = []


class _Alloc(msgspec.Struct, rename="camel"):
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class _Policy(msgspec.Struct, rename="camel"):
    policy: str = ""
    options: dict[str, str] = {}
    reserved_cpus: str = msgspec.field(name="reservedCPUs", default="")


def cpu_details(annotations: Mapping[str, str]) -> list[CPU]:
    """Every logical CPU; none if the layout is not told. ValueError names the key and the rule."""
    text = annotations.get(CPU_TOPOLOGY)
    if not text:
        return []
    cpus = decode_value(CPU_TOPOLOGY, text, _Topology).detail
    seen: set[int] = set()
    for cpu in cpus:
        if not 0 <= cpu.id < MOST:
            raise ValueError(f"{CPU_TOPOLOGY}: CPU id {cpu.id} must be from 0 to {MOST - 1}")
        if min(cpu.core, cpu.socket, cpu.node) < 0:
            raise ValueError(f"{CPU_TOPOLOGY}: CPU {cpu.id} must not have a negative core, socket or node")
        if cpu.id in seen:
            raise ValueError(f"{CPU_TOPOLOGY}: CPU {cpu.id} must not be listed twice")
        seen.add(cpu.id)
    return cpus


def kubelet_cpus(annotations: Mapping[str, str]) -> int:
    """CPUs that the kubelet gave to its pods itself, as a mask. ValueError names the key and the rule."""
    text = annotations.get(POD_CPU_ALLOCS)
    if not text or text == "null":
        return 0
    mask = 0
    for alloc in decode_value(POD_CPU_ALLOCS, text, list[_Alloc]):
        if alloc.managed_by_kubelet and alloc.uid and alloc.cpuset:
            mask |= cpus_of(f"{POD_CPU_ALLOCS}: cpuset of pod {alloc.uid}", alloc.cpuset)
    return mask


def kubelet_policy(annotations: Mapping[str, str]) -> KubeletPolicy:
    """The kubelet's CPU manager. ValueError names the key and the rule."""
    text = annotations.get(KUBELET_CPU_MANAGER_POLICY)
    if not text:
        return KubeletPolicy()
    value = decode_value(KUBELET_CPU_MANAGER_POLICY, text, _Policy)
    reserved = cpus_of(f"{KUBELET_CPU_MANAGER_POLICY}: reservedCPUs", value.reserved_cpus)
    return KubeletPolicy(value.policy, value.options, reserved)
