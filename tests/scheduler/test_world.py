"""Books after arbitrary histories: what the columns and quotas say equals what the API shows plus what is planned."""

import json
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.meta import ObjectMeta
from koord.kube.pods import PodSpec
from koord.kube.protocol.scheduler import BIND_SETTLED
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


def test_a_pod_on_its_node_is_told_in_full_and_when_it_changes() -> None:
    story = Story()
    owner = {"kind": "DaemonSet", "name": "d", "controller": True}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": BORN}
    ready = {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-03-02T09:00:05Z"}
    meta = {"labels": {"a": "1"}, "annotations": {"note": "x", "other": "1"}, "ownerReferences": [owner]}
    spec = {"nodeName": "n0", "priority": 9000}
    told = story.recorder.pods
    first = shown(story, spec=spec, meta=meta, status={"conditions": [scheduled]})
    pod = told["u"]
    assert (pod.node, pod.priority, pod.since, pod.initialized, pod.started) == ("n0", 9000, BORN_S, 0.0, 0.0)
    assert (pod.owner, pod.terminating, pod.planned) == ("DaemonSet", False, False)
    assert list(story.world.events) == [ClusterEvent.POD_ASSIGNED]
    assert story.world.events.take() == {ClusterEvent.POD_ASSIGNED: (pod,)}

    status = {"conditions": [ready, scheduled], "startTime": "2026-03-02T09:00:01Z", "phase": "Running"}
    second = shown(story, first, spec=spec, meta=meta, status=status)
    assert (told["u"].initialized, told["u"].started) == (BORN_S + 5, BORN_S + 1)
    # An annotation that no plugin reads, or a message of a condition that is not kept, changes nothing.
    before = told["u"]
    third = shown(story, second, spec=spec, meta={**meta, "annotations": {"note": "x", "other": "2"}}, status=status)
    assert told["u"] is before
    assert not story.world.events
    fourth = shown(story, third, spec=spec, meta={**meta, "annotations": {"note": "y"}}, status=status)
    assert told["u"].ref.annotations == {"note": "y"}
    relabelled = {**meta, "labels": {"a": "2"}}
    before = told["u"]
    fifth = shown(story, fourth, spec=spec, meta=relabelled, status=status)
    happened = story.world.events.take()
    assert happened[ClusterEvent.POD_LABEL] == (told["u"],)
    assert happened[ClusterEvent.POD_DELETE] == (before,)
    going = {**relabelled, "deletionTimestamp": BORN}
    shown(story, fifth, spec=spec, meta=going, status=status)
    assert told["u"].terminating
    last = told["u"]
    story.world.apply_pod(fifth, None, story.now)
    assert told == {}
    assert story.world.events.take() == {ClusterEvent.POD_DELETE: (last,)}


def test_a_planned_pod_counts_from_its_planning_until_it_is_seen_bound() -> None:
    story = Story()
    story.node("n0", 4)
    first = shown(story, meta={"annotations": {"note": "x"}})
    story.plan()
    planned = story.recorder.pods["u"]
    assert (planned.node, planned.planned, planned.since) == ("n0", True, 500.0)
    status = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": BORN}]}
    shown(story, first, spec={"nodeName": "n0"}, meta={"annotations": {"note": "given"}}, status=status)
    bound = story.recorder.pods["u"]
    assert (bound.node, bound.planned, bound.since, bound.ref.annotations) == ("n0", False, BORN_S, {"note": "given"})


def test_a_node_has_only_the_annotations_that_are_read_and_says_once_what_is_not_valid() -> None:
    story = Story()

    def node(annotations: dict[str, str], labels: dict[str, str] | None = None) -> tuple[str, ...]:
        body = {
            "metadata": {"name": "n", "annotations": annotations, "labels": labels or {}},
            "status": {"allocatable": {"cpu": "4"}},
        }
        new = msgspec.convert(body, NodeView)
        problems = story.world.apply_node(story.nodes.get("n"), new)
        story.nodes["n"] = new
        return problems

    assert node({"size": "1", "heartbeat": "1"}) == ()
    assert list(story.world.events.take()) == [ClusterEvent.NODE_ADD]
    assert story.recorder.nodes["n"].annotations == {"size": "1"}
    assert node({"size": "1", "heartbeat": "2"}) == ()
    assert not story.world.events
    bad = "Node n: metadata.annotations[size]: must not be bad"
    assert node({"size": "bad"}) == (bad,)
    assert list(story.world.events.take()) == [ClusterEvent.NODE_ANNOTATION]
    assert node({"size": "bad"}, {"zone": "a"}) == ()
    assert story.recorder.nodes["n"].annotations == {"size": "1"}
    assert node({"size": "2"}) == ()
    assert node({"size": "bad"}) == (bad,)
    reserved = {"node.koordinator.sh/reservation": "{"}
    [problem] = node({"size": "2", **reserved})
    assert "node.koordinator.sh/reservation" in problem
    assert node({"size": "2", **reserved}, {"zone": "b"}) == ()
    row = story.bed.cluster.index.find("n")
    assert node({"size": "2", "node.koordinator.sh/reservation": '{"resources":{"cpu":"1"}}'}) == ()
    assert story.bed.cluster.allocatable[FIRST + CPU, row] == 3000


def test_what_is_held_back_is_asked_again_when_its_plugin_waits_for_that() -> None:
    story = Story()
    story.recorder.held = {"p"}
    shown(story)
    assert story.queue.counts["gated"] == 1
    story.world.events.add(ClusterEvent.NODE_LABEL)
    story.world.wake(1.0)
    assert story.queue.counts["gated"] == 1
    story.recorder.held.clear()
    story.world.events.add(ClusterEvent.NODE_TAINT)
    story.world.wake(2.0)
    assert story.queue.counts["gated"] == 1
    story.world.events.add(ClusterEvent.NODE_LABEL)
    story.world.wake(3.0)
    [unit] = story.queue.pop(1, 3.0)
    assert list(unit.pods) == ["u"]
    assert story.queue.incoming[("active", "NodeUpdateNodeLabel")] == 1


def test_a_pod_that_is_being_deleted_leaves_the_queue_and_says_so() -> None:
    story = Story()
    first = shown(story)
    going = shown(story, first, meta={"deletionTimestamp": BORN})
    assert story.deleting == ["d/p"]
    assert not story.queue.units
    shown(story, going, meta={"deletionTimestamp": BORN, "labels": {"x": "y"}})
    assert story.deleting == ["d/p"]


def test_pods_that_wait_for_room_on_a_node_are_known_whoever_their_scheduler_is() -> None:
    story = Story()
    nominated = story.bed.engine.nominated
    first = shown(story, status={"nominatedNodeName": "n0"})
    assert nominated.node_of("u") == "n0"
    second = shown(story, first, status={"nominatedNodeName": "n1"}, meta={"labels": {"a": "b"}})
    assert [pod.ref.labels for pod in nominated.on("n1")] == [{"a": "b"}]
    third = shown(story, second, spec={"schedulerName": "another"}, status={"nominatedNodeName": "n1"})
    assert nominated.node_of("u") == "n1"
    fourth = shown(story, third)
    assert nominated.node_of("u") == ""
    fifth = shown(story, fourth, status={"nominatedNodeName": "n1"})
    shown(story, fifth, spec={"nodeName": "n1"}, status={"nominatedNodeName": "n1"})
    assert nominated.node_of("u") == ""
    sixth = shown(story, meta={"uid": "v"}, status={"nominatedNodeName": "n1"})
    story.world.apply_pod(sixth, None, story.now)
    assert nominated.node_of("v") == ""


def test_a_plugin_that_fails_as_pods_come_holds_them_and_the_world_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.node("n0", 4)

    def broken(*_: object) -> Any:
        raise RuntimeError("no more")

    monkeypatch.setattr(story.recorder, "pre_enqueue", broken)
    monkeypatch.setattr(story.recorder, "label_keys", broken)
    errors: list[str] = []
    monkeypatch.setattr(story.bed.catalogue, "_on_error", lambda error: errors.append(str(error)))
    shown(story, spec={"priority": 7})
    unit = story.world.unit_of("u")
    assert unit is not None
    assert (unit.state, unit.message) == ("gated", 'running "Recorder" PreEnqueue plugin: RuntimeError: no more')
    assert errors == ['running "Recorder" label_keys plugin: RuntimeError: no more']


def test_what_a_pod_says_in_vain_is_told_when_it_comes_and_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    key = "scheduling.koordinator.sh/resource-spec"

    def says(policy: str) -> dict[str, Any]:
        return {"annotations": {key: json.dumps({"preferredCPUBindPolicy": policy})}}

    first = shown(story, meta=says("Sideways"))
    [(pod, text)] = story.remarks
    assert pod == "d/p"
    assert text.startswith(f"{key}: preferredCPUBindPolicy must be one of")
    second = shown(story, first, meta=says("Sideways") | {"labels": {"a": "b"}})
    assert len(story.remarks) == 1
    third = shown(story, second, meta=says("FullPCPUs"))
    assert len(story.remarks) == 1
    numa = next(one for one in story.bed.profile.plugins if one.name == "NodeNUMAResource")

    def broken(*_: object) -> Any:
        raise RuntimeError("no more")

    monkeypatch.setattr(numa, "remarks", broken)
    shown(story, third, meta=says("Downwards"))
    assert [str(error) for error in story.bed.engine.errors] == [
        'running "NodeNUMAResource" remarks plugin: RuntimeError: no more'
    ]
