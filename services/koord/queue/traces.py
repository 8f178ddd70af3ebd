"""One trace per attempt of a job: its root is the span ``queue.enqueue``, kept in an annotation of the QueueUnit.

The spans of this process: ``queue.enqueue`` (job seen → unit there; for later attempts: sent back → waiting again) and
below it ``queue.admit`` (waiting → dequeued) with its child ``ledger.claim``. Everybody else finds the root in
``koord.sh/traceparent`` of the unit and of the pod templates. What a restart forgets is only when a wait began.
"""

from typing import Final

import msgspec

from koord.kube.meta import ObjectMeta
from koord.kube.protocol.trace import TRACEPARENT
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans

TRACE_AFTER: Final = "koord.sh/trace-after"
"""Annotation of a QueueUnit: lastAllocateTime of the attempt before the one that the trace belongs to."""


class _Open(msgspec.Struct):
    root: TraceContext
    parent: TraceContext | None
    start_ns: int
    link: TraceContext | None


class Admitting(msgspec.Struct, frozen=True):
    """An admission under way: the ids reserved for ``queue.admit`` and when the wait began."""

    context: TraceContext
    parent: TraceContext
    start_ns: int


class AttemptTraces:
    """Open spans by job uid."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._enqueueing: dict[str, _Open] = {}

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

    def enqueued(self, job_uid: str, unit: ObjectMeta, end_ns: int) -> None:
        """The unit shows the attempt's trace: ``queue.enqueue`` is over."""
        held = self._enqueueing.get(job_uid)
        if held is None or unit.annotations.get(TRACEPARENT) != held.root.traceparent:
            return
        del self._enqueueing[job_uid]
        self._spans.record(
            "queue.enqueue",
            parent=held.parent,
            start_ns=held.start_ns,
            end_ns=end_ns,
            context=held.root,
            links=(held.link,) if held.link is not None else (),
            attributes={"koord.unit": unit.key},
        )

    def forget(self, job_uid: str) -> None:
        """The job is gone."""
        self._enqueueing.pop(job_uid, None)

    def admitting(self, root: TraceContext, start_ns: int) -> Admitting:
        """An admission is tried: ids for its span."""
        return Admitting(self._spans.reserve(root), root, start_ns)

    def claimed(self, admitting: Admitting, start_ns: int, end_ns: int, claim: str, result: str) -> None:
        """One claim was judged. A refused one stands below the attempt: ``queue.admit`` is told of the accepted one."""
        self._spans.record(
            "ledger.claim",
            parent=admitting.context if result == "ok" else admitting.parent,
            start_ns=start_ns,
            end_ns=end_ns,
            attributes={"koord.claim": claim, "koord.result": result},
        )

    def admitted(self, admitting: Admitting, end_ns: int, unit: str, queue: str, quota: str) -> None:
        """The unit is dequeued."""
        self._spans.record(
            "queue.admit",
            parent=admitting.parent,
            start_ns=admitting.start_ns,
            end_ns=end_ns,
            context=admitting.context,
            attributes={"koord.unit": unit, "koord.queue": queue, "koord.quota": quota},
        )
