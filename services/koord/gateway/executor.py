"""From deliveries to results: check, queue in lanes, execute, answer, acknowledge.

A decision that was executed is remembered, so that a redelivery is answered again and not executed twice; across a
restart the ledger and the preconditions do the same. What has no final outcome yet goes back to the queue.

While the queue has no leader, decisions come past it (:mod:`koord.bus.livedecisions`) and once more when it is back.
The one that comes later joins the one that runs, or is answered from memory.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Protocol, TypeGuard

from prometheus_client import Counter

from koord.bus.decisions import Delivery
from koord.bus.errors import BusError
from koord.contracts.decisions import Bind, Create, Decision, Delete, Evict, ObjectRef, Patch, RecordEvents
from koord.contracts.results import Result
from koord.gateway import metrics
from koord.gateway.allow import Rejected, check, describe
from koord.gateway.api import ApiUnavailable
from koord.gateway.binding import Binder, NotLeading, TryLater
from koord.gateway.claimedpatch import ClaimedPatcher
from koord.gateway.events import EventRecorder
from koord.gateway.lanes import BIND, EVENT, LANE_NAMES, LANES, METRIC, STATUS, Key, Lanes, Work
from koord.gateway.leanclient import RequestFailed
from koord.gateway.remembered import Remembered
from koord.gateway.reports import Report, ReportWriter
from koord.gateway.settling import claim_of
from koord.gateway.writes import Writer
from koord.kube.resources import PODS
from koord.ledger.model import LedgerUnavailable
from koord.runtime.ending import end
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import get_logger
from koord.telemetry.spans import Spans

log = get_logger("koord.gateway.executor")

PROGRESS_S = 3.0
_ID = re.compile(rb"\xa2id(?:([\xa0-\xbf])|\xd9(.))", re.DOTALL)


class Answering(Protocol):
    """The part of the decision consumer that is used here."""

    def answer(self, service: str, result: Result, trace: TraceContext | str, *, now: bool = True) -> None:
        """Tell the author what became of a decision."""
        ...


class _Job(Work):
    """One decision in hand. ``delivery`` is the latest that settles: an acknowledgement of any one is enough."""

    __slots__ = ("decision", "delivery", "service", "since_ns", "since_s", "trace")

    def __init__(
        self, decision: Decision, delivery: Delivery, lane: int, keys: list[Key], start: Callable[[Work], None]
    ):
        super().__init__(lane, keys, start)
        self.decision = decision
        self.delivery = delivery
        self.service = delivery.service
        self.trace = delivery.trace
        self.since_s = time.monotonic()
        self.since_ns = time.time_ns()


class Executor:
    """Executes decisions. ``not_leading`` is set when the ledger knows a newer gateway.

    ``outlive_s``: so long after its sender gave up the API server may still work on a request.
    """

    def __init__(
        self,
        answers: Answering,
        binder: Binder,
        writer: Writer,
        claimed: ClaimedPatcher,
        events: EventRecorder,
        reports: ReportWriter,
        lanes: Lanes,
        spans: Spans,
        *,
        backlog: int = 4096,
        outlive_s: float = 60.0,
    ) -> None:
        self._answers = answers
        self._binder = binder
        self._writer = writer
        self._claimed = claimed
        self._events = events
        self._reports = reports
        self._lanes = lanes
        self._spans = spans
        self._backlog = backlog
        self._in_hand: dict[str, _Job] = {}
        self._remembered = Remembered()
        self._outlive_s = outlive_s
        # Decisions that no queue is known to hold, tried without a final outcome: their requests may be under way.
        self._undecided: dict[str, tuple[float, Decision]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._counters: dict[tuple[str, str, str], Counter] = {}
        self._went_back = 0
        self._complained_s = 0.0
        self.not_leading = asyncio.Event()

    @property
    def in_hand(self) -> int:
        """Decisions that wait or run."""
        return len(self._in_hand)

    def claims_in_hand(self) -> set[str]:
        """The claims of the decisions that wait or run."""
        return {claim_of(job.decision) for job in self._in_hand.values()}

    def decisions_in_hand(self) -> list[Decision]:
        """The decisions that wait or run, and those tried lately that nobody else may know of."""
        undecided = [decision for _, decision in self._undecided.values()]
        return undecided + [job.decision for job in self._in_hand.values()]

    async def room(self) -> None:
        """Wait until the backlog takes more."""
        while self._lanes.total >= self._backlog:
            self._room.clear()
            await self._room.wait()

    def take(self, delivery: Delivery) -> None:
        """Take one delivery; everything else happens behind it."""
        decision = delivery.decision
        if not delivery.settles and (decision is None or isinstance(decision, RecordEvents) or _is_report(decision)):
            return  # the queue's own copy is soon enough; Events would be counted twice, reports become old
        if decision is None:
            self._unreadable(delivery)
            return
        try:
            check(delivery.service, delivery.kind, decision)
        except Rejected as error:
            metrics.REJECTED.labels(error.rule).inc()
            self._finish(delivery, decision, Result(decision.id, "rejected", str(error)))
            return
        if isinstance(decision, RecordEvents):
            # Best effort by contract: once in the backlog it is answered for; only refusals are told.
            for note in decision.events:
                self._events.add(note, note.time_ns / 1e9 if note.time_ns else time.time())
            delivery.ack()
            return
        done = self._remembered.get(decision.id)
        if done is not None:
            if delivery.settles:  # of several live copies none needs an answer of its own
                self._finish(delivery, decision, done)
            return
        if _is_report(decision):
            # As Events: best effort by contract, and what waits must not hold up the queue.
            self._reports.add(Report(decision, delivery.service, delivery.trace, self._reported))
            delivery.ack()
            return
        job = self._in_hand.get(decision.id)
        if job is not None:
            if delivery.settles:
                job.delivery = delivery
            return
        lane = _lane(decision)
        job = _Job(decision, delivery, lane, _keys(decision), self._start)
        self._in_hand[decision.id] = job
        self._lanes.submit(job)

    async def keep_in_progress(self) -> None:
        """Tell the queue about decisions that take long, until cancelled; refreshes the gauges too."""
        told: dict[str, float] = {}
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            for id_, job in self._in_hand.items():
                if now - told.get(id_, job.since_s) > PROGRESS_S:
                    job.delivery.in_progress()
                    told[id_] = now
            told = {id_: at for id_, at in told.items() if id_ in self._in_hand}
            old = now - self._outlive_s
            self._undecided = {id_: one for id_, one in self._undecided.items() if one[0] > old}
            for lane, name in enumerate(LANES):
                waiting = self._lanes.depth(lane) + (self._events.depth if lane == EVENT else 0)
                metrics.LANE_DEPTH.labels(name).set(waiting)
            metrics.LANE_DEPTH.labels(LANE_NAMES[METRIC]).set(self._reports.depth)
            metrics.RUNNING.set(self._lanes.running)

    async def drain(self, timeout_s: float) -> None:
        """Wait for what runs; give back what waits or does not end in time."""
        deadline = time.monotonic() + timeout_s
        while self._tasks and time.monotonic() < deadline:
            await asyncio.wait(self._tasks, timeout=deadline - time.monotonic())
        await end(*self._tasks)
        for job in self._in_hand.values():
            job.delivery.nak()
        self._in_hand.clear()

    # Executing ----------------------------------------------------------------------------------------------------

    def _start(self, work: Work) -> None:
        assert isinstance(work, _Job)
        task = asyncio.get_running_loop().create_task(self._execute(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, job: _Job) -> None:
        decision = job.decision
        result: Result | None = None
        retry_s, growth = 1.0, 1.5
        try:
            result = await self._do(decision, job.service)
        except Rejected as error:
            metrics.REJECTED.labels(error.rule).inc()
            result = Result(decision.id, "rejected", str(error))
        except TryLater as error:
            retry_s, growth = error.delay_s, error.growth
            self._complain(decision.id, error)
        except LedgerUnavailable as error:
            growth = 1.0
            self._complain(decision.id, error)
        except (ApiUnavailable, RequestFailed) as error:
            self._complain(decision.id, error)
        except NotLeading:
            self.not_leading.set()
        except asyncio.CancelledError:
            self._lanes.done(job)
            raise
        except Exception as error:
            log.exception("a decision failed", decision=decision.id)
            retry_s = 5.0
            if job.delivery.delivered >= 5:
                result = Result(decision.id, "rejected", f"internal error: {type(error).__name__}: {error}")
        self._in_hand.pop(decision.id, None)  # unless the term ended meanwhile
        if result is None:
            if not job.delivery.stored:
                self._undecided[decision.id] = (time.monotonic(), decision)
            # The longer it has not worked, the rarer it is tried, up to five seconds. But what waits for the ledger
            # alone holds up nobody by trying, and must not sleep on when the ledger is open again.
            job.delivery.nak(min(5.0, retry_s * growth ** min(job.delivery.delivered - 1, 8)))
        else:
            self._undecided.pop(decision.id, None)
            self._remembered.put(result, time.monotonic())
            self._finish(job.delivery, decision, result, job)
        self._lanes.done(job)
        if not self._room.is_set() and self._lanes.total < self._backlog:
            self._room.set()

    def _complain(self, decision: str, error: Exception) -> None:
        """One line a second says that decisions go back to the queue; an outage concerns all of them."""
        self._went_back += 1
        now = time.monotonic()
        if now - self._complained_s >= 1.0:
            log.warning("decisions go back to the queue", count=self._went_back, last=decision, why=str(error))
            self._complained_s, self._went_back = now, 0

    async def _do(self, decision: Decision, service: str) -> Result:
        match decision:
            case Bind():
                return await self._binder.bind(decision)
            case Patch(claim=None):
                return await self._writer.patch(decision, service)
            case Patch():
                assert decision.claim is not None
                return await self._claimed.patch(decision, decision.claim, service)
            case Create():
                return await self._writer.create(decision)
            case Delete():
                return await self._writer.delete(decision)
            case Evict():
                return await self._writer.evict(decision)
            case RecordEvents():
                raise AssertionError("events do not come this way")

    # Answering ----------------------------------------------------------------------------------------------------

    def _finish(self, delivery: Delivery, decision: Decision, result: Result, job: _Job | None = None) -> None:
        kind = delivery.kind
        self._count(delivery.service, kind, result)
        trace = job.trace if job is not None else delivery.trace
        if job is not None and isinstance(decision, Bind):
            metrics.BIND_SECONDS.observe(time.monotonic() - job.since_s)
        elif job is not None and trace is not None:
            self._record(kind, trace, job.since_ns, decision, result)
        # That a pod is bound its author sees in the state: this answer may wait for others to go along with.
        self._tell(delivery.service, result, trace, now=not (isinstance(decision, Bind) and result.outcome == "done"))
        delivery.ack()

    def _reported(self, report: Report, result: Result) -> None:
        """A report was written, or not; it was acknowledged when it came."""
        self._remembered.put(result, time.monotonic())
        self._count(report.service, "patch", result)
        if report.trace is not None:
            self._record("patch", report.trace, report.since_ns, report.decision, result)
        self._tell(report.service, result, report.trace, now=False)

    def _count(self, service: str, kind: str, result: Result) -> None:
        key = (service, kind, result.outcome)
        made = self._counters.get(key)
        if made is None:
            made = self._counters[key] = metrics.DECISIONS.labels(*key)
        made.inc()

    def _record(self, kind: str, trace: TraceContext, since_ns: int, decision: Decision, result: Result) -> None:
        self._spans.record(
            f"gateway.{kind}",
            parent=trace,
            start_ns=since_ns,
            end_ns=time.time_ns(),
            attributes={"object": describe(_target(decision)), "outcome": result.outcome},
            error=None if result.outcome == "done" else result.reason,
        )

    def _tell(self, service: str, result: Result, trace: TraceContext | None, *, now: bool = True) -> None:
        """A result is a hint: one that cannot be sent, as it names things too long to travel, holds up nothing."""
        try:
            self._answers.answer(service, result, trace or self._spans.root(), now=now)
        except BusError as error:
            log.error(
                "a result cannot be told", decision=result.id[:80], outcome=result.outcome, error=str(error)[:200]
            )

    def _unreadable(self, delivery: Delivery) -> None:
        """A message that does not decode: answered as far as its id can be made out, and never delivered again."""
        metrics.REJECTED.labels("unreadable").inc()
        reason = f"unreadable message on {delivery.subject}: {delivery.error}"
        log.warning("rejected", subject=delivery.subject, error=str(delivery.error))
        result = Result(_peek_id(delivery.body), "rejected", reason)
        self._tell(delivery.service or "unknown", result, delivery.trace)
        delivery.term(f"unreadable: {delivery.error}"[:120])


def _is_report(decision: Decision) -> TypeGuard[Patch]:
    return isinstance(decision, Patch) and decision.lane == "metric"


def _lane(decision: Decision) -> int:
    if isinstance(decision, Patch):
        return LANES.index(decision.lane)
    return BIND if isinstance(decision, Bind | Evict) else STATUS


def _target(decision: Decision) -> ObjectRef:
    if isinstance(decision, Create):
        return ObjectRef(decision.resource, decision.namespace, decision.name)
    assert isinstance(decision, Patch | Delete | Evict)
    return decision.target


def _keys(decision: Decision) -> list[Key]:
    if isinstance(decision, Bind):
        return [(PODS.token, member.namespace, member.name) for member in decision.members]
    target = _target(decision)
    return [(target.resource, target.namespace, target.name or decision.id)]


def _peek_id(body: bytes) -> str:
    """The id in a body that does not decode, for it is one of the first fields; ``unreadable`` if it is cut off."""
    match = _ID.search(body[:128])
    if match is None:
        return "unreadable"
    length = match[1][0] - 0xA0 if match[1] else match[2][0]
    text = body[match.end() : match.end() + length]
    return text.decode("utf-8", "replace") if len(text) == length and text else "unreadable"
