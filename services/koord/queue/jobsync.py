"""Jobs to QueueUnits: who is managed, what the unit says, what of the job is followed later (spec 70 section 3.2)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from koord.accounting.jobs import job_total
from koord.accounting.requests import resource_list
from koord.kube.conditions import find
from koord.kube.jobs import reading
from koord.kube.jobs.kind import MAX_POD_SETS, Job, JobError, JobKind, JobStatus, PodSetSpec
from koord.kube.jobs.kubeflow import QUEUING
from koord.kube.jobs.naming import unit_name
from koord.kube.jobs.priority import resolve
from koord.kube.meta import ObjectMeta, without_nulls
from koord.kube.protocol import queue as keys
from koord.kube.protocol.quota import NAME, quota_label
from koord.kube.protocol.trace import TRACEPARENT
from koord.kube.quantity import QuantityError
from koord.kube.queues import QueueUnit
from koord.kube.resources import QUEUE_UNITS, Resource
from koord.queue.conditions import EVICTED
from koord.queue.desk import Desk
from koord.queue.headroom import uncountable
from koord.queue.phases import ADMITTED_PHASES, MAX_EXECUTION_TIME, JobFacts
from koord.queue.status import draining, phase_of
from koord.queue.traces import TRACE_AFTER, TRACE_PREVIOUS, AttemptTraces
from koord.queue.world import JobEntry, UnitEntry, World
from koord.telemetry.context import TraceContext

NOT_COPIED = frozenset((TRACEPARENT, TRACE_AFTER, TRACE_PREVIOUS, "kubectl.kubernetes.io/last-applied-configuration"))
"""Annotations of a job that mean nothing on its unit."""


def facts_of(kind: JobKind, job: Job, meta: ObjectMeta, *, children_alive: bool = False) -> JobFacts:
    """What the phase machine reads of a job; JobError names what is wrong.

    ``children_alive``: something the job made still holds pods, so that a finished job still runs for the queue.
    """
    status = str(kind.status(job, children_alive=children_alive))
    return JobFacts(meta.uid, status, kind.suspended(job), meta.annotations.get(keys.JOB_DEQUEUE_TIMESTAMP, ""))


def job_entry(kind: JobKind, job: Job, now_ns: int, clusters_of: Mapping[str, set[str]]) -> JobEntry | None:
    """A job as it is kept; None if not even its metadata can be read."""
    try:
        meta = msgspec.convert(job.get("metadata"), ObjectMeta)
    except msgspec.ValidationError:
        try:
            meta = msgspec.convert(without_nulls(job.get("metadata")), ObjectMeta)
        except msgspec.ValidationError:
            return None
    if not meta.uid:
        return None
    try:
        return JobEntry(kind, meta, job, facts_of(kind, job, meta, children_alive=meta.uid in clusters_of), now_ns)
    except JobError as error:
        return JobEntry(kind, meta, job, None, now_ns, f"{kind.resource.kind} {meta.key}: {error}")


def eligible(kind: JobKind, job: Job, meta: ObjectMeta, facts: JobFacts, *, manage_all: bool) -> bool:
    """Does a job without a unit get one: suspended at first sight, or labelled with a quota; never a finished one."""
    if JobStatus(facts.status).finished or meta.deletion_timestamp is not None:
        return False
    if kind.managed(job, manage_all=manage_all):
        return True
    # A job that runs and names a quota is charged; "manage all" asks whether it is one that may be touched at all.
    return bool(quota_label(meta.labels)) and not facts.suspended and kind.managed(job, manage_all=True)


class UnitSpec(msgspec.Struct, frozen=True):
    """The spec of a job's unit: what the job asks for now."""

    pod_sets: list[dict[str, Any]]
    total: dict[str, int]
    priority: int | None
    class_name: str
    active: bool | None
    max_seconds: int | None


class JobSync:
    """Makes units for jobs, and follows the job in them while they wait."""

    def __init__(self, world: World, desk: Desk, traces: AttemptTraces, *, manage_all: bool = False) -> None:
        self._world = world
        self._desk = desk
        self._traces = traces
        self._manage_all = manage_all

    def reconcile(self, uid: str) -> None:
        """Look at one job."""
        entry = self._world.jobs.get(uid)
        if entry is None:
            self._traces.forget(uid)
            return
        resource = entry.kind.resource
        unit_key = self._world.units_of_job.get(uid)
        if entry.facts is None:
            self._desk.warn(resource, entry.meta, "InvalidJob", entry.problem)
            return
        try:
            if unit_key is None and not eligible(
                entry.kind, entry.object, entry.meta, entry.facts, manage_all=self._manage_all
            ):
                return
            spec = self._spec(entry)
        except (JobError, QuantityError, msgspec.ValidationError) as error:
            self._desk.warn(resource, entry.meta, "InvalidJob", str(error))
            return
        if len(spec.pod_sets) > MAX_POD_SETS:
            text = f"{len(spec.pod_sets)} pod sets, at most {MAX_POD_SETS} are possible"
            self._desk.warn(resource, entry.meta, "TooManyPodSets", text)
        elif unit_key is None:
            self._create(entry, spec)
        else:
            unit = self._world.units[unit_key]
            self._follow(entry, unit, spec)
            self._show_queuing(entry, entry.facts, unit)

    # The unit's spec ----------------------------------------------------------------------------------------------

    def _spec(self, entry: JobEntry) -> UnitSpec:
        job, meta, kind = entry.object, entry.meta, entry.kind
        pod_sets = kind.pod_sets(job)
        total = job_total(pod_sets)
        if too_much := uncountable(total):
            raise JobError("the job's total", too_much)
        classes = {name: found.value for name, found in self._world.priority_classes.items()}
        priority = resolve(meta.annotations, kind.priority_sources(job), classes)
        for field, class_name in priority.unknown:
            text = f"{field}: PriorityClass {class_name} does not exist"
            self._desk.warn(kind.resource, meta, "PriorityClassNotFound", text)
        active, active_problem = keys.active(meta.annotations)
        seconds, seconds_problem = keys.max_exec_seconds(meta.annotations)
        for problem in (priority.problem, active_problem, seconds_problem):
            if problem:
                self._desk.warn(kind.resource, meta, "InvalidAnnotation", problem)
        sets = [_pod_set(part) for part in pod_sets]
        return UnitSpec(sets, total, priority.value, priority.class_name, active, seconds)

    def _create(self, entry: JobEntry, spec: UnitSpec) -> None:
        meta, resource = entry.meta, entry.kind.resource
        name = unit_name(meta.name, entry.kind.suffix)
        held = self._world.units.get(f"{meta.namespace}/{name}")
        if held is not None:
            owner = held.view.metadata.controller
            if owner is None or owner.uid in self._world.jobs:
                name = unit_name(meta.name, entry.kind.suffix, salt=meta.uid)
            else:
                return  # left over from a job of this name that is gone; it goes, then this job is looked at again
        parent = TraceContext.parse(meta.annotations.get(TRACEPARENT))
        root = self._traces.begin(meta.uid, entry.first_seen_ns, parent)
        body = unit_object(resource, meta, name, spec, self._world.queue_of(meta), root.traceparent)
        self._desk.create(QUEUE_UNITS, meta.namespace, name, body, owner_uid=meta.uid, trace=root)

    def _follow(self, entry: JobEntry, unit: UnitEntry, spec: UnitSpec) -> None:
        """Copy changed counts, totals, priority and the quota label to a unit that is not admitted."""
        view = unit.view
        wanted_quota = quota_label(entry.meta.labels)
        admitted = phase_of(view) in ADMITTED_PHASES
        patch: dict[str, Any] = {}
        if wanted_quota and wanted_quota != quota_label(view.metadata.labels):
            if admitted:
                text = f"label {NAME}: changed to {wanted_quota} while the job is admitted; the unit keeps its quota"
                self._desk.warn(entry.kind.resource, entry.meta, "QuotaChangeIgnored", text)
            elif phase_of(view) not in ("Succeed", "Failed"):
                patch["metadata"] = {"labels": {NAME: wanted_quota}}
        if phase_of(view) not in ("Succeed", "Failed"):
            held = admitted or draining(view)  # then the amounts are what the ledger charges
            changed = _counts(view, spec) if held else _amounts(view, unit, spec)
            changed.update(_switches(view, spec))
            if changed:
                patch["spec"] = changed
        if phase_of(view) == "Running" and view.spec.queue != (queue := self._world.queue_of(view.metadata)):
            # Made by others, or its namespace's quota changed while it waited (a status write cannot set it).
            patch.setdefault("spec", {})["queue"] = queue
        if patch and self._desk.free(QUEUE_UNITS, view.metadata):
            self._desk.patch(QUEUE_UNITS, view.metadata, patch)

    def _show_queuing(self, entry: JobEntry, facts: JobFacts, unit: UnitEntry) -> None:
        """The job's own condition Queuing, of kinds that have one: True once it waits, False once it is let go.

        A job that is admitted at once never shows it: an admitted job is resumed first. The first condition of all is
        the operator's to write, some take a job without any for a new one.
        """
        kind, job, meta = entry.kind, entry.object, entry.meta
        waits = facts.suspended and unit.view.status.phase in ("Enqueued", "TimeoutBackoff")
        conditions = reading.conditions(job)
        if not conditions or not (waits or (not facts.suspended and reading.condition_true(conditions, QUEUING))):
            return
        if meta.deletion_timestamp is not None or not self._desk.free(kind.resource, meta):
            return
        try:
            patch = kind.status_patch(job, queuing=waits, now=self._desk.now_s)
        except JobError:
            return  # an odd entry among the conditions is somebody else's: the list is left as it is
        if patch is not None:
            trace = self._desk.trace_of(unit.view.metadata)
            self._desk.patch(kind.resource, meta, patch, subresource="status", trace=trace)


def unit_object(
    resource: Resource, job: ObjectMeta, name: str, spec: UnitSpec, queue: str, traceparent: str
) -> dict[str, Any]:
    """The QueueUnit of a job, as it is created.

    It names its queue from the start: the dequeue write goes to the status, which cannot set it.
    """
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": job.name}
    annotations = {key: value for key, value in job.annotations.items() if key not in NOT_COPIED}
    annotations[TRACEPARENT] = traceparent
    total = resource_list(spec.total)
    body: dict[str, Any] = {
        "consumerRef": {**reference, "namespace": job.namespace},
        "queue": queue,
        "resource": total,
        "request": total,
        "podSet": spec.pod_sets,
    }
    if spec.priority is not None:
        body["priority"] = spec.priority
    if spec.class_name:
        body["priorityClassName"] = spec.class_name
    if spec.active is not None:
        body["active"] = spec.active
    if spec.max_seconds is not None:
        body["maximumExecutionTimeSeconds"] = spec.max_seconds
    return {
        "apiVersion": QUEUE_UNITS.api_version,
        "kind": QUEUE_UNITS.kind,
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": dict(job.labels),
            "annotations": annotations,
            "ownerReferences": [{**reference, "uid": job.uid, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": body,
    }


def _counts(view: QueueUnit, spec: UnitSpec) -> dict[str, Any]:
    """Pod sets that differ in number from the job's. An admitted unit's amounts follow its pods, not this."""
    shown = [(part.name, part.count, part.min_count) for part in view.spec.pod_set]
    wanted = [(part["name"], part["count"], part.get("minCount")) for part in spec.pod_sets]
    return {"podSet": spec.pod_sets} if shown != wanted else {}


def _amounts(view: QueueUnit, unit: UnitEntry, spec: UnitSpec) -> dict[str, Any]:
    """Counts and totals that differ from the job's."""
    changed = _counts(view, spec)
    if changed or unit.total != {name: amount for name, amount in spec.total.items() if amount}:
        total = resource_list(spec.total)
        gone = dict.fromkeys(name for name in view.spec.resource if name not in total)
        changed["podSet"] = spec.pod_sets
        changed["resource"] = changed["request"] = {**gone, **total}
    return changed


def _switches(view: QueueUnit, spec: UnitSpec) -> dict[str, Any]:
    """What is followed at any time: priority, activity, the longest execution time.

    A unit that ran as long as it may stays inactive whatever its job's annotation says since before: only an edit of
    the unit itself brings it back.
    """
    changed: dict[str, Any] = {}
    if spec.priority != view.spec.priority:
        changed["priority"] = spec.priority
    over = find(view.status.conditions, EVICTED)
    outlived = over is not None and over.status == "True" and over.reason == MAX_EXECUTION_TIME
    if spec.active is not None and spec.active != (view.spec.active is not False) and not (outlived and spec.active):
        changed["active"] = spec.active
    if spec.max_seconds != view.spec.maximum_execution_time_seconds:
        changed["maximumExecutionTimeSeconds"] = spec.max_seconds
    return changed


def _pod_set(part: PodSetSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"name": part.name, "count": part.count, "template": part.template}
    if part.min_count is not None:
        found["minCount"] = part.min_count
    return found
