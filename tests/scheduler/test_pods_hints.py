"""Which events wake pods that spread or inter-pod affinity rejected."""

from typing import Any

import pytest

from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.framework.contract import AssignedPod, Plugin, Template
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.interpodaffinity import InterPodAffinity
from koord.scheduler.plugins.topologyspread import PodTopologySpread
from koord.scheduler.plugins.topologyspread.constraints import ZONE
from tests.scheduler.clusters import Bed, pod_view, requests

WEB = {"matchLabels": {"app": "web"}}
NEAR = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": ZONE, "labelSelector": WEB}]}}  # fmt: skip
FAR = {"podAntiAffinity": NEAR["podAffinity"]}
SPREAD = {
    "topologySpreadConstraints": [
        {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    ]
}


class Asked:
    """One plugin about one rejected pod."""

    def __init__(self, plugin: Plugin, spec: dict[str, Any], labels: dict[str, str]) -> None:
        self.bed = Bed(extra=[plugin])
        self.plugin = plugin
        self.template: Template = self.bed.pod("waits", requests() | spec, labels=labels).class_.template

    def pod(self, event: ClusterEvent, labels: dict[str, str], spec: Any = None, namespace: str = "default") -> bool:
        view = pod_view("other", requests() | (spec or {}), labels=labels, namespace=namespace)
        subject: AssignedPod = self.bed.catalogue.assigned(view, "n0")
        return self.plugin.helps(self.template, event, subject)

    def node(self, event: ClusterEvent, labels: dict[str, str]) -> bool:
        return self.plugin.helps(self.template, event, NodeInfo("n0", {}, labels))


@pytest.mark.parametrize("event", [ClusterEvent.POD_ASSIGNED, ClusterEvent.POD_DELETE])
def test_spread_waits_for_pods_that_count(event: ClusterEvent) -> None:
    asked = Asked(PodTopologySpread(), SPREAD, {"app": "web"})
    assert asked.pod(event, {"app": "web"})
    assert not asked.pod(event, {"app": "db"})
    assert not asked.pod(event, {"app": "web"}, namespace="other")
    assert asked.pod(ClusterEvent.POD_LABEL, {"app": "db"}), "it may have counted before"


def test_spread_waits_for_nodes_with_the_keys() -> None:
    asked = Asked(PodTopologySpread(), SPREAD, {"app": "web"})
    assert asked.node(ClusterEvent.NODE_ADD, {ZONE: "a"})
    assert not asked.node(ClusterEvent.NODE_ADD, {})
    assert asked.node(ClusterEvent.NODE_LABEL, {}), "its domain may be gone"


def test_affinity_waits_for_pods_it_wants_to_be_near() -> None:
    asked = Asked(InterPodAffinity(), {"affinity": NEAR}, {"app": "db"})
    assert asked.pod(ClusterEvent.POD_ASSIGNED, {"app": "web"})
    assert not asked.pod(ClusterEvent.POD_ASSIGNED, {"app": "db"})
    assert not asked.pod(ClusterEvent.POD_DELETE, {"app": "db"})
    assert asked.node(ClusterEvent.NODE_ADD, {ZONE: "a"})
    assert not asked.node(ClusterEvent.NODE_ADD, {})


def test_anti_affinity_waits_for_those_that_stand_in_the_way_to_go() -> None:
    asked = Asked(InterPodAffinity(), {"affinity": FAR}, {"app": "db"})
    assert asked.pod(ClusterEvent.POD_DELETE, {"app": "web"})
    assert not asked.pod(ClusterEvent.POD_DELETE, {"app": "db"})
    assert not asked.pod(ClusterEvent.POD_ASSIGNED, {"app": "web"})
    assert asked.node(ClusterEvent.NODE_ADD, {})


def test_a_pod_whose_anti_affinity_meant_it_is_gone() -> None:
    guard = {"affinity": FAR}
    web = Asked(InterPodAffinity(), {}, {"app": "web"})
    web.bed.pod("makes the label count", requests() | guard)
    web.template = web.bed.pod("waits", labels={"app": "web"}).class_.template
    assert web.pod(ClusterEvent.POD_DELETE, {"app": "guard"}, guard)
    assert not web.pod(ClusterEvent.POD_DELETE, {"app": "guard"})
