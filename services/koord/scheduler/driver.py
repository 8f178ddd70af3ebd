"""The scheduler's loop: drain the queue in batches, plan, claim in one round trip a batch, publish binds.

While one batch waits for the ledger's answer the next is planned; at most ``WINDOW`` batches are under way. What the
ledger refuses is masked and planned again, three times in a row at most.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.contracts.codec import encode
from koord.contracts.ledger import LedgerHint
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimAnswer, ClaimRequest, LedgerRefused, LedgerUnavailable, Release, Wounded
from koord.ledger.wire import check_claim
from koord.scheduler import metrics
from koord.scheduler.binds import Binds
from koord.scheduler.claiming import Claims, Planned
from koord.scheduler.corrections import Corrections
from koord.scheduler.flights import Flight
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.notices import Notices
from koord.scheduler.planning import Planner
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.world import World
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import Logger
from koord.telemetry.spans import Spans

WINDOW = 4
WAKE_EVERY_S = 0.02
CONFLICTS_IN_A_ROW = 3


class Driver:
    """The loop. ``kick`` it whenever something changed; it stands still while ``ledger_open`` is not set."""

    def __init__(
        self,
        world: World,
        queue: SchedulingQueue,
        planner: Planner,
        claims: Claims,
        binds: Binds,
        notices: Notices,
        *,
        bus: Bus,
        ledger: Ledger,
        spans: Spans,
        log: Logger,
        batch: int,
        profile: str,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.corrections = Corrections(world)
        self.ledger_open = asyncio.Event()
        self._world = world
        self._queue = queue
        self._planner = planner
        self._claims = claims
        self._binds = binds
        self._notices = notices
        self._bus = bus
        self._ledger = ledger
        self._spans = spans
        self._log = log
        self._batch = batch
        self._on_crash = on_crash
        self._scheduled = metrics.attempts.labels("scheduled", profile)
        self._wake = asyncio.Event()
        self._stopping = False
        self._window = asyncio.Semaphore(WINDOW)
        self._tasks: set[asyncio.Task[None]] = set()
        self._conflicts: Counter[str] = Counter()
        self._unanswered: list[ClaimRequest] = []
        self._next_wake = 0.0

    # The loop -------------------------------------------------------------------------------------------------------

    def kick(self) -> None:
        """Something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Until :meth:`drain`. An unexpected error ends the service."""
        while not self._stopping:
            if not self.ledger_open.is_set():
                await self.ledger_open.wait()
            await self.give_back_unanswered()
            if not self.ledger_open.is_set():
                continue  # it went away or was closed meanwhile: what is claimed now only adds to what is unanswered
            now = time.monotonic()
            self._advance(now)
            units = self._queue.pop(self._batch, now)
            if not units:
                await self._sleep(now)
                continue
            began = time.time_ns()
            planned = await self._planner.plan(units)
            if planned:
                await self._window.acquire()
                task = asyncio.create_task(self._claim(planned, began, time.time_ns()))
                self._tasks.add(task)
                task.add_done_callback(self._claimed)
            else:
                await asyncio.sleep(0)
            for error in self._world.engine.errors:
                metrics.plugin_errors.labels(error.plugin).inc()
                self._log.error("a plugin that keeps books failed", plugin=error.plugin, error=str(error))
            self._world.engine.errors.clear()

    async def drain(self) -> None:
        """Finish the claims under way, give back what is only held, publish nothing new."""
        self._stopping = True
        self.ledger_open.set()
        self.kick()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._binds.release_held()
        await self._binds.flush_releases()

    async def _sleep(self, now: float) -> None:
        due = (self._queue.next_time(), self._binds.next_time, self.corrections.next_time)
        times = [1.0, *(at - now for at in due if at is not None)]
        if self._world.events:
            times.append(self._next_wake - now)
        try:
            async with asyncio.timeout(max(0.001, min(times))):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        # Changes come in bursts: a few milliseconds later the batch is larger and costs less per pod.
        await asyncio.sleep(0.005)

    async def give_back_unanswered(self) -> None:
        """Give back what claims hold whose answers were lost.

        They may have been accepted. Their pods are planned anew under other claims, which the ledger refuses as long as
        these have them; and they would keep them for good, because renewing our leases renews theirs. Asked again, an
        accepted claim tells its token.
        """
        if not self._unanswered:
            return
        requests = [msgspec.structs.replace(request, wound=False) for request in self._unanswered]
        try:
            answers = await self._ledger.claim(requests)
            if any(answer.status == "closed" for answer in answers):
                self.close("the ledger is closed")
                return
            held = [
                Release(request.id, answer.token)
                for request, answer in zip(requests, answers, strict=True)
                if answer.status == "ok"
            ]
            await self._ledger.release(held)
        except LedgerUnavailable as error:
            self.close(f"ledger unavailable: {error}")
            return
        del self._unanswered[: len(requests)]
        if held:
            self._log.warning("claims whose answers were lost are given back", claims=len(held))
            self._world.events.add(ClusterEvent.LEDGER_RELEASE)

    def _advance(self, now: float) -> None:
        """Everything that time or events make due."""
        self.corrections.expire(now)
        self._binds.give_up_due(now)
        world = self._world
        for group in world.dissolved:
            self._binds.give_up(group, now, f"gang group {group} is no more: its PodGroup changed or went")
        world.dissolved.clear()
        self._binds.complete_waiting(world.touched)
        world.touched.clear()
        events = self._world.events
        if events and now >= self._next_wake:
            self._next_wake = now + WAKE_EVERY_S
            self._queue.wake(events, now)
            events.clear()

    def _claimed(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._window.release()
        self.kick()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)

    def hint(self, hint: LedgerHint) -> None:
        """The ledger moved records."""
        self.corrections.hint(hint)
        if hint.event in ("expired", "released") and hint.claims:
            # A released claim may have lost some members only; one that expired or made room ends whole.
            uids = frozenset(hint.uids) if hint.event == "released" else None
            self._binds.lost(hint.claims, time.monotonic(), uids=uids, at_once=uids is not None)
        if hint.event in ("released", "expired"):
            self._world.events.add(ClusterEvent.LEDGER_RELEASE)
        if self._world.events:
            self.kick()

    def close(self, why: str) -> None:
        """Nothing can be claimed until somebody sets ``ledger_open``."""
        if self.ledger_open.is_set() and not self._stopping:
            self._log.warning("nothing can be claimed", reason=why)
            self.ledger_open.clear()

    # Claims ---------------------------------------------------------------------------------------------------------

    async def _claim(self, planned: list[Planned], began_ns: int, planned_ns: int) -> None:
        requests: list[ClaimRequest] = []
        sent: list[tuple[Planned, TraceContext, TraceContext]] = []
        spans = self._spans
        for plan in planned:
            many = len(plan.members)
            parent = self._claims.trace(plan)
            context = spans.record(
                "scheduler.plan",
                parent=parent,
                start_ns=began_ns,
                end_ns=planned_ns,
                attributes={"pods": many, "gang": plan.unit.group} if many > 1 else None,
                pod=many == 1,
            )
            claim_context = spans.reserve(context)
            request = self._claims.request(plan, claim_context)
            try:
                check_claim(request)
            except LedgerRefused as error:
                self._give_back(plan, time.monotonic(), str(error))
                continue
            requests.append(request)
            sent.append((plan, context, claim_context))
        if not requests:
            return
        start, start_ns = time.perf_counter(), time.time_ns()
        try:
            answers = await self._ledger.claim(requests)
        except LedgerUnavailable as error:
            self.close(f"ledger unavailable: {error}")
            self._unanswered += requests
            for plan, _, _ in sent:
                self._give_back(plan, time.monotonic(), "ledger unavailable", again=True)
            return
        metrics.claim_seconds.observe(time.perf_counter() - start)
        end_ns = time.time_ns()
        metrics.attempt_seconds.observe((end_ns - began_ns) / 1e9)
        now = time.monotonic()
        accepted: list[Flight] = []
        wounded: list[Wounded] = []
        for (plan, plan_context, context), request, answer in zip(sent, requests, answers, strict=True):
            many = len(plan.members)
            metrics.claims.labels(answer.status, "gang" if plan.unit.group else "pod").inc()
            spans.record(
                "ledger.claim",
                parent=plan_context,
                context=context,
                start_ns=start_ns,
                end_ns=end_ns,
                attributes={"claim": request.id, "result": answer.status, "pods": many},
                error=None if answer.status == "ok" else _reason(answer),
                pod=many == 1,
            )
            if answer.status == "ok":
                accepted += self._accepted(plan, request, answer, context, now)
                wounded += answer.wounded
            else:
                self._refused(plan, answer, now)
        for flight in accepted:
            try:
                await self._bus.room()
            except BusError as error:
                self._log.warning("the bus takes nothing at the moment", error=str(error))
            self._binds.publish(flight)
        if wounded:
            await self._tell_wounded(wounded)

    def _accepted(
        self, plan: Planned, request: ClaimRequest, answer: ClaimAnswer, trace: TraceContext, now: float
    ) -> list[Flight]:
        """Flights to publish now: this one and what was held for its group; none while the group only waits."""
        unit = plan.unit
        self._conflicts.pop(unit.key, None)
        self._claims.refusals.accepted(unit.key)
        gone = [pod.uid for pod, _ in plan.members if pod.uid not in self._world.pending]
        if gone:
            for uid in gone:
                self._world.engine.forget(uid)
            # Members that went while the ledger was asked. A Strict gang is planned anew, others go on without them.
            if unit.group and request.strict:
                self._binds.release(Release(request.id, answer.token))
                self._give_back(plan, now, "a member of the gang is gone", again=True)
                return []
            self._binds.release(Release(request.id, answer.token, tuple(gone)))
            plan.members = [(pod, placed) for pod, placed in plan.members if pod.uid not in gone]
            if not plan.members:
                self._leave(plan, now)
                return []
        flight = self._claims.flight(plan, request, answer, trace)
        self._world.planned(unit, [pod for pod, _ in plan.members])
        self._binds.hold(flight, unit.since, unit.attempts)
        self._scheduled.inc(len(flight.members))
        self._leave(plan, now)
        if not plan.complete:
            gang = self._world.book.of(next(iter(flight.members)))
            if gang is not None:
                self._binds.wait_for_members(unit.group, now + self._world.book.wait_s(gang))
            return []
        if not unit.group:
            return [flight]
        metrics.gang_wait_seconds.observe(now - unit.since)
        return self._binds.complete(unit.group)

    async def _tell_wounded(self, wounded: Sequence[Wounded]) -> None:
        """The owners of the claims that made room plan them anew at once."""
        claims = [one.claim for one in wounded]
        self._log.info("claims of lower rank made room", wounded=claims)
        items = sorted({item for one in wounded for item in one.items})
        hint = LedgerHint("released", items, [uid for one in wounded for uid in one.uids], claims)
        try:
            await self._bus.publish(self._bus.subjects.ledger("claim.released"), encode(hint))
        except BusError as error:
            # The reconciler tells them too, with what expired.
            self._log.warning("a ledger hint was not published", error=str(error))

    def _leave(self, plan: Planned, now: float) -> None:
        """The unit after its plan was claimed: gone, or waiting with the members that found no place."""
        unit = plan.unit
        if not unit.pods:
            self._queue.done(unit, now)
        elif plan.rejecters:
            self._queue.reject(unit, plan.rejecters, now, plan.message)
        else:
            self._queue.keep(unit, now)

    def _give_back(self, plan: Planned, now: float, message: str, *, again: bool = False, counted: bool = True) -> None:
        """Forget a plan; its unit is tried again, at once or after backing off, longer each time if ``counted``."""
        for pod, _ in plan.members:
            self._world.engine.forget(pod.uid)
        unit = plan.unit
        if not unit.pods:
            self._queue.remove(unit.key)
        elif again:
            unit.message = message
            self._queue.retry(unit, now)
        else:
            self._queue.fail(unit, now, message, counted=counted)

    def _refused(self, plan: Planned, answer: ClaimAnswer, now: float) -> None:
        unit = plan.unit
        if answer.status in ("epoch", "closed"):
            if answer.status == "closed":
                self.close("the ledger is closed")
            self._give_back(plan, now, "ledger unavailable", again=True)
            return
        if answer.status != "conflict":
            # Busy: a record of an earlier claim, or a pod that ended; the state stream or the lease will tell. That is
            # no error of the pod's: it is asked again at a steady pace, for the last member of a gang may be waiting.
            text = f"claim {answer.status}: {answer.busy_uid} {answer.busy_claim}".rstrip()
            self._give_back(plan, now, text, counted=False)
            return
        # First what we took ourselves goes, then the columns are masked to what the ledger has left.
        for pod, _ in plan.members:
            self._world.engine.forget(pod.uid)
        nodes = {short.item for short in answer.shorts if short.item.startswith("node/")}
        for short in answer.shorts:
            metrics.conflicts.labels(short.item.partition("/")[0]).inc()
            available = 0 if short.kind == "closed" else short.available
            self.corrections.believe(short.item, short.key, available, now)
        slot = any(short.kind == "slot" for short in answer.shorts)
        self._conflicts[unit.key] += 1
        if unit.pods:
            self._claims.refusals.refused(unit.key, now)
        if self._conflicts[unit.key] < CONFLICTS_IN_A_ROW and not slot:
            self._give_back(plan, now, "ledger conflict", again=True)
            return
        del self._conflicts[unit.key]
        message = f"ledger conflict on {len(nodes)} nodes: {_reason(answer)}"
        if not unit.pods:
            self._queue.remove(unit.key)
            return
        self._queue.fail(unit, now, message, counted=False)
        if not slot:
            for pod in unit.pods.values():
                ref = pod.ref
                self._notices.failed(ref.uid, ref.namespace, ref.name, message, now)


def _reason(answer: ClaimAnswer) -> str:
    if answer.shorts:
        short = answer.shorts[0]
        what = f"{short.item} {short.key}".rstrip()
        return f"{answer.status}: {what}: {short.kind}, needed {short.needed}, available {short.available}"
    return f"{answer.status} {answer.busy_uid}".rstrip()
