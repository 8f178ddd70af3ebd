"""What becomes of units whose plans were claimed or not: they leave the queue, or their room is free and they wait."""

from collections.abc import Callable, Iterable, Sequence

from koord.accounting.takes import NODE, PODS
from koord.ledger.model import Short
from koord.scheduler import metrics
from koord.scheduler.claiming import Planned
from koord.scheduler.corrections import Corrections
from koord.scheduler.jobs import metrics as jobs
from koord.scheduler.notices import Notices
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.world import World


class Returning:
    """``restore`` is told whose plans (uids) are off the books, for others may place them. ``now`` is monotonic."""

    def __init__(
        self,
        world: World,
        queue: SchedulingQueue,
        notices: Notices,
        corrections: Corrections,
        restore: Callable[[Iterable[str]], None],
    ) -> None:
        self._world = world
        self._queue = queue
        self._notices = notices
        self._corrections = corrections
        self._restore = restore

    def give_back(self, plan: Planned, now: float, message: str, *, again: bool = False, counted: bool = True) -> None:
        """Forget a plan; its unit is tried again, at once or after backing off, longer each time if ``counted``."""
        self.forget(plan)
        for unit in plan.units:
            if not unit.pods:
                self._queue.remove(unit.key)
            elif again:
                unit.message = message
                self._queue.retry(unit, now)
            else:
                self._queue.fail(unit, now, message, counted=counted)

    def back_off(self, plan: Planned, now: float, message: str, *, tell: bool = True) -> None:
        """The unit of a forgotten plan lost three times in a row: it waits, and its pods are told."""
        for unit in plan.units:
            if not unit.pods:
                self._queue.remove(unit.key)
                continue
            self._queue.fail(unit, now, message, counted=False)
            if tell:
                for pod in unit.pods.values():
                    ref = pod.ref
                    self._notices.failed(ref.uid, ref.namespace, ref.name, message, now)

    def leave(self, plan: Planned, now: float) -> None:
        """The unit after its plan was claimed: gone, or waiting with the members that found no place."""
        for guest in plan.guests:
            if guest.pods:
                self._queue.retry(guest, now)
            else:
                self._queue.done(guest, now)
        unit = plan.unit
        if not unit.pods:
            self._queue.done(unit, now)
        elif plan.rejecters:
            self._queue.reject(unit, plan.rejecters, now, plan.message)
        else:
            self._queue.keep(unit, now)

    def forget(self, plan: Planned) -> None:
        """Take all of a plan off the books."""
        gone = sum(self._world.engine.forget(pod.uid) for pod, _ in plan.members)
        if plan.job and gone:
            jobs.cleanups.labels("claim").inc(gone)
        self._restore(pod.uid for pod, _ in plan.members)

    def mask(self, shorts: Sequence[Short], now: float) -> None:
        """The ledger knows better what is left: its word counts for a moment."""
        for short in shorts:
            metrics.conflicts.labels(short.item.partition("/")[0]).inc()
            if short.kind == "slot":
                continue
            available = 0 if short.kind == "closed" else short.available
            self._corrections.believe(short.item, short.key, available, now)

    def mask_slots(self, plan: Planned, shorts: Sequence[Short], now: float) -> None:
        """Somebody else has what a plugin gave a pod (cpus of its own). Where the holder counts here by now, the books
        say what is left of the node; else, and for who lost before all the same, the node counts as full until the API
        shows what that one got, so that the pod is planned elsewhere."""
        first = plan.unit.conflicts == 0
        lost = {
            short.item
            for short in shorts
            if short.kind == "slot" and not (first and self._world.engine.counted(short.holder) is not None)
        }
        for _, placed in plan.members if lost else ():
            if not lost.isdisjoint(placed.slots):
                self._corrections.believe(NODE + placed.node, PODS, 0, now)
