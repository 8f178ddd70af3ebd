"""QueueUnits: the next step of each, carried out. What the step is, the phase machine says; this is how it is done."""

import random
from collections.abc import Mapping

from koord.accounting.quotas import QuotaTreeError
from koord.accounting.requests import amounts
from koord.kube.conditions import find
from koord.kube.jobs.hints import start_hints
from koord.kube.jobs.kind import JobError
from koord.kube.jobs.registry import BY_KIND
from koord.kube.meta import parse_time
from koord.kube.protocol import queue as keys
from koord.kube.protocol.queue import flag, lookup
from koord.kube.protocol.quota import quota_label
from koord.kube.protocol.trace import TRACEPARENT
from koord.kube.quantity import QuantityError
from koord.kube.queues import QueueUnit
from koord.kube.resources import QUEUE_UNITS
from koord.queue import phases
from koord.queue.admission import Admission
from koord.queue.backoff import RequeueState, Timeouts
from koord.queue.conditions import EVICTED, QUOTA_RESERVED, ready_since_s
from koord.queue.desk import Desk
from koord.queue.headroom import MISCONFIGURED, WAITING, Refusal, blocked_by_another, uncountable
from koord.queue.ordering import rank
from koord.queue.phases import ADMITTED_PHASES, UnitFacts, next_step
from koord.queue.status import draining, evicted, moved, overdue, phase_of
from koord.queue.traces import TRACE_AFTER, TRACE_PREVIOUS, AttemptTraces
from koord.queue.unowned import missing_job, wait_for_job
from koord.queue.waiting import Waiting, shape_of
from koord.queue.world import JobEntry, UnitEntry, World
from koord.telemetry.metrics import counter

TEXT_EVERY_S = 30.0
INJECT_GANG = "koord-queue/inject-gang"

_evicted = counter("koord_queue_evicted", "Units that fell back", ("queue", "reason"))


def unit_entry(view: QueueUnit, old: UnitEntry | None) -> UnitEntry:
    """What is computed of a unit once per version; what is remembered of it stays."""
    spec, problem = view.spec, ""
    total: dict[str, int] = {}
    try:
        total = amounts(spec.resource or spec.request, f"QueueUnit {view.key}: spec.resource")
    except QuantityError as error:
        problem = str(error)
    total = {name: amount for name, amount in total.items() if amount}
    if too_much := uncountable(total):
        problem = f"QueueUnit {view.key}: spec.resource: {too_much}"
    if old is None or old.view.metadata.uid != view.metadata.uid:
        return UnitEntry(view, total, problem)
    old.view, old.total, old.problem = view, total, problem
    return old


def facts_of(view: QueueUnit) -> UnitFacts:
    """What the phase machine reads of a unit."""
    status, owner = view.status, view.metadata.controller
    requeue = status.requeue_state
    fell_back = find(status.conditions, EVICTED)
    return UnitFacts(
        phase_of(view),
        owner.uid if owner is not None else "",
        allocated=status.last_allocate_time or "",
        trace_after=view.metadata.annotations.get(TRACE_AFTER, ""),
        last_update_s=_seconds(status.last_update_time) or 0.0,
        requeue_at_s=_seconds(requeue.requeue_at) if requeue is not None else None,
        requeue_count=requeue.count if requeue is not None else 0,
        active=view.spec.active is not False,
        draining=draining(view),
        reclaiming=any(part.reclaim_state and part.reclaim_state.replicas > 0 for part in status.admissions),
        evicted=fell_back.reason if fell_back is not None and fell_back.status == "True" else "",
        ends_at_s=_ends_at(view),
    )


def _ends_at(view: QueueUnit) -> float | None:
    """When the unit has run as long as it may, earlier attempts counted in; None without a limit or ready pods."""
    longest, since = view.spec.maximum_execution_time_seconds, ready_since_s(view.status.conditions)
    if longest is None or since is None:
        return None
    return since + longest - (view.status.accumulated_past_execution_time_seconds or 0)


class UnitSync:
    """Carries out the steps of units."""

    def __init__(
        self,
        world: World,
        desk: Desk,
        traces: AttemptTraces,
        admission: Admission,
        timeouts: Mapping[str, Timeouts],
        *,
        doubling: bool = True,
    ) -> None:
        self._world = world
        self._desk = desk
        self._traces = traces
        self._admission = admission
        self._timeouts = timeouts
        self._doubling = doubling

    def reconcile(self, key: str) -> None:
        """Look at one unit."""
        world, desk = self._world, self._desk
        entry = world.units.get(key)
        if entry is None:
            return
        view, meta = entry.view, entry.view.metadata
        phase = phase_of(view)
        if phase in ADMITTED_PHASES:
            self._admission.dequeued(meta.uid, entry)
        if meta.uid in self._admission.in_flight:
            return
        job = world.job_of(view)
        if job is None and not _owned(view):
            self._standalone(entry, phase)
            return
        if job is not None:
            if job.facts is None:
                return  # told as an event on the job; the unit stays as it is until the job makes sense again
            self._traces.show(view, job.meta, job.facts, desk.now_ns)
        kind_name = job.kind.resource.kind if job is not None else ""
        step = next_step(
            facts_of(view),
            job.facts if job is not None else None,
            desk.now_s,
            self._timeouts.get(kind_name, Timeouts()),
            spread=random.uniform(-1.0, 1.0),
            doubling=self._doubling,
        )
        # Waiting is no write: a unit whose text is just being written takes its place all the same.
        if isinstance(step, phases.Queue) or desk.free(QUEUE_UNITS, meta):
            self._carry_out(step, entry, job)
        elif (pause := desk.pause(QUEUE_UNITS, meta)) > 0:
            world.look_again(key, desk.now_s + pause)

    def _carry_out(self, step: phases.Step, entry: UnitEntry, job: JobEntry | None) -> None:
        world, desk, key = self._world, self._desk, entry.view.key
        if not isinstance(step, phases.Queue):
            world.leave_queue(entry)
        if not isinstance(step, phases.Charge):
            self._admission.charges.pop(key, None)
        match step:
            case phases.Queue():
                self.place(entry)
            case phases.Wait(until):
                if until is not None and until != entry.look_at_s:
                    entry.look_at_s = until
                    world.look_again(key, until)
                self._say_inactive(entry)
            case phases.Charge():
                if entry.problem:
                    desk.warn(QUEUE_UNITS, entry.view.metadata, "InvalidQueueUnit", entry.problem)
                    self._admission.charges.pop(key, None)
                    return
                self._admission.charges.setdefault(key, None)
                world.admission_wanted = True
            case phases.Move():
                self._move(entry, step)
            case phases.Exceeded():
                self._exceeded(entry, job)
            case phases.Deactivate():
                desk.patch(QUEUE_UNITS, entry.view.metadata, {"spec": {"active": False}})
            case phases.Evict():
                self._evict(entry, step, job)
            case phases.NewTrace():
                self._new_trace(entry, job)
            case phases.Remove():
                if entry.view.metadata.deletion_timestamp is None:
                    desk.delete(QUEUE_UNITS, entry.view.metadata)
            case _:
                if job is not None:
                    self._write_job(step, entry, job)

    def _standalone(self, entry: UnitEntry, phase: str) -> None:
        """A unit that somebody made without a job koord knows: it is admitted, nothing is resumed.

        One that names a job of a kind that koord knows waits for that job to exist, and holds nothing meanwhile.
        """
        missing = missing_job(self._world, entry.view)
        if missing:
            wait_for_job(self._world, self._desk, entry, phase, missing)
            return
        if phase == "Enqueued" and entry.view.spec.active is not False:
            self.place(entry)
        else:
            self._world.leave_queue(entry)

    def _say_inactive(self, entry: UnitEntry) -> None:
        """A unit that never was admitted and is not active says why it waits; an evicted one says so already."""
        view = entry.view
        if view.spec.active is False and phase_of(view) == "Enqueued" and not facts_of(view).evicted:
            entry.refusal = Refusal("the queue unit is not active", phases.DEACTIVATION)
            self._world.texts_wanted.add(view.key)

    # Waiting ------------------------------------------------------------------------------------------------------

    def place(self, entry: UnitEntry) -> None:
        """Put the unit into its queue, or say why there is none for it."""
        world, view = self._world, entry.view
        meta = view.metadata
        quota = world.tree.quota_of_unit(meta.labels, meta.namespace)
        name = world.queue_of(meta)
        entry.waiting_since_ns = entry.waiting_since_ns or self._desk.now_ns
        entry.refusal = self._misplaced(entry, quota, name)
        if entry.refusal is not None:
            world.leave_queue(entry)
            world.texts_wanted.add(view.key)
            return
        if entry.queued and entry.queued != name:
            world.leave_queue(entry)
        queue = world.queue(name)
        place = rank(view.spec.priority, meta.creation_timestamp or "", meta.name, meta.uid)
        unit = Waiting(meta.uid, view.key, place, quota, entry.total, shape_of(quota, entry.total))
        if queue.waiting.put(unit):
            queue.details_dirty = True
        entry.queued = name
        world.admission_wanted = True
        world.texts_wanted.add(view.key)

    def _misplaced(self, entry: UnitEntry, quota: str, queue: str) -> Refusal | None:
        world, key = self._world, entry.view.key
        if entry.problem:
            self._desk.warn(QUEUE_UNITS, entry.view.metadata, "InvalidQueueUnit", entry.problem)
            return Refusal(entry.problem, MISCONFIGURED)
        known = world.queues.get(queue)
        if known is None or known.view is None:
            text = f"queue {queue} not found for queueUnit {key}"
            node = world.tree.get(queue)
            if node is not None and keys.wants_queue(node.annotations):
                return Refusal("", WAITING, quota)  # its Queue is being made
            self._desk.warn(QUEUE_UNITS, entry.view.metadata, "QueueNotFound", text)
            return Refusal(text, MISCONFIGURED, quota)
        try:
            world.tree.chain(quota, key)
        except QuotaTreeError as error:
            self._desk.warn(QUEUE_UNITS, entry.view.metadata, "FailedScheduling", str(error))
            return Refusal(str(error), MISCONFIGURED, quota)
        return None

    def write_text(self, key: str) -> None:
        """Let a waiting unit and its job say why it waits: on a change of text, at most once in 30 s."""
        entry = self._world.units.get(key)
        if entry is None or phase_of(entry.view) != "Enqueued" or entry.view.metadata.uid in self._admission.in_flight:
            return
        refusal = entry.refusal
        if entry.view.spec.active is False and (refusal is None or refusal.reason != phases.DEACTIVATION):
            return
        if refusal is None and entry.queued:
            queue = self._world.queues[entry.queued]
            unit = queue.waiting.get(entry.view.metadata.uid)
            if unit is not None:
                refusal = queue.waiting.refusal(unit.shape)
                if refusal is None and unit.quota in queue.waiting.blocked:
                    refusal = blocked_by_another(unit.quota)
            if queue.problem:
                refusal = Refusal(queue.problem, "Suspended")
        status = entry.view.status
        message = refusal.message if refusal is not None else ""
        reason = refusal.reason if refusal is not None else WAITING
        if status.phase == "Enqueued":
            shown = find(status.conditions, QUOTA_RESERVED)
            if not message or (status.message == message and shown is not None and shown.reason == reason):
                return
            wait = entry.text_written_s + TEXT_EVERY_S - self._desk.now_s
            if wait > 0 and status.message:
                self._world.later_texts(key, self._desk.now_s + wait)
                return
        if not self._desk.free(QUEUE_UNITS, entry.view.metadata):
            self._world.later_texts(key, self._desk.now_s + 1.0)
            return
        body = moved(
            entry.view,
            "Enqueued",
            message,
            self._desk.now_s,
            requeue=_kept(entry.view),
            failed_tries=entry.failed_tries,
            waiting_reason=reason,
        )
        entry.failed_tries = 0
        entry.text_written_s = self._desk.now_s
        self._desk.patch(QUEUE_UNITS, entry.view.metadata, body, subresource="status")
        job = self._world.job_of(entry.view)
        if job is not None and message:
            self._desk.tell(job.kind.resource, job.meta, "Waiting", f"queueUnit {key}: {message}")

    # Writes -------------------------------------------------------------------------------------------------------

    def _move(self, entry: UnitEntry, step: phases.Move) -> None:
        body = moved(
            entry.view,
            step.phase,
            step.message,
            self._desk.now_s,
            release=step.release,
            requeue=step.requeue,
            failed_tries=entry.failed_tries,
        )
        entry.failed_tries = 0
        if step.phase == "TimeoutBackoff":
            quota = quota_label(entry.view.metadata.labels)
            _evicted.labels(quota, "BackoffTimeout").inc()
        self._desk.patch(QUEUE_UNITS, entry.view.metadata, body, subresource="status")

    def _exceeded(self, entry: UnitEntry, job: JobEntry | None) -> None:
        view = entry.view
        body = overdue(view, phases.MAX_EXECUTION_TIME, phases.TIME_EXCEEDED, self._desk.now_s)
        self._desk.patch(QUEUE_UNITS, view.metadata, body, subresource="status")
        if job is not None:
            text = f"The maximum execution time ({view.spec.maximum_execution_time_seconds}s) was exceeded"
            self._desk.warn(job.kind.resource, job.meta, phases.MAX_EXECUTION_TIME, text)

    def _evict(self, entry: UnitEntry, step: phases.Evict, job: JobEntry | None) -> None:
        body = evicted(entry.view, step.reason, step.message, self._desk.now_s, entry.failed_tries)
        entry.failed_tries = 0
        _evicted.labels(quota_label(entry.view.metadata.labels), step.reason).inc()
        self._desk.patch(QUEUE_UNITS, entry.view.metadata, body, subresource="status")
        if job is not None:
            self._desk.tell(job.kind.resource, job.meta, "Deactivated", step.message)

    def _new_trace(self, entry: UnitEntry, job: JobEntry | None) -> None:
        meta = entry.view.metadata
        root = self._traces.begin_next(job.meta.uid if job is not None else meta.uid, self._desk.now_ns, meta)
        annotations = {
            TRACEPARENT: root.traceparent,
            TRACE_AFTER: entry.view.status.last_allocate_time or "",
            TRACE_PREVIOUS: meta.annotations.get(TRACEPARENT, ""),
        }
        self._desk.patch(QUEUE_UNITS, meta, {"metadata": {"annotations": annotations}}, trace=root)

    def _write_job(self, step: phases.Step, entry: UnitEntry, job: JobEntry) -> None:
        """Resume, suspend or mark the job; looked at again when the job changes or the write is settled."""
        desk, resource, meta = self._desk, job.kind.resource, job.meta
        if not desk.free(resource, meta):
            pause = desk.pause(resource, meta)
            if pause > 0:
                self._world.look_again(entry.view.key, desk.now_s + pause)
            return
        trace = desk.trace_of(entry.view.metadata)
        allocated = entry.view.status.last_allocate_time or ""
        if isinstance(step, phases.Suspend):
            patch = dict(job.kind.suspend_patch(job.object))
            inner = dict(patch.get("metadata") or {})
            inner["annotations"] = {**(inner.get("annotations") or {}), keys.JOB_DEQUEUE_TIMESTAMP: None}
            patch["metadata"] = inner
            desk.patch(resource, meta, patch, trace=trace)
            return
        marks = {keys.JOB_DEQUEUE_TIMESTAMP: allocated, keys.JOB_HAS_ENQUEUED: "true"}
        if isinstance(step, phases.MarkDequeued):
            desk.patch(resource, meta, {"metadata": {"annotations": marks}}, trace=trace)
            return
        try:
            hints = start_hints(
                job.kind,
                job.object,
                unit=entry.view.key,
                quota_name=quota_label(entry.view.metadata.labels),
                traceparent=trace.traceparent,
                with_gang=self._injects_gang(entry),
            )
            start = job.kind.start_patch(job.object, hints, marks)
        except JobError as error:
            desk.warn(resource, meta, "FailedToStart", str(error))
            return
        desk.patch(resource, meta, start.body, kind=start.type, trace=trace)
        desk.tell(resource, meta, "Resume", f"resumed, admitted as queueUnit {entry.view.key}")

    def _injects_gang(self, entry: UnitEntry) -> bool:
        queue = self._world.queues.get(self._world.queue_of(entry.view.metadata))
        if queue is None or queue.view is None:
            return True
        annotations = queue.view.metadata.annotations
        return lookup(annotations, INJECT_GANG) is None or flag(annotations, INJECT_GANG)


def _owned(view: QueueUnit) -> bool:
    """Does the unit belong to a job of a kind koord knows?"""
    owner = view.metadata.controller
    return owner is not None and (owner.api_version, owner.kind) in BY_KIND


def _kept(view: QueueUnit) -> RequeueState | None:
    requeue = view.status.requeue_state
    at = _seconds(requeue.requeue_at) if requeue is not None else None
    return RequeueState(requeue.count, at) if requeue is not None and at is not None else None


def _seconds(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return parse_time(text)
    except ValueError:
        return None
