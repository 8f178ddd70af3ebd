"""What the API shows, folded into engine, gang book and queue. No I/O; times are monotonic seconds, passed in.

A pod is *foreign* (another scheduler's or not yet ours), *pending* (ours to place), *planned* (assumed by us, its claim
or bind under way) or *bound*. Every pod with a node counts, whoever put it there.
"""

from collections.abc import Callable, Iterable, Mapping

from koord.contracts.quota import QuotaRuntime
from koord.kube.groups import PodGroup
from koord.kube.protocol.scheduler import BIND_SETTLED, scheduler_name
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.scheduler.catalogue import Catalogue
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.framework.contract import AssignedPod, PodRef
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.gang.book import Gang, GangBook
from koord.scheduler.nodeview import NodeView
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.podview import PodShapeError, PodView
from koord.scheduler.queueing.queue import SchedulingQueue, Unit

GANG = "gang:"
_GANGS_ONLY = frozenset((Coscheduling.name,))


class World:
    """Applies changes. What it cannot do itself it tells: ``on_bound(pod)``, ``on_ended(uid)``, ``on_invalid``,
    ``on_gated(unit key, now)`` and ``on_let_go(unit key, uid)`` of gangs."""

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
    ) -> None:
        self.engine = engine
        self.catalogue = catalogue
        self.queue = queue
        self.book: GangBook = coscheduling.book
        self.quota = quota
        self.events: set[ClusterEvent] = set()
        self.pending: dict[str, PodInfo] = {}
        """Pods that are ours to place and have no node in the API yet, planned ones included."""
        self.invalid: dict[str, str] = {}
        self.touched: set[str] = set()
        """Gang groups whose members or rules changed: what they hold may be enough now."""
        self.dissolved: set[str] = set()
        """Gang groups that are no more: what they hold goes back."""
        self._names = names
        self._unit_of: dict[str, str] = {}
        self._pre_enqueue = [plugin for plugin in engine.profile.pre_enqueue if plugin is not coscheduling]
        self._gangs_on = coscheduling in engine.profile.plugins
        self._on_bound = on_bound
        self._on_ended = on_ended
        self._on_invalid = on_invalid
        self._on_gang_problem = on_gang_problem
        self._on_gated = on_gated
        self._on_let_go = on_let_go

    # Pods -----------------------------------------------------------------------------------------------------------

    def apply_pod(self, old: PodView | None, new: PodView | None, now: float) -> None:
        """A pod came, changed or went."""
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self._end(old, now)
            old = None
        if new is None:
            return
        uid = new.metadata.uid
        if new.status.phase in ("Succeeded", "Failed"):
            self._end(new, now, exists=True)
        elif new.spec.node_name:
            self._bound(old, new, now)
        elif uid in self.engine.cluster.pods:
            # Planned: our own claim or bind is under way; a changed pod is bound as it was planned.
            if uid in self.pending:
                if new.metadata.deletion_timestamp is not None:
                    self._end(new, now)
                elif old is not None and _differs(old, new):
                    self._renew(new)
        elif new.metadata.deletion_timestamp is not None or not self.ours(new):
            if uid in self.pending or uid in self.invalid:
                self._leave(uid, now)
        else:
            self._wait(old, new, now)

    def ours(self, pod: PodView) -> bool:
        """Whether a pod is for this scheduler."""
        return scheduler_name(pod.metadata.labels, pod.spec.scheduler_name) in self._names

    def _bound(self, old: PodView | None, pod: PodView, now: float) -> None:
        uid, shape, node = pod.metadata.uid, pod.shape, pod.spec.node_name
        assert shape is not None, "a decoded pod has a shape"
        try:
            footprint = self.catalogue.footprint(shape)
        except PodShapeError as error:
            self._on_invalid(pod, str(error))
            return
        cluster = self.engine.cluster
        slot = cluster.pods.get(uid)
        relabelled = old is not None and old.metadata.labels != pod.metadata.labels
        if slot is not None and slot.node == node and slot.footprint is footprint and uid not in self.pending:
            if relabelled:
                self.engine.count(AssignedPod(_ref(pod), shape.spec, footprint, node, pod.spec.priority or 0))
                self.events.add(ClusterEvent.POD_DELETE)
            return
        ref = _ref(pod)
        if slot is None or slot.footprint is not footprint or slot.node != node or relabelled:
            self.engine.count(AssignedPod(ref, shape.spec, footprint, node, pod.spec.priority or 0))
        self.engine.confirm(uid)
        self.invalid.pop(uid, None)
        if self.pending.pop(uid, None) is not None:
            self._drop_from_unit(uid)
        if self._gangs_on:
            gang = self.book.add(ref, bound=True)
            if gang is not None:
                self._review(gang, now)
        self.events.add(ClusterEvent.POD_ASSIGNED)
        self._on_bound(pod)

    def _end(self, pod: PodView, now: float, *, exists: bool = False) -> None:
        """Deleted, terminal (``exists``) or replaced: everything it held is free."""
        uid = pod.metadata.uid
        slot = self.engine.cluster.pods.get(uid)
        if slot is not None:
            if not self.engine.forget(uid):
                self.engine.uncount(uid)
            self.events.add(ClusterEvent.POD_DELETE)
        self._leave(uid, now, _ref(pod) if exists and pod.spec.node_name else None)
        self._on_ended(uid)

    def _leave(self, uid: str, now: float, ended: PodRef | None = None) -> None:
        """``ended``: the pod ran and still exists; it stays a member of its gang, as one that was bound."""
        self.pending.pop(uid, None)
        self.invalid.pop(uid, None)
        self._drop_from_unit(uid)
        if not self._gangs_on:
            return
        gang = self.book.remove(uid) if ended is None else self.book.add(ended, bound=True)
        if gang is not None:
            self._review(gang, now)

    def _wait(self, old: PodView | None, new: PodView, now: float) -> None:
        """A pod to place: new, changed, or back from a plan."""
        uid = new.metadata.uid
        before = self.pending.get(uid)
        if before is not None and old is not None and old.metadata.uid == uid and not _differs(old, new):
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
        if before is None and self._gangs_on:
            known = self.book.of(uid) is not None
            gang = self.book.add(pod.ref, bound=False)
            if gang is not None and not known and gang.members == 1:
                for problem in gang.ref.problems:
                    self._on_gang_problem(new, problem)
        self.enqueue(pod, now, "PodAdd" if before is None else ClusterEvent.POD_UPDATE.value)

    def _renew(self, new: PodView) -> None:
        """A planned pod changed: should it come back, it comes back as it is now."""
        uid = new.metadata.uid
        try:
            pod = self.pending[uid] = self.catalogue.pod(new)
        except PodShapeError:
            return
        counted = self.engine.counted(uid)
        if counted is not None:
            self.engine.count(pod.planned(counted.node, counted.since))
        unit = self.unit_of(uid)
        if unit is not None and uid in unit.pods:
            unit.pods[uid] = pod

    # Queue ----------------------------------------------------------------------------------------------------------

    def enqueue(self, pod: PodInfo, now: float, event: str) -> None:
        """Put a pending pod where it belongs: gated, alone in the queue, or with its gang group."""
        self._drop_from_unit(pod.uid)
        held = self._held(pod)
        gang = self.book.of(pod.uid) if self._gangs_on else None
        if held is not None or gang is None:
            unit = self.queue.unit(pod.uid, "", now)
            unit.pods[pod.uid] = pod
            self._unit_of[pod.uid] = unit.key
            if held is not None:
                unit.message = held
                self.queue.gate(unit)
            else:
                self.queue.activate(unit, now, event)
        else:
            unit = self.queue.unit(GANG + _group_key(gang), gang.ref.group_id, now)
            unit.pods[pod.uid] = pod
            self._unit_of[pod.uid] = unit.key
            if unit.state in ("new", "gated"):
                self._review(gang, now)
            else:
                self._regate(unit, pod, now)

    def put_back(self, pods: Iterable[PodInfo], now: float) -> None:
        """Planned pods are pending again (their claim or bind failed, or the gang waited too long)."""
        for pod in pods:
            current = self.pending.get(pod.uid)
            if current is not None:
                self.book.unplan(pod.uid)
                self.enqueue(current, now, "ScheduleAttemptFailure")

    def planned(self, unit: Unit, pods: Iterable[PodInfo]) -> None:
        """Pods of ``unit`` are claimed: they leave the unit."""
        for pod in pods:
            unit.pods.pop(pod.uid, None)
            self._unit_of.pop(pod.uid, None)
            if unit.group:
                self.book.plan(pod.uid)

    def gated(self, key: str, now: float) -> None:
        """A gang's unit was held back while it was tried."""
        self._on_gated(key, now)

    def unit_of(self, uid: str) -> Unit | None:
        """The unit a pending pod waits in."""
        key = self._unit_of.get(uid)
        return None if key is None else self.queue.units.get(key)

    def _held(self, pod: PodInfo) -> str | None:
        for plugin in self._pre_enqueue:
            text = plugin.pre_enqueue(pod.ref)
            if text is not None:
                return text
        return None

    def _regate(self, unit: Unit, pod: PodInfo, now: float) -> None:
        """A member joined or left: may the group be tried (again)?"""
        text = self.book.hold(pod.ref)
        if text is not None:
            unit.message = text
            self.queue.gate(unit)
            self._on_gated(unit.key, now)
        else:
            self._on_let_go(unit.key, pod.uid)
            self.queue.activate(unit, now, ClusterEvent.GANG_CHANGE.value)

    def _review(self, gang: Gang, now: float) -> None:
        """The gang changed: gate or activate the units of its group (one, unless members list different groups)."""
        self._review_units({_group_key(gang), *map(_group_key, self.book.related(gang.ref.id))}, now)

    def _review_units(self, groups: Iterable[str], now: float, *, rules: bool = False) -> None:
        """``rules``: it is not only members that changed, so whoever was refused may be lucky."""
        for group_id in groups:
            self.touched.add(group_id)
            unit = self.queue.units.get(GANG + group_id)
            if unit is None or not unit.pods:
                continue
            pod = next(iter(unit.pods.values()))
            alone = unit.state == "unschedulable" and unit.rejecters == _GANGS_ONLY
            if rules or alone or unit.state in ("gated", "new") or self.book.hold(pod.ref) is not None:
                self._regate(unit, pod, now)

    def _drop_from_unit(self, uid: str) -> None:
        key = self._unit_of.pop(uid, None)
        unit = None if key is None else self.queue.units.get(key)
        if unit is not None:
            unit.pods.pop(uid, None)
            if not unit.pods and unit.state != "inflight":
                self.queue.remove(unit.key)

    # Nodes, quotas, PodGroups ---------------------------------------------------------------------------------------

    def apply_node(self, old: NodeView | None, new: NodeView | None) -> None:
        """A node came, changed or went. QuantityError names a bad amount; the last good version stays."""
        if new is None:
            if old is not None:
                self.engine.remove_node(old.metadata.name)
            return
        change = self.engine.set_node(new.info())
        if change.added:
            self.events.add(ClusterEvent.NODE_ADD)
            return
        if change.allocatable:
            self.events.add(ClusterEvent.NODE_ALLOCATABLE)
        if change.labels:
            self.events.add(ClusterEvent.NODE_LABEL)
        if change.taints:
            self.events.add(ClusterEvent.NODE_TAINT)

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
        groups = set(map(_group_key, self.book.related(key)))
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
            self._regroup(gang, now)
        groups.update(map(_group_key, self.book.related(key)))
        rules = before is not None and gang is not None and gang.ref != before
        self._review_units(groups, now, rules=rules)

    def _regroup(self, gang: Gang, now: float) -> None:
        """The governing PodGroup may have put the gang into another group."""
        for uid in list(gang.pending):
            pod = self.pending.get(uid)
            if pod is not None and self._unit_of.get(uid) != GANG + _group_key(gang):
                self.enqueue(pod, now, ClusterEvent.GANG_CHANGE.value)


def _group_key(gang: Gang) -> str:
    """The group's id; a gang that is not in its own group waits apart, so that it holds nobody up."""
    group_id = gang.ref.group_id
    return group_id if gang.ref.id in gang.ref.groups else f"{gang.ref.id}:{group_id}"


def _ref(pod: PodView) -> PodRef:
    meta = pod.metadata
    return PodRef(meta.uid, meta.namespace, meta.name, meta.labels, meta.annotations)


def _differs(old: PodView, new: PodView) -> bool:
    """Whether an update of a pending pod can change its placement."""
    return (
        old.shape is not new.shape
        or old.metadata.labels != new.metadata.labels
        or _notes_differ(old.metadata.annotations, new.metadata.annotations)
        or old.spec.priority != new.spec.priority
        or old.spec.scheduling_gates != new.spec.scheduling_gates
    )


def _notes_differ(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Without the gateway's settling: a barrier settles all that waits, which is no reason to try all of it again."""
    return old != new and any(old.get(key) != new.get(key) for key in old.keys() | new.keys() if key != BIND_SETTLED)
