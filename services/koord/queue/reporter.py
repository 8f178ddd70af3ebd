"""Which pods of an admitted unit run, reported into its status at most once a second (spec 70 section 3.13, rule 1)."""

from koord.kube.protocol.queue import DISABLE_RESOURCE_RECYCLE, RELATED_POD_SET, RELATED_QUEUE_UNIT
from koord.kube.queues import QueueUnit
from koord.kube.resources import QUEUE_UNITS
from koord.queue.desk import Desk
from koord.queue.phases import ADMITTED_PHASES
from koord.queue.status import drained, draining, phase_of, running
from koord.queue.views import PodBrief
from koord.queue.world import World

EVERY_S = 1.0


class Reporter:
    """Counts pods by unit and pod set."""

    def __init__(self, world: World, desk: Desk) -> None:
        self._world = world
        self._desk = desk
        self._pods: dict[str, tuple[str, str, bool, bool]] = {}
        self._running: dict[str, dict[str, int]] = {}
        self._pending: dict[str, dict[str, int]] = {}
        self._dirty: dict[str, float] = {}

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
            if draining(entry.view):
                body = drained(entry.view, counts, pending)
            else:
                body = running(entry.view, counts, sum(pending.values()))
            if body is not None:
                self._desk.patch(QUEUE_UNITS, meta, body, subresource="status", lane="event")
        return min(self._dirty.values(), default=None)

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
