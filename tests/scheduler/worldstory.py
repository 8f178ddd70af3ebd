"""A world that a test writes to: pods, nodes and quotas by short words, and what the plugins were told of them."""

import json
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import numpy as np

from koord.kube.meta import ObjectMeta
from koord.kube.pods import PodSpec
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.kube.quotas import ElasticQuotaSpec
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.engine.placement import Placed
from koord.scheduler.engine.resources import CPU, FIRST, PODS
from koord.scheduler.framework.contract import AssignedPod, AssignPlugin, NodePlugin, PodRef, PreEnqueuePlugin
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.nodeview import NodeView
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.podview import PodView
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.world import World
from tests.scheduler.clusters import Bed

NODES, PODS_ = ("n0", "n1", "n2"), 6
GANG = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
LABEL = "quota.scheduling.koordinator.sh/name"


class Recorder(AssignPlugin, NodePlugin, PreEnqueuePlugin):
    """Keeps what it is told, and holds that each is told once. Holds back pods whose name is in ``held``."""

    name: ClassVar[str] = "Recorder"
    pod_keys: ClassVar[tuple[str, ...]] = ("note",)
    node_keys: ClassVar[tuple[str, ...]] = ("size",)
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_LABEL,))

    def __init__(self) -> None:
        self.pods: dict[str, AssignedPod] = {}
        self.nodes: dict[str, NodeInfo] = {}
        self.held: set[str] = set()

    def label_keys(self, spec: PodSpec) -> Iterable[str]:
        return ()

    def assigned(self, pod: AssignedPod) -> None:
        assert pod.ref.uid not in self.pods
        self.pods[pod.ref.uid] = pod

    def unassigned(self, pod: AssignedPod) -> None:
        assert self.pods.pop(pod.ref.uid) is pod

    def node_set(self, row: int, node: NodeInfo) -> None:
        if "bad" in node.annotations.get("size", ""):
            raise ValueError(f"Node {node.name}: metadata.annotations[size]: must not be bad")
        self.nodes[node.name] = node

    def node_removed(self, row: int, name: str) -> None:
        self.nodes.pop(name, None)

    def pre_enqueue(self, pod: PodRef) -> str | None:
        return "held" if pod.name in self.held else None


class Story:
    """A world fed by hand, and the plain truth beside it."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.bed = Bed(extra=[self.recorder])
        self.queue = SchedulingQueue(self.bed.profile.events)
        self.deleting: list[str] = []
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
            on_deleting=lambda view: self.deleting.append(view.key),
            on_remark=lambda view, text: self.remarks.append((view.key, text)),
            clock=lambda: 1000.0 + self.now,
        )
        self.remarks: list[tuple[str, str]] = []
        self.now = 0.0
        self.pods: dict[int, PodView] = {}
        self.nodes: dict[str, NodeView] = {}
        self.planned: dict[str, tuple[str, int]] = {}
        for name in ("org", "team"):
            labels = {"quota.scheduling.koordinator.sh/parent": "org"} if name == "team" else {}
            meta = ObjectMeta(name=name, namespace="q", uid=name, labels=labels)
            self.world.apply_quota(None, QuotaObject(metadata=meta, spec=ElasticQuotaSpec(max={"cpu": "7"})))
        self.world.events.take()

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
                outcome = self.bed.engine.place_one(pod, 500.0 + self.now)
                if isinstance(outcome, Placed):
                    placed.append(pod)
                    self.planned[pod.uid] = (outcome.node, pod.class_.template.request.get("cpu", 0))
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
        placed = {
            view.metadata.uid: (view.spec.node_name or self.planned[view.metadata.uid][0], not view.spec.node_name)
            for view in self.pods.values()
            if not view.terminal and (view.spec.node_name or view.metadata.uid in self.planned)
        }
        told = self.recorder.pods
        assert {uid: (pod.node, pod.planned) for uid, pod in told.items()} == placed
        assert all(told[v.uid].ref.labels == v.metadata.labels for v in self.pods.values() if v.uid in told)
        assert all(pod.since > 0 for pod in told.values() if not pod.planned)
        assert self.recorder.nodes.keys() == self.nodes.keys()
        waiting = {uid for unit in self.queue.units.values() for uid in unit.pods}
        pending = {v.metadata.uid for v in self.pods.values() if not v.spec.node_name and not v.terminal}
        assert waiting == pending - self.planned.keys()
        assert set(self.world.pending) == pending
        for gang in self.world.book.gangs.values():
            members = gang.pending.keys() | gang.planned.keys() | gang.bound
            assert members == {v.metadata.uid for n, v in self.pods.items() if n % 3 == 0}


BORN = "2026-03-02T09:00:00Z"
BORN_S = 1772442000.0


def shown(story: Story, old: PodView | None = None, *, spec: dict[str, Any] | None = None, **parts: Any) -> PodView:
    """Pod ``d/p`` as the API shows it now, told to the world."""
    meta: dict[str, Any] = {"name": "p", "namespace": "d", "uid": "u", **parts.pop("meta", {})}
    body = {
        "metadata": meta,
        "spec": {"schedulerName": "koord-scheduler", "containers": [{"name": "c"}], **(spec or {})},
        "status": {"phase": "Pending", **parts.pop("status", {})},
    }
    new = msgspec.json.decode(json.dumps(body).encode(), type=PodView)
    story.world.apply_pod(old, new, story.now)
    return new
