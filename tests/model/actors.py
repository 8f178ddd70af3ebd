"""The real actors, each with gates around what it asks of others. One object is one life of one process."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from koord.bus.decisions import Delivery
from koord.bus.errors import AskRefused
from koord.bus.statecache import StateCache
from koord.contracts.asks import BarrierRaised, BindingsSettled, RaiseBarrier, SettleBindings
from koord.contracts.codec import encode
from koord.contracts.decisions import Decision
from koord.contracts.results import Result
from koord.gateway.access import ApiAccess
from koord.gateway.advancing import Advancer
from koord.gateway.api import Api
from koord.gateway.barrier import Barrier
from koord.gateway.binding import Binder
from koord.gateway.claimedpatch import ClaimedPatcher
from koord.gateway.events import EventRecorder
from koord.gateway.executor import Executor
from koord.gateway.lanes import Lanes
from koord.gateway.objects import read_object
from koord.gateway.podindex import PodIndex
from koord.gateway.reports import ReportWriter
from koord.gateway.settling import Settler
from koord.gateway.writes import Writer
from koord.kube.resources import ELASTIC_QUOTAS, NODES, POD_DISRUPTION_BUDGETS, POD_GROUPS, PODS, QUEUE_UNITS, Resource
from koord.ledger.model import LedgerUnavailable
from koord.reconciler.hints import Hints
from koord.reconciler.rebuilding import Superseded
from koord.reconciler.settings import ReconcilerSettings
from koord.reconciler.term import Term
from koord.reconciler.world import World
from koord.scheduler.gang.book import GangSettings
from koord.scheduler.service import SchedulerService
from koord.scheduler.settings import PluginSettings, SchedulerSettings
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans
from tests.model.apiserver import REQUEST_TIMEOUT_S
from tests.model.calls import NEVER_S, SteppedHost, SteppedLedger, Surroundings
from tests.model.feeds import Feed, Values
from tests.model.stepping import Actor
from tests.model.streams import Core, Heard, SteppedBus

T = TypeVar("T")

BATCH = 64
WATCHING = tuple(plugin.name for plugin in SchedulerSettings().profile()[0].watching)
"""Plugins that read objects which the model does not have."""


class Scheduler:
    """The scheduler service, whose loops the machine turns."""

    def __init__(self, around: Surroundings, actor: Actor, ledger: SteppedLedger, late: int) -> None:
        self.actor = actor
        self.bus: SteppedBus = around.bus(actor)
        self.ledger = ledger
        host = SteppedHost("scheduler", actor, self.bus, ledger)
        settings = SchedulerSettings(
            batch=BATCH, coscheduling=GangSettings(default_timeout_s=60.0), plugins=PluginSettings(disabled=WATCHING)
        )
        self.service = SchedulerService(host, settings)
        self.host = host
        intake = self.service._intake
        self.feeds = [
            Feed(around.api, actor, NODES, intake.nodes),
            Feed(around.api, actor, ELASTIC_QUOTAS, intake.quotas),
            Feed(around.api, actor, POD_GROUPS, intake.groups),
            Feed(around.api, actor, PODS, intake.pods, late),
        ]
        self.values = [Values(around.network, actor, ".quota.runtime.", intake._runtimes)]
        self.planning = False

    def plan(self, later_s: float) -> None:
        """Turn the loop once, as it will be turned ``later_s`` from now."""
        self.actor.ahead_s += later_s
        if not self.planning and self.service._driver.ledger_open.is_set():
            self.planning = True
            self.actor.run(self._plan())

    async def _plan(self) -> None:
        driver = self.service._driver
        try:
            began, came = time.time_ns(), driver.rounds.came
            planned = await driver.turn(time.monotonic())
            if planned:
                await driver.rounds.claim(planned, began, time.time_ns(), came)
        finally:
            self.planning = False

    def look(self) -> None:
        """Poll the ledger once, as the service does each half second."""
        self.actor.run(self._look())

    async def _look(self) -> None:
        driver, binds = self.service._driver, self.service._binds
        try:
            status = await self.ledger.status()
        except LedgerUnavailable as error:
            driver.close(str(error))
            return
        if status.open:
            binds.older_than(status.epoch, time.monotonic())
            driver.ledger_open.set()
        else:
            driver.close("the ledger is closed")

    def upkeep(self, later_s: float) -> None:
        """Publish again what is overdue then, renew, and give back."""
        self.actor.ahead_s += later_s
        self.actor.run(self._upkeep())

    async def _upkeep(self) -> None:
        binds = self.service._binds
        binds.republish(time.monotonic())
        if binds.releasing.is_set():
            await self.service.upkeep.release()
        if len(binds.flights):
            try:
                await self.ledger.renew()
            except LedgerUnavailable as error:
                self.service._driver.close(str(error))

    def retire(self, dead: list[str]) -> None:
        """Give back what schedulers held that are proven dead."""
        self.actor.run(self._retire(dead))

    async def _retire(self, dead: list[str]) -> None:
        with contextlib.suppress(LedgerUnavailable):
            await self.ledger.retire(dead)

    async def hear(self, message: Core) -> None:
        """A core message arrives: a result, or a hint of the ledger."""
        with self.actor.within():
            await self.bus.hear(message)
            if ".ledger.claim." in message.subject:
                await self.service._intake._on_hint(Heard(message.subject, message.body))  # type: ignore[arg-type]
            elif message.subject.endswith(".ledger.epoch"):
                await self.service._intake._on_epoch(Heard(message.subject, message.body))  # type: ignore[arg-type]


class _Answers:
    """The gateway's results, as core messages."""

    def __init__(self, bus: SteppedBus) -> None:
        self._bus = bus

    def answer(self, service: str, result: Result, trace: TraceContext | str, *, now: bool = True) -> None:
        self._bus.send(self._bus.subjects.result(service, result.id), "", b"", encode(result))


class _Lister:
    """A consistent read, published with a mark behind it."""

    def __init__(self, around: Surroundings, actor: Actor, resource: Resource) -> None:
        self._around = around
        self._actor = actor
        self._resource = resource

    async def list_anew(self, mark: str) -> None:
        await self._around.gates.stand(self._actor, f"{self._resource.token} is listed")
        self._around.api.mark(self._resource, mark)
        await self._around.gates.stand(self._actor, f"{self._resource.token} is marked")


class Gateway:
    """A term of the gateway: its executor and its settler, from the epoch on."""

    def __init__(self, around: Surroundings, actor: Actor, ledger: SteppedLedger) -> None:
        self.actor = actor
        self.around = around
        self.bus: SteppedBus = around.bus(actor)
        self.ledger = ledger
        self.pods = PodIndex()
        self.seen = 0
        self.executor: Executor | None = None
        self.settler: Settler | None = None
        self.barrier: Barrier | None = None
        actor.run(self._lead())

    async def _lead(self) -> None:
        while True:
            try:
                epoch = await self.ledger.lead("gateway")
                break
            except LedgerUnavailable:
                await asyncio.sleep(0.5)
        access = ApiAccess("http://model")
        api = Api(self.around.api.client(self.actor), access, patience_s=NEVER_S)  # type: ignore[arg-type]
        spans, lanes, writer = Spans(enabled=False), Lanes(64), Writer(api)
        advancer = Advancer(self.ledger, epoch)
        self.executor = Executor(
            _Answers(self.bus),
            Binder(api, self.pods, advancer, self.ledger, epoch, spans, lambda answer, claim: None),
            writer,
            ClaimedPatcher(api, writer, advancer, self.ledger, epoch, lambda answer, claim: None),
            EventRecorder(api, lambda: True),
            ReportWriter(writer.patch, lambda: True),
            lanes,
            spans,
        )
        self.settler = Settler(api, self.executor.claims_in_hand, self._queued)
        self.barrier = Barrier(
            api,
            self.pods,
            advancer,
            self._queued,
            self._queue_made,
            self.executor.decisions_in_hand,
            {
                resource.token: _Lister(self.around, self.actor, resource)
                for resource in (NODES, PODS, ELASTIC_QUOTAS, QUEUE_UNITS)
            },
            self.actor.name,
            api_timeout_s=REQUEST_TIMEOUT_S,
        )
        self.around.network.decisions.all_back()

    async def _queued(self) -> AsyncIterator[list[Decision]]:
        await self.around.gates.stand(self.actor, "the queue is looked through")
        yield self.around.network.decisions.unacknowledged()

    async def _queue_made(self) -> str:
        await self.around.gates.stand(self.actor, "the queue's life is asked for")
        # In the year 2100: it is new each time, as far as the barrier's clock knows.
        return f"2100-01-01T00:{self.around.network.decisions.life:02d}:00Z"

    async def settle(self, question: SettleBindings) -> BindingsSettled | AskRefused:
        """The answer to a question of the reconciler, given as this actor."""
        assert self.settler is not None
        return await self._answer(self.settler.answer(question))

    async def raise_barrier(self, question: RaiseBarrier) -> BarrierRaised | AskRefused:
        """The same for the barrier."""
        assert self.barrier is not None
        return await self._answer(self.barrier.answer(question))

    async def _answer(self, answering: Coroutine[Any, Any, T]) -> T | AskRefused:
        """What a refused question ends with is no crash: it goes back to who asked."""

        async def answered() -> T | AskRefused:
            try:
                return await answering
            except ValueError as error:
                return AskRefused(str(error))

        answer: T | AskRefused = await self.actor.run(answered())
        return answer

    def take(self, delivery: Delivery) -> None:
        """A decision is handed out."""
        assert self.executor is not None
        with self.actor.within():
            self.executor.take(delivery)

    def watch(self, most: int) -> None:
        """The next changes of pods arrive on the gateway's own watch."""
        for type_, namespace, name, _, raw in self.around.api.log(PODS)[self.seen : self.seen + most]:
            self.seen += 1
            brief = read_object(raw, kind="Pod", api_version="v1", pod=True)
            self.pods.observe(type_, f"{namespace}/{name}", brief)


class Reconciler:
    """A term of the reconciler over its own caches."""

    def __init__(
        self,
        around: Surroundings,
        actor: Actor,
        ledger: SteppedLedger,
        ask: Callable[[SettleBindings], Awaitable[BindingsSettled]],
        ask_barrier: Callable[[RaiseBarrier], Awaitable[BarrierRaised]],
        late: int,
        *,
        strict_audit: bool,
    ) -> None:
        self.actor = actor
        self.ledger = ledger
        self.superseded = False
        bus = around.bus(actor)
        self.world = World(bus, Spans(enabled=False))
        caches: list[tuple[Any, StateCache[Any], int]] = [
            (ELASTIC_QUOTAS, self.world.quotas, 0),
            (NODES, self.world.nodes, 0),
            (PODS, self.world.pods, late),
            (POD_DISRUPTION_BUDGETS, self.world.budgets, 0),
            (QUEUE_UNITS, self.world.units, late),
        ]
        self.feeds = [Feed(around.api, actor, resource, cache, behind) for resource, cache, behind in caches]
        self.values: list[Values] = []
        suspect_s = 0.0 if strict_audit else NEVER_S
        self._settings = ReconcilerSettings(
            fold_delay_s=0.0, sweep_s=0.0, audit_s=suspect_s, suspect_s=suspect_s, binding_s=0.0
        )
        self._bus = bus
        self._ask = ask
        self._ask_barrier = ask_barrier
        actor.run(self._run())

    async def _run(self) -> None:
        while True:
            try:
                epoch = await self.ledger.lead("reconciler")
                break
            except LedgerUnavailable:
                await asyncio.sleep(0.5)
        term = Term(
            self.ledger,
            self.world,
            Hints(self._bus),
            self._ask,
            self._ask_barrier,
            epoch,
            self._settings,
            lambda is_open: None,
        )
        try:
            await term.run()
        except Superseded:
            self.superseded = True
