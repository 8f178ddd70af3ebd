"""What the API shows, folded into engine, gang book and queue. No I/O; times are monotonic seconds, passed in.

A pod is *foreign* (another scheduler's or not yet ours), *pending* (ours to place), *planned* (assumed by us, its claim
or bind under way) or *bound*. Every pod with a node counts, whoever put it there.
"""

import time
from collections.abc import Callable, Iterable

import msgspec

from koord.contracts.quota import QuotaRuntime
from koord.kube.groups import PodGroup
from koord.kube.protocol.nodekeys import RESERVATION
from koord.kube.protocol.scheduler import scheduler_name
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.scheduler.catalogue import Catalogue
from koord.scheduler.engine.cluster import NodeChange
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.framework.contract import AssignedPod, PodRef
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.happenings import Happenings
from koord.scheduler.gang.book import GangBook
from koord.scheduler.nodeview import NodeView
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.podchanges import counts_anew, differs
from koord.scheduler.podview import PodShapeError, PodView
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.remarks import Remarks
from koord.scheduler.transformers.nodes import transform_node
from koord.scheduler.waiting import Waiting, group_key

_NODE_EVENTS = (
    ("allocatable", ClusterEvent.NODE_ALLOCATABLE),
    ("labels", ClusterEvent.NODE_LABEL),
    ("taints", ClusterEvent.NODE_TAINT),
    ("annotations", ClusterEvent.NODE_ANNOTATION),
)


def _ignored(pod: PodView, text: str = "") -> None:
    """Nobody wants to know."""


class World:
    """Applies changes. What it cannot do itself it tells: ``on_bound(pod)``, ``on_ended(uid)``, ``on_invalid``,
    ``on_deleting`` (a pod that was to be placed is), ``on_remark`` (what of a pod is passed over), ``on_gated(unit key,
    now)`` and ``on_let_go(unit key, uid)`` of gangs. ``clock`` tells the time of day, for pods whose condition does not
    say since when they have their node."""

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        queue: SchedulingQueue,
        coscheduling: Coscheduling,
        quota: ElasticQuota | None,
        names: frozenset[str],
        *,
        on_bound: Callable[[PodView], None],
        on_ended: Callable[[str], None],
        on_invalid: Callable[[PodView, str], None],
        on_gang_problem: Callable[[PodView, str], None],
        on_gated: Callable[[str, float], None],
        on_let_go: Callable[[str, str], None],
        on_deleting: Callable[[PodView], None] = _ignored,
        on_remark: Callable[[PodView, str], None] = _ignored,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.engine = engine
        self.catalogue = catalogue
        self.queue = queue
        self.book: GangBook = coscheduling.book
        self.quota = quota
        self.events = Happenings()
        self.pending: dict[str, PodInfo] = {}
        """Pods that are ours to place and have no node in the API yet, planned ones included."""
        self.invalid: dict[str, str] = {}
        self.waiting = Waiting(
            queue, coscheduling, engine.profiles, self.pending, on_gated=on_gated, on_let_go=on_let_go
        )
        self._names = names
        self._node_keys = {RESERVATION, *(key for profile in engine.profiles for key in profile.node_keys)}
        self._pod_keys = tuple({key for profile in engine.profiles for key in profile.pod_keys})
        self._node_problems: dict[str, tuple[str, ...]] = {}
        self._labels_version = engine.cluster.pod_labels.version
        self._on_bound = on_bound
        self._on_ended = on_ended
        self._on_invalid = on_invalid
        self._on_gang_problem = on_gang_problem
        self._on_deleting = on_deleting
        self._on_remark = on_remark
        self._remarks = Remarks(engine.errors.append)
        self._clock = clock

    @property
    def touched(self) -> set[str]:
        """Gang groups whose members or rules changed: what they hold may be enough now."""
        return self.waiting.touched

    @property
    def dissolved(self) -> set[str]:
        """Gang groups that are no more: what they hold goes back."""
        return self.waiting.dissolved

    # Pods -----------------------------------------------------------------------------------------------------------

    def apply_pod(self, old: PodView | None, new: PodView | None, now: float) -> None:
        """A pod came, changed or went."""
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self._end(old, now)
            old = None
        if new is None:
            return
        uid = new.metadata.uid
        if new.status.nominated_node_name or (old is not None and old.status.nominated_node_name):
            self._nominated(old, new)
        if new.status.phase in ("Succeeded", "Failed"):
            self._end(new, now, exists=True)
        elif new.spec.node_name:
            self._bound(old, new, now)
        elif uid in self.engine.cluster.pods:
            # Planned: our own claim or bind is under way; a changed pod is bound as it was planned.
            if uid in self.pending:
                if new.metadata.deletion_timestamp is not None:
                    self._end(new, now)
                elif old is not None and differs(old, new):
                    self._renew(new)
        elif new.metadata.deletion_timestamp is not None or not self.ours(new):
            if uid in self.pending or uid in self.invalid:
                self._leave(uid, now)
                if new.metadata.deletion_timestamp is not None:
                    self._on_deleting(new)
        else:
            self._wait(old, new, now)

    def _nominated(self, old: PodView | None, new: PodView) -> None:
        """The API shows where a pod waits for room, whoever its scheduler is, or that it does so no longer."""
        node, uid = new.status.nominated_node_name, new.metadata.uid
        waits = not (new.spec.node_name or new.terminal or new.metadata.deletion_timestamp is not None)
        if not node or not waits:
            self._forsake(uid)
        elif uid in self.engine.cluster.pods and not self.engine.nominated.node_of(uid):
            return  # its room is taken already; it says so while something is made for it
        elif old is None or old.status.nominated_node_name != node or differs(old, new):
            try:
                self.engine.nominated.set(self.catalogue.assigned(new, node), foreign=not self.ours(new))
            except PodShapeError:
                self.engine.nominated.clear(uid)

    def _forsake(self, uid: str) -> None:
        """The pod waits for no node any more: what was kept for it may be had."""
        waited = self.engine.nominated.clear(uid)
        if waited is not None and uid not in self.engine.cluster.pods:
            self.events.add(ClusterEvent.POD_DELETE, waited)

    def _room_on(self, node: str, now: float) -> None:
        """A pod left a node: those who wait for this one are tried, whoever else may be woken."""
        for waiting in self.engine.nominated.on(node):
            unit = self.unit_of(waiting.ref.uid)
            if unit is not None and unit.state in ("unschedulable", "backoff"):
                self.queue.activate(unit, now, ClusterEvent.POD_DELETE.value)

    def ours(self, pod: PodView) -> bool:
        """Whether a pod is for this scheduler."""
        return scheduler_name(pod.metadata.labels, pod.spec.scheduler_name) in self._names

    def _bound(self, old: PodView | None, pod: PodView, now: float) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        before = self.engine.counted(uid)
        ours = uid in self.pending
        known = before is not None and before.node == node and not ours
        if known and old is not None and old.spec.node_name == node and not counts_anew(old, pod, self._pod_keys):
            return
        try:
            counted = self.catalogue.assigned(pod, node)
        except PodShapeError as error:
            self._on_invalid(pod, str(error))
            return
        if not counted.since:
            since = before.since if before is not None else self._clock()
            counted = msgspec.structs.replace(counted, since=since)
        self.engine.count(counted)
        if known:
            assert before is not None, "known"
            self._changed_on_node(before, counted)
            return
        self.engine.confirm(uid)
        self.engine.nominated.clear(uid)
        self.invalid.pop(uid, None)
        if self.pending.pop(uid, None) is not None:
            self.waiting.drop(uid)
        if self.waiting.gangs_on:
            gang = self.book.add(counted.ref, bound=True)
            if gang is not None:
                self.waiting.review(gang, now)
        if before is not None and before.node != node:
            self.events.add(ClusterEvent.POD_DELETE, before)
        self.events.add(ClusterEvent.POD_ASSIGNED, counted)
        self._on_bound(pod)

    def _changed_on_node(self, before: AssignedPod, counted: AssignedPod) -> None:
        """It may have left some room, or a quota, to others, or it is another kind of neighbour now."""
        relabelled = before.ref.labels != counted.ref.labels
        if relabelled:
            self.events.add(ClusterEvent.POD_LABEL, counted)
        if relabelled or before.footprint is not counted.footprint:
            self.events.add(ClusterEvent.POD_DELETE, before)

    def _end(self, pod: PodView, now: float, *, exists: bool = False) -> None:
        """Deleted, terminal (``exists``) or replaced: everything it held is free."""
        uid = pod.metadata.uid
        self._forsake(uid)
        before = self.engine.counted(uid)
        if before is not None:
            if not self.engine.forget(uid):
                self.engine.uncount(uid)
            self.events.add(ClusterEvent.POD_DELETE, before)
            self._room_on(before.node, now)
        self._leave(uid, now, _ref(pod) if exists and pod.spec.node_name else None)
        self._on_ended(uid)

    def _leave(self, uid: str, now: float, ended: PodRef | None = None) -> None:
        """``ended``: the pod ran and still exists; it stays a member of its gang, as one that was bound."""
        self.pending.pop(uid, None)
        self.invalid.pop(uid, None)
        self.waiting.drop(uid)
        if not self.waiting.gangs_on:
            return
        gang = self.book.remove(uid) if ended is None else self.book.add(ended, bound=True)
        if gang is not None:
            self.waiting.review(gang, now)

    def _wait(self, old: PodView | None, new: PodView, now: float) -> None:
        """A pod to place: new, changed, or back from a plan."""
        uid = new.metadata.uid
        before = self.pending.get(uid)
        if before is not None and old is not None and old.metadata.uid == uid and not differs(old, new):
            return
        try:
            pod = self.catalogue.pod(new)
        except PodShapeError as error:
            if self.invalid.get(uid) != str(error):
                self.invalid[uid] = str(error)
                self._on_invalid(new, str(error))
            return
        self.invalid.pop(uid, None)
        self.pending[uid] = pod
        if before is None or before.class_ is not pod.class_:
            for text in self._remarks.of(pod.class_):
                self._on_remark(new, text)
        if before is None and self.waiting.in_gang(pod):
            known = self.book.of(uid) is not None
            gang = self.book.add(pod.ref, bound=False)
            if gang is not None and not known and gang.members == 1:
                for problem in gang.ref.problems:
                    self._on_gang_problem(new, problem)
        self.enqueue(pod, now, "PodAdd" if before is None else ClusterEvent.POD_UPDATE.value)

    def _renew(self, new: PodView) -> None:
        """A planned pod changed: should it come back, it comes back as it is now."""
        try:
            pod = self.catalogue.pod(new)
        except PodShapeError:
            return
        counted, before = self.engine.counted(pod.uid), self.pending.get(pod.uid)
        if counted is not None:
            planned = pod.planned(counted.node, counted.since)
            if before is not None and counted.footprint is not before.class_.template.footprint:
                planned = msgspec.structs.replace(planned, footprint=counted.footprint)  # a plugin changed it there
            self.engine.count(planned)
        self.waiting.replace(pod)

    def freshen(self) -> None:
        """More labels tell pods apart since some pod selects by them: put pending pods into the classes they have now.

        What is parked stays where it is parked, with pods of its former class.
        """
        version = self.engine.cluster.pod_labels.version
        if version == self._labels_version:
            return
        self._labels_version = version
        for pod in list(self.pending.values()):
            renewed = self.catalogue.renewed(pod)
            if renewed is not pod:
                self.waiting.replace(renewed)

    # Queue ----------------------------------------------------------------------------------------------------------

    def enqueue(self, pod: PodInfo, now: float, event: str) -> None:
        """Put a pending pod where it belongs: gated, alone in the queue, or with its gang group."""
        self.waiting.enqueue(pod, now, event)

    def put_back(self, pods: Iterable[PodInfo], now: float) -> None:
        """Planned pods are pending again (their claim or bind failed, or the gang waited too long)."""
        self.waiting.put_back(pods, now)

    def planned(self, unit: Unit, pods: Iterable[PodInfo]) -> None:
        """Pods of ``unit`` are claimed: they leave the unit."""
        self.waiting.planned(unit, pods)

    def gated(self, key: str, now: float) -> None:
        """A gang's unit was held back while it was tried."""
        self.waiting.gated(key, now)

    def unit_of(self, uid: str) -> Unit | None:
        """The unit a pending pod waits in."""
        return self.waiting.unit_of(uid)

    def wake(self, now: float) -> None:
        """Tell the queue, and whoever is gated, what happened since the last time."""
        happened = self.events.take()
        self.queue.wake(happened, now)
        self.waiting.recheck(happened, now)

    # Nodes, quotas, PodGroups ---------------------------------------------------------------------------------------

    def apply_node(self, old: NodeView | None, new: NodeView | None) -> tuple[str, ...]:
        """A node came, changed or went. QuantityError names a bad amount; the last good version stays.

        Answers what else of it is not valid and does not count, if that was not answered before.
        """
        if new is None:
            if old is not None:
                self._remove_node(old.metadata.name)
            return ()
        info, problems = transform_node(new.info(self._node_keys))
        change = self.engine.set_node(info)
        if change.added:
            self.events.add(ClusterEvent.NODE_ADD, info)
        else:
            self._node_changed(change)
        found = (*problems, *change.problems)
        told = self._node_problems.get(info.name, ())
        if found:
            self._node_problems[info.name] = found
        elif told and change.any:
            del self._node_problems[info.name]
        return tuple(problem for problem in found if problem not in told)

    def _node_changed(self, change: NodeChange) -> None:
        info = self.engine.cluster.nodes[change.row]
        for field, event in _NODE_EVENTS:
            if getattr(change, field):
                self.events.add(event, info)

    def _remove_node(self, name: str) -> None:
        cluster = self.engine.cluster
        row = cluster.index.find(name)
        info = None if row is None else cluster.nodes[row]
        self._node_problems.pop(name, None)
        if self.engine.remove_node(name) is not None:
            self.events.add(ClusterEvent.NODE_DELETE, info)

    def apply_quota(self, old: QuotaObject | None, new: QuotaObject | None) -> None:
        """A quota came, changed or went. ValueError names the field and the rule; what was in force stays."""
        if self.quota is None:
            return
        if new is not None:
            changed = self.quota.set_quota(new)
        else:
            changed = old is not None and self.quota.remove_quota(old.metadata.name, old.metadata.namespace)
        if changed:
            self.events.add(ClusterEvent.QUOTA_CHANGE)

    def apply_runtime(self, published: QuotaRuntime) -> None:
        """The quota service published what the quotas of a tree may use."""
        if self.quota is not None and self.quota.set_runtime(published):
            self.events.add(ClusterEvent.QUOTA_CHANGE)

    def apply_pod_group(self, old: PodGroup | None, new: PodGroup | None, now: float) -> None:
        """A PodGroup came, changed or went."""
        shown = new or old
        if shown is None:
            return
        key = shown.key
        before = self.book.gangs[key].ref if key in self.book.gangs else None
        groups = set(map(group_key, self.book.related(key)))
        if new is not None:
            spec = new.spec
            gang = self.book.set_pod_group(
                key,
                spec.min_member,
                spec.schedule_timeout_seconds,
                new.metadata.annotations,
                new.status.phase,
                new.metadata.uid,
            )
        else:
            gang = self.book.remove_pod_group(key)
        if gang is not None and before is not None:
            if not gang.initialised or gang.ref.group_id != before.group_id:
                self.dissolved.add(before.group_id)
            self.waiting.regroup(gang, now)
        groups.update(map(group_key, self.book.related(key)))
        rules = before is not None and gang is not None and gang.ref != before
        self.waiting.review_units(groups, now, rules=rules)


def _ref(pod: PodView) -> PodRef:
    meta = pod.metadata
    return PodRef(meta.uid, meta.namespace, meta.name, meta.labels, meta.annotations)
