"""Pods that wait for a node: which unit of the queue each is in, who holds it back, and what lets it go.

A pod is *gated* by a PreEnqueue plugin, or by its gang while that is not complete; else it waits alone or with its gang
group. Times are monotonic seconds, passed in.
"""

from collections.abc import Callable, Iterable

from koord.scheduler.auditor.auditor import Auditor
from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.framework.contract import PluginError, PreEnqueuePlugin
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.profile import Profile
from koord.scheduler.gang.book import Gang, GangBook
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.queueing.queue import SchedulingQueue, Unit

GANG = "gang:"
_GANGS_ONLY = frozenset((Coscheduling.name,))
_TOLD_OTHERWISE = frozenset((ClusterEvent.POD_UPDATE, ClusterEvent.GANG_CHANGE))
"""Of these gated pods hear by themselves: they changed, or their gang did."""


class Waiting:
    """Units of the pods in ``pending``. Tells ``on_gated(unit key, now)`` and ``on_let_go(unit key, uid)`` of gangs."""

    def __init__(
        self,
        queue: SchedulingQueue,
        coscheduling: Coscheduling,
        profiles: Iterable[Profile],
        pending: dict[str, PodInfo],
        *,
        on_gated: Callable[[str, float], None],
        on_let_go: Callable[[str, str], None],
    ) -> None:
        self.queue = queue
        self.book: GangBook = coscheduling.book
        self.touched: set[str] = set()
        """Gang groups whose members or rules changed: what they hold may be enough now."""
        self.dissolved: set[str] = set()
        """Gang groups that are no more: what they hold goes back."""
        self._pending = pending
        self._unit_of: dict[str, str] = {}
        self._gaters: dict[int, tuple[PreEnqueuePlugin, ...]] = {}
        self._with_gangs: set[int] = set()
        for profile in profiles:
            self._gaters[id(profile)] = tuple(each for each in profile.pre_enqueue if each is not coscheduling)
            if coscheduling in profile.plugins:
                self._with_gangs.add(id(profile))
        self.gangs_on = bool(self._with_gangs)
        """Whether any profile knows of gangs."""
        self._gated_by: dict[PreEnqueuePlugin, set[str]] = {}
        self.audit: Auditor | None = None
        self._on_gated = on_gated
        self._on_let_go = on_let_go

    def in_gang(self, pod: PodInfo) -> bool:
        """Whether the pod's profile knows of gangs."""
        return id(pod.class_.profile) in self._with_gangs

    def enqueue(self, pod: PodInfo, now: float, event: str) -> None:
        """Put a pending pod where it belongs: gated, alone in the queue, or with its gang group."""
        self.drop(pod.uid)
        held = self._held(pod)
        gang = self.book.of(pod.uid) if self.in_gang(pod) else None
        if held is not None or gang is None:
            unit = self.queue.unit(pod.uid, "", now)
            unit.pods[pod.uid] = pod
            self._unit_of[pod.uid] = unit.key
            if held is not None:
                self._note(unit, *held)
                self.queue.gate(unit)
            else:
                self.queue.activate(unit, now, event)
        else:
            unit = self.queue.unit(GANG + group_key(gang), gang.ref.group_id, now)
            unit.pods[pod.uid] = pod
            self._unit_of[pod.uid] = unit.key
            if unit.state in ("new", "gated"):
                self.review(gang, now)
            else:
                self._regate(unit, pod, now)
        if self.audit is not None and unit.state != "elsewhere":
            self.audit.queued(pod, held[0].name if held is not None else "", now)

    def put_back(self, pods: Iterable[PodInfo], now: float) -> None:
        """Planned pods are pending again (their claim or bind failed, or the gang waited too long)."""
        for pod in pods:
            current = self._pending.get(pod.uid)
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

    def replace(self, pod: PodInfo) -> None:
        """A pending pod as it is now, in the unit it waits in, if it does."""
        self._pending[pod.uid] = pod
        unit = self.unit_of(pod.uid)
        if unit is not None and pod.uid in unit.pods:
            unit.pods[pod.uid] = pod

    def gated(self, key: str, now: float) -> None:
        """A gang's unit was held back while it was tried."""
        self._on_gated(key, now)

    def hold_back(self, pod: PodInfo) -> None:
        """A rejected pod: a plugin may want it held back from now on, until :meth:`let_go` or one of its events."""
        unit, held = self.unit_of(pod.uid), self._held(pod)
        if unit is None or unit.group or held is None or unit.state not in ("unschedulable", "backoff", "active"):
            return
        self.queue.gate(unit)
        self._note(unit, *held)

    def let_go(self, uid: str, now: float, *, at_once: bool) -> None:
        """What held a rejected pod back is over: it is tried ``at_once``, or when an event may help it."""
        unit = self.unit_of(uid)
        if unit is None or unit.group or unit.state != "gated":
            return
        held = self._held(next(iter(unit.pods.values())))
        if held is not None:
            self._note(unit, *held)
        elif at_once:
            self.queue.activate(unit, now, ClusterEvent.POD_DELETE.value)
        else:
            self.queue.let_go(unit, now)

    def unit_of(self, uid: str) -> Unit | None:
        """The unit a pending pod waits in."""
        key = self._unit_of.get(uid)
        return None if key is None else self.queue.units.get(key)

    def drop(self, uid: str) -> None:
        """The pod waits no longer where it did."""
        key = self._unit_of.pop(uid, None)
        unit = None if key is None else self.queue.units.get(key)
        if unit is not None:
            unit.pods.pop(uid, None)
            if not unit.pods and unit.state != "inflight":
                self.queue.remove(unit.key)
                for keys in self._gated_by.values():
                    keys.discard(unit.key)

    # Gates ----------------------------------------------------------------------------------------------------------

    def recheck(self, happened: Iterable[ClusterEvent], now: float) -> int:
        """Ask again the plugins that hold pods back and wait for what ``happened``; answers how many let go."""
        events = frozenset(happened) - _TOLD_OTHERWISE
        let_go = 0
        for plugin, keys in list(self._gated_by.items()):
            event = next(iter(plugin.events & events), None) if keys else None
            if event is None:
                continue
            asked = list(keys)
            keys.clear()
            for key in asked:
                unit = self.queue.units.get(key)
                if unit is None or unit.state != "gated" or not unit.pods:
                    continue
                pod = next(iter(unit.pods.values()))
                held = self._held(pod)
                if held is not None:
                    self._note(unit, *held)
                elif self.in_gang(pod) and self.book.of(pod.uid) is not None:
                    let_go += 1
                    self.enqueue(pod, now, event.value)
                else:
                    let_go += 1
                    self.queue.activate(unit, now, event.value)
                    if self.audit is not None and self.queue.mine(unit):
                        self.audit.queued(pod, "", now)
        return let_go

    def _note(self, unit: Unit, plugin: PreEnqueuePlugin, text: str) -> None:
        """``plugin`` holds the unit back."""
        unit.message = text
        if plugin.events - _TOLD_OTHERWISE:
            self._gated_by.setdefault(plugin, set()).add(unit.key)

    def _held(self, pod: PodInfo) -> tuple[PreEnqueuePlugin, str] | None:
        class_ = pod.class_.base or pod.class_
        gates = class_.gates
        if gates is None:
            gates = class_.gates = self._gates(class_)
        for plugin in gates:
            if not plugin.holding:
                continue
            try:
                text = plugin.pre_enqueue(pod.ref)
            except Exception as error:
                text = str(PluginError(plugin.name, "PreEnqueue", error))
            if text is not None:
                return plugin, text
        return None

    def _gates(self, class_: SchedulingClass) -> tuple[PreEnqueuePlugin, ...]:
        """The plugins that may hold back pods of the class; one that fails to say so is asked about each."""
        found: list[PreEnqueuePlugin] = []
        for plugin in self._gaters[id(class_.profile)]:
            try:
                may = plugin.may_hold(class_.template)
            except Exception:
                may = True
            if may:
                found.append(plugin)
        return tuple(found)

    # Gangs ----------------------------------------------------------------------------------------------------------

    def _regate(self, unit: Unit, pod: PodInfo, now: float) -> None:
        """A member joined or left: may the group be tried (again)?"""
        text = self.book.hold(pod.ref)
        if text is not None:
            unit.message = text
            self.queue.gate(unit)
            self._on_gated(unit.key, now)
            if self.audit is not None:
                self.audit.gang_apart(pod)
        else:
            if self.audit is not None and unit.state != "elsewhere":
                self.audit.gang_ready(pod, now)
            self._on_let_go(unit.key, pod.uid)
            self.queue.activate(unit, now, ClusterEvent.GANG_CHANGE.value)

    def review(self, gang: Gang, now: float) -> None:
        """The gang changed: gate or activate the units of its group (one, unless members list different groups)."""
        self.review_units({group_key(gang), *map(group_key, self.book.related(gang.ref.id))}, now)

    def review_units(self, groups: Iterable[str], now: float, *, rules: bool = False) -> None:
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

    def regroup(self, gang: Gang, now: float) -> None:
        """The governing PodGroup may have put the gang into another group."""
        for uid in list(gang.pending):
            pod = self._pending.get(uid)
            if pod is not None and self._unit_of.get(uid) != GANG + group_key(gang):
                self.enqueue(pod, now, ClusterEvent.GANG_CHANGE.value)


def group_key(gang: Gang) -> str:
    """The group's id; a gang that is not in its own group waits apart, so that it holds nobody up."""
    group_id = gang.ref.group_id
    return group_id if gang.ref.id in gang.ref.groups else f"{gang.ref.id}:{group_id}"
