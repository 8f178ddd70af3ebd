"""Plans a batch of units in queue order, in slices that leave the event loop free every 20 ms."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter, time

from koord.contracts.gang import GangEvent
from koord.scheduler import metrics
from koord.scheduler.auditor.auditor import Auditor
from koord.scheduler.claiming import Planned
from koord.scheduler.debugging import Debugging
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, Outcome, Placed, PodInfo
from koord.scheduler.framework.contract import PluginError
from koord.scheduler.gang.planner import GroupPlanning, member_order
from koord.scheduler.jobs.asking import Asked, JobPlans, confined
from koord.scheduler.jobs.inline import InlineJobs
from koord.scheduler.preempting import Preempting
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.timed import TimedBatches
from koord.scheduler.world import World

SLICE_S = 0.02

Tell = Callable[[PodInfo, Diagnosis], None]


class Planner:
    """Turns units into plans; what finds no place is parked and told at once."""

    def __init__(
        self,
        engine: Engine,
        queue: SchedulingQueue,
        world: World,
        tell: Tell,
        profile: str,
        on_rejected: Callable[[GangEvent, str, str], None],
        preempting: Preempting | None = None,
        debugging: Debugging | None = None,
        jobs: JobPlans | None = None,
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._world = world
        self._tell = tell
        self._on_rejected = on_rejected
        self._preempting = preempting
        self._debugging = debugging
        self._homeless: list[tuple[Unit, PodInfo, Diagnosis]] = []
        self._profile = profile
        self._timed = TimedBatches(engine.cluster.timing, profile)
        self._jobs = jobs if jobs is not None and jobs.any else None
        self.inline = InlineJobs(engine, queue, world)
        self.audit: Auditor | None = None

    async def plan(self, units: Sequence[Unit]) -> list[Planned]:
        """Plans of all units that found a place, assumed in the engine."""
        planned: list[Planned] = []
        begun = perf_counter()
        slice_end = begun + SLICE_S
        index = 0
        self.inline.begin()
        self._timed.begin()
        while index < len(units):
            unit = units[index]
            if self._jobs is not None and self._under_way(unit):
                index += 1
            elif unit.group:
                await self._group(unit, planned)
                index += 1
            elif self._jobs is not None and self._of_job(unit):
                if not await self._job(unit, planned):
                    self._singles([unit], 0, planned, slice_end)
                index += 1
            else:
                index = self._singles(units, index, planned, slice_end)
            if self._homeless:
                await self._ways_out()
            if perf_counter() >= slice_end:
                await asyncio.sleep(0)
                slice_end = perf_counter() + SLICE_S
        metrics.algorithm_seconds.observe(perf_counter() - begun)
        self._timed.end(units)
        return planned

    def _singles(self, units: Sequence[Unit], start: int, planned: list[Planned], until: float) -> int:
        """Plan single pods from ``start`` up to the next group or the end of the slice; the next index."""
        positions: list[int] = []
        pods: list[PodInfo] = []
        stop = start
        while stop < len(units) and not units[stop].group:
            unit = units[stop]
            if self._jobs is not None and stop > start and self._of_job(unit):
                break
            pod = next(iter(unit.pods.values()), None)
            if pod is not None:
                positions.append(stop)
                pods.append(pod)
            else:
                self._queue.remove(unit.key)  # its pod went while it waited here
            stop += 1
        if not pods:
            return stop
        outcomes: list[Outcome] = []
        done = 0
        wall = time()
        while done < len(pods):
            if self._debugging is not None and self._debugging.watches:
                self._debugging.before(pods[done])
                done += self._engine.place(pods[done : done + 1], outcomes, now=wall)
            else:
                done += self._engine.place(pods[done:] if done else pods, outcomes, until=until, now=wall)
            if perf_counter() >= until:
                break
        now = monotonic()
        for position, pod, outcome in zip(positions[:done], pods, outcomes, strict=False):
            unit = units[position]
            if isinstance(outcome, Placed):
                planned.append(Planned(unit, [(pod, outcome)]))
            elif self._preempting is not None and self._preempting.concerns(pod, outcome):
                self._homeless.append((unit, pod, outcome))
            else:
                self._refused(unit, [(pod, outcome)], outcome.plugins, now)
        return positions[done] if done < len(pods) else stop

    def _under_way(self, unit: Unit) -> bool:
        """Whether the unit was planned already, with the job of another one."""
        return unit.key in self.inline.seized or any(map(self._engine.assumed, unit.pods))

    def _of_job(self, unit: Unit) -> bool:
        """Whether a plugin may have a plan for the job of the unit's pods, or had one that they are in."""
        if self._jobs is None:
            return False
        return unit.key in self.inline.seized or any(map(self._jobs.concerns, unit.pods.values()))

    async def _job(self, unit: Unit, planned: list[Planned]) -> bool:
        """Place a single pod by the plan of its job; False: there is none."""
        jobs, pod = self._jobs, next(iter(unit.pods.values()))
        asked = jobs.ask(pod) if jobs is not None else None
        if asked is None or jobs is None:
            return False
        if isinstance(asked, Asked) and jobs.inline:
            await self._whole(unit, pod, asked, planned)
            return True
        outcome: Outcome
        if isinstance(asked, Asked):
            pod = confined(pod, asked.plan.nodes[pod.uid], asked.plugin.name)
            outcome = self._engine.place_one(pod, time())
        else:
            outcome = asked
        if isinstance(outcome, Placed):
            planned.append(Planned(unit, [(pod, outcome)]))
        elif outcome.resolvable and self._preempting is not None and self._preempting.concerns(pod, outcome):
            self._homeless.append((unit, pod, outcome))
        else:
            self._refused(unit, [(pod, outcome)], outcome.plugins, monotonic())
        return True

    async def _whole(self, unit: Unit, trigger: PodInfo, asked: Asked, planned: list[Planned]) -> None:
        """Place all pods of a plan together, or refuse them."""
        made = await self.inline.place(unit, trigger, asked)
        if isinstance(made, Planned):
            planned.append(made)
        elif made is not None:
            units, failure = made
            for each in units:
                told = [(pod, failure) for pod in each.pods.values()]
                self._refused(each, told, failure.plugins, monotonic())

    async def _ways_out(self) -> None:
        """Ask PostFilter plugins about single pods that found no place; what they could do or not is told."""
        assert self._preempting is not None, "only with it pods are homeless"
        homeless, self._homeless = self._homeless, []
        begun = perf_counter()
        for unit, pod, diagnosis in homeless:
            if perf_counter() - begun >= SLICE_S:
                await asyncio.sleep(0)
                begun = perf_counter()
            now = monotonic()
            found = await self._preempting.answer(pod, diagnosis, now)
            self._refused(unit, [(pod, found)], found.plugins, now)
            if self._preempting.holds(pod.uid):
                self._world.waiting.hold_back(pod)

    async def _group(self, unit: Unit, planned: list[Planned]) -> None:
        now = monotonic()
        pods = list(unit.pods.values())
        book = self._world.book
        gang = book.of(pods[0].uid) if pods else None
        if gang is None:
            self._queue.remove(unit.key)
            for pod in pods:
                self._world.enqueue(pod, now, "PodUpdate")
            return
        hold = book.hold(pods[0].ref)
        if hold is not None:
            unit.message = hold
            self._queue.regate(unit)
            self._world.gated(unit.key, now)
            return
        if self._debugging is not None and self._debugging.watches:
            for pod in {id(pod.class_): pod for pod in pods}.values():  # as the group finds the nodes
                self._debugging.before(pod)
        jobs, one = self._jobs, None
        if jobs is not None and any(map(jobs.concerns, pods)):
            first = min(filter(jobs.concerns, pods), key=member_order)
            asked = jobs.ask(first) if jobs.inline else None
            if isinstance(asked, Asked):
                await self._whole(unit, first, asked, planned)
                return
            if isinstance(asked, Diagnosis):
                self._refused(unit, [(pod, asked) for pod in pods], asked.plugins, now)
                return
            one = None if jobs.inline else jobs.place_alone
        planning = GroupPlanning(self._engine, book, gang, pods, one)
        finished = planning.step(perf_counter() + SLICE_S, time())
        while not finished:
            await asyncio.sleep(0)  # a member that goes meanwhile is noticed when the claim is answered
            finished = planning.step(perf_counter() + SLICE_S, time())
        plan = planning.result()
        if plan.placed:
            for pod, diagnosis in plan.failed:
                self._tell(pod, diagnosis)
            message = plan.failed[0][1].message if plan.failed else ""
            rejecters = plan.rejecters if plan.failed else frozenset()
            planned.append(Planned(unit, plan.placed, plan.complete, rejecters, message))
            return
        self._refused(unit, plan.failed, plan.rejecters, now)

    def _refused(
        self, unit: Unit, failed: list[tuple[PodInfo, Diagnosis]], rejecters: frozenset[str], now: float
    ) -> None:
        """Park the unit, or back off if a plugin failed; tell every pod."""
        if not unit.pods:
            self._queue.remove(unit.key)  # its pods went while they were planned
            return
        if self._debugging is not None and self._debugging.diagnosis:
            self._debugging.failed(failed)
        if self.audit is not None:
            self.audit.refused(failed, now, gang=bool(unit.group))
        message = failed[0][1].message
        if any(diagnosis.error for _, diagnosis in failed):
            self._count("error", failed)
            self._queue.fail(unit, now, message)
        elif any(diagnosis.again for _, diagnosis in failed):
            self._count("unschedulable", failed)
            self._queue.fail(unit, now, message, counted=False)
        else:
            self._count("unschedulable", failed)
            if unit.group:
                self._on_rejected("rejected", failed[0][0].uid, message)
            pending = frozenset[str]().union(*(diagnosis.pending for _, diagnosis in failed))
            self._queue.reject(unit, rejecters, now, message, pending)
        for pod, diagnosis in failed:
            self._tell(pod, diagnosis)
            for plugin in pod.class_.profile.refused:
                try:
                    plugin.refused(pod, diagnosis)
                except Exception as error:
                    self._engine.errors.append(PluginError(plugin.name, "AfterPostFilter", error))

    def _count(self, result: str, failed: list[tuple[PodInfo, Diagnosis]]) -> None:
        """Under the profile of the first: members of one unit are of one profile, but for the oddest gangs."""
        profile = failed[0][0].class_.profile.scheduler_name or self._profile
        metrics.attempts.labels(result, profile).inc(len(failed))
