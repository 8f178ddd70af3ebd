"""From plans of whole jobs to what is claimed: which units of the queue have a part in a plan, and whom to refuse."""

import asyncio
from collections.abc import Callable
from time import monotonic, perf_counter, time

from koord.scheduler.claiming import Planned
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.jobs.asking import Asked, Undesignated
from koord.scheduler.jobs.batch import InlineBatch
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.world import World

SLICE_S = 0.02
ELSEWHERE = "its job was placed by somebody else meanwhile"


class InlineJobs:
    """Places jobs by their plans. ``seized``: keys of the units that were tried so since :meth:`begin`."""

    def __init__(self, engine: Engine, queue: SchedulingQueue, world: World) -> None:
        self.seized: set[str] = set()
        self._engine = engine
        self._queue = queue
        self._world = world
        self._undesignated = Undesignated()
        self.outside: Callable[[PodInfo], bool] | None = None
        """Whether somebody outside is to be asked about a pod before it is placed."""

    def begin(self) -> None:
        """A new batch of units is planned."""
        self.seized.clear()

    async def place(self, unit: Unit, trigger: PodInfo, asked: Asked) -> Planned | tuple[list[Unit], Diagnosis] | None:
        """Place the pods of a plan for ``trigger`` of ``unit``, leaving the event loop free every 20 ms.

        What is to be claimed, with the units that came with it in flight; or whom to refuse (all in flight), and why;
        None: there was nothing left to do.
        """
        world = self._world
        batch = InlineBatch(self._engine, world.book, asked, trigger, world.pending, self._held, self._undesignated)
        finished = batch.step(perf_counter() + SLICE_S, time())
        while not finished:
            await asyncio.sleep(0)  # a pod that goes meanwhile is noticed when the claim is answered
            finished = batch.step(perf_counter() + SLICE_S, time())
        now = monotonic()
        guests: dict[str, Unit] = {}
        for uid in asked.plan.nodes:
            guest = world.unit_of(uid)
            if guest is not None and guest is not unit and guest.pods:
                guests[guest.key] = guest
        if batch.failure is not None:
            # Whoever is in the plan would ask for it again, with the same end: those that are due hear of it now.
            due = [guest for guest in guests.values() if guest.state in ("active", "inflight")]
            self._seize(due, now)
            return [unit, *due], batch.failure
        mine = {pod.uid for pod, _ in batch.placed}
        with_it = tuple([guest for guest in guests.values() if not mine.isdisjoint(guest.pods)])
        self._seize(with_it, now)
        if batch.placed:
            return Planned(unit, batch.placed, guests=with_it, job=True)
        if unit.pods:
            self._queue.fail(unit, now, ELSEWHERE, counted=False)
        else:
            self._queue.remove(unit.key)
        return None

    def _seize(self, units: tuple[Unit, ...] | list[Unit], now: float) -> None:
        for unit in units:
            self._queue.seize(unit, now)
            self.seized.add(unit.key)

    def _held(self, pod: PodInfo) -> str | None:
        unit = self._world.unit_of(pod.uid)
        if unit is None:
            return "it is under way"
        if self.outside is not None and pod.uid not in self._engine.advice and self.outside(pod):
            return "an extender has to be asked about it first"
        return (unit.message or "it waits at its gates") if unit.state == "gated" else None
