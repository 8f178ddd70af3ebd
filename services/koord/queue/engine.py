"""The queue's core without I/O: changes in, a pass over what is dirty, decisions and claims out.

The service feeds it from the caches and carries out what it asks for. All of it runs on the event loop's thread;
nothing here awaits, so a pass sees one picture.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from koord.accounting.takes import ADMITTED
from koord.contracts.decisions import Decision
from koord.contracts.results import Result
from koord.kube.jobs.kind import Job
from koord.kube.jobs.registry import JOB_KINDS
from koord.kube.meta import ObjectMeta
from koord.kube.priorities import PriorityClass
from koord.kube.protocol.quota import AnnotationError
from koord.kube.quantity import QuantityError
from koord.kube.queues import NAMESPACE, Queue, QueueUnit
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import ELASTIC_QUOTAS, NAMESPACES, QUEUE_UNITS, QUEUES
from koord.queue import unowned
from koord.queue.admission import Admission
from koord.queue.backoff import Timeouts
from koord.queue.desk import Desk
from koord.queue.jobsync import JobSync, job_entry
from koord.queue.outbox import object_key
from koord.queue.queuesync import QueueSync
from koord.queue.reporter import Reporter
from koord.queue.traces import AttemptTraces
from koord.queue.unitsync import UnitSync, unit_entry
from koord.queue.world import World
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import get_logger
from koord.telemetry.spans import Spans

log = get_logger("koord.queue")

WRITES_AT_ONCE = 200
"""Texts of waiting units are written while fewer writes than this are under way (spec 70 section 3.9)."""

TEXTS_PER_PASS = 1000
"""Texts looked at per pass; the rest is for the next one."""


class Engine:
    """Everything but the wires."""

    def __init__(
        self,
        incarnation: str,
        spans: Spans,
        timeouts: Mapping[str, Timeouts],
        *,
        doubling: bool = True,
        manage_all: bool = False,
    ) -> None:
        self.world = World()
        self.desk = Desk(incarnation, spans)
        self.traces = AttemptTraces(spans)
        self.admission = Admission(self.world, self.desk, self.traces)
        self.jobs = JobSync(self.world, self.desk, self.traces, manage_all=manage_all)
        self.units = UnitSync(self.world, self.desk, self.traces, self.admission, timeouts, doubling=doubling)
        self.queues = QueueSync(self.world, self.desk)
        self.reporter = Reporter(self.world, self.desk)
        self._paused: list[tuple[float, str, str]] = []
        self._freed_meanwhile: set[str] | None = None

    # Changes ------------------------------------------------------------------------------------------------------

    def on_job(self, token: str, key: str, job: Job | None, now_ns: int) -> str:
        """A job was added, changed or (None) deleted. Answers what is wrong with one that has no metadata to name."""
        world = self.world
        kind = JOB_KINDS[token]
        old_uid = world.job_uids.get((token, key))
        if old_uid is None or job is None:
            world.dirty_units.update(world.units_naming.get((token, key), ()))
        if job is None:
            self.desk.outbox.gone(object_key(token, key))
            if old_uid is not None:
                self._job_gone(token, key, old_uid)
            return ""
        entry = job_entry(kind, job, now_ns, world.clusters_of)
        if entry is None:
            return f"{kind.resource.kind} {key}: metadata: cannot be read, or has no uid"
        if old_uid is not None and old_uid != entry.meta.uid:
            self._job_gone(token, key, old_uid)
        held = world.jobs.get(entry.meta.uid)
        if held is not None:
            entry.first_seen_ns = held.first_seen_ns
        world.jobs[entry.meta.uid] = entry
        world.job_uids[token, key] = entry.meta.uid
        self.desk.outbox.seen(object_key(token, key), entry.meta.resource_version)
        self._touch_job(entry.meta.uid)
        return ""

    def on_cluster(self, key: str, meta: ObjectMeta | None, now_ns: int) -> None:
        """A RayCluster came, changed or (None) went: while it lives, its RayJob's room stays taken."""
        world = self.world
        owner = meta.controller if meta is not None else None
        uid = owner.uid if owner is not None else ""
        old = world.clusters.get(key, "")
        if uid == old:
            return
        if old:
            world.clusters_of[old].discard(key)
            if not world.clusters_of[old]:
                del world.clusters_of[old]
        if uid:
            world.clusters[key] = uid
            world.clusters_of.setdefault(uid, set()).add(key)
        else:
            del world.clusters[key]
        for touched in {uid, old}:
            job = world.jobs.get(touched)
            if job is not None:
                self.on_job(job.kind.resource.token, job.meta.key, job.object, now_ns)

    def on_unit(self, key: str, view: QueueUnit | None) -> None:
        """A QueueUnit was added, changed or (None) deleted."""
        world = self.world
        old = world.units.get(key)
        object_ = object_key(QUEUE_UNITS.token, key)
        if old is not None and (view is None or view.metadata.uid != old.view.metadata.uid):
            self._unit_gone(key)
            old = None
        if view is None:
            self.desk.outbox.gone(object_)
            return
        unowned.note(world, key, old.view if old is not None else None, view)
        world.units[key] = unit_entry(view, old)
        world.unit_keys[view.metadata.uid] = key
        owner = view.metadata.controller
        if owner is not None:
            world.units_of_job[owner.uid] = key
            world.dirty_jobs.add(owner.uid)
        self.desk.outbox.seen(object_, view.metadata.resource_version)
        self.reporter.touch(view)
        world.dirty_units.add(key)

    def on_queue(self, name: str, view: Queue | None) -> None:
        """A Queue was added, changed or (None) deleted."""
        world = self.world
        queue = world.queue(name)
        object_ = object_key(QUEUES.token, f"koord-queue/{name}")
        was = queue.view
        if view is None:
            self.desk.outbox.gone(object_)
            queue.view, queue.policy, queue.problem = None, None, ""
        else:
            self.desk.outbox.seen(object_, view.metadata.resource_version)
            had_policy, had_problem = queue.policy, queue.problem
            self.queues.seen(queue, view)
            if queue.policy is not had_policy:
                world.admission_wanted = True
            if queue.problem != had_problem:
                world.texts_wanted.update(unit.key for unit in queue.waiting.ordered())
        world.dirty_queues.add(name)
        if (was is None) != (view is None):
            # Units of this queue either wait nowhere, for want of it, or have to leave it.
            world.dirty_units.update(key for key, unit in world.units.items() if unit.queued == name or unit.refusal)

    def on_quota(self, key: str, quota: ElasticQuota | None) -> None:
        """An ElasticQuota was added, changed or (None) deleted; an invalid one changes nothing."""
        world = self.world
        old = world.quotas.get(key)
        if quota is None:
            world.quotas.pop(key, None)
            if old is not None and world.tree.remove(old.metadata.name, old.metadata.namespace):
                self._quotas_changed(old.metadata.name)
            return
        world.quotas[key] = quota
        try:
            changed = world.tree.set(quota)
        except (QuantityError, AnnotationError):
            return  # the quota service says so on the object
        if changed:
            self._quotas_changed(quota.metadata.name)
        self.desk.outbox.seen(object_key(ELASTIC_QUOTAS.token, key), quota.metadata.resource_version)

    def on_ceiling(self, rate: Fraction) -> bool:
        """Max times this is the most that is ever admitted; True if that is news."""
        if rate == self.admission.rate:
            return False
        self.admission.rate = rate
        self.world.quotas_changed = True
        return True

    def on_namespace(self, name: str, version: str | None) -> None:
        """A namespace came or changed (its resourceVersion) or, None, went."""
        object_ = object_key(NAMESPACES.token, name)
        if version is None:
            self.world.namespaces.pop(name, None)
            self.desk.outbox.gone(object_)
        else:
            self.world.namespaces[name] = version
            self.desk.outbox.seen(object_, version)
        if name == NAMESPACE:
            self.world.dirty_queues.update(self.world.queues)

    def on_priority_class(self, name: str, found: PriorityClass | None) -> None:
        """A PriorityClass came, changed or went: jobs that wait may sort differently."""
        if found is None:
            self.world.priority_classes.pop(name, None)
        else:
            self.world.priority_classes[name] = found
        self.world.dirty_jobs.update(self.world.units_of_job)

    def on_room(self, items: Sequence[str]) -> bool:
        """Room may have come free at ledger items (none named: anywhere); True if it is worth a cycle."""
        quotas = frozenset(item[len(ADMITTED) :] for item in items if item.startswith(ADMITTED)) if items else None
        if quotas is not None and not quotas:
            return False
        if self._freed_meanwhile is not None and quotas is not None:
            self._freed_meanwhile |= quotas
        woken = False
        for queue in self.world.queues.values():
            woken = queue.waiting.room_at(quotas) or woken
        if woken:
            self.world.admission_wanted = True
        return woken

    def cycle_begins(self) -> None:
        """The ledger's amounts are about to be read: what comes free from now on, this cycle may not see."""
        self._freed_meanwhile = set()

    def cycle_ends(self) -> None:
        """Refusals of this cycle were judged; those where room came free meanwhile are worth another look."""
        freed, self._freed_meanwhile = self._freed_meanwhile, None
        if freed:
            self.on_room([ADMITTED + quota for quota in freed])

    def on_result(self, result: Result) -> None:
        """The gateway told what became of a decision."""
        object_ = self.desk.outbox.written_for(result.id)
        if not object_:
            return
        token, _, key = object_.partition(" ")
        settled = self.desk.outbox.settle(result, self._version(token, key), self.desk.now_s)
        if settled is None:
            return
        if token == QUEUE_UNITS.token and result.outcome != "done":
            entry = self.world.units.get(key)
            if entry is not None:
                self.admission.failed(entry.view.metadata.uid)
        if settled[1]:
            self._look_at(token, key)
            pause = self.desk.outbox.pause(object_, self.desk.now_s)
            if pause > 0:
                heapq.heappush(self._paused, (self.desk.now_s + pause, token, key))

    # A pass -------------------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Look at everything dirty once."""
        world = self.world
        world.due(self.desk.now_s)
        while self._paused and self._paused[0][0] <= self.desk.now_s:
            _, token, key = heapq.heappop(self._paused)
            self._look_at(token, key)
        if world.quotas_changed:
            world.quotas_changed = False
            world.admission_wanted = True
            for queue in world.queues.values():
                queue.waiting.quotas_edited()
            world.dirty_units.update(key for key, unit in world.units.items() if unit.queued or unit.refusal)
        queues, world.dirty_queues = world.dirty_queues, set()
        for name in sorted(queues):
            self._guarded(self.queues.reconcile, name)
        jobs, world.dirty_jobs = world.dirty_jobs, set()
        for uid in jobs:
            self._guarded(self.jobs.reconcile, uid)
        units, world.dirty_units = world.dirty_units, set()
        for key in units:
            self._guarded(self.units.reconcile, key)

    def _guarded(self, look: Callable[[str], None], which: str) -> None:
        """Look at one object. What nobody thought of may stop that object, never the service: the log names it."""
        try:
            look(which)
        except Exception:
            log.exception("an object cannot be looked at", object=which)

    def after_admission(self) -> float | None:
        """Texts of waiting units, positions, running counts; answers when something of it is due next."""
        world = self.world
        for _ in range(min(len(world.texts_wanted), TEXTS_PER_PASS)):
            if len(self.desk.outbox) >= WRITES_AT_ONCE:
                break
            self._guarded(self.units.write_text, world.texts_wanted.pop())
        due = self.queues.publish_details()
        reported = self.reporter.write()
        paused = self._paused[0][0] if self._paused else None
        dues = [at for at in (due, reported, paused, world.next_timer_s()) if at is not None]
        if world.texts_wanted and len(self.desk.outbox) < WRITES_AT_ONCE:
            dues.append(self.desk.now_s)
        return min(dues) if dues else None

    def decisions(self) -> list[tuple[Decision, TraceContext]]:
        """What is to be published now."""
        found = self.desk.outbox.take(self.desk.now_s)
        recorded = self.desk.recorded()
        if recorded is not None:
            found.append(recorded)
        return found

    def mark_all(self) -> None:
        """Look at everything, as after a start."""
        world = self.world
        world.dirty_jobs.update(world.jobs)
        world.dirty_units.update(world.units)
        world.dirty_queues.update(world.queues, world.tree)
        world.admission_wanted = True
        self.traces.leads(self.desk.now_ns)
        self.queues.ensure_namespace()

    def stand_by(self, now_ns: int) -> None:
        """Another one makes the passes: what it would look at must not pile up until this one leads, and marks all."""
        self.desk.tick(now_ns)
        self.desk.events.drop_old(self.desk.now_s)
        for uid in self.world.drop_marks():
            self.traces.forget(uid)
        self.reporter.keep(self.world.units)

    # Inside -------------------------------------------------------------------------------------------------------

    def _touch_job(self, uid: str) -> None:
        self.world.dirty_jobs.add(uid)
        unit = self.world.units_of_job.get(uid)
        if unit is not None:
            self.world.dirty_units.add(unit)

    def _job_gone(self, token: str, key: str, uid: str) -> None:
        self._touch_job(uid)
        self.world.jobs.pop(uid, None)
        if self.world.job_uids.get((token, key)) == uid:
            del self.world.job_uids[token, key]

    def _unit_gone(self, key: str) -> None:
        world = self.world
        entry = world.units.pop(key)
        meta = entry.view.metadata
        world.leave_queue(entry)
        unowned.note(world, key, entry.view, None)
        world.unit_keys.pop(meta.uid, None)
        self.admission.failed(meta.uid)
        self.admission.charges.pop(key, None)
        self.reporter.forget(key)
        owner = meta.controller
        if owner is not None and world.units_of_job.get(owner.uid) == key:
            del world.units_of_job[owner.uid]
        self._touch_namesakes(key, owner.name if owner is not None else "")

    def _touch_namesakes(self, unit_key: str, job_name: str) -> None:
        """Jobs that wait for a unit of this name to be made, or to go."""
        namespace, _, unit = unit_key.partition("/")
        for token, kind in JOB_KINDS.items():
            for name in {job_name, unit.removesuffix(kind.suffix)}:
                uid = self.world.job_uids.get((token, f"{namespace}/{name}"))
                if uid is not None:
                    self.world.dirty_jobs.add(uid)

    def _quotas_changed(self, name: str) -> None:
        self.world.quotas_changed = True
        self.world.dirty_queues.add(name)

    def _version(self, token: str, key: str) -> str:
        world = self.world
        if token == NAMESPACES.token:
            return world.namespaces.get(key, "")
        if token == QUEUE_UNITS.token:
            unit = world.units.get(key)
            return unit.view.metadata.resource_version if unit is not None else ""
        if token == QUEUES.token:
            queue = world.queues.get(key.partition("/")[2])
            return queue.view.metadata.resource_version if queue is not None and queue.view is not None else ""
        uid = world.job_uids.get((token, key))
        job = world.jobs.get(uid) if uid is not None else None
        return job.meta.resource_version if job is not None else ""

    def _look_at(self, token: str, key: str) -> None:
        world = self.world
        if token == QUEUE_UNITS.token:
            world.dirty_units.add(key)
            unit = world.units.get(key)
            owner = unit.view.metadata.controller if unit is not None else None
            if owner is not None:
                world.dirty_jobs.add(owner.uid)  # what of it the unit was to follow had to wait for the write
            elif unit is None:
                self._touch_namesakes(key, "")
        elif token == QUEUES.token:
            world.dirty_queues.add(key.partition("/")[2])
        elif token in JOB_KINDS:
            uid = world.job_uids.get((token, key))
            if uid is not None:
                self._touch_job(uid)
        else:
            world.dirty_queues.update(world.tree)
