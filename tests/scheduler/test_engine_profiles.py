"""One engine for several profiles: a plugin of both is told once, and classes are judged by their own profile."""

from typing import ClassVar

from koord.columns.matrix import Bools
from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, Placed, PodInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    NodePlugin,
    Reason,
    Template,
    Terms,
)
from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.fit import NodeResourcesFit
from tests.scheduler.clusters import Bed, requests


class Zone(FilterPlugin):
    """Lets pods onto nodes with the label ``zone`` of its arguments only; the same terms in every profile."""

    name: ClassVar[str] = "Zone"
    filter_locality: ClassVar[Locality] = "node"

    def __init__(self, zone: str) -> None:
        self.zone = zone

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return ()

    def filter(self, terms: Terms, window: Window) -> Bools:
        column = window.cluster.labels.column("zone")
        ok: Bools = column.codes[window.rows] == column.code(self.zone)
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return [Reason(f"node(s) not in zone {self.zone}", ~self.filter(terms, window))]


class Told(AssignPlugin, NodePlugin):
    """Remembers what it was told."""

    name: ClassVar[str] = "Told"

    def __init__(self) -> None:
        self.attached = 0
        self.heard: list[str] = []

    def attach(self, cluster: Cluster) -> None:
        self.attached += 1

    def node_set(self, row: int, node: NodeInfo) -> None:
        self.heard.append(f"+{node.name}")

    def node_removed(self, row: int, name: str) -> None:
        self.heard.append(f"-{name}")

    def assigned(self, pod: AssignedPod) -> None:
        self.heard.append(f"{pod.ref.name} on {pod.node}")

    def unassigned(self, pod: AssignedPod) -> None:
        self.heard.append(f"{pod.ref.name} off {pod.node}")


def test_classes_are_judged_by_their_own_profile_and_plugins_told_once() -> None:
    fit, told = NodeResourcesFit(), Told()
    profiles = [Profile([Zone(zone), fit, told]) for zone in "ab"]
    cluster = Cluster()
    cluster.set_node(NodeInfo("n0", {"cpu": 2000, "memory": 1 << 34, "pods": 10}, {"zone": "a"}))
    engine = Engine(cluster, *profiles)
    engine.set_node(NodeInfo("n1", {"cpu": 2000, "memory": 1 << 34, "pods": 10}, {"zone": "b"}))
    model = Bed().pod("p", requests("1"))
    template = model.class_.template
    footprint = cluster.footprint(template.footprint.request, template.footprint.nonzero)
    template = Template(template.namespace, template.spec, footprint)
    classes = [SchedulingClass(number, template, profile) for number, profile in enumerate(profiles)]

    def place(name: str, which: int) -> str:
        ref = model.ref._replace(uid=name, name=name)
        outcome = engine.place_one(PodInfo(ref, classes[which]), 5.0)
        return outcome.node if isinstance(outcome, Placed) else outcome.message

    assert [place("p0", 0), place("p1", 1), place("p2", 0)] == ["n0", "n1", "n0"]
    assert place("p3", 0) == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) not in zone a."
    assert place("p4", 1) == "n1"
    explained = engine.explain(classes[1])
    assert isinstance(explained, Diagnosis)
    assert explained.message == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) not in zone b."
    counted = engine.counted("p4")
    assert counted is not None and counted.planned and counted.since == 5.0
    assert engine.forget("p4") and not engine.forget("p4")
    engine.remove_node("n1")
    assert told.attached == 1
    assert told.heard == ["+n0", "+n1", "p0 on n0", "p1 on n1", "p2 on n0", "p4 on n1", "p4 off n1", "-n1"]
    # The pod waits for its node to come back.
    assert engine.counted("p1") is not None
    engine.set_node(NodeInfo("n1", {"cpu": 1000, "memory": 1 << 34, "pods": 10}, {"zone": "b"}))
    assert place("p5", 1).startswith("0/2 nodes are available")
