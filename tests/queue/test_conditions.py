"""Conditions mirror phases; spans tell attempts apart; events are not repeated."""

import msgspec
import pytest

from koord.kube.conditions import Condition, find
from koord.kube.meta import ObjectMeta, OwnerReference, parse_time
from koord.kube.queues import QueueUnit, QueueUnitStatus
from koord.kube.resources import QUEUE_UNITS
from koord.queue.conditions import mirror
from koord.queue.eventbook import EventBook
from koord.queue.traces import AttemptTraces
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans


def brief(conditions: list[Condition]) -> dict[str, str]:
    return {each.type: f"{each.status}/{each.reason}" for each in conditions}


def test_a_life_in_conditions() -> None:
    held = mirror([], "Enqueued", "wait", 100.0)
    assert brief(held) == {"QuotaReserved": "False/WaitingForQuota", "Admitted": "False/Pending"}
    held = mirror(held, "Dequeued", "go", 200.0)
    assert brief(held) == {"QuotaReserved": "True/QuotaReserved", "Admitted": "True/Admitted"}
    held = mirror(held, "Running", "Running", 300.0)
    assert brief(held)["PodsReady"] == "True/PodsRunning"
    admitted = find(held, "Admitted")
    assert admitted is not None and admitted.last_transition_time == "1970-01-01T00:03:20Z"
    held = mirror(held, "TimeoutBackoff", "Backoff due to running timeout", 400.0)
    assert brief(held) == {
        "QuotaReserved": "False/BackoffTimeout",
        "Admitted": "False/BackoffTimeout",
        "PodsReady": "False/Pending",
        "Evicted": "True/BackoffTimeout",
    }
    held = mirror(held, "Enqueued", "again", 500.0, "ExceedsMaxQuota")
    assert brief(held)["QuotaReserved"] == "False/ExceedsMaxQuota"
    assert brief(held)["Evicted"] == "False/Requeued"
    held = mirror(held, "Succeed", "Succeeded", 600.0)
    assert brief(held)["Finished"] == "True/Succeeded"
    assert brief(mirror([], "Failed", "Failed", 0.0)) == {"Finished": "True/Failed"}


@pytest.mark.parametrize(
    ("phase", "reserved", "admitted"),
    [
        ("Reserved", "True/QuotaReserved", "False/WaitingForAdmissionChecks"),
        ("SchedReady", "True/QuotaReserved", "True/Admitted"),
        ("SchedSucceed", "True/QuotaReserved", "True/Admitted"),
        ("SchedFailed", "False/WaitingForQuota", "False/SchedulingFailed"),
        ("nonsense", "False/WaitingForQuota", "False/Pending"),
    ],
)
def test_phases_of_checks_and_reservations(phase: str, reserved: str, admitted: str) -> None:
    held = mirror([], "Enqueued", "wait", 100.0)
    assert brief(mirror(held, phase, "x", 200.0)) == {"QuotaReserved": reserved, "Admitted": admitted}


def meta(traceparent: str) -> ObjectMeta:
    return ObjectMeta(namespace="ns", name="u", uid="uid", annotations={"koord.sh/traceparent": traceparent})


def unit(traceparent: str, previous: str = "", allocated: str = "") -> QueueUnit:
    annotations = {"koord.sh/traceparent": traceparent} | ({"koord.sh/trace-previous": previous} if previous else {})
    owner = OwnerReference("batch/v1", "Job", "j", "job", controller=True)
    created = "2026-01-01T00:00:00Z"
    metadata = ObjectMeta(
        "u", "ns", "uid", annotations=annotations, owner_references=[owner], creation_timestamp=created
    )
    status = QueueUnitStatus(last_allocate_time=allocated or None, last_update_time="2026-01-01T00:00:30Z")
    return QueueUnit(metadata=metadata, status=status)


def test_a_successor_records_again_what_may_be_lost_under_the_same_ids() -> None:
    """Its predecessor was killed: what the objects show of the last minute is there once, whoever recorded it."""
    created_ns, allocated = int(parse_time("2026-01-01T00:00:00Z") * 1e9), "2026-01-01T00:00:40Z"
    job = ObjectMeta(namespace="ns", name="j", uid="job")
    before, after = Spans(), Spans()
    traces = AttemptTraces(before)
    root = traces.begin("job", created_ns, None)
    traces.enqueued(job, unit(root.traceparent), created_ns)
    shown = unit(root.traceparent, allocated=allocated)
    traces.admitted(traces.admitting(root, created_ns), created_ns + 40 * 10**9, shown, "q", "q")
    traces.shows_resume("job", shown, created_ns + 41 * 10**9)
    original = {record.name: record for record in before.take(0)}
    assert set(original) == {"queue.enqueue", "queue.admit", "queue.resume"}

    successor = AttemptTraces(after)
    successor.leads(created_ns + 45 * 10**9)
    for _ in range(2):
        successor.enqueued(job, shown, created_ns + 45 * 10**9)
        successor.shows_admission("job", shown)
        successor.shows_resume("job", shown, created_ns + 46 * 10**9)
    again = {record.name: record for record in after.take(0)}
    assert {name: record.context for name, record in again.items()} == {
        name: record.context for name, record in original.items()
    }
    assert again["queue.admit"].parent == root
    assert again["queue.resume"].parent == again["queue.admit"].context
    assert again["queue.admit"].end_ns == created_ns + 40 * 10**9

    late = AttemptTraces(after)
    late.leads(created_ns + 3600 * 10**9)
    late.enqueued(job, shown, 0)
    late.shows_admission("job", shown)
    late.shows_resume("job", shown, 0)
    assert after.take(0) == [], "what ended long ago was exported"


def test_a_successor_knows_the_link_to_the_attempt_before() -> None:
    spans = Spans()
    traces = AttemptTraces(spans)
    first, second = TraceContext.new(), TraceContext.new()
    traces.enqueued(ObjectMeta(uid="job"), unit(second.traceparent, previous=first.traceparent), 0)
    (record,) = spans.take(0)
    assert (record.context, list(record.links), record.parent) == (second, [first], None)
    assert record.start_ns == int(parse_time("2026-01-01T00:00:30Z") * 1e9)


def test_one_trace_per_attempt_each_linked_to_the_last() -> None:
    spans = Spans()
    traces = AttemptTraces(spans)
    first = traces.begin("job", 10, None)
    assert traces.begin("job", 99, None) == first
    job = ObjectMeta(namespace="ns", name="j", uid="job")
    traces.enqueued(job, unit("00-" + "1" * 32 + "-" + "2" * 16 + "-01"), 15)
    assert spans.take(0) == []  # the unit shows another trace
    traces.enqueued(job, unit(first.traceparent), 20)
    admitting = traces.admitting(first, 20)
    traces.claimed(admitting, 30, 31, "claim-1", "ok")
    traces.admitted(admitting, 40, unit(first.traceparent), "q", "q")
    second = traces.begin_next("job", 50, meta(first.traceparent))
    traces.enqueued(job, unit(second.traceparent), 60)
    enqueue, claim, admit, again = spans.take(0)
    assert [each.name for each in (enqueue, claim, admit, again)] == [
        "queue.enqueue", "ledger.claim", "queue.admit", "queue.enqueue"
    ]  # fmt: skip
    assert enqueue.context == first and enqueue.parent is None
    assert admit.parent == first and claim.parent == admit.context
    assert again.context.trace_id != first.trace_id
    assert list(again.links) == [TraceContext.parse(first.traceparent)]
    submitted = TraceContext.new()
    assert traces.begin("other", 0, submitted).trace_id == submitted.trace_id


def test_an_event_is_told_once_in_five_minutes() -> None:
    book = EventBook()
    unit = ObjectMeta(namespace="ns", name="u", uid="uid")
    for now in (0.0, 10.0, 299.0):
        book.note(QUEUE_UNITS, unit, "Warning", "FailedScheduling", "no room", now)
    book.note(QUEUE_UNITS, unit, "Warning", "FailedScheduling", "other", 299.0)
    assert [note.note for note in book.take()] == ["no room", "other"]
    book.note(QUEUE_UNITS, unit, "Warning", "FailedScheduling", "no room", 300.0)
    (note,) = book.take()
    assert (note.kind, note.target.namespace, note.target.name, note.target.uid) == ("QueueUnit", "ns", "u", "uid")
    assert msgspec.msgpack.encode(note)
