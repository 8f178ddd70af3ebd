"""What the world tells plugins, the queue and users of pods and nodes as they come, change and go."""

import json
from typing import Any

import msgspec
import pytest

from koord.scheduler.engine.resources import CPU, FIRST
from koord.scheduler.framework.contract import PodRef, Template
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.nodeview import NodeView
from tests.scheduler.worldstory import BORN, BORN_S, Story, shown


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


def test_who_holds_nobody_back_is_not_asked_and_one_that_cannot_say_so_is(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.node("n0", 4)
    asked: list[str] = []

    def pre_enqueue(pod: PodRef) -> str | None:
        asked.append(pod.uid)
        return "held"

    def may_hold(template: Template) -> bool:
        if template.annotations.get("note") == "bad":
            raise RuntimeError("no more")
        return template.annotations.get("note") == "hold"

    def state(uid: str, note: str) -> str:
        shown(story, meta={"uid": uid, "name": uid, "annotations": {"note": note}})
        unit = story.world.unit_of(uid)
        assert unit is not None
        return unit.state

    monkeypatch.setattr(story.recorder, "pre_enqueue", pre_enqueue)
    monkeypatch.setattr(story.recorder, "may_hold", may_hold)
    assert [state("a", "free"), state("b", "hold"), state("c", "bad")] == ["active", "gated", "gated"]
    story.recorder.holding = False
    assert state("d", "hold") == "active"
    story.recorder.holding = True
    assert state("e", "hold") == "gated"
    assert asked == ["b", "c", "e"]
