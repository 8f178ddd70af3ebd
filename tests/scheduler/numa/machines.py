"""Machines of spec 10 section 6, and an engine whose profile has NodeNUMAResource."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.kube.noderesourcetopology import NodeResourceTopology
from koord.kube.protocol.cputopology import CPU
from koord.kube.resources import NODE_RESOURCE_TOPOLOGIES
from koord.scheduler.catalogue import Catalogue
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.placement import Engine, Outcome, Placed, PodInfo
from koord.scheduler.framework.contract import AssignedPod, PodRef
from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.nodenumaresource.plugin import NodeNUMAResource
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.profile import default_profile
from tests.scheduler.clusters import GIB, Bed, requests

RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
NUMA_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
POLICY_LABEL = "node.koordinator.sh/numa-topology-policy"
STRATEGY_LABEL = "node.koordinator.sh/numa-allocate-strategy"
BIND_LABEL = "node.koordinator.sh/cpu-bind-policy"
LSR = {"koordinator.sh/qosClass": "LSR"}

A = [CPU(i, i // 2 % 8, i // 16, i // 8) for i in range(32)]
B = [CPU(i, i % 4, i % 8 // 4, i % 8 // 4) for i in range(16)]
S = [CPU(i, i % 4, i // 4, i // 4) for i in range(8)]


def zones(*rooms: Mapping[str, str]) -> list[dict[str, Any]]:
    """NUMA nodes 0, 1, ... with these resources."""
    return [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                for name, amount in room.items()
            ],
        }
        for number, room in enumerate(rooms)
    ]


def topology(
    name: str,
    cpus: Sequence[CPU] = (),
    parts: Sequence[Mapping[str, Any]] = (),
    *,
    policy: str = "None",
    annotations: Mapping[str, str] | None = None,
) -> NodeResourceTopology:
    """The object as the API has it, decoded as the service does."""
    made = dict(annotations or {})
    if cpus:
        detail = [msgspec.to_builtins(cpu) for cpu in cpus]
        made["node.koordinator.sh/cpu-topology"] = json.dumps({"detail": detail})
    body = {"metadata": {"name": name, "annotations": made}, "topologyPolicies": [policy], "zones": list(parts)}
    return msgspec.json.decode(json.dumps(body), type=NodeResourceTopology)


class NumaBed(Bed):
    """An engine on the shipped profile, with these settings of NodeNUMAResource."""

    def __init__(self, settings: NUMASettings | None = None) -> None:
        self.cluster = Cluster()
        self.coscheduling = Coscheduling()
        self.plugin = NodeNUMAResource(settings)
        shipped = default_profile(self.coscheduling, disabled=frozenset((self.plugin.name,)))
        weights = {plugin.name: weight for plugin, weight in shipped.scores}
        self.profile = Profile((*shipped.plugins, self.plugin), weights)
        self.engine = Engine(self.cluster, self.profile)
        self.catalogue = Catalogue(self.cluster, self.profile)
        self._number = 0

    def machine(
        self,
        name: str,
        cpus: Sequence[CPU] = (),
        parts: Sequence[Mapping[str, Any]] = (),
        *,
        cpu: int = 0,
        memory: int = 64 * GIB,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        nrt: Mapping[str, str] | None = None,
        policy: str = "None",
    ) -> None:
        """A node and its NodeResourceTopology. ``cpu`` in milli, the machine's own if 0."""
        allocatable = {"cpu": cpu or 1000 * len(cpus), "memory": memory, "pods": 110}
        change = self.engine.set_node(NodeInfo(name, allocatable, labels or {}, annotations=annotations or {}))
        assert not change.problems, change.problems
        self.told(topology(name, cpus, parts, policy=policy, annotations=nrt))

    def told(self, nrt: NodeResourceTopology) -> None:
        self.plugin.changed(NODE_RESOURCE_TOPOLOGIES, nrt.metadata.name, None, nrt)

    def there(
        self,
        node: str,
        cpuset: str = "",
        *,
        parts: Sequence[tuple[int, Mapping[str, str]]] = (),
        exclusive: str = "",
        cpu: str = "",
        memory: str = "",
        name: str = "",
        priority: int = 0,
        annotations: Mapping[str, str] | None = None,
    ) -> AssignedPod:
        """A pod that was seen bound with these CPUs and amounts."""
        self._number += 1
        name = name or f"there-{self._number}"
        status: dict[str, Any] = {"cpuset": cpuset} if cpuset else {}
        if parts:
            status["numaNodeResources"] = [{"node": zone, "resources": amounts} for zone, amounts in parts]
        made = {RESOURCE_STATUS: json.dumps(status), **(annotations or {})}
        if exclusive:
            made[RESOURCE_SPEC] = json.dumps({"preferredCPUExclusivePolicy": exclusive})
        template = self.pod(name, requests(cpu, memory)).class_.template
        ref = PodRef(f"uid-{name}", "default", name, {}, made)
        pod = AssignedPod(ref, template.spec, template.footprint, node, priority)
        self.engine.count(pod)
        assert not self.engine.errors, self.engine.errors
        return pod

    def bound_pod(
        self, cpu: str, memory: str = "", *, name: str = "", spec: Mapping[str, str] | None = None
    ) -> PodInfo:
        """An LSR pod; ``spec`` is its resource-spec."""
        annotations = {RESOURCE_SPEC: json.dumps(spec)} if spec else None
        return self.named(cpu, memory, name=name, labels=LSR, annotations=annotations)

    def aligned_pod(self, policy: str, cpu: str, memory: str = "", *, exclusive: str = "") -> PodInfo:
        spec = {"numaTopologyPolicy": policy} | ({"singleNUMANodeExclusive": exclusive} if exclusive else {})
        return self.named(cpu, memory, annotations={NUMA_SPEC: json.dumps(spec)})

    def named(self, cpu: str, memory: str = "", *, name: str = "", **meta: Any) -> PodInfo:
        self._number += 1
        return self.pod(name or f"pod-{self._number}", requests(cpu, memory), **meta)

    def status(self, pod: PodInfo) -> dict[str, Any]:
        """Place it: what is written as resource-status; {} if nothing is."""
        placed = self.place(pod)
        assert isinstance(placed, Placed), placed
        made: dict[str, Any] = json.loads(placed.annotations.get(RESOURCE_STATUS, "{}"))
        return made

    def place(self, pod: PodInfo) -> Outcome:
        return self.engine.place_one(pod)

    def refusal(self, pod: PodInfo) -> str:
        """Place it, in vain: the text users see."""
        outcome = self.place(pod)
        assert not isinstance(outcome, Placed), outcome
        return outcome.message
