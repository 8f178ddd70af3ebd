"""Spec 10 section 4, row by row: what becomes of bad input and of edge cases, under the profile that ships."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from koord.kube.resources import NODE_METRICS
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, ScorePlugin, WatchPlugin
from koord.scheduler.plugins.hint import HINT
from koord.scheduler.transformers.nodes import transform_node
from tests.scheduler.clusters import GIB, requests
from tests.scheduler.loadaware.beds import NOW, metric
from tests.scheduler.numa.machines import LSR, NUMA_SPEC, RESOURCE_SPEC, RESOURCE_STATUS, B, NumaBed

THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
INTEGER = "0/1 nodes are available: the requested CPUs must be integer."
FULL = '{"requiredCPUBindPolicy":"FullPCPUs"}'
Row = Callable[[], None]
ROWS: dict[str, Row] = {}


def row(text: str) -> Callable[[Row], Row]:
    """The first column of the spec's table."""

    def kept(check: Row) -> Row:
        ROWS[text] = check
        return check

    return kept


def bed() -> NumaBed:
    """One machine of topology B."""
    made = NumaBed()
    made.machine("n", B)
    return made


def info(name: str = "n", annotations: Mapping[str, str] | None = None) -> NodeInfo:
    return NodeInfo(name, {"cpu": 16_000, "memory": 64 * GIB, "pods": 110}, {}, annotations=annotations or {})


def plugin(world: NumaBed, name: str) -> Any:
    return next(one for one in world.profile.plugins if one.name == name)


def report(world: NumaBed, node: str, cpu: str) -> None:
    load = plugin(world, "LoadAwareScheduling")
    assert isinstance(load, WatchPlugin)
    list(load.changed(NODE_METRICS, node, None, metric(node, cpu=cpu, memory="1Gi")))
    world.engine.tick(NOW)


def passes_load(world: NumaBed, pod: PodInfo) -> bool:
    load = plugin(world, "LoadAwareScheduling")
    assert isinstance(load, FilterPlugin)
    terms = load.filter_terms(pod.class_.template, world.cluster)
    return bool(load.filter(terms, Window.full(world.cluster))[0])


def given_cpus(world: NumaBed, pod: PodInfo) -> bool:
    placed = world.place(pod)
    assert isinstance(placed, Placed)
    return "cpuset" in json.loads(placed.annotations.get(RESOURCE_STATUS, "{}"))


@row("unparsable resource-spec / numa-topology-spec / scheduling-hint JSON")
def unparsable() -> None:
    for key in (RESOURCE_SPEC, NUMA_SPEC, HINT):
        outcome = bed().place(bed().pod("p", requests(), annotations={key: "{"}))
        assert isinstance(outcome, Diagnosis)
        assert f"{key}: " in outcome.message
        assert not outcome.resolvable, key
        assert not outcome.error, "it is not tried again before it changes"


@row("unknown cpu bind policy text")
def unknown_policy() -> None:
    world = bed()
    texts = {RESOURCE_SPEC: '{"preferredCPUBindPolicy":"Sideways"}'}
    assert not given_cpus(world, world.named("2", labels=LSR, annotations=texts))
    [remark] = world.plugin.remarks(world.named("2", labels=LSR, annotations=texts).class_.template)
    assert remark.startswith(f"{RESOURCE_SPEC}: preferredCPUBindPolicy must be one of Default, FullPCPUs")
    assert remark.endswith('got "Sideways"; it asks for nothing')
    for good in ({RESOURCE_SPEC: FULL}, {}):
        assert not list(world.plugin.remarks(world.named("2", labels=LSR, annotations=good).class_.template))


@row("LSR pod, cpu 1500m")
def half_a_cpu() -> None:
    world = bed()
    assert world.refusal(world.bound_pod("1500m")) == INTEGER


@row("LSR pod without NRT on some nodes")
def without_topology() -> None:
    world = bed()
    world.engine.set_node(info("bare"))
    placed = world.place(world.bound_pod("2"))
    assert isinstance(placed, Placed)
    assert placed.node == "n"
    world = NumaBed()
    world.engine.set_node(info("bare"))
    text = "0/1 nodes are available: 1 node(s) invalid CPU Topology."
    assert world.refusal(world.bound_pod("2")) == text


@row("Guaranteed pod without qosClass label")
def guaranteed() -> None:
    world = bed()
    amounts = {"cpu": "2", "memory": "1Gi"}
    spec = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}
    assert not given_cpus(world, world.pod("p", spec))


@row("LSR label with koord-batch priority")
def batch_priority() -> None:
    world = bed()
    assert not given_cpus(world, world.pod("p", requests("2", priority=5500), labels=LSR))


@row("resource-status cpuset unparsable on an existing pod")
def unparsable_status() -> None:
    world = bed()
    pod = world.there("n", "0-3")
    bad = msgspec.structs.replace(pod, ref=pod.ref._replace(annotations={RESOURCE_STATUS: '{"cpuset":"x"}'}))
    world.engine.count(bad)
    assert len(world.engine.errors) == 1, "it is told"
    assert world.plugin.books.state("n").allocated == 0b1111, "the last good one counts"


@row("designated hint with bad cpuset text")
def bad_designation() -> None:
    world = bed()
    texts = {HINT: '{"extensions":{"NodeNUMAResource":{}}}', RESOURCE_STATUS: '{"cpuset":"x"}'}
    refused = world.refusal(world.pod("p", requests("2"), labels=LSR, annotations=texts))
    assert refused.startswith(f"0/1 nodes are available: {RESOURCE_STATUS}: cpuset")


@row("hint nodeNames names no existing node")
def unknown_nodes() -> None:
    world = bed()
    pod = world.pod("p", requests(), annotations={HINT: '{"nodeNames":["x"]}'})
    text = "0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [SchedulingHint]."
    assert world.refusal(pod) == text


@row("two pods recorded on one CPU")
def two_on_one() -> None:
    world = bed()
    first, second = world.there("n", "0,1"), world.there("n", "1")
    world.engine.uncount(second.ref.uid)
    assert world.plugin.books.state("n").allocated == 0b11
    world.engine.uncount(first.ref.uid)
    assert world.plugin.books.state("n").allocated == 0


@row("usage-thresholds annotation unparsable")
def bad_thresholds() -> None:
    world = NumaBed()
    told = world.engine.set_node(info(annotations={THRESHOLDS: '{"usageThresholds":{"cpu":"high"}}'}))
    assert len(told.problems) == 1
    assert THRESHOLDS in told.problems[0]
    pod = world.named("1")
    report(world, "n", "15")
    assert not passes_load(world, pod)
    report(world, "n", "1")
    assert passes_load(world, pod)


@row("thresholds 0 in annotation")
def no_thresholds() -> None:
    world = NumaBed()
    world.engine.set_node(info(annotations={THRESHOLDS: '{"usageThresholds":{"cpu":0,"memory":0}}'}))
    report(world, "n", "16")
    assert passes_load(world, world.named("1"))


@row("node allocatable 0 for a resource")
def nothing_of_it() -> None:
    world = NumaBed()
    world.engine.set_node(NodeInfo("n", {"cpu": 0, "memory": 64 * GIB, "pods": 10}, {}))
    report(world, "n", "16")
    pod = world.pod("p", requests("", "1Gi"))
    assert passes_load(world, pod)
    load = plugin(world, "LoadAwareScheduling")
    assert isinstance(load, ScorePlugin)
    terms = load.score_terms(pod.class_.template, world.cluster)
    [score] = load.score(terms, Window.full(world.cluster)).tolist()
    # cpu 0 and memory floor(100·(64 − 1 − 0.7)/64) = 97 count alike
    assert score == 97 // 2


@row("priority outside all bands")
def outside_the_bands() -> None:
    world = bed()
    assert given_cpus(world, world.pod("p", requests("2", priority=2_000_001_000), labels=LSR))


@row("pod label priority-class invalid")
def invalid_class() -> None:
    world = bed()
    labels = {**LSR, "koordinator.sh/priority-class": "koord-best"}
    assert given_cpus(world, world.pod("p", requests("2", priority=5500), labels=labels))


@row("ratio ≤ 1")
def no_amplification() -> None:
    for ratio in ('{"cpu":1.0}', '{"cpu":0.5}'):
        world = NumaBed()
        world.machine("n", B, annotations={"node.koordinator.sh/resource-amplification-ratio": ratio})
        assert isinstance(world.place(world.bound_pod("16")), Placed), ratio


@row("reservation annotation > allocatable")
def too_much_reserved() -> None:
    reservation = {"node.koordinator.sh/reservation": '{"resources":{"cpu":"99"}}'}
    node, problems = transform_node(info(annotations=reservation))
    assert not problems
    assert node.allocatable["cpu"] == 0


@row("deleted node")
def node_gone() -> None:
    world = bed()
    world.there("n", "0-3", name="there")
    world.engine.remove_node("n")
    world.machine("n", B)
    assert world.plugin.books.state("n").allocated == 0b1111


@row("NodeMetric for an unknown node")
def unknown_node() -> None:
    world = bed()
    report(world, "nowhere", "16")
    assert isinstance(world.place(world.named("1")), Placed)


@row("pod moved between nodes by update")
def moved() -> None:
    world = bed()
    world.engine.set_node(info("m"))
    for node in ("n", "m"):
        report(world, node, "1")
    pod = world.there("n", cpu="8", name="moves")
    assert not passes_load(world, world.named("4")), "8 and 4 of 16 are expected to be used, and 1 is"
    world.engine.count(msgspec.structs.replace(pod, node="m"))
    assert passes_load(world, world.named("4"))


@row("PreferNodes names a missing node")
def preferred_missing() -> None:
    world = bed()
    hint = '{"preferredNodeNames":["gone","n"]}'
    placed = world.place(world.pod("p", requests(), annotations={HINT: hint}))
    assert isinstance(placed, Placed)
    assert placed.node == "n"


@row("zero nodes")
def zero_nodes() -> None:
    world = NumaBed()
    outcome = world.place(world.named("1"))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == "no nodes available to schedule pods"
    assert not outcome.resolvable


@pytest.mark.parametrize("check", ROWS.values(), ids=list(ROWS))
def test_row(check: Row) -> None:
    check()


def test_every_row_is_there() -> None:
    assert len(ROWS) == 22
