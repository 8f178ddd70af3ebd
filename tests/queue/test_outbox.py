"""Writes under way: one per object, settled by result and stream together."""

from koord.contracts.decisions import ObjectRef, Patch
from koord.contracts.results import Outcome, Result
from koord.queue.outbox import FREE_TRIES, REPUBLISH_S, Outbox, at_least, object_key
from koord.telemetry.context import TraceContext

UNIT = object_key("queueunits_scheduling_x-k8s_io", "ns/u")


def put(outbox: Outbox, number: int, now: float = 0.0) -> None:
    target = ObjectRef("queueunits_scheduling_x-k8s_io", "ns", "u", "uid", "5")
    outbox.put(UNIT, Patch(f"d{number}", target, b"{}"), TraceContext.new(), now)


def result(number: int, outcome: Outcome, version: str = "") -> Result:
    return Result(f"d{number}", outcome, resource_version=version)


def test_a_write_is_over_when_the_stream_shows_it() -> None:
    outbox = Outbox()
    put(outbox, 1)
    assert [decision.id for decision, _ in outbox.take(0.0)] == ["d1"]
    assert outbox.busy(UNIT)
    settled = outbox.settle(result(1, "done", "7"), "5", 0.0)
    assert settled is not None and settled[1] is False
    assert not outbox.seen(UNIT, "6")
    assert outbox.seen(UNIT, "7")
    assert not outbox.busy(UNIT)
    assert outbox.settle(result(1, "done", "7"), "7", 0.0) is None


def test_the_stream_may_be_faster_than_the_result() -> None:
    outbox = Outbox()
    put(outbox, 1)
    outbox.take(0.0)
    assert not outbox.seen(UNIT, "7")
    settled = outbox.settle(result(1, "done", "7"), "7", 0.0)
    assert settled is not None and settled[1]
    assert not outbox.busy(UNIT)


def test_conflicts_are_tried_at_once_a_few_times_then_ever_later() -> None:
    outbox = Outbox()
    pauses = []
    for number in range(FREE_TRIES + 3):
        put(outbox, number)
        outbox.take(0.0)
        outbox.settle(result(number, "conflict"), "5", 0.0)
        pauses.append(outbox.pause(UNIT, 0.0))
    assert pauses[:FREE_TRIES] == [0.0] * FREE_TRIES
    assert 0 < pauses[FREE_TRIES] < pauses[FREE_TRIES + 1]
    put(outbox, 99)
    outbox.take(0.0)
    outbox.settle(result(99, "done", "9"), "9", 0.0)
    assert outbox.pause(UNIT, 0.0) == 0.0


def test_silence_is_answered_by_the_same_decision_again() -> None:
    outbox = Outbox()
    put(outbox, 1)
    outbox.take(0.0)
    assert outbox.take(REPUBLISH_S - 0.1) == []
    assert outbox.next_overdue_s() == REPUBLISH_S
    assert [decision.id for decision, _ in outbox.take(REPUBLISH_S)] == ["d1"]
    outbox.publish_again()
    assert [decision.id for decision, _ in outbox.take(REPUBLISH_S)] == ["d1"]
    outbox.gone(UNIT)
    assert not outbox.busy(UNIT)
    assert outbox.take(1e9) == []


def test_versions_compare_as_numbers() -> None:
    assert at_least("10", "9")
    assert not at_least("9", "10")
    assert not at_least("", "9")
    assert at_least("abc", "abc")
    assert not at_least("abc", "abd")
