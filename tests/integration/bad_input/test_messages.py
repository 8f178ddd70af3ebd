"""What somebody sends straight to NATS: decisions, state, hints, results and questions."""

# ruff: noqa: E501 (a case is a line)

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.bus.client import header_block
from koord.bus.connection import TRACEPARENT, Bus
from koord.bus.errors import AskRefused
from koord.bus.questions import ask, decode_answer
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.contracts.codec import decode, encode
from koord.contracts.decisions import (
    Bind,
    BindMember,
    ClaimRef,
    Create,
    Delete,
    EventNote,
    Evict,
    ObjectRef,
    Patch,
    RecordEvents,
)
from koord.contracts.results import Result
from koord.contracts.state import HEADER, format_header
from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS, QUEUE_UNITS, QUEUES, TFJOBS, WATCHED
from koord.telemetry.context import TraceContext
from tests.integration.bad_input.looking import (
    documents,
    logged,
    pod,
    told,
)
from tests.integration.conftest import Up

pytestmark = pytest.mark.slow

# Straight to NATS -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def bus(cluster: Up) -> AsyncIterator[Bus]:
    ready = cluster.ready
    connected = await Bus.connect(ready["nats"], ready["cluster"], "hostile")
    yield connected
    await connected.close()


class Answers:
    """Publishes bytes on a decision subject, and hears every result of the cluster."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.heard: list[tuple[str, Result]] = []
        self._news = asyncio.Event()
        self._subscription = bus.subscribe_raw(f"{bus.subjects.root}.result.>", self._receive)

    def _receive(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        self.heard.append((subject.decode().split(".")[3], decode(Result, body)))
        self._news.set()

    async def send(self, service: str, kind: str, body: bytes) -> None:
        header = header_block((TRACEPARENT, TraceContext.new().traceparent))
        await self._bus.acks.publish(self._bus.subjects.decision(service, kind), body, header)

    async def result(self, service: str, id_: str, count: int = 1) -> list[Result]:
        async with asyncio.timeout(60):
            while True:
                found = [result for who, result in self.heard if (who, result.id) == (service, id_)]
                if len(found) >= count:
                    return found
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def answers(bus: Bus) -> Answers:
    made = Answers(bus)
    await bus.barrier()
    return made


def create(
    id_: str, name: str = "made", resource: str = QUEUES.token, body: Any = None, where: str = "koord-queue"
) -> Create:
    raw = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    return Create(id_, resource, where, name, raw)


GHOST = ObjectRef(PODS.token, "default", "ghost", "0b0b0b0b-0000-4000-8000-000000000000")
CLAIM = ClaimRef("nobody-1", 7, 1)
DEEP = b"\x83\xa4kind\xa6create\xa2id\xa6h-deep\xa1x" + b"\x91" * 100_000 + b"\xc0"

UNREADABLE = [
    ("queue", "create", encode(create("h-cut"))[:-7], "h-cut", "Decision: Input data was truncated"),
    ("queue", "create", b"", "unreadable", "Decision: Input data was truncated"),
    ("queue", "patch", b"\xc1\xff\x00 garbage", "unreadable", "Decision: "),
    ("scheduler", "bind", b'{"kind":"bind","id":"h-json"}', "unreadable", "Decision: "),
    ("queue", "create", DEEP, "h-deep", "Decision: maximum recursion depth exceeded"),
    ("queue", "create", b"\x82\xa4kind\xa6create\xa2id\xa3\xff\xfe\xfd", None, "Decision: Invalid UTF-8"),
    ("queue", "delete", encode(create("h-kind")), "h-kind", "subject says 'delete', body says 'create' - $.kind"),
    ("queue", "explode", encode(create("h-verb")), "h-verb", "subject says 'explode', body says 'create' - $.kind"),
    ("scheduler", "bind", b"\x82\xa4kind\xa4bind\xa2id\xa6h-bind", "h-bind", "Decision: Object missing required field `claim`"),
]  # fmt: skip


@pytest.mark.usefixtures("bystanders")
async def test_unreadable_decisions_are_answered_and_logged(cluster: Up, answers: Answers) -> None:
    for service, kind, body, id_, words in UNREADABLE:
        before = len(answers.heard)
        await answers.send(service, kind, body)
        if id_ is not None:
            subject = f"koord.local.decision.{service}.{kind}"
            result = (
                await answers.result(
                    service, id_, sum((who, r.id) == (service, id_) for who, r in answers.heard[:before]) + 1
                )
            )[-1]
            assert result.outcome == "rejected"
            assert result.reason.startswith(f"unreadable message on {subject}: "), result.reason
            assert words in result.reason
        await asyncio.to_thread(logged, cluster, "[gateway]", f"decision.{service}.{kind}", words)


LABEL_OF_NUMBER = "labels"
"""The field; each server has its own words for a body that is no such object."""
REFUSED: list[tuple[str, Bind | Create | Patch | Delete | Evict, str, str]] = [
    ("queue", create("h-widget", resource="widgets_example_com"), "rejected", "unknown resource: 'widgets_example_com' (known: "),
    ("queue", create("h-node", resource=NODES.token, where=""), "rejected", "not allowed: queue may not create nodes_core (nodes_core made)"),
    ("quota", create("h-unit", resource=QUEUE_UNITS.token, where="team"), "rejected", "not allowed: quota may not create queueunits_scheduling_x-k8s_io"),
    ("intruder", create("h-who"), "rejected", "not allowed: intruder may not create queues_scheduling_x-k8s_io (queues_scheduling_x-k8s_io koord-queue/made)"),
    ("queue", Bind("h-qbind", CLAIM, [BindMember("u", "default", "ghost", "node-00001")]), "rejected", "not allowed: queue may not bind pods"),
    ("scheduler", Bind("h-empty", CLAIM, []), "rejected", "invalid: bind h-empty: members: empty"),
    ("scheduler", Bind("h-path", CLAIM, [BindMember("u", "default", "a/../b", "node-00001")]), "rejected", "invalid: bind h-path: members[0].name: 'a/../b' is not an object name"),
    ("scheduler", Bind("h-claim", CLAIM, [BindMember(GHOST.uid, "default", "ghost", "node-00001")]), "rejected", "claim gone"),
    ("queue", Delete("h-uid", ObjectRef(QUEUES.token, "koord-queue", "calm")), "rejected", "invalid: queues_scheduling_x-k8s_io koord-queue/calm: target.uid: required"),
    ("queue", Delete("h-gone", ObjectRef(QUEUES.token, "koord-queue", "calm", GHOST.uid)), "gone", f"queues_scheduling_x-k8s_io koord-queue/calm: uid {GHOST.uid} does not exist any more"),
    ("queue", Evict("h-evict", GHOST), "rejected", "not allowed: queue may not evict pods_core"),
    ("queue", create("h-body", body=b"not json"), "rejected", "invalid: create queues_scheduling_x-k8s_io: body: "),
    ("queue", create("h-array", body=[1]), "rejected", "invalid: create queues_scheduling_x-k8s_io: body: not a JSON object"),
    ("queue", create("h-nest", body=b"[" * 100_000), "rejected", "invalid: create queues_scheduling_x-k8s_io: body: "),
    ("queue", create("h-other", body={"kind": "Pod"}), "rejected", "invalid: create queues_scheduling_x-k8s_io: body.kind: 'Pod' is not 'Queue'"),
    ("queue", create("h-label", body={"metadata": {"labels": {"a": 7}}}), "rejected", LABEL_OF_NUMBER),
    ("queue", create("h-upper", name="Upper"), "rejected", 'Queue.scheduling.x-k8s.io "Upper" is invalid: metadata.name: Invalid value: "Upper"'),
    ("queue", create("h-lost", where="no-such-namespace"), "gone", 'namespaces "no-such-namespace" not found'),
    ("queue", create("h-twice", name="calm"), "conflict", '"calm" already exists'),
    ("scheduler", Patch("h-ghost", GHOST, b'{"metadata":{"labels":{"a":"b"}}}'), "gone", 'pods "ghost" not found'),
    ("queue", Patch("h-merge", ObjectRef(TFJOBS.token, "team", "any"), b"[]"), "rejected", "invalid: tfjobs_kubeflow_org team/any: body: a merge patch is an object"),
    ("queue", Patch("h-sub", ObjectRef(TFJOBS.token, "team", "any"), b"{}", subresource="binding"), "rejected", "invalid: tfjobs_kubeflow_org team/any: subresource: 'binding' is not status or scale"),
    ("queue", Evict("h id\0\r\n.>*", GHOST), "rejected", "not allowed: queue may not evict pods_core"),
    ("queue", Evict("h" * 5000, GHOST), "rejected", "not allowed: queue may not evict pods_core"),
    ("quota", Patch("h-none", ObjectRef(ELASTIC_QUOTAS.token, "", "calm"), b"{}"), "rejected", "invalid: elasticquotas_scheduling_sigs_k8s_io calm: namespace: missing"),
]  # fmt: skip


@pytest.mark.usefixtures("bystanders")
async def test_refused_decisions_name_object_field_and_rule(answers: Answers) -> None:
    for service, decision, _, _ in REFUSED:
        await answers.send(service, type(decision).__name__.lower(), encode(decision))
    for service, decision, outcome, words in REFUSED:
        (result,) = await answers.result(service, decision.id)
        assert (result.outcome, words in result.reason) == (outcome, True), (decision.id, result)


@pytest.mark.usefixtures("bystanders")
async def test_a_decision_for_a_deleted_object_spares_its_successor(cluster: Up, answers: Answers) -> None:
    up = cluster
    await asyncio.to_thread(up.kubectl, "create", "-f", "-", stdin=documents([pod("fleeting", "33")]))
    (first,) = await asyncio.to_thread(up.objects, "pod", "fleeting", "-n", "default")
    await asyncio.to_thread(up.kubectl, "delete", "pod", "fleeting", "-n", "default")
    target = ObjectRef(PODS.token, "default", "fleeting", first["metadata"]["uid"])
    patch = Patch("h-late", target, b'{"metadata":{"labels":{"touched":"yes"}}}')
    await answers.send("scheduler", "patch", encode(patch))
    (result,) = await answers.result("scheduler", "h-late")
    assert (result.outcome, result.reason) == ("gone", 'pods "fleeting" not found')

    await asyncio.to_thread(up.kubectl, "create", "-f", "-", stdin=documents([pod("fleeting", "33")]))
    await answers.send("scheduler", "patch", encode(Patch("h-later", target, patch.body)))
    (result,) = await answers.result("scheduler", "h-later")
    assert result.outcome == "gone"
    assert result.reason.startswith(f"pods_core default/fleeting: uid {target.uid} was replaced by ")
    (second,) = await asyncio.to_thread(up.objects, "pod", "fleeting", "-n", "default")
    assert "touched" not in second["metadata"].get("labels", {})
    await asyncio.to_thread(up.kubectl, "delete", "pod", "fleeting", "-n", "default", "--wait=false")


@pytest.mark.usefixtures("bystanders")
async def test_a_decision_sent_twice_is_carried_out_once(cluster: Up, answers: Answers) -> None:
    body = encode(create("h-double", name="h-double", body={"spec": {"queuePolicy": "Priority"}}))
    await answers.send("queue", "create", body)
    await answers.result("queue", "h-double")
    (before,) = await asyncio.to_thread(cluster.objects, "queue", "h-double", "-n", "koord-queue")
    await answers.send("queue", "create", body)
    first, second = await answers.result("queue", "h-double", 2)
    assert first.outcome == "done"
    assert first == second, "the second is answered as the first was"
    (after,) = await asyncio.to_thread(cluster.objects, "queue", "h-double", "-n", "koord-queue")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await asyncio.to_thread(cluster.kubectl, "delete", "queue", "h-double", "-n", "koord-queue")


@pytest.mark.usefixtures("bystanders")
async def test_events_on_impossible_objects_hold_up_nobody(cluster: Up, answers: Answers) -> None:
    def note(name: str, reason: str = "Hostile", type_: Any = "Warning") -> EventNote:
        return EventNote(ObjectRef(PODS.token, "default", name), "Pod", "v1", type_, reason, f"about {name}")

    bad = RecordEvents("h-events", [note("../../secrets"), note(""), note("no good")])
    await answers.send("scheduler", "event", encode(bad))
    wrong = RecordEvents("h-type", [note("fine", type_="Loud")])
    await answers.send("scheduler", "event", encode(wrong))
    (result,) = await answers.result("scheduler", "h-type")
    assert "Invalid enum value 'Loud' - at `$.events[0].type`" in result.reason.replace('"', "'")
    await answers.send("scheduler", "event", encode(RecordEvents("h-good", [note("good")])))
    await asyncio.to_thread(told, cluster, "Pod", "good", "Hostile", "^about good$", "default")
    hostile = [
        event for event in await asyncio.to_thread(cluster.objects, "events", "-A") if event["reason"] == "Hostile"
    ]
    assert [event["involvedObject"]["name"] for event in hostile] == ["good"]


@pytest.mark.usefixtures("bystanders")
async def test_garbage_on_state_subjects_keeps_the_last_good_version(cluster: Up, bus: Bus) -> None:
    """Bodies, headers and subjects that no gateway would write, for objects that exist and for ones that do not."""
    subjects, stream = bus.subjects, (await bus.js.stream_info(bus.subjects.state_stream)).config
    assert stream.name == subjects.state_stream
    good = format_header("MODIFIED", "999999999999", "no-such-life")
    deep = b"[" * 100_000
    for resource in WATCHED:
        space = "garbage" if resource.namespaced else ""
        for name, body in (
            ("bytes", b"\x00\xff\xfe"),
            ("half", b'{"metadata":{"name":"half"'),
            ("deep", deep),
            ("list", b"[]"),
        ):
            await bus.publish_acked(subjects.state(resource.token, space, name), body, (HEADER, good))
    # An object that exists, and a tombstone and headers that are none.
    await bus.publish_acked(subjects.state(PODS.token, "calm", "resident"), b'{"metadata":', (HEADER, good))
    await bus.publish_acked(subjects.state(PODS.token, "garbage", "tomb"), b"", (HEADER, "DELETED 1 x"))
    await bus.publish_acked(subjects.state(PODS.token, "garbage", "worded"), b"{}", (HEADER, "EXPLODED 1 x"))
    await bus.publish_acked(subjects.state(PODS.token, "garbage", "headless"), b"{}", None)
    for service in ("scheduler", "quota", "reconciler"):
        for name in ("bytes", "half", "deep", "list", "tomb", "worded", "headless"):
            await asyncio.to_thread(
                logged,
                cluster,
                f"[{service}]",
                "pods_core" if name in ("bytes", "half") else f"garbage/{name}",
                f"garbage/{name}",
            )
        await asyncio.to_thread(logged, cluster, f"[{service}]", "calm/resident", "Input data was truncated")
    for name in ("bytes", "half", "deep", "list"):
        await asyncio.to_thread(logged, cluster, "[queue]", f"garbage/{name}", "tfjobs_kubeflow_org")
    # What was known of the object stands: the scheduler still counts the pod on its node.
    explained = await ask(bus, "scheduler", "explain", ExplainPod("calm", "resident"), PodExplanation)
    assert explained.node


@pytest.mark.usefixtures("bystanders")
async def test_garbage_on_hints_results_and_questions(cluster: Up, bus: Bus) -> None:
    subjects = bus.subjects
    for subject in (
        subjects.ledger("claim.released"),
        subjects.ledger("epoch"),
        subjects.result("scheduler", "h-1"),
        subjects.result("queue", "h-1"),
        subjects.result("quota", "h-1"),
        subjects.quota_runtime("_"),
    ):
        for body in (b"", b"\xff\xfe garbage", DEEP):
            await bus.publish(subject, body)
    for body in (b"", b"\xff\xfe garbage", DEEP, encode(Result("h-1", "done"))):
        answer = await bus.ask(
            subjects.ask("scheduler", "explain"), body, 5.0, traceparent=TraceContext.new().traceparent
        )
        with pytest.raises(AskRefused, match="ExplainPod: "):
            decode_answer(PodExplanation, answer)
    unknown = await ask(bus, "scheduler", "explain", ExplainPod("default", "nobody"), PodExplanation)
    assert unknown.error.startswith("the pod is not known")
    await asyncio.to_thread(logged, cluster, "[scheduler]", "result")
