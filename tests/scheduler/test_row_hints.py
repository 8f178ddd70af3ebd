"""Queueing hints of the plugins that look at one node at a time: an event wakes whom its node takes now."""

from typing import Any

import msgspec
import pytest

from koord.scheduler.engine.cluster import NodeInfo, Taint
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed
from koord.scheduler.framework.contract import Plugin, Template
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit
from koord.scheduler.plugins.hint import HINT, SchedulingHint
from koord.scheduler.plugins.node_status import NodeName, NodeUnschedulable
from koord.scheduler.plugins.tolerations import TaintToleration
from tests.scheduler.clusters import GIB, Bed, requests
from tests.scheduler.loadaware.beds import assigned

THING = "example.com/thing"


def plugin_of(bed: Bed, kind: type[Plugin]) -> Plugin:
    return next(plugin for plugin in bed.profile.plugins if isinstance(plugin, kind))


def template_of(bed: Bed, **spec: Any) -> Template:
    return bed.pod("asked", requests("2", "1Gi", **spec)).class_.template


def node_info(bed: Bed, name: str) -> NodeInfo:
    row = bed.cluster.index.find(name)
    assert row is not None
    info = bed.cluster.nodes[row]
    assert info is not None
    return info


def test_room_on_the_node() -> None:
    bed = Bed()
    bed.node("a")
    bed.node("b", cpu=1000)
    fit = plugin_of(bed, NodeResourcesFit)
    template = template_of(bed)
    pods = [assigned(bed.pod(f"p{n}", requests("1500m", "1Gi")), "a") for n in range(2)]
    for pod in pods:
        bed.engine.count(pod)
    event = ClusterEvent.POD_DELETE
    assert not fit.helps(template, event, pods[0])
    bed.engine.uncount(pods[0].ref.uid)
    assert fit.helps(template, event, pods[0])
    # It was on a node that could never hold the pod, or that is gone.
    assert not fit.helps(template, event, assigned(bed.pod("x"), "b"))
    assert not fit.helps(template, event, assigned(bed.pod("x"), "gone"))
    assert fit.helps(template, ClusterEvent.LEDGER_RELEASE, None)
    assert fit.helps(template, ClusterEvent.NODE_ADD, node_info(bed, "a"))
    assert not fit.helps(template, ClusterEvent.NODE_ADD, node_info(bed, "b"))


def test_room_for_what_has_no_column() -> None:
    bed = Bed()
    bed.node("a")
    fit = plugin_of(bed, NodeResourcesFit)
    wanted = bed.pod("p", requests("1", "1Gi", resources={THING: "2"})).class_.template
    assert not fit.helps(wanted, ClusterEvent.NODE_ALLOCATABLE, node_info(bed, "a"))
    bed.node("a", more={THING: 1})
    assert not fit.helps(wanted, ClusterEvent.NODE_ALLOCATABLE, node_info(bed, "a"))
    bed.node("a", more={THING: 2})
    assert fit.helps(wanted, ClusterEvent.NODE_ALLOCATABLE, node_info(bed, "a"))


def test_room_without_what_is_ignored() -> None:
    bed = Bed(fit=FitSettings(ignored_resources=(THING,)))
    bed.node("a", more={THING: 1})
    fit = plugin_of(bed, NodeResourcesFit)
    wanted = bed.pod("p", requests("1", "1Gi", resources={THING: "2"})).class_.template
    assert fit.helps(wanted, ClusterEvent.NODE_ALLOCATABLE, node_info(bed, "a"))


@pytest.mark.parametrize(("label", "helps"), [("a", True), ("b", False)])
def test_labels_of_the_node(label: str, helps: bool) -> None:
    bed = Bed()
    bed.node("n", labels={"zone": label})
    affinity = plugin_of(bed, NodeAffinity)
    template = template_of(bed, nodeSelector={"zone": "a"})
    assert affinity.helps(template, ClusterEvent.NODE_LABEL, node_info(bed, "n")) == helps
    assert affinity.helps(template_of(bed), ClusterEvent.NODE_LABEL, node_info(bed, "n"))


def test_taints_cordons_and_names() -> None:
    bed = Bed()
    open_node = NodeInfo("a", {"cpu": 1, "memory": GIB})
    tainted = NodeInfo("b", {}, taints=(Taint("k", "", "NoSchedule"), Taint("soft", "", "PreferNoSchedule")))
    cordoned = NodeInfo("c", {}, unschedulable=True)
    taints, cordons, names = (plugin_of(bed, kind) for kind in (TaintToleration, NodeUnschedulable, NodeName))
    plain = template_of(bed)
    tolerant = template_of(bed, tolerations=[{"key": "k", "operator": "Exists"}])
    event = ClusterEvent.NODE_TAINT
    assert [taints.helps(plain, event, node) for node in (open_node, tainted, None)] == [True, False, True]
    assert taints.helps(tolerant, event, tainted)
    assert [cordons.helps(plain, event, node) for node in (open_node, cordoned, None)] == [True, False, True]
    named = msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, node_name="a"))
    assert [names.helps(named, event, node) for node in (open_node, tainted, None)] == [True, False, True]


def test_nodes_that_a_hint_names() -> None:
    bed = Bed()
    hints = plugin_of(bed, SchedulingHint)
    pods = [bed.pod("p", annotations={HINT: text}) for text in ('{"nodeNames":["a"]}', "{")]
    event = ClusterEvent.NODE_ADD
    for name, expected in (("a", [True, False]), ("b", [False, False])):
        assert [hints.helps(pod.class_.template, event, NodeInfo(name, {})) for pod in pods] == expected
    assert hints.helps(pods[0].class_.template, event, None)


def test_a_named_node_that_comes() -> None:
    bed = Bed()
    bed.node("other")
    pod = bed.pod("p", annotations={HINT: '{"nodeNames":["a"]}'})
    outcome = bed.engine.place_one(pod)
    assert isinstance(outcome, Diagnosis)
    assert "SchedulingHint" in outcome.plugins
    bed.node("a")
    assert isinstance(bed.engine.place_one(pod), Placed)
