"""The stage between queue and planning in which extenders are asked; units whose pods nobody looks at pass through.

A unit that waits here is in flight, as one whose claim is asked for. When everybody has answered, the answers are left
with the engine, which heeds them while it plans the unit as any other: so whatever happened to the nodes meanwhile is
looked at then, and a refused claim asks anew. At most so many pods are asked about at a time, those of units with the
highest priority first. Nothing of this is kept anywhere: whoever plans the unit after a crash asks again.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from koord.scheduler.engine.advice import Advice
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.extenders import metrics
from koord.scheduler.extenders.asking import Extenders, Question
from koord.scheduler.extenders.objects import Objects, ObjectsUnknown
from koord.scheduler.framework.contract import PluginError
from koord.scheduler.podtrace import trace_of
from koord.scheduler.queueing.queue import Unit
from koord.telemetry.logs import Logger
from koord.telemetry.spans import Spans

WAITING = "waiting for the answers of extenders"
AT_ONCE = 16
"""Pods that extenders are asked about at a time; the original schedules one by one and asks about one."""


class ExtenderStage:
    """``through`` what came off the queue; ``done`` with what was planned. ``kick`` wakes the loop."""

    def __init__(
        self,
        extenders: Extenders,
        objects: Objects,
        engine: Engine,
        spans: Spans,
        log: Logger,
        *,
        kick: Callable[[], None],
        at_once: int = AT_ONCE,
    ) -> None:
        self._extenders = extenders
        self._objects = objects
        self._engine = engine
        self._spans = spans
        self._log = log
        self._kick = kick
        self._at_once = at_once
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, int, Unit]] = []
        self._tasks: dict[asyncio.Task[None], Unit] = {}
        self._ready: list[Unit] = []
        self._told: dict[str, PodInfo] = {}
        """Whose advice the engine has: the pod as it was when it was asked about."""
        self._asking = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._tasks) + len(self._ready)

    def through(self, units: Sequence[Unit]) -> list[Unit]:
        """What can be planned now: those of ``units`` nobody is asked about, and those that were asked about."""
        passed: list[Unit] = []
        for unit in units:
            if any(self._extenders.chooses(pod.class_) for pod in unit.pods.values()):
                unit.message = WAITING
                unit.popped_at = math.inf  # its attempt begins when somebody is asked
                heapq.heappush(self._waiting, (-unit.priority, next(self._numbers), unit))
            else:
                passed.append(unit)
        ready, self._ready = self._ready, []
        for unit in ready:
            if self._changed(unit):
                heapq.heappush(self._waiting, (-unit.priority, next(self._numbers), unit))
            else:
                passed.append(unit)
        self._pump()
        metrics.waiting.set(self._asking + sum(len(unit.pods) for _, _, unit in self._waiting))
        return passed

    def done(self) -> None:
        """What was passed on is planned: the answers have been used."""
        if not self._told:
            return
        held = {uid for unit in (*self._tasks.values(), *self._ready) for uid in unit.pods}
        for uid in [uid for uid in self._told if uid not in held]:
            self._forget(uid)

    async def close(self) -> None:
        """Nobody is asked any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """A unit is asked about whole; one that is larger than the bound when nothing else is."""
        while self._waiting:
            _, _, unit = self._waiting[0]
            if self._asking and self._asking + len(unit.pods) > self._at_once:
                return
            heapq.heappop(self._waiting)
            if not unit.pods:
                self._ready.append(unit)  # its pods went while it waited: the planner knows what to do
                self._kick()
                continue
            unit.popped_at = time.monotonic()
            count = len(unit.pods)
            self._asking += count
            task = asyncio.create_task(self._ask(unit))
            self._tasks[task] = unit
            task.add_done_callback(partial(self._ended, count))

    def _ended(self, count: int, task: "asyncio.Task[None]") -> None:
        unit = self._tasks.pop(task)
        self._asking -= count
        if not task.cancelled():
            self._ready.append(unit)
            self._kick()

    async def _ask(self, unit: Unit) -> None:
        limit = asyncio.Semaphore(self._at_once)
        await asyncio.gather(*(self._ask_about(pod, limit) for pod in list(unit.pods.values())))

    async def _ask_about(self, pod: PodInfo, limit: asyncio.Semaphore) -> None:
        if not self._extenders.chooses(pod.class_):
            return
        async with limit:
            try:
                advice = await self._advice(pod)
            except ObjectsUnknown as error:
                advice = Advice(frozenset(), {}, error=f"extenders: {error}")
            except Exception as error:
                self._log.exception("asking extenders failed", pod=f"{pod.ref.namespace}/{pod.ref.name}")
                advice = Advice(frozenset(), {}, error=f"extenders: {type(error).__name__}: {error}")
            self._told[pod.uid] = pod
            self._engine.advice[pod.uid] = advice

    async def _advice(self, pod: PodInfo) -> Advice:
        try:
            nodes = self._nodes(pod)
        except PluginError:
            nodes = ()  # planning it meets the same error, and tells it
        if not nodes:
            return Advice(frozenset(), {})
        body = await self._objects.pod(pod.ref)
        question = Question(body, nodes, self._objects.nodes, trace_of(pod.ref, self._spans))
        return await self._extenders.ask(pod.class_, question)

    def _nodes(self, pod: PodInfo) -> tuple[str, ...]:
        """The nodes that plugins leave it now. PluginError: one raised."""
        engine = self._engine
        if not len(engine.cluster):
            return ()
        rows, keys = engine.ranked(pod.class_)
        feasible = (keys >= 0).nonzero()[0] if rows is None else rows[keys >= 0]
        name = engine.cluster.index.name
        return tuple(found for row in feasible.tolist() if (found := name(row)) is not None)

    def _forget(self, uid: str) -> None:
        self._told.pop(uid, None)
        self._engine.advice.pop(uid, None)

    def _changed(self, unit: Unit) -> bool:
        """Whether pods of a unit came, or are others now, since they were asked about."""
        changed = False
        for uid, pod in unit.pods.items():
            if self._extenders.chooses(pod.class_) and self._told.get(uid) is not pod:
                self._forget(uid)
                changed = True
        return changed
