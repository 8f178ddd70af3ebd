"""One trace per attempt of a job: its root is the span ``queue.enqueue``, kept in an annotation of the QueueUnit.

The spans of this process: ``queue.enqueue`` (job seen → unit there; for later attempts: sent back → waiting again),
below it ``queue.admit`` (waiting → dequeued) with its children ``ledger.claim`` and ``queue.resume`` (dequeued → the
job is resumed). Everybody else finds the root in ``koord.sh/traceparent`` of the unit and of the pod templates.

A process that is killed loses the spans that it has not exported, and what it knew of open ones. So its successor
records those of the last minute again as the objects show them, with the times that the API knows (whole seconds).
Their ids follow from the root's, so a span that was exported is not there twice.
"""

from typing import Final

import msgspec

from koord.kube.meta import ObjectMeta, parse_time
from koord.kube.protocol.trace import TRACEPARENT
from koord.kube.queues import QueueUnit
from koord.queue.phases import ADMITTED_PHASES, JobFacts
from koord.queue.status import phase_of
from koord.telemetry.context import TraceContext
from koord.telemetry.records import Attributes
from koord.telemetry.spans import Spans

TRACE_AFTER: Final = "koord.sh/trace-after"
"""Annotation of a QueueUnit: lastAllocateTime of the attempt before the one that the trace belongs to."""
TRACE_PREVIOUS: Final = "koord.sh/trace-previous"
"""Annotation of a QueueUnit: the traceparent of the attempt before, which this attempt's root links to."""
RECOVERED_NS = 60 * 10**9
"""What ended so long before this process began to lead is taken for exported."""
ADMIT, RESUME = "queue.admit", "queue.resume"


class _Open(msgspec.Struct):
    root: TraceContext
    parent: TraceContext | None
    start_ns: int
    link: TraceContext | None


class Admitting(msgspec.Struct, frozen=True):
    """An admission under way: the ids of ``queue.admit`` and when the wait began."""

    context: TraceContext
    parent: TraceContext
    start_ns: int


class AttemptTraces:
    """Open spans by job uid, and by job uid what is recorded."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._since_ns = 0
        self._enqueueing: dict[str, _Open] = {}
        self._enqueued: dict[str, str] = {}
        self._admitted: dict[str, tuple[str, int]] = {}
        self._resumed: dict[str, str] = {}

    def leads(self, now_ns: int) -> None:
        """From now on this process writes, and so records; another one did before, and may have been killed."""
        self._since_ns = now_ns - RECOVERED_NS

    def show(self, unit: QueueUnit, job: ObjectMeta, facts: JobFacts, now_ns: int) -> None:
        """Unit and job are looked at: record what they show of the attempt and what is not recorded yet."""
        self.enqueued(job, unit, now_ns)
        if phase_of(unit) in ADMITTED_PHASES:
            self.shows_admission(job.uid, unit)
            if facts.dequeued and facts.dequeued == unit.status.last_allocate_time and not facts.suspended:
                self.shows_resume(job.uid, unit, now_ns)

    # Enqueued -----------------------------------------------------------------------------------------------------

    def begin(self, job_uid: str, start_ns: int, parent: TraceContext | None) -> TraceContext:
        """The first attempt of a job begins; asked again before it is enqueued it answers the same ids."""
        held = self._enqueueing.get(job_uid)
        if held is None:
            held = _Open(self._spans.reserve(parent), parent, start_ns, None)
            self._enqueueing[job_uid] = held
        return held.root

    def begin_next(self, job_uid: str, start_ns: int, unit: ObjectMeta) -> TraceContext:
        """The next attempt begins, linked to the one that the unit still shows."""
        held = self._enqueueing.get(job_uid)
        if held is None:
            held = _Open(self._spans.root(), None, start_ns, TraceContext.parse(unit.annotations.get(TRACEPARENT)))
            self._enqueueing[job_uid] = held
        return held.root

    def enqueued(self, job: ObjectMeta, unit: QueueUnit, end_ns: int) -> None:
        """The unit shows the attempt's trace: ``queue.enqueue`` is over."""
        meta = unit.metadata
        traceparent = meta.annotations.get(TRACEPARENT, "")
        if self._enqueued.get(job.uid) == traceparent:
            return
        held = self._enqueueing.get(job.uid)
        if held is not None and traceparent == held.root.traceparent:
            del self._enqueueing[job.uid]
            self._enqueue_span(held, meta.key, end_ns)
        elif held is None:
            root = TraceContext.parse(traceparent)
            # The first attempt's unit is as old as its attempt; a later one began with the unit's last status.
            later = meta.annotations.get(TRACE_PREVIOUS)
            began_ns = _ns(unit.status.last_update_time if later else meta.creation_timestamp)
            if root is not None and began_ns >= self._since_ns:
                parent = TraceContext.parse(job.annotations.get(TRACEPARENT)) if later is None else None
                if parent is not None and parent.trace_id != root.trace_id:
                    parent = None
                again = _Open(root, parent, began_ns, TraceContext.parse(later))
                self._enqueue_span(again, meta.key, began_ns, recovered=True)
        else:
            return  # another attempt's trace is on its way
        self._enqueued[job.uid] = traceparent

    def _enqueue_span(self, span: _Open, unit: str, end_ns: int, *, recovered: bool = False) -> None:
        self._spans.record(
            "queue.enqueue",
            parent=span.parent,
            start_ns=span.start_ns,
            end_ns=end_ns,
            context=span.root,
            links=(span.link,) if span.link is not None else (),
            attributes=_attributes({"koord.unit": unit}, recovered=recovered),
        )

    def forget(self, job_uid: str) -> None:
        """The job is gone."""
        for held in (self._enqueueing, self._enqueued, self._admitted, self._resumed):
            held.pop(job_uid, None)

    # Admitted -----------------------------------------------------------------------------------------------------

    def admitting(self, root: TraceContext, start_ns: int) -> Admitting:
        """An admission is tried: ids for its span."""
        return Admitting(root.named(ADMIT), root, start_ns)

    def claimed(self, admitting: Admitting, start_ns: int, end_ns: int, claim: str, result: str) -> None:
        """One claim was judged. A refused one stands below the attempt: ``queue.admit`` is told of the accepted one."""
        self._spans.record(
            "ledger.claim",
            parent=admitting.context if result == "ok" else admitting.parent,
            start_ns=start_ns,
            end_ns=end_ns,
            attributes={"koord.claim": claim, "koord.result": result},
        )

    def admitted(self, admitting: Admitting, end_ns: int, unit: QueueUnit, queue: str, quota: str) -> None:
        """The unit is dequeued."""
        owner = unit.metadata.controller
        if owner is not None:
            self._admitted[owner.uid] = (unit.status.last_allocate_time or "", end_ns)
        self._admit_span(
            admitting, end_ns, {"koord.unit": unit.metadata.key, "koord.queue": queue, "koord.quota": quota}
        )

    def shows_admission(self, job_uid: str, unit: QueueUnit) -> None:
        """An admitted unit is looked at: if its admission is not one of this process, it may not be recorded."""
        allocated = unit.status.last_allocate_time or ""
        if self._admitted.get(job_uid, ("-", 0))[0] == allocated:
            return
        root, end_ns = TraceContext.parse(unit.metadata.annotations.get(TRACEPARENT)), _ns(allocated)
        self._admitted[job_uid] = (allocated, end_ns)
        if root is not None and end_ns >= self._since_ns:
            start_ns = min(end_ns, _ns(unit.metadata.creation_timestamp) or end_ns)
            attributes = {"koord.unit": unit.metadata.key, "koord.queue": unit.spec.queue}
            self._admit_span(self.admitting(root, start_ns), end_ns, attributes, recovered=True)

    def _admit_span(
        self, admitting: Admitting, end_ns: int, attributes: dict[str, str], *, recovered: bool = False
    ) -> None:
        self._spans.record(
            ADMIT,
            parent=admitting.parent,
            start_ns=admitting.start_ns,
            end_ns=end_ns,
            context=admitting.context,
            attributes=_attributes(attributes, recovered=recovered),
        )

    # Resumed ------------------------------------------------------------------------------------------------------

    def shows_resume(self, job_uid: str, unit: QueueUnit, now_ns: int) -> None:
        """The job of an admitted unit carries the mark of its resume."""
        allocated = unit.status.last_allocate_time or ""
        if self._resumed.get(job_uid) == allocated:
            return
        self._resumed[job_uid] = allocated
        root = TraceContext.parse(unit.metadata.annotations.get(TRACEPARENT))
        if root is None or _ns(allocated) < self._since_ns:
            return
        known, admitted_ns = self._admitted.get(job_uid, ("", 0))
        start_ns = admitted_ns if known == allocated else _ns(allocated)
        admit = root.named(ADMIT)
        self._spans.record(
            RESUME,
            parent=admit,
            start_ns=start_ns,
            end_ns=max(start_ns, now_ns),
            context=admit.named(RESUME),
            attributes={"koord.unit": unit.metadata.key},
        )


def _attributes(attributes: dict[str, str], *, recovered: bool) -> Attributes:
    return {**attributes, "koord.recovered": True} if recovered else attributes


def _ns(text: str | None) -> int:
    """Nanoseconds since the epoch of an API time; 0 if it is none."""
    try:
        return int(parse_time(text) * 1e9) if text else 0
    except ValueError:
        return 0
