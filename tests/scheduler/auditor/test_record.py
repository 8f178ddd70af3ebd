"""The rules of the workload auditor: spec 10 section 3.9."""

import pytest

from koord.scheduler.auditor.record import Event, Finding, Record
from koord.scheduler.auditor.settings import AuditorSettings

LIMITS = AuditorSettings(
    victim_reschedule_s=10.0, victim_deletion_s=30.0, victim_deleting_retries=3, scheduling_event_interval_s=300.0
)


def told(*events: tuple[float, Event], kinds: tuple[str, ...] = ()) -> list[Finding]:
    """What follows from events in order; without the intervals between them unless they are asked for."""
    record = Record("default/p/u", 9000)
    found = [finding for at, event in events for finding in record.add(event, at, LIMITS)]
    return [each for each in found if (each.kind in kinds if kinds else each.kind != "event_interval")]


def test_a_preemption_that_goes_well() -> None:
    found = told(
        (0.0, Event.CREATE),
        (1.0, Event.NOMINATED),
        (2.0, Event.VICTIM_DELETING),
        (6.0, Event.VICTIMS_DELETED),
        (7.5, Event.SCHEDULED),
    )
    assert found == [
        Finding("to_victim_deleted", 5.0),
        Finding("victim_deleting_retries", 1),
        Finding("victim_reschedule", 1.5),
    ]


def test_slow_victims_and_a_slow_workload_are_complained_about() -> None:
    found = told((0.0, Event.NOMINATED), (30.0, Event.VICTIMS_DELETED), (40.0, Event.SCHEDULED))
    assert not any(each.alert for each in found), "the limits themselves are all right"
    found = told((0.0, Event.NOMINATED), (31.0, Event.VICTIMS_DELETED), (41.5, Event.SCHEDULED))
    assert [each.alert for each in found if each.alert] == [
        "its victims took 31.0 s to go",
        "10.5 s from when its victims were gone to scheduled",
    ]


def test_more_than_one_nomination_is_a_repeated_preemption() -> None:
    found = told(
        (0.0, Event.NOMINATED), (5.0, Event.NOMINATED), (9.0, Event.NOMINATED), kinds=("repeated_preemptions",)
    )
    assert found == [
        Finding("repeated_preemptions", 1.0, "preempted 2 times for it"),
        Finding("repeated_preemptions", 1.0, "preempted 3 times for it"),
    ]


@pytest.mark.parametrize("event", [Event.FAILURE, Event.PREEMPT_FAILURE, Event.NOMINATED])
def test_a_nomination_is_invalidated_once(event: Event) -> None:
    found = told((0.0, Event.NOMINATED), (1.0, event), (2.0, Event.FAILURE), kinds=("preemption_invalidations",))
    times = 2 if event is Event.NOMINATED else 1
    assert len(found) == times, "each nomination once"
    assert found[0].alert == f"{event.value} after pods were preempted for it"


def test_success_invalidates_nothing() -> None:
    assert not told((0.0, Event.NOMINATED), (1.0, Event.SCHEDULED), kinds=("preemption_invalidations",))


def test_a_cycle_is_interrupted_by_any_result() -> None:
    found = told(
        (0.0, Event.NOMINATED), (3.0, Event.VICTIM_DELETING), (4.0, Event.FAILURE), (9.0, Event.VICTIMS_DELETED)
    )
    assert [each for each in found if not each.alert] == [
        Finding("cycle_interrupted", 4.0),
        Finding("victim_deleting_retries", 1),
    ]


def test_too_many_looks_at_victims_are_told_once() -> None:
    looks = [(float(second), Event.VICTIM_DELETING) for second in range(1, 8)]
    found = told((0.0, Event.NOMINATED), *looks, (9.0, Event.VICTIMS_DELETED), kinds=("victim_deleting_retries",))
    assert found == [
        Finding("victim_deleting_retries", 0.0, "its victims are still going at look 4"),
        Finding("victim_deleting_retries", 7),
    ]


def test_intervals_are_those_of_a_round() -> None:
    found = told(
        (0.0, Event.FAILURE),  # no round has begun
        (10.0, Event.CREATE),
        (12.0, Event.GATED),
        (500.0, Event.ADMITTED),  # between rounds nothing is measured
        (503.0, Event.VICTIMS_DELETED),
        (900.0, Event.FAILURE),
        kinds=("event_interval",),
    )
    assert found == [
        Finding("event_interval", 2.0),
        Finding("event_interval", 400.0, "nothing was heard of it for 400.0 s, until scheduleFailure"),
    ]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"metric_labels": {"le": "x"}}, "'le' cannot be the name of a label"),
        ({"metric_labels": {"a-b": "x"}}, "'a-b' cannot be the name of a label"),
        ({"metric_labels": {"team": ""}}, "metric_labels.team: the pod label must not be empty"),
        ({"victim_deletion_s": 0.0}, "victim_deletion_s: 0.0 must be greater than 0"),
        ({"victim_deleting_retries": -1}, "victim_deleting_retries: -1 must not be negative"),
    ],
)
def test_settings(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AuditorSettings(**settings).check()  # type: ignore[arg-type]
