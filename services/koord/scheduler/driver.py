"""The scheduler's loop: drain the queue in batches, plan, have each batch claimed in a round of its own.

While one batch waits for the ledger's answer the next is planned; at most ``WINDOW`` batches are under way.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from koord.bus.connection import Bus
from koord.contracts.ledger import LedgerHint
from koord.ledger.client import Ledger
from koord.runtime.gathering import Gathering
from koord.scheduler import metrics
from koord.scheduler.binds import Binds
from koord.scheduler.claiming import Claims, Planned
from koord.scheduler.corrections import Corrections
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.jobs.nextpod import NextPods
from koord.scheduler.nominating import Nominating
from koord.scheduler.notices import Notices
from koord.scheduler.outgoing import Outgoing
from koord.scheduler.planning import Planner
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.rounds import ClaimRounds
from koord.scheduler.world import World
from koord.telemetry.logs import Logger
from koord.telemetry.spans import Spans

WINDOW = 4
WAKE_EVERY_S = 0.02
TICK_EVERY_S = 1.0
COMPANY = 8
GATHER_S = 0.04
"""From 200 pods a second on they are planned and claimed about eight at a time, which costs less per pod."""


class Stage(Protocol):
    """Keeps units until somebody outside was asked about them."""

    def through(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """What can be planned now, of what came off the queue now or before."""
        ...

    def done(self) -> None:
        """What it let through is planned."""
        ...


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
        outgoing: Outgoing,
        spans: Spans,
        log: Logger,
        batch: int,
        profile: str,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.corrections = Corrections(world)
        self.nominating = Nominating(ledger.incarnation)
        self.ledger_open = asyncio.Event()
        self.rounds = ClaimRounds(
            world,
            queue,
            claims,
            binds,
            notices,
            self.corrections,
            self.nominating,
            bus=bus,
            ledger=ledger,
            outgoing=outgoing,
            spans=spans,
            log=log,
            profile=profile,
            close=self.close,
        )
        self._world = world
        self._queue = queue
        self._planner = planner
        self._binds = binds
        self._log = log
        self._batch = batch
        self._on_crash = on_crash
        self.next_pods: NextPods | None = None
        """Who is tried before all others, where a plugin says so."""
        self._wake = asyncio.Event()
        self._stopping = False
        self._window = asyncio.Semaphore(WINDOW)
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_wake = 0.0
        self._next_tick = 0.0
        self._gathering = Gathering(COMPANY, GATHER_S)
        self.stage: Stage | None = None
        """Where units are before they are planned."""

    # The loop -------------------------------------------------------------------------------------------------------

    def kick(self) -> None:
        """Something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Until :meth:`drain`. An unexpected error ends the service."""
        while not self._stopping:
            if not self.ledger_open.is_set():
                await self.ledger_open.wait()
            began = time.time_ns()
            now = time.monotonic()
            came = self.rounds.came
            planned = await self.turn(now)
            if not self.ledger_open.is_set() and not planned:
                continue
            if planned is None:
                await self._sleep(now)
            elif planned:
                self._gathering.came(len(planned), now)
                await self._window.acquire()
                task = asyncio.create_task(self.rounds.claim(planned, began, time.time_ns(), came))
                self._tasks.add(task)
                task.add_done_callback(self._claimed)
            else:
                await asyncio.sleep(0)

    async def turn(self, now: float) -> list[Planned] | None:
        """What is due at ``now`` (monotonic), then the plans of the next batch; None: there is nothing to plan."""
        if not await self.rounds.give_back_unanswered():
            return None  # the ledger is away or closed: what is claimed now only adds to what is unanswered
        self._advance(now)
        units: Sequence[Unit] = self.next_pods.units(now) if self.next_pods is not None else ()
        units = units or self._queue.pop(self._batch, now)
        popped = bool(units)
        if self.rounds.withdrawing is not None:
            units = self.rounds.withdrawing.rivals.leave_alone(units, now)
        if self.stage is not None:
            units = self.stage.through(units)
        if not units:
            return [] if popped else None
        if self.nominating:
            for unit in units:
                self.corrections.lift(self.nominating.items(unit.key, now))
        planned = await self._planner.plan(units)
        if self.stage is not None:
            self.stage.done()
        for error in self._world.engine.errors:
            metrics.plugin_errors.labels(error.plugin).inc()
            self._log.error("a plugin that keeps books failed", plugin=error.plugin, error=str(error))
        self._world.engine.errors.clear()
        return planned

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
        if pause := self._gathering.pause_s(time.monotonic()):
            await asyncio.sleep(pause)

    def _advance(self, now: float) -> None:
        """Everything that time or events make due."""
        self.corrections.expire(now)
        self.nominating.expire(now)
        self._binds.give_up_due(now)
        world = self._world
        for group in world.dissolved:
            self._binds.give_up(group, now, f"gang group {group} is no more: its PodGroup changed or went")
        world.dissolved.clear()
        self._binds.complete_waiting(world.touched)
        world.touched.clear()
        if now >= self._next_tick:
            self._next_tick = now + TICK_EVERY_S
            for event in world.engine.tick(time.time()):
                world.events.add(event)
        if world.events and now >= self._next_wake:
            self._next_wake = now + WAKE_EVERY_S
            world.wake(now)
        world.freshen()

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
            if self.rounds.withdrawing is not None:
                self.rounds.withdrawing.rivals.doubt(hint.uids)
        if self._world.events:
            self.kick()

    def close(self, why: str) -> None:
        """Nothing can be claimed until somebody sets ``ledger_open``."""
        if self.ledger_open.is_set() and not self._stopping:
            self._log.warning("nothing can be claimed", reason=why)
            self.ledger_open.clear()
