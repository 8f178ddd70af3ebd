"""Books after arbitrary histories: what the columns and quotas say equals what the API shows plus what is planned."""

import json
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.meta import ObjectMeta
from koord.kube.protocol.scheduler import BIND_SETTLED
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.kube.quotas import ElasticQuotaSpec
from koord.scheduler.engine.placement import Placed
from koord.scheduler.engine.resources import CPU, FIRST, PODS
from koord.scheduler.nodeview import NodeView
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.podview import PodView
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.world import World
from tests.scheduler.clusters import Bed

NODES, PODS_ = ("n0", "n1", "n2"), 6
GANG = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
LABEL = "quota.scheduling.koordinator.sh/name"


class Story:
    """A world fed by hand, and the plain truth beside it."""

    def __init__(self) -> None:
        self.bed = Bed()
        self.queue = SchedulingQueue(self.bed.profile.events)
        self.quota = next(p for p in self.bed.profile.plugins if isinstance(p, ElasticQuota))
        self.ended: list[str] = []
        self.world = World(
            self.bed.engine,
            self.bed.catalogue,
            self.queue,
            self.bed.coscheduling,
            self.quota,
            frozenset(("koord-scheduler",)),
            on_bound=lambda view: None,
            on_ended=self.ended.append,
            on_invalid=lambda view, text: None,
            on_gang_problem=lambda view, text: None,
            on_gated=lambda key, now: None,
            on_let_go=lambda key, uid: None,
        )
        self.now = 0.0
        self.pods: dict[int, PodView] = {}
        self.nodes: dict[str, NodeView] = {}
        self.planned: dict[str, tuple[str, int]] = {}
        for name in ("org", "team"):
            labels = {"quota.scheduling.koordinator.sh/parent": "org"} if name == "team" else {}
            meta = ObjectMeta(name=name, namespace="q", uid=name, labels=labels)
            self.world.apply_quota(None, QuotaObject(metadata=meta, spec=ElasticQuotaSpec(max={"cpu": "7"})))

    def pod(self, number: int, generation: int, node: str = "", phase: str = "Pending", team: bool = True) -> None:
        uid = f"u{number}-{generation}"
        meta: dict[str, Any] = {"name": f"p{number}", "namespace": "d", "uid": uid}
        if team:
            meta["labels"] = {LABEL: "team"}
        if number % 3 == 0:
            meta["annotations"] = GANG
        spec = {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": str(1 + number % 2)}}}],
        } | ({"nodeName": node} if node else {})
        body = json.dumps({"metadata": meta, "spec": spec, "status": {"phase": phase}}).encode()
        new = msgspec.json.decode(body, type=PodView)
        old, self.pods[number] = self.pods.get(number), new
        self.world.apply_pod(old, new, self.now)
        if old is not None and old.metadata.uid != uid:
            self.planned.pop(old.metadata.uid, None)
        if node or phase in ("Succeeded", "Failed"):
            self.planned.pop(uid, None)

    def delete(self, number: int) -> None:
        old = self.pods.pop(number, None)
        if old is not None:
            self.world.apply_pod(old, None, self.now)
            self.planned.pop(old.metadata.uid, None)

    def node(self, name: str, cpu: int) -> None:
        body = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": str(cpu), "pods": "5"}}}
        new = msgspec.convert(body, NodeView)
        self.world.apply_node(self.nodes.get(name), new)
        self.nodes[name] = new

    def remove_node(self, name: str) -> None:
        self.world.apply_node(self.nodes.pop(name, None), None)

    def plan(self) -> None:
        for unit in self.queue.pop(4, self.now):
            pods = list(unit.pods.values())
            placed = []
            for pod in pods:
                outcome = self.bed.engine.place_one(pod)
                if isinstance(outcome, Placed):
                    placed.append(pod)
                    self.planned[pod.uid] = (outcome.node, pod.class_.template.request["cpu"])
            self.world.planned(unit, placed)
            if unit.pods:
                self.queue.reject(unit, ("NodeResourcesFit",), self.now)
            else:
                self.queue.done(unit, self.now)

    def give_back(self) -> None:
        for uid in list(self.planned):
            pod = self.world.pending.get(uid)
            self.bed.engine.forget(uid)
            del self.planned[uid]
            if pod is not None:
                self.world.put_back([pod], self.now)

    def check(self) -> None:
        taken: dict[str, tuple[int, int]] = {}
        team = 0
        for number, view in self.pods.items():
            cpu = 1000 * (1 + number % 2)
            uid = view.metadata.uid
            node = view.spec.node_name or self.planned.get(uid, ("", 0))[0]
            if node and not view.terminal:
                count, amount = taken.get(node, (0, 0))
                taken[node] = (count + 1, amount + cpu)
                if view.metadata.labels:
                    team += cpu
        cluster = self.bed.cluster
        for name, shown in self.nodes.items():
            row = cluster.index.find(name)
            assert row is not None
            count, amount = taken.get(name, (0, 0))
            cpu = 1000 * int(str(shown.status.allocatable["cpu"]))
            assert cluster.usage[FIRST + CPU, row] == cpu - amount
            assert cluster.usage[FIRST + PODS, row] == 5 - count
        assert len(cluster) == len(self.nodes)
        assert not np.isnan(cluster.usage).any()
        assert self.quota.used("team").get("cpu", 0) == team
        assert self.quota.used("org").get("cpu", 0) == team
        waiting = {uid for unit in self.queue.units.values() for uid in unit.pods}
        pending = {v.metadata.uid for v in self.pods.values() if not v.spec.node_name and not v.terminal}
        assert waiting == pending - self.planned.keys()
        assert set(self.world.pending) == pending
        for gang in self.world.book.gangs.values():
            members = gang.pending.keys() | gang.planned.keys() | gang.bound
            assert members == {v.metadata.uid for n, v in self.pods.items() if n % 3 == 0}


moves = st.lists(
    st.tuples(
        st.sampled_from(
            ("create", "bind", "bind", "end", "delete", "replace", "node", "lose", "plan", "back", "label")
        ),
        st.integers(0, PODS_ - 1),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(moves)
def test_books_equal_the_truth(steps: list[tuple[str, int, int]]) -> None:
    story = Story()
    generation = dict.fromkeys(range(PODS_), 0)
    for what, number, which in steps:
        story.now += 0.5
        view = story.pods.get(number)
        if what == "create" and view is None:
            generation[number] += 1
            story.pod(number, generation[number])
        elif what == "bind" and view is not None and not view.terminal:
            story.pod(number, generation[number], view.spec.node_name or NODES[which], "Running")
        elif what == "label" and view is not None and not view.terminal:
            story.pod(number, generation[number], view.spec.node_name, view.status.phase, team=which > 0)
        elif what == "end" and view is not None and view.spec.node_name:
            story.pod(number, generation[number], view.spec.node_name, ("Succeeded", "Failed", "Failed")[which])
        elif what == "delete":
            story.delete(number)
        elif what == "replace" and view is not None:
            generation[number] += 1
            story.pod(number, generation[number])
        elif what == "node":
            story.node(NODES[which], 1 + number)
        elif what == "lose":
            story.remove_node(NODES[which])
        elif what == "plan":
            story.plan()
        elif what == "back":
            story.give_back()
        story.check()


def test_a_settled_pod_is_not_tried_again_for_that() -> None:
    """A barrier may settle thousands that wait: their versions change, and nothing that could help them."""
    story = Story()
    seen: list[PodView] = []

    def shown(annotations: dict[str, str]) -> None:
        meta = {"name": "p", "namespace": "d", "uid": "u", "annotations": annotations}
        spec = {"schedulerName": "koord-scheduler", "containers": [{"name": "c"}]}
        body = json.dumps({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}).encode()
        seen.append(msgspec.json.decode(body, type=PodView))
        story.world.apply_pod(seen[-2] if len(seen) > 1 else None, seen[-1], story.now)

    shown({})
    [unit] = story.queue.pop(1, story.now)
    story.queue.reject(unit, ["NodeResourcesFit"], story.now)
    assert unit.state == "unschedulable"
    for annotations, parked in (({BIND_SETTLED: "1"}, True), ({BIND_SETTLED: "2"}, True), ({"x": "y"}, False)):
        shown(annotations)
        assert (story.queue.counts["unschedulable"] == 1) is parked, annotations
