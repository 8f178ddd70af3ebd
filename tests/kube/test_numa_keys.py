"""Keys of CPUs and NUMA nodes: what is written, and what is read from odd texts."""

import msgspec
import pytest

from koord.kube.noderesourcetopology import NodeResourceTopology, Zone
from koord.kube.protocol.cputopology import cpu_details, kubelet_cpus, kubelet_policy
from koord.kube.protocol.nodekeys import amplification, node_reservation, raw_allocatable, system_cpus
from koord.kube.protocol.numa import (
    completed_resource_spec,
    numa_topology_spec,
    resource_spec,
    resource_status,
    write_resource_status,
)

SPEC = "scheduling.koordinator.sh/resource-spec"
STATUS = "scheduling.koordinator.sh/resource-status"
NUMA = "scheduling.koordinator.sh/numa-topology-spec"
NODE = "node.koordinator.sh/"


@pytest.mark.parametrize(
    ("before", "required", "after"),
    [
        ("", False, '{"preferredCPUBindPolicy":"FullPCPUs"}'),
        ("", True, '{"requiredCPUBindPolicy":"FullPCPUs"}'),
        ('{"preferredCPUBindPolicy":"Default"}', False, '{"preferredCPUBindPolicy":"FullPCPUs"}'),
        ('{"preferredCPUBindPolicy": "SpreadByPCPUs"}', False, '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'),
        ('{"requiredCPUBindPolicy":"Default"}', False, '{"requiredCPUBindPolicy":"FullPCPUs"}'),
        ('{"requiredCPUBindPolicy": "FullPCPUs"}', True, '{"requiredCPUBindPolicy": "FullPCPUs"}'),
        (
            '{"preferredCPUExclusivePolicy":"PCPULevel"}',
            False,
            '{"preferredCPUExclusivePolicy":"PCPULevel","preferredCPUBindPolicy":"FullPCPUs"}',
        ),
    ],
)
def test_resource_spec_completed(before: str, required: bool, after: str) -> None:
    assert completed_resource_spec(before, "FullPCPUs", required=required) == after


def test_resource_status_is_read_as_written() -> None:
    text = write_resource_status(0b1_0000_1111, [(1, {"cpu": "4", "memory": "4Gi"})])
    assert text == '{"cpuset":"0-3,8","numaNodeResources":[{"node":1,"resources":{"cpu":"4","memory":"4Gi"}}]}'
    status = resource_status({STATUS: text})
    assert status.cpus == 0b1_0000_1111
    assert [(zone.node, zone.resources) for zone in status.zones] == [(1, {"cpu": "4", "memory": "4Gi"})]
    assert write_resource_status(0, []) == "{}"
    assert resource_status({}).cpus == resource_status({STATUS: '{"cpuset":null}'}).cpus == 0


def test_policies_that_are_none() -> None:
    spec = resource_spec({SPEC: '{"requiredCPUBindPolicy":"Odd","preferredCPUExclusivePolicy":"Odd"}'})
    assert [problem.partition(" must")[0] for problem in spec.problems] == [
        f"{SPEC}: requiredCPUBindPolicy",
        f"{SPEC}: preferredCPUExclusivePolicy",
    ]
    assert not resource_spec({SPEC: '{"preferredCPUBindPolicy":"ConstrainedBurst"}'}).problems
    assert numa_topology_spec({NUMA: '{"numaTopologyPolicy":"None"}'}).policy == ""


def test_nodes() -> None:
    reservation = node_reservation({NODE + "reservation": '{"resources":{"cpu":2},"reservedCPUs":"0-1"}'})
    assert (reservation.cpus, reservation.resources, reservation.cpus_only) == (3, {"cpu": 2}, False)
    assert node_reservation({NODE + "reservation": '{"applyPolicy":"ReservedCPUsOnly"}'}).cpus_only
    assert node_reservation({}).cpus is None
    with pytest.raises(ValueError, match="reservation: applyPolicy must be Default or ReservedCPUsOnly"):
        node_reservation({NODE + "reservation": '{"applyPolicy":"Never"}'})
    assert system_cpus({NODE + "system-qos-resource": '{"cpuset":"0","cpusetExclusive":false}'}) == 0
    assert system_cpus({NODE + "system-qos-resource": '{"cpuset":"0-1"}'}) == 3
    ratio = NODE + "resource-amplification-ratio"
    assert amplification({ratio: '{"cpu":1.50,"memory":1,"x":0.5}'}) == {"cpu": 1.5}
    with pytest.raises(ValueError, match="resource-amplification-ratio: cpu must be a number of at most 1000"):
        amplification({ratio: '{"cpu":1e9}'})
    assert raw_allocatable({NODE + "raw-allocatable": '{"cpu":"32"}'}) == {"cpu": "32"}


def test_topologies() -> None:
    assert cpu_details({}) == []
    with pytest.raises(ValueError, match="cpu-topology: CPU 0 must not have a negative core"):
        cpu_details({NODE + "cpu-topology": '{"detail":[{"id":0,"core":-1}]}'})
    assert kubelet_cpus({NODE + "pod-cpu-allocs": "null"}) == 0
    policy = kubelet_policy({"kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"none","options":null}'})
    assert not policy.full_pcpus_only
    names = ["node-0", "node-12", "node-", "node-x", "disk-1"]
    assert [Zone(name=name, type="Node").numa_node for name in names] == [0, 12, None, None, None]
    assert Zone(name="node-0", type="Socket").numa_node is None
    bare = msgspec.json.decode(b'{"metadata":{"name":"n"},"topologyPolicies":["None"]}', type=NodeResourceTopology)
    assert bare.zones == []
