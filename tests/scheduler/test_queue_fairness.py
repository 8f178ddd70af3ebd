"""Thousands of rejected pods of every sort: an event wakes those whom it may help, one of each lot, and nobody else."""

from collections import Counter
from typing import Any

import pytest

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.framework.contract import AssignedPod
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.queueing.hints import Hints
from koord.scheduler.queueing.queue import QueueSettings, SchedulingQueue, Unit
from tests.scheduler.clusters import Bed, requests

EACH = 500
HOST = "kubernetes.io/hostname"
BLUE = {"app": "blue"}
EVEN = {"app": "even"}


def apart(labels: dict[str, str]) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(labels: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "topologyKey": HOST,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]


def with_port(number: int, **more: Any) -> dict[str, Any]:
    spec = requests("0", "1Mi", **more)
    spec["containers"][0]["ports"] = [{"containerPort": number, "hostPort": number}]
    return spec


SORTS: dict[str, dict[str, Any]] = {
    "big": {"spec": requests("9", "1Mi")},
    "port-80": {"spec": with_port(80)},
    "port-81": {"spec": with_port(81)},
    "apart": {"spec": requests("0", "1Mi", affinity=apart(BLUE))},
    "selector": {"spec": requests("0", "1Mi", nodeSelector={"disk": "ssd"})},
    "gpu": {"spec": requests("0", "1Mi", nodeSelector={"gpu": "yes"})},
    "even": {
        "spec": requests("0", "1Mi", topologySpreadConstraints=spread({"app": "even"})),
        "labels": {"app": "even"},
    },
}


class Crowded:
    """Two nodes on which none of ``SORTS`` fits, and so many parked pods of each."""

    def __init__(self) -> None:
        self.bed = Bed()
        self.queue = SchedulingQueue(
            self.bed.profile.events, QueueSettings(flush_after_s=1e9), hints=Hints((self.bed.profile,))
        )
        for node in ("a", "b"):
            self.bed.node(node, cpu=9500, labels={HOST: node})
        self.running = {
            name: self.runs(name, node, **kind)
            for name, node, kind in (
                ("cpu-a", "a", {"spec": requests("1", "1Mi")}),
                ("cpu-b", "b", {"spec": requests("1", "1Mi")}),
                ("ports-a", "a", {"spec": self.both_ports()}),
                ("ports-b", "b", {"spec": self.both_ports()}),
                ("blue-a", "a", {"spec": requests("0", "1Mi"), "labels": BLUE}),
                ("blue-b", "b", {"spec": requests("0", "1Mi"), "labels": BLUE}),
                ("red", "a", {"spec": requests("0", "1Mi"), "labels": {"app": "red"}}),
            )
        }
        # One node counts for spreading and takes nobody: the others would have one too many.
        self.bed.node("closed", labels={HOST: "closed"}, taints=[("closed", "", "NoSchedule")])
        for node in ("a", "b"):
            self.running[f"even-{node}"] = self.runs(f"even-{node}", node, **SORTS["even"])
        for name, kind in SORTS.items():
            for number in range(EACH):
                pod = self.pod(f"{name}-{number}", kind)
                unit = self.queue.unit(pod.uid, "", 0.0)
                unit.pods[pod.uid] = pod
                self.queue.activate(unit, 0.0)
        self.park(0.0)
        assert self.queue.counts["unschedulable"] == EACH * len(SORTS)

    @staticmethod
    def both_ports() -> dict[str, Any]:
        spec = with_port(80)
        spec["containers"][0]["ports"].append({"containerPort": 81, "hostPort": 81})
        return spec

    def pod(self, name: str, kind: dict[str, Any]) -> PodInfo:
        return self.bed.catalogue.renewed(self.bed.pod(name, kind["spec"], labels=kind.get("labels", {})))

    def runs(self, name: str, node: str, **kind: Any) -> AssignedPod:
        pod = self.pod(name, kind).planned(node, 0.0)
        self.bed.engine.count(pod)
        return pod

    def park(self, now: float) -> Counter[str]:
        """Try all that are active; which sorts found no place."""
        tried: Counter[str] = Counter()
        for unit in self.queue.pop(100_000, now):
            [pod] = unit.pods.values()
            outcome = self.bed.engine.place_one(pod)
            if isinstance(outcome, Placed):
                self.queue.done(unit, now)
            else:
                assert isinstance(outcome, Diagnosis)
                tried[sort(unit)] += 1
                self.queue.reject(unit, outcome.plugins, now, outcome.message)
        return tried

    def leaves(self, name: str, now: float) -> set[str]:
        """The pod goes; which sorts are woken, one of each."""
        gone = self.running.pop(name)
        self.bed.engine.uncount(gone.ref.uid)
        return self.wake({ClusterEvent.POD_DELETE: [gone]}, now)

    def wake(self, happened: dict[ClusterEvent, Any], now: float) -> set[str]:
        woken = self.queue.wake(happened, now)
        active = Counter(sort(unit) for unit in self.queue.units.values() if unit.state != "unschedulable")
        assert woken == sum(active.values())
        assert all(count == 1 for count in active.values()), active
        return set(active)


def sort(unit: Unit) -> str:
    return unit.key.removeprefix("uid-default-").rsplit("-", 1)[0]


@pytest.fixture(scope="module")
def crowded() -> Crowded:
    return Crowded()


@pytest.mark.parametrize(
    ("name", "helped"),
    (
        ("red", set()),
        ("blue-a", {"apart"}),
        ("ports-a", {"port-80", "port-81"}),
        ("even-a", {"even"}),
    ),
)
def test_a_pod_that_leaves_wakes_whom_it_stood_in_the_way(crowded: Crowded, name: str, helped: set[str]) -> None:
    now = 1_000.0
    gone = crowded.running[name]
    assert crowded.leaves(name, now) == helped
    crowded.bed.engine.count(gone)  # it comes back before anybody is tried
    crowded.running[name] = gone
    assert set(crowded.park(now)) == helped
    assert crowded.queue.counts["unschedulable"] == EACH * len(SORTS)


def test_a_node_wakes_whom_it_takes(crowded: Crowded) -> None:
    now = 2_000.0
    # Where domains end may have changed with any label, so those who look at them are woken, too.
    always = {"apart", "even"}
    for labels, helped in (({"disk": "hdd"}, set()), ({"disk": "ssd"}, {"selector"}), ({"gpu": "yes"}, {"gpu"})):
        crowded.bed.node("b", cpu=9500, labels={HOST: "b", **labels})
        node = crowded.bed.cluster.nodes[crowded.bed.cluster.index.find("b") or 0]
        assert crowded.wake({ClusterEvent.NODE_LABEL: [node]}, now) == helped | always
        crowded.bed.node("b", cpu=9500, labels={HOST: "b"})
        assert set(crowded.park(now)) == helped | always
        now += 100.0
