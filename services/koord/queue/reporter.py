"""What the pods of an admitted unit make of it, written at most once a second (spec 70 section 3.13).

While a job runs, its unit is charged for the pods that exist: ``spec.resource`` is what the ledger charges, so writing
it gives back the difference, or takes it. A pod counts as its pod set's template asks, which is also how it was counted
when the unit was admitted.
"""

from collections.abc import Container, Mapping

import msgspec

from koord.accounting.requests import pod_request, resource_list
from koord.kube.meta import decode
from koord.kube.pods import PodTemplate
from koord.kube.protocol.queue import DISABLE_RESOURCE_RECYCLE, RELATED_POD_SET, RELATED_QUEUE_UNIT
from koord.kube.quantity import QuantityError
from koord.kube.queues import QueueUnit
from koord.kube.resources import QUEUE_UNITS
from koord.queue.desk import Desk
from koord.queue.phases import ADMITTED_PHASES
from koord.queue.status import drained, draining, phase_of, running
from koord.queue.views import PodBrief
from koord.queue.world import UnitEntry, World

EVERY_S = 1.0
SETTLE_S = 5.0
"""Fewer pods than charged for is believed after this long: pods are made, and replaced, one after the other."""


class Reporter:
    """Counts pods by unit and pod set."""

    def __init__(self, world: World, desk: Desk) -> None:
        self._world = world
        self._desk = desk
        self._pods: dict[str, tuple[str, str, bool, bool]] = {}
        self._running: dict[str, dict[str, int]] = {}
        self._pending: dict[str, dict[str, int]] = {}
        self._dirty: dict[str, float] = {}
        self._fewer_since: dict[str, float] = {}

    def put(self, key: str, pod: PodBrief) -> bool:
        """A pod of a unit was added or changed; True if there was nothing to report before and there is now."""
        unit = pod.metadata.annotations.get(RELATED_QUEUE_UNIT, "")
        pending = not pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")
        state = (unit, pod.metadata.annotations.get(RELATED_POD_SET, ""), pod.running, pending)
        old = self._pods.get(key)
        if old == state:
            return False
        idle = not self._dirty
        if old is not None:
            self._count(old, -1)
        self._pods[key] = state
        self._count(state, 1)
        return idle

    def drop(self, key: str) -> bool:
        """A pod is gone; True if there was nothing to report before and there is now."""
        old = self._pods.pop(key, None)
        if old is None:
            return False
        idle = not self._dirty
        self._count(old, -1)
        return idle

    def touch(self, view: QueueUnit) -> None:
        """The unit was admitted, evicted or changed: see whether its status shows the counts."""
        unit = view.key
        wanted = unit in self._running if phase_of(view) in ADMITTED_PHASES else draining(view)
        if wanted and unit not in self._dirty:
            self._dirty[unit] = self._desk.now_s + EVERY_S

    def forget(self, unit: str) -> None:
        """The unit is gone."""
        self._dirty.pop(unit, None)
        self._fewer_since.pop(unit, None)

    def keep(self, units: Container[str]) -> None:
        """Forget all others."""
        for unit in [unit for unit in self._dirty if unit not in units]:
            self.forget(unit)

    def write(self) -> float | None:
        """Write the counts that are due; answers when the next are."""
        now = self._desk.now_s
        for unit in [unit for unit, at in self._dirty.items() if at <= now]:
            entry = self._world.units.get(unit)
            if entry is None or not (phase_of(entry.view) in ADMITTED_PHASES or draining(entry.view)):
                del self._dirty[unit]
                continue
            meta = entry.view.metadata
            if meta.labels.get(DISABLE_RESOURCE_RECYCLE) == "true":
                del self._dirty[unit]
                continue
            if not self._desk.free(QUEUE_UNITS, meta):
                self._dirty[unit] = now + EVERY_S
                continue
            del self._dirty[unit]
            counts, pending = self._running.get(unit, {}), self._pending.get(unit, {})
            if phase_of(entry.view) == "Running" and self._world.job_of(entry.view) is not None:
                requests = requests_of(entry)
                if self._charge(entry, requests, counts, pending):
                    self._dirty[unit] = now + EVERY_S  # the status follows
                    continue
            else:
                requests = None
                self._fewer_since.pop(unit, None)
            if draining(entry.view):
                body = drained(entry.view, counts, pending)
            else:
                body = running(entry.view, counts, pending, requests)
            if body is not None:
                self._desk.patch(QUEUE_UNITS, meta, body, subresource="status", lane="event")
        return min(self._dirty.values(), default=None)

    def _charge(
        self,
        entry: UnitEntry,
        requests: Mapping[str, Mapping[str, int]],
        running_by_set: Mapping[str, int],
        pending_by_set: Mapping[str, int],
    ) -> bool:
        """Let ``spec.resource`` follow the pods that exist; True if that was written.

        More pods are charged for at once, fewer after a while. Pods of a set that the unit does not have cannot be
        counted: then everything stays.
        """
        view, key, now = entry.view, entry.view.key, self._desk.now_s
        wanted: dict[str, int] = {}
        for counts in (running_by_set, pending_by_set):
            for part, count in counts.items():
                if part not in requests:
                    return False
                for name, amount in requests[part].items():
                    wanted[name] = wanted.get(name, 0) + amount * count
        names = entry.total.keys() | {name for name, amount in wanted.items() if amount}
        differences = [wanted.get(name, 0) - entry.total.get(name, 0) for name in names]
        if not any(differences):
            self._fewer_since.pop(key, None)
            return False
        if max(differences) <= 0:
            since = self._fewer_since.setdefault(key, now)
            if now - since < SETTLE_S:
                self._dirty[key] = since + SETTLE_S
                return False
        self._fewer_since.pop(key, None)
        # A zero is written as such: an empty spec.resource would mean spec.request.
        resources = resource_list({name: wanted.get(name, 0) for name in names})
        self._desk.patch(QUEUE_UNITS, view.metadata, {"spec": {"resource": resources}})
        return True

    def _count(self, state: tuple[str, str, bool, bool], sign: int) -> None:
        unit, part, is_running, is_pending = state
        runs, waits = self._running.setdefault(unit, {}), self._pending.setdefault(unit, {})
        for counts, counted in ((runs, is_running), (waits, is_pending)):
            if counted:
                counts[part] = counts.get(part, 0) + sign
                if not counts[part]:
                    del counts[part]
        if not runs and not waits:
            self._running.pop(unit, None)
            self._pending.pop(unit, None)
        self._dirty.setdefault(unit, self._desk.now_s + EVERY_S)


def requests_of(entry: UnitEntry) -> dict[str, dict[str, int]]:
    """What one pod of each set asks for, read once per version of the pod sets; a template that does not parse is left
    out, and so are its pods."""
    parts = tuple((part.name, bytes(part.template)) for part in entry.view.spec.pod_set)
    if entry.templates != parts:
        entry.templates, entry.requests = parts, {}
        for name, template in parts:
            try:
                entry.requests[name] = pod_request(decode(PodTemplate, template).spec)
            except (QuantityError, msgspec.MsgspecError):
                continue
    return entry.requests
