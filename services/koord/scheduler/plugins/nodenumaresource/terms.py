"""What NodeNUMAResource makes of a class of pods: which CPUs it wants, how it is aligned, what is wrong with it."""

from collections.abc import Mapping
from functools import cached_property

import msgspec
import numpy as np

from koord.accounting.requests import amounts, pod_limits
from koord.columns.matrix import Floats
from koord.kube.protocol.nodekeys import decode_value
from koord.kube.protocol.numa import (
    CONSTRAINED_BURST,
    DEFAULT,
    FULL_PCPUS,
    PREFERRED,
    REQUIRED,
    RESOURCE_STATUS,
    SPREAD_BY_PCPUS,
    numa_topology_spec,
    resource_spec,
    resource_status,
)
from koord.kube.protocol.qos import LSE, LSR, PROD, priority_class_with_default, qos_class
from koord.scheduler.framework.contract import Template
from koord.scheduler.numa.allocation import CPUWish
from koord.scheduler.numa.layout import Layout
from koord.scheduler.numa.placing import Designated, PodWish
from koord.scheduler.plugins.hint import HINT, LEGACY_HINT
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings

NAME = "NodeNUMAResource"
INTEGER = "the requested CPUs must be integer"
CPU = "cpu"
_BINDING = (FULL_PCPUS, SPREAD_BY_PCPUS)


class NUMATerms(msgspec.Struct, frozen=True, dict=True):
    """A class of pods. ``request``: amounts above 0, by name; ``cpu`` in milli.

    ``policy`` is how the pod itself has its CPUs bound, "" if it does not ask for any of its own; ``required``: nothing
    else will do. ``numa`` is its topology policy, "" if it leaves that to the node; ``alone``: it shares its NUMA nodes
    only as ``singleNUMANodeExclusive: Required`` allows. ``burst`` is the limit (milli) that the CPUs of one NUMA node
    which nobody owns should cover, 0 without ConstrainedBurst; ``burst_required``: must. ``designated``: what a
    scheduling hint says that it gets, nothing else. ``error``: why no node does.
    """

    request: tuple[tuple[str, int], ...]
    cpu: int = 0
    policy: str = ""
    required: bool = False
    exclusive: str = ""
    numa: str = ""
    alone: bool = False
    burst: int = 0
    burst_required: bool = False
    designated: Designated | None = None
    error: str = ""

    @property
    def cpus(self) -> int:
        """Whole CPUs that it asks for."""
        return self.cpu // 1000

    @property
    def bound(self) -> bool:
        """Whether the pod itself asks for CPUs of its own."""
        return bool(self.policy)

    @cached_property
    def natives(self) -> Floats:
        """Cpu and memory requested, as a column."""
        request = dict(self.request)
        return np.array([[float(self.cpu)], [float(request.get("memory", 0))]])

    @property
    def special(self) -> bool:
        """Whether the pod itself asks for anything that only this plugin gives."""
        return bool(self.policy or self.numa or self.burst or self.designated)

    def wish(self, layout: Layout, settings: NUMASettings) -> PodWish:
        """What the pod wants on a node of that layout."""
        cpus = None
        if layout.bind and self.cpu:
            cpus = CPUWish(self.cpus, layout.bind, True, self.exclusive)
        elif self.policy:
            cpus = CPUWish(self.cpus, self.policy, self.required, self.exclusive)
        strategy = settings.zones.type
        return PodWish(
            dict(self.request),
            cpus,
            self.numa or layout.policy,
            self.alone,
            strategy,
            settings.zones.scoring,
            self.burst,
            self.burst_required,
        )


def compile_terms(template: Template, settings: NUMASettings) -> NUMATerms | None:
    """Terms of a class; None if it requests nothing, so that there is nothing to look at."""
    request = {name: amount for name, amount in template.request.items() if amount > 0}
    cpu = request.get(CPU, 0)
    try:
        spec = resource_spec(template.annotations)
        numa = numa_topology_spec(template.annotations)
        designated = _designated(template.annotations)
        burst = 0
        if cpu and CONSTRAINED_BURST in (spec.required, spec.preferred):
            burst = max(cpu, pod_limits(template.spec).get(CPU, 0))
    except ValueError as failure:
        return NUMATerms((), error=str(failure))
    if not request:
        return None
    policy, required, error = "", False, ""
    if _wants_binding(template.labels, template.spec.priority):
        wanted, required = spec.required, bool(spec.required)
        if not required:
            wanted = spec.preferred or DEFAULT
        policy = settings.bind_policy if wanted == DEFAULT else wanted
        if policy not in _BINDING:
            policy = ""
        elif cpu % 1000:
            error = INTEGER
        elif not cpu:
            policy = ""
    return NUMATerms(
        tuple(sorted(request.items())),
        cpu,
        policy,
        required and bool(policy),
        spec.exclusive,
        numa.policy,
        numa.exclusive == REQUIRED or (bool(numa.policy) and numa.exclusive != PREFERRED),
        burst,
        burst > 0 and spec.required == CONSTRAINED_BURST,
        designated,
        error,
    )


def _wants_binding(labels: Mapping[str, str], priority: int | None) -> bool:
    if qos_class(labels) not in (LSE, LSR):
        return False
    return priority_class_with_default(labels, priority, "") == PROD


class _Hint(msgspec.Struct):
    extensions: dict[str, msgspec.Raw] = {}


def _designated(annotations: Mapping[str, str]) -> Designated | None:
    """What the pod's resource-status says, if its scheduling hint has a word for this plugin. ValueError names the key
    and the rule."""
    key = HINT if annotations.get(HINT) else LEGACY_HINT
    text = annotations.get(key)
    if not text or not annotations.get(RESOURCE_STATUS) or NAME not in decode_value(key, text, _Hint).extensions:
        return None
    status = resource_status(annotations)
    zones = []
    for zone in status.zones:
        listed = amounts(zone.resources, f"{RESOURCE_STATUS}: numaNodeResources: node {zone.node}")
        zones.append((zone.node, tuple(sorted(listed.items()))))
    return Designated(status.cpus, tuple(zones)) if status.cpus or zones else None
