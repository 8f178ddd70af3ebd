"""What is known of one workload, and what follows from each event about it. Pure: times (seconds) are passed in.

The rules are spec 10 section 3.9. A *round* is a time in which the workload may be scheduled: it begins when the
workload comes, passes admission or has its gang together, and ends when it is gated. A *cycle* begins when victims are
to go for the workload, and ends when they are gone, or is interrupted when something else becomes of it before.
"""

import enum
from collections import Counter
from typing import Literal, NamedTuple

import msgspec

from koord.scheduler.auditor.settings import AuditorSettings


class Event(enum.Enum):
    """The values are the original's names."""

    CREATE = "create"
    GATED = "gatedByQueueAdmission"
    ADMITTED = "admissionPassed"
    SCHEDULED = "scheduled"
    NOMINATED = "preemptNominated"
    VICTIM_DELETING = "preemptVictimDeleting"
    PREEMPT_FAILURE = "preemptFailure"
    FAILURE = "scheduleFailure"
    GANG_ATTEMPTED = "gangAllPodsAlreadyAttempted"
    VICTIMS_DELETED = "victimAllDeleted"
    GANG_SATISFIED = "gangMinMemberSatisfied"


BEGINNINGS = frozenset((Event.CREATE, Event.ADMITTED, Event.GANG_SATISFIED))
RESULTS = frozenset((Event.SCHEDULED, Event.NOMINATED, Event.PREEMPT_FAILURE, Event.FAILURE))
"""What may become of an attempt."""

Kind = Literal[
    "repeated_preemptions",
    "preemption_invalidations",
    "victim_reschedule",
    "victim_deleting_retries",
    "to_victim_deleted",
    "cycle_interrupted",
    "event_interval",
]


class Finding(NamedTuple):
    """Something to measure (``value``: seconds, or a number), and to complain about if ``alert`` says what."""

    kind: Kind
    value: float = 1.0
    alert: str = ""


class Record(msgspec.Struct, eq=False):
    """One workload: ``priority`` and ``labels`` are those of its metrics; ``counts``: its events since it came.

    Times are those of the last event of the round, of the nomination whose cycle is open, and of when all its victims
    were gone; None: there is none.
    """

    key: str
    priority: int
    labels: tuple[str, ...] = ()
    counts: Counter[Event] = msgspec.field(default_factory=Counter)
    last: float | None = None
    nominated: float | None = None
    cleared: float | None = None
    valid: bool = False
    """Whether the last nomination stands: nothing failed since."""
    retries: int = 0
    """Looks at victims that are still going, in this cycle."""

    def add(self, event: Event, now: float, limits: AuditorSettings) -> list[Finding]:
        """What follows from an event at ``now``."""
        found: list[Finding] = []
        self._interval(event, now, limits, found)
        if event in RESULTS:
            self._result(event, now, limits, found)
        if event is Event.NOMINATED:
            if self.counts[event]:
                times = self.counts[event] + 1
                found.append(Finding("repeated_preemptions", 1.0, f"preempted {times} times for it"))
            self.nominated, self.cleared, self.valid, self.retries = now, None, True, 0
        elif event is Event.VICTIM_DELETING and self.nominated is not None:
            self.retries += 1
            if self.retries == limits.victim_deleting_retries + 1:
                found.append(
                    Finding("victim_deleting_retries", 0.0, f"its victims are still going at look {self.retries}")
                )
        elif event is Event.VICTIMS_DELETED and self.nominated is not None:
            took = now - self.nominated
            self.nominated, self.cleared = None, now
            late = f"its victims took {took:.1f} s to go" if took > limits.victim_deletion_s else ""
            found.append(Finding("to_victim_deleted", took, late))
            found.append(Finding("victim_deleting_retries", self.retries))
        self.counts[event] += 1
        return found

    def _interval(self, event: Event, now: float, limits: AuditorSettings, found: list[Finding]) -> None:
        if event is Event.VICTIMS_DELETED:
            return
        if self.last is not None:
            took = now - self.last
            late = ""
            if took > limits.scheduling_event_interval_s:
                late = f"nothing was heard of it for {took:.1f} s, until {event.value}"
            found.append(Finding("event_interval", took, late))
        if event is Event.GATED:
            self.last = None
        elif self.last is not None or event in BEGINNINGS:
            self.last = now

    def _result(self, event: Event, now: float, limits: AuditorSettings, found: list[Finding]) -> None:
        """An attempt ended."""
        if self.valid and event is not Event.SCHEDULED:
            self.valid = False
            found.append(Finding("preemption_invalidations", 1.0, f"{event.value} after pods were preempted for it"))
        if self.nominated is not None:
            found.append(Finding("cycle_interrupted", now - self.nominated))
            found.append(Finding("victim_deleting_retries", self.retries))
            self.nominated = None
        if self.cleared is not None:
            took = now - self.cleared
            self.cleared = None
            late = ""
            if took > limits.victim_reschedule_s:
                late = f"{took:.1f} s from when its victims were gone to {event.value}"
            found.append(Finding("victim_reschedule", took, late))
