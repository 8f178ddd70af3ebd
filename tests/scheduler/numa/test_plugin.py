"""NodeNUMAResource through engine and contract: books, bad input, what nodes demand, what wakes a pod."""

import json

import msgspec
import pytest

from koord.kube.resources import NODE_RESOURCE_TOPOLOGIES
from koord.scheduler.config.koordinatorargs import NodeNUMAResourceArgs, StrategyArgs
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed
from koord.scheduler.framework.contract import AssignedPod
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings, Strategy, from_args
from tests.scheduler.clusters import GIB, Bed, requests
from tests.scheduler.numa.machines import (
    BIND_LABEL,
    LSR,
    NUMA_SPEC,
    POLICY_LABEL,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    STRATEGY_LABEL,
    A,
    B,
    NumaBed,
    topology,
    zones,
)

RATIO = "node.koordinator.sh/resource-amplification-ratio"
ROOM = {"cpu": "8", "memory": "16Gi"}


def info(name: str = "n", *, cpu: int = 16_000, **more: object) -> NodeInfo:
    return msgspec.structs.replace(NodeInfo(name, {"cpu": cpu, "memory": 64 * GIB, "pods": 110}), **more)


# Bad input of pods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        (RESOURCE_SPEC, "{", f"{RESOURCE_SPEC}: Input data was truncated"),
        (RESOURCE_SPEC, '{"requiredCPUBindPolicy":3}', f"{RESOURCE_SPEC}: Expected `str`, got `int`"),
        (NUMA_SPEC, "[]", f"{NUMA_SPEC}: Expected `object`, got `array`"),
        (NUMA_SPEC, '{"numaTopologyPolicy":"Loose"}', f"{NUMA_SPEC}: numaTopologyPolicy must be one of BestEffort"),
        (NUMA_SPEC, '{"singleNUMANodeExclusive":"x"}', f"{NUMA_SPEC}: singleNUMANodeExclusive must be Preferred or"),
    ],
)
def test_annotations_that_cannot_be_read_are_told_with_their_key(key: str, text: str, says: str) -> None:
    bed = NumaBed()
    bed.machine("n", B)
    outcome = bed.place(bed.named("1", annotations={key: text}))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message.startswith(f"0/1 nodes are available: {says}")
    assert not outcome.error
    assert not outcome.resolvable


def test_whole_cpus_only() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    outcome = bed.place(bed.bound_pod("1500m"))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == "0/1 nodes are available: the requested CPUs must be integer."
    assert not outcome.resolvable


@pytest.mark.parametrize(
    ("labels", "spec", "settings"),
    [
        ({}, "", None),  # Guaranteed, but the label is what counts
        ({**LSR, "koordinator.sh/priority-class": "koord-batch"}, "", None),
        ({"koordinator.sh/qosClass": "LS"}, '{"requiredCPUBindPolicy":"FullPCPUs"}', None),
        (LSR, '{"preferredCPUBindPolicy":"Sideways"}', None),
        (LSR, "", NUMASettings(bind_policy="")),
    ],
)
def test_pods_that_are_not_bound(labels: dict[str, str], spec: str, settings: NUMASettings | None) -> None:
    bed = NumaBed(settings)
    bed.machine("n", B)
    limited = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    pod = bed.pod(
        "p",
        {"containers": [{"name": "c", "resources": limited}]},
        labels=labels,
        annotations={RESOURCE_SPEC: spec} if spec else {},
    )
    placed = bed.place(pod)
    assert isinstance(placed, Placed)
    assert placed.annotations == {}
    assert placed.slots == ()


def test_a_priority_outside_prod_is_not_bound() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    assert bed.status(bed.pod("batch", requests("2", priority=5500), labels=LSR)) == {}
    assert bed.status(bed.pod("prod", requests("2", priority=9500), labels=LSR)) == {"cpuset": "0,8"}


def test_default_is_completed_and_other_fields_stay() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    placed = bed.place(bed.bound_pod("2", spec={"requiredCPUBindPolicy": "Default", "x": "y"}))
    assert isinstance(placed, Placed)
    assert json.loads(placed.annotations[RESOURCE_SPEC]) == {"requiredCPUBindPolicy": "FullPCPUs", "x": "y"}
    assert placed.slots == ("cpu/n/0", "cpu/n/8")
    full = {"preferredCPUBindPolicy": "FullPCPUs"}
    placed = bed.place(bed.bound_pod("2", spec=full))
    assert isinstance(placed, Placed)
    assert RESOURCE_SPEC not in placed.annotations


# Books ----------------------------------------------------------------------------------------------------------------


def test_a_status_that_cannot_be_read_leaves_what_was_known() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    pod = bed.there("n", "0-3")
    bad = msgspec.structs.replace(pod, ref=pod.ref._replace(annotations={RESOURCE_STATUS: '{"cpuset":"3-0"}'}))
    bed.engine.count(bad)
    [error] = bed.engine.errors
    text = f'Pod default/there-1: {RESOURCE_STATUS}: cpuset: CPU list "3-0": 3-0 must not go downwards'
    assert text in str(error)
    assert bed.plugin.books.state("n").allocated == 0b1111
    bed.engine.errors.clear()
    moved = msgspec.structs.replace(pod, ref=pod.ref._replace(annotations={RESOURCE_STATUS: '{"cpuset":"8"}'}))
    bed.engine.count(moved)
    assert bed.plugin.books.state("n").allocated == 1 << 8
    bed.engine.uncount(pod.ref.uid)
    assert bed.plugin.books.state("n").allocated == 0


def test_a_cpu_of_two_pods_is_free_when_both_have_left() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    first, second = bed.there("n", "0,1"), bed.there("n", "1,2")
    bed.engine.uncount(first.ref.uid)
    assert bed.plugin.books.state("n").allocated == 0b110
    bed.engine.uncount(second.ref.uid)
    assert bed.plugin.books.state("n").allocated == 0


def test_a_planned_pod_holds_its_cpus_until_it_is_forgotten_or_seen() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    pod = bed.bound_pod("2")
    placed = bed.place(pod)
    assert isinstance(placed, Placed)
    held = bed.plugin.books.state("n").allocated
    assert held == 1 | 1 << 8
    planned = bed.engine.uncount(pod.uid)
    assert planned is not None
    assert bed.plugin.books.state("n").allocated == 0
    bed.engine.count(planned)  # as when somebody looked what would fit without it
    assert bed.plugin.books.state("n").allocated == held
    template = pod.class_.template
    seen = AssignedPod(pod.ref._replace(annotations=dict(placed.annotations)), template.spec, template.footprint, "n")
    bed.engine.confirm(pod.uid)
    bed.engine.count(seen)
    assert bed.plugin.books.state("n").allocated == held
    bed.engine.uncount(pod.uid)
    assert bed.plugin.books.state("n").allocated == 0
    other = bed.bound_pod("2")
    bed.place(other)
    bed.engine.forget(other.uid)
    assert bed.plugin.books.state("n").allocated == 0


def test_pods_node_and_topology_come_in_any_order() -> None:
    bed = NumaBed()
    bed.there("n", "0-3", parts=[(0, {"cpu": "4"})])
    bed.told(topology("n", B, zones(ROOM, ROOM), policy="SingleNUMANodePodLevel"))
    bed.engine.set_node(info())
    assert bed.status(bed.named("8"))["numaNodeResources"][0]["node"] == 1
    bed.engine.remove_node("n")
    bed.engine.set_node(info("m"))
    bed.engine.set_node(info())
    assert bed.plugin.books.state("n").allocated == 0b1111
    bed.engine.remove_node("m")
    assert "Unaligned NUMA Hint" in bed.refusal(bed.pod("p", requests("8")))
    bed.plugin.changed(NODE_RESOURCE_TOPOLOGIES, "n", topology("n"), None)
    assert bed.status(bed.named("3")) == {}


def test_everything_is_forgotten_with_the_last_that_is_known_of_a_node() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    pod = bed.there("n", "0-3")
    bed.engine.uncount(pod.ref.uid)
    bed.engine.remove_node("n")
    bed.plugin.changed(NODE_RESOURCE_TOPOLOGIES, "n", topology("n"), None)
    assert bed.plugin.books._nodes == {}
    assert bed.plugin.books._where == {}
    bed.machine("n", B)
    planned = bed.bound_pod("2")
    bed.place(planned)
    bed.engine.forget(planned.uid)
    assert bed.plugin.books._given == {}


def test_profiles_share_the_books() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    other = type(bed.plugin)()
    other.attach(bed.cluster)
    bed.place(bed.bound_pod("2"))
    assert other.books is bed.plugin.books


# What nodes demand ----------------------------------------------------------------------------------------------------


def test_pods_are_bound_as_soon_as_a_node_says_so() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    pods = [bed.pod(f"p{number}", requests("1")) for number in range(8)]
    outcomes: list[object] = []
    bed.engine.place(pods, outcomes)  # type: ignore[arg-type]
    assert all(isinstance(one, Placed) and not one.annotations for one in outcomes)
    bed.engine.set_node(info(labels={BIND_LABEL: "SpreadByPCPUs"}))
    assert bed.status(bed.pod("q", requests("1"))) == {"cpuset": "0"}
    bed.engine.set_node(info())
    assert bed.status(bed.pod("r", requests("1"))) == {}


@pytest.mark.parametrize(
    ("label", "reported", "policy"),
    [
        ("", "SingleNUMANodePodLevel", "SingleNUMANode"),
        ("", "RestrictedPodLevel", "Restricted"),
        ("", "BestEffortPodLevel", "BestEffort"),
        ("", "Restricted", "Restricted"),
        ("", "SingleNUMANodeContainerLevel", ""),
        ("", "None", ""),
        ("None", "RestrictedPodLevel", ""),
        ("BestEffort", "RestrictedPodLevel", "BestEffort"),
    ],
)
def test_policy_of_a_node(label: str, reported: str, policy: str) -> None:
    bed = NumaBed()
    bed.machine("n", B, zones(ROOM, ROOM), labels={POLICY_LABEL: label} if label else {}, policy=reported)
    assert bed.plugin.books.state("n").layout.policy == policy


def test_the_kubelets_full_cores_beat_the_label() -> None:
    bed = NumaBed()
    manager = {"policy": "static", "options": {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}}
    nrt = {"kubelet.koordinator.sh/cpu-manager-policy": json.dumps(manager)}
    bed.machine("n", B, labels={BIND_LABEL: "SpreadByPCPUs"}, nrt=nrt)
    assert bed.status(bed.named("4")) == {"cpuset": "0,4,8,12"}


def test_nodes_without_cpus_to_bind_are_left_out() -> None:
    bed = NumaBed()
    bed.engine.set_node(info("bare"))
    bed.machine("empty", cpu=16_000)
    assert bed.refusal(bed.bound_pod("2")) == "0/2 nodes are available: 2 node(s) invalid CPU Topology."
    bed.machine("n", B)
    assert bed.status(bed.bound_pod("2")) == {"cpuset": "0,8"}


@pytest.mark.parametrize(
    ("labels", "annotations", "says"),
    [
        ({POLICY_LABEL: "Tight"}, {}, f"{POLICY_LABEL}: must be one of None, BestEffort, Restricted, SingleNUMANode"),
        ({BIND_LABEL: "All"}, {}, f'{BIND_LABEL}: must be None, FullPCPUsOnly or SpreadByPCPUs, got "All"'),
        ({}, {RATIO: '{"cpu":"x"}'}, f"{RATIO}: Expected `float`, got `str`"),
        ({}, {"node.koordinator.sh/system-qos-resource": "{"}, "system-qos-resource: Input data was truncated"),
    ],
)
def test_what_is_not_valid_of_a_node_is_told(labels: dict[str, str], annotations: dict[str, str], says: str) -> None:
    bed = NumaBed()
    bed.machine("n", B, annotations={"node.koordinator.sh/reservation": '{"reservedCPUs":"0-1"}'})
    change = bed.engine.set_node(info(labels=labels, annotations=annotations))
    [problem] = change.problems
    assert says in problem


def test_of_reserved_cpus_the_last_good_ones_stand() -> None:
    bed = NumaBed()
    key = "node.koordinator.sh/reservation"
    bed.machine("n", B, annotations={key: '{"reservedCPUs":"0-1"}'})
    bed.engine.set_node(info(annotations={key: '{"reservedCPUs":"x"}'}))
    assert bed.plugin.books.state("n").layout.reserved == 0b11
    bed.engine.set_node(info())
    assert bed.plugin.books.state("n").layout.reserved == 0


def test_a_ratio_that_cannot_be_read_closes_the_node() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    bed.engine.set_node(info(annotations={RATIO: "{"}))
    outcome = bed.place(bed.named("1"))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == "0/1 nodes are available: 1 node(s) invalid CPU amplification ratio."
    assert not outcome.resolvable


@pytest.mark.parametrize(
    ("nrt", "says"),
    [
        ({"node.koordinator.sh/cpu-topology": "{"}, "cpu-topology: Input data was truncated"),
        ({"node.koordinator.sh/cpu-topology": '{"detail":[{"id":9999}]}'}, "CPU id 9999 must be from 0 to 4095"),
        ({"node.koordinator.sh/cpu-topology": '{"detail":[{"id":1},{"id":1}]}'}, "CPU 1 must not be listed twice"),
        ({"node.koordinator.sh/pod-cpu-allocs": "3"}, "pod-cpu-allocs: Expected `array`, got `int`"),
        ({"kubelet.koordinator.sh/cpu-manager-policy": '{"reservedCPUs":"!"}'}, "reservedCPUs: CPU list"),
    ],
)
def test_a_topology_that_cannot_be_read_leaves_the_last_good_one(nrt: dict[str, str], says: str) -> None:
    bed = NumaBed()
    bed.machine("n", B)
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        bed.told(topology("n", annotations=nrt))
    assert bed.status(bed.bound_pod("2")) == {"cpuset": "0,8"}


def test_zones_that_cannot_be_read_and_too_many() -> None:
    bed = NumaBed()
    with pytest.raises(ValueError, match=r"zones\[1\] \(node-1\): resources: allocatable"):
        bed.told(topology("n", B, zones(ROOM, {"cpu": "much"})))
    with pytest.raises(ValueError, match="pods are aligned on at most 8 NUMA nodes, got 9"):
        bed.told(topology("n", B, zones(*[ROOM] * 9)))
    bed.engine.set_node(info())
    assert bed.status(bed.bound_pod("2")) == {"cpuset": "0,8"}
    assert "missing NUMA resources" in bed.refusal(bed.aligned_pod("Restricted", "1"))


# Preemption and waking ------------------------------------------------------------------------------------------------


def test_cpus_of_a_pod_that_leaves_can_be_had_at_once() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    victim = bed.there("n", "0-15", cpu="1")
    pod = bed.bound_pod("2")
    outcome = bed.place(pod)
    assert isinstance(outcome, Diagnosis)
    assert outcome.resolvable
    bed.engine.uncount(victim.ref.uid)
    assert bed.status(pod) == {"cpuset": "0,8"}


def test_only_what_may_help_wakes_a_pod() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    bed.machine("m", A)
    full, other = bed.there("n", "0-15", cpu="1"), bed.there("m", "0-31", cpu="1")
    template = bed.bound_pod("2").class_.template
    assert not bed.plugin.helps(template, ClusterEvent.POD_DELETE, full)
    bed.engine.uncount(full.ref.uid)
    assert bed.plugin.helps(template, ClusterEvent.POD_DELETE, full)
    assert not bed.plugin.helps(template, ClusterEvent.POD_DELETE, other)
    assert not bed.plugin.helps(template, ClusterEvent.NODE_TOPOLOGY_UPDATE, topology("m"))
    assert bed.plugin.helps(template, ClusterEvent.NODE_TOPOLOGY_UPDATE, topology("n"))
    assert not bed.plugin.helps(template, ClusterEvent.NODE_TOPOLOGY_UPDATE, topology("unknown"))
    assert bed.plugin.helps(template, ClusterEvent.POD_DELETE, None)


# Settings -------------------------------------------------------------------------------------------------------------


def test_settings_of_arguments() -> None:
    args = NodeNUMAResourceArgs(
        default_cpu_bind_policy="SpreadByPCPUs", numa_scoring_strategy=StrategyArgs("MostAllocated")
    )
    assert from_args(args) == NUMASettings(bind_policy="SpreadByPCPUs", zones=Strategy(type="MostAllocated"))
    assert from_args(NodeNUMAResourceArgs()) == NUMASettings()


def test_pods_that_ask_for_nothing_are_left_alone() -> None:
    bed = NumaBed()
    bed.machine("n", B, labels={BIND_LABEL: "FullPCPUsOnly"})
    template = bed.pod("p", {"containers": [{"name": "c"}]}).class_.template
    for method in (bed.plugin.filter_terms, bed.plugin.score_terms, bed.plugin.reserve_terms):
        assert method(template, bed.cluster) is None
    assert isinstance(bed, Bed)


def test_a_node_may_share_out_its_cpus_evenly() -> None:
    bed = NumaBed()
    bed.machine("n", B, labels={STRATEGY_LABEL: "DistributeEvenly"})
    assert bed.status(bed.bound_pod("4")) == {"cpuset": "0,4,8,12"}
    assert bed.status(bed.bound_pod("4")) == {"cpuset": "1,5,9,13"}
