"""What a node says of its CPUs and NUMA nodes: its labels and annotations, and its NodeResourceTopology.

Spec 10 section 3.12 "Node state", 2.6, 2.7, and 3.14 for amplified zones.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from koord.accounting.requests import amounts
from koord.kube.noderesourcetopology import NodeResourceTopology
from koord.kube.protocol.cputopology import CPU_TOPOLOGY, KubeletPolicy, cpu_details, kubelet_cpus, kubelet_policy
from koord.kube.protocol.nodekeys import (
    CPU_BIND_POLICY,
    NUMA_ALLOCATE_STRATEGY,
    NUMA_TOPOLOGY_POLICY,
    amplification,
    node_reservation,
    system_cpus,
)
from koord.kube.protocol.numa import (
    BEST_EFFORT,
    FULL_PCPUS,
    NO_POLICY,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    SPREAD_BY_PCPUS,
    TOPOLOGY_POLICIES,
)
from koord.scheduler.numa.allocation import DISTRIBUTE_EVENLY, LEAST_ALLOCATED, MOST_ALLOCATED
from koord.scheduler.numa.amplification import amplify
from koord.scheduler.numa.topology import CPUTopology

MOST_ZONES: Final = 8
"""NUMA nodes of one machine among which pods are aligned; as many as the kubelet allows by default."""

_REPORTED: Final = {
    "BestEffort": BEST_EFFORT,
    "BestEffortPodLevel": BEST_EFFORT,
    "Restricted": RESTRICTED,
    "RestrictedPodLevel": RESTRICTED,
    "SingleNUMANodePodLevel": SINGLE_NUMA_NODE,
}
_BIND: Final = {"": "", NO_POLICY: "", "FullPCPUsOnly": FULL_PCPUS, SPREAD_BY_PCPUS: SPREAD_BY_PCPUS}
_STRATEGIES: Final = ("", MOST_ALLOCATED, LEAST_ALLOCATED, DISTRIBUTE_EVENLY)


class Zone(msgspec.Struct, frozen=True):
    """A NUMA node: what pods may have of it (cpu in milli, amplified where the node is), and its CPUs as a mask."""

    id: int
    allocatable: Mapping[str, int]
    cpus: int = 0


class Reported(msgspec.Struct, frozen=True):
    """What a NodeResourceTopology says. ``reserved`` are CPUs that no pod of ours gets, as a mask."""

    topology: CPUTopology | None = None
    reserved: int = 0
    policy: str = ""
    kubelet: KubeletPolicy = KubeletPolicy()
    zones: tuple[tuple[int, Mapping[str, int]], ...] = ()
    amplified: bool = False
    problems: tuple[str, ...] = ()


class Marked(msgspec.Struct, frozen=True):
    """What the Node's own labels and annotations say. ``ratios`` None: they cannot be read.

    ``strategy`` and ``policy`` are "" where the label leaves it open.
    """

    bind: str = ""
    strategy: str = ""
    policy: str = ""
    policy_set: bool = False
    ratios: Mapping[str, float] | None = {}
    reserved: int = 0
    problems: tuple[str, ...] = ()


class Layout(msgspec.Struct, frozen=True):
    """Both together: what allocation works with.

    ``reported``: there is a NodeResourceTopology. ``topology`` None: it has no CPUs to bind. ``bind`` is a policy that
    every pod's CPUs are bound by, or "". ``strategy`` "" leaves it to the scheduler's configuration. ``ratio`` is that
    of cpu (1: not amplified), None if it cannot be read.
    """

    reported: bool = False
    topology: CPUTopology | None = None
    reserved: int = 0
    bind: str = ""
    policy: str = ""
    strategy: str = ""
    ratio: float | None = 1.0
    zones: tuple[Zone, ...] = ()


def read_topology(nrt: NodeResourceTopology) -> Reported:
    """What the object says. ValueError names the annotation or field and the rule.

    More NUMA nodes than :data:`MOST_ZONES` are told as a problem: CPUs are bound there, nothing is aligned.
    """
    annotations = nrt.metadata.annotations
    topology = _topology(annotations.get(CPU_TOPOLOGY, ""))
    kubelet = kubelet_policy(annotations)
    reserved = kubelet_cpus(annotations) | kubelet.reserved
    reserved |= _reserved_cpus(annotations) | system_cpus(annotations)
    zones: dict[int, Mapping[str, int]] = {}
    for number, zone in enumerate(nrt.zones):
        id_ = zone.numa_node
        if id_ is None:
            continue
        listed = {resource.name: resource.allocatable for resource in zone.resources}
        zones[id_] = amounts(listed, f"zones[{number}] ({zone.name}): resources: allocatable")
    problems: tuple[str, ...] = ()
    if len(zones) > MOST_ZONES:
        problems = (f"zones: pods are aligned on at most {MOST_ZONES} NUMA nodes, got {len(zones)}",)
        zones = {}
    policy = _REPORTED.get(nrt.topology_policies[0], "") if nrt.topology_policies else ""
    amplified = bool(amplification(annotations))
    return Reported(topology, reserved, policy, kubelet, tuple(sorted(zones.items())), amplified, problems)


def read_node(labels: Mapping[str, str], annotations: Mapping[str, str], before: Marked | None = None) -> Marked:
    """What the Node says. What is not valid is in ``problems`` (key, text, rule); of reserved CPUs that cannot be read
    those of ``before`` stand. A bad reservation is told by who trims the allocatable (``transformers.nodes``)."""
    problems: list[str] = []
    bind = labels.get(CPU_BIND_POLICY, "")
    if bind not in _BIND:
        problems.append(f'{CPU_BIND_POLICY}: must be None, FullPCPUsOnly or SpreadByPCPUs, got "{bind[:63]}"')
    strategy = labels.get(NUMA_ALLOCATE_STRATEGY, "")
    if strategy not in _STRATEGIES:
        problems.append(f'{NUMA_ALLOCATE_STRATEGY}: must be one of {", ".join(_STRATEGIES[1:])}, got "{strategy[:63]}"')
        strategy = LEAST_ALLOCATED  # as the original: whatever is not MostAllocated
    policy = labels.get(NUMA_TOPOLOGY_POLICY, "")
    policy_set = bool(policy)
    if policy not in ("", NO_POLICY, *TOPOLOGY_POLICIES):
        rule = f"must be one of {', '.join((NO_POLICY, *TOPOLOGY_POLICIES))}"
        problems.append(f'{NUMA_TOPOLOGY_POLICY}: {rule}, got "{policy[:63]}"')
    if policy not in TOPOLOGY_POLICIES:
        policy = ""
    ratios: Mapping[str, float] | None
    try:
        ratios = amplification(annotations)
    except ValueError as error:
        problems.append(str(error))
        ratios = None
    reserved = 0
    for reader in (_reserved_cpus, system_cpus):
        try:
            reserved |= reader(annotations)
        except ValueError as error:
            if reader is system_cpus:
                problems.append(str(error))
            reserved |= before.reserved if before is not None else 0
    return Marked(_BIND.get(bind, ""), strategy, policy, policy_set, ratios, reserved, tuple(problems))


def layout(marked: Marked, reported: Reported | None) -> Layout:
    """The two together; without a NodeResourceTopology there is nothing to bind or to align."""
    ratio = None if marked.ratios is None else marked.ratios.get("cpu", 1.0)
    if reported is None:
        return Layout(bind=marked.bind, policy=marked.policy, strategy=marked.strategy, ratio=ratio)
    bind, strategy = marked.bind, marked.strategy
    if reported.kubelet.full_pcpus_only:
        bind = FULL_PCPUS
    if not strategy and reported.kubelet.distributes:
        strategy = DISTRIBUTE_EVENLY
    topology = reported.topology
    reserved = reported.reserved | marked.reserved
    if topology is not None:
        reserved &= topology.mask
    ratios = {} if reported.amplified else marked.ratios or {}
    zones = []
    for id_, listed in reported.zones:
        cpus = topology.node_mask(id_) if topology is not None else 0
        room = dict(listed)
        if room.get("cpu", 0) > 0:
            room["cpu"] -= 1000 * (cpus & reserved).bit_count()
        zones.append(Zone(id_, {name: amplify(amount, ratios.get(name, 1.0)) for name, amount in room.items()}, cpus))
    policy = marked.policy if marked.policy_set else reported.policy
    return Layout(True, topology, reserved, bind, policy, strategy, ratio, tuple(zones))


@lru_cache(maxsize=512)
def _topology(text: str) -> CPUTopology | None:
    """Machines of one model have equal texts and share one object."""
    details = cpu_details({CPU_TOPOLOGY: text})
    return CPUTopology(details) if details else None


def _reserved_cpus(annotations: Mapping[str, str]) -> int:
    return node_reservation(annotations).cpus or 0
