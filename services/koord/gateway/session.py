"""One term of leadership: what runs between winning the Lease and losing it.

Nothing survives a term but the connections and what was seen of the API: a new term takes a new epoch from the ledger
and compares what the stream holds, because another gateway may have led in between.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.subscription import Subscription

from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, Delivery
from koord.bus.errors import BusError
from koord.bus.livedecisions import LiveDecisions
from koord.bus.questions import serve
from koord.bus.queued import queue_made, unacknowledged
from koord.contracts.asks import RaiseBarrier, SettleBindings, WhichGuarantees
from koord.contracts.codec import encode
from koord.contracts.decisions import ClaimRef
from koord.contracts.ledger import LedgerHint
from koord.gateway.advancing import Advancer, AdvancingLedger
from koord.gateway.api import Api, ApiUnavailable
from koord.gateway.barrier import Barrier
from koord.gateway.binding import Binder, ReleasingLedger
from koord.gateway.claimedpatch import ClaimedPatcher
from koord.gateway.events import EventRecorder
from koord.gateway.executor import Executor
from koord.gateway.following import Following
from koord.gateway.foreign import ForeignBindings
from koord.gateway.guarantees import Guarantees
from koord.gateway.lanes import Lanes
from koord.gateway.leanclient import RequestFailed
from koord.gateway.ledgerlease import LedgerLease
from koord.gateway.livemark import LiveMark
from koord.gateway.reports import ReportWriter
from koord.gateway.settings import GatewaySettings
from koord.gateway.settling import Settler, claim_of
from koord.gateway.writes import Writer
from koord.ledger.model import LedgerUnavailable, ReleaseAnswer
from koord.runtime.ending import end, finish
from koord.telemetry.logs import get_logger
from koord.telemetry.spans import Spans

log = get_logger("koord.gateway.session")

DRAIN_S = 5.0
COVER_WAIT_S = 2.0
CONSUMER = "gateway"

Q = TypeVar("Q", bound=msgspec.Struct)


class GatewayLedger(AdvancingLedger, ReleasingLedger, Protocol):
    """The part of the ledger client that the gateway uses."""

    incarnation: str

    async def lead(self, role: str) -> int:
        """Take the next epoch of a role."""
        ...


class Session:
    """``await run(lost)`` until the leadership ends. ``live`` listens for the whole life of the gateway, if at all."""

    def __init__(
        self,
        bus: Bus,
        ledger: GatewayLedger,
        api: Api,
        following: Following,
        spans: Spans,
        settings: GatewaySettings,
        live: LiveDecisions | None = None,
        guarantees: Guarantees | None = None,
        foreign: ForeignBindings | None = None,
    ) -> None:
        self._live = live
        self._foreign = foreign
        self._guarantees = guarantees or Guarantees.full(settings.api_timeout_s)
        self._bus = bus
        self._ledger = ledger
        self._api = api
        self._following = following
        self._spans = spans
        self._settings = settings

    async def run(self, lost: asyncio.Event) -> None:
        """Publish state and execute decisions until ``lost`` is set or the ledger knows a newer gateway."""
        tasks = [
            asyncio.create_task(self._following.lead(), name="gateway-state"),
            asyncio.create_task(self._decide(), name="gateway-decisions"),
        ]
        waiter = asyncio.create_task(lost.wait(), name="gateway-lost")
        try:
            done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a crash ends the service; the end of the leadership ends the term
        finally:

            async def give_up() -> None:
                await end(waiter, *tasks)
                await self._following.stand_by()

            await finish(give_up())

    async def _decide(self) -> None:
        """Take decisions, until this gateway is told that a newer one leads."""
        epoch = await self._lead()
        settings = self._settings
        lanes = Lanes(settings.concurrency)
        advancer = Advancer(self._ledger, epoch)
        events = EventRecorder(
            self._api, lambda: lanes.crowded, backlog=settings.events_backlog, per_s=settings.events_per_s
        )
        writer = Writer(self._api)
        reports = ReportWriter(writer.patch, lambda: lanes.crowded)
        consumer = DecisionConsumer(self._bus, CONSUMER, live=self._live)
        mark = LiveMark(LedgerLease(self._api, settings.lease_namespace))
        binder = Binder(
            self._api, self._following.pods, advancer, self._ledger, epoch, self._spans, self._released,
            self._guarantees,
        )  # fmt: skip
        executor = Executor(
            consumer,
            binder,
            writer,
            ClaimedPatcher(self._api, writer, advancer, self._ledger, epoch, self._released),
            events,
            reports,
            lanes,
            self._spans,
            backlog=settings.backlog,
            outlive_s=settings.api_timeout_s,
        )
        settler = Settler(self._api, executor.claims_in_hand, partial(unacknowledged, self._bus), self._guarantees)
        barrier = Barrier(
            self._api,
            self._following.pods,
            advancer,
            partial(unacknowledged, self._bus),
            partial(queue_made, self._bus),
            executor.decisions_in_hand,
            {reflector.resource.token: reflector for reflector in self._following.reflectors},
            self._ledger.incarnation,
            mark=mark,
            namespace=settings.lease_namespace,
            api_timeout_s=settings.api_timeout_s,
            guarantees=self._guarantees,
        )
        asked = list[Subscription]()
        beside = list[asyncio.Task[Any]]()
        taking: asyncio.Task[None] | None = None

        async def take() -> None:
            await self._take_over()
            await self._begin(consumer)
            asked.append(await self._hear("settle", SettleBindings, settler.answer))
            asked.append(await self._hear("barrier", RaiseBarrier, barrier.answer))
            asked.append(await self._hear("guarantees", WhichGuarantees, self._guarantees.answer))
            await asyncio.Event().wait()

        try:
            if self._foreign is not None:
                self._foreign.lead(advancer, events.add)
            # Without a leader of JetStream's there is no consumer, but decisions may come past it already.
            consumer.look_past()
            taking = asyncio.create_task(take(), name="gateway-queue")
            beside += (
                taking,
                asyncio.create_task(events.run(), name="gateway-events"),
                asyncio.create_task(reports.run(), name="gateway-reports"),
                asyncio.create_task(executor.keep_in_progress(), name="gateway-progress"),
                asyncio.create_task(self._pull(consumer, executor, mark), name="gateway-pull"),
                asyncio.create_task(executor.not_leading.wait(), name="gateway-fenced"),
            )
            done, _ = await asyncio.wait(beside, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            log.error("the ledger knows a newer gateway, giving up the term", epoch=epoch)
        finally:
            if self._foreign is not None:
                self._foreign.lead(None)

            async def give_up() -> None:
                await end(taking)  # first: it may be about to answer questions
                for subscription in asked:
                    self._bus.unsubscribe_raw(subscription)
                await barrier.close()
                await consumer.close()
                await executor.drain(DRAIN_S)
                await end(*beside)

            await finish(give_up())

    async def _pull(self, consumer: DecisionConsumer, executor: Executor, mark: LiveMark) -> None:
        await self._guarantees.tried.wait()  # who may bind is known before anybody is told that he may not
        async for batch in consumer.batches():
            unknown = any(map(_is_unknown, batch)) and not await self._covered(mark)
            for delivery in batch:
                if not unknown or not _is_unknown(delivery):
                    executor.take(delivery)
            await executor.room()

    async def _covered(self, mark: LiveMark) -> bool:
        """Whether decisions that only their publishers know may be executed; if not, the queue will bring them."""
        try:
            async with asyncio.timeout(COVER_WAIT_S):
                await mark.cover()
        except (ApiUnavailable, RequestFailed, TimeoutError) as error:
            log.warning("decisions wait for their queue", error=str(error) or "no answer in time")
            return False
        return True

    async def _take_over(self) -> None:
        """Have what a predecessor took and never finished delivered again at once, not when its time is up.

        Until then the claims would have run out. A predecessor that still lives is fenced by the ledger, and the rest
        of what it does is idempotent.
        """
        stream = self._bus.subjects.decisions_stream
        while True:
            try:
                await self._bus.js.delete_consumer(stream, CONSUMER)
            except nats.js.errors.NotFoundError:
                return
            except (nats.errors.Error, TimeoutError) as error:
                log.warning("the decisions cannot be taken over yet", error=str(error) or repr(error))
                await asyncio.sleep(0.5)
                continue
            return

    async def _begin(self, consumer: DecisionConsumer) -> None:
        """Begin to pull, however long JetStream gives no answer: a slow bus is no reason to end the service."""
        while True:
            try:
                await consumer.start()
                return
            except BusError as error:
                log.warning("no decisions yet", error=str(error))
                await asyncio.sleep(0.5)

    async def _hear(
        self, verb: str, question: type[Q], answer: Callable[[Q], Awaitable[msgspec.Struct]]
    ) -> Subscription:
        """Answer questions from now on. A connection that breaks just then is no reason to end the service either."""
        while True:
            try:
                return await serve(self._bus, "gateway", verb, question, answer)
            except BusError as error:
                log.warning("no questions yet", verb=verb, error=str(error))
                await asyncio.sleep(0.5)

    async def _lead(self) -> int:
        """The epoch that fences every older gateway; without the ledger nothing may be decided, so wait for it."""
        while True:
            try:
                return await self._ledger.lead("gateway")
            except LedgerUnavailable as error:
                log.warning("the ledger cannot be reached, no decision is executed", error=str(error))
                await asyncio.sleep(0.5)

    def _released(self, answer: ReleaseAnswer, claim: ClaimRef) -> None:
        if not answer.released:
            return
        hint = LedgerHint("released", list(answer.items), list(answer.released), [claim.claim])
        self._bus.nc.send(self._bus.subjects.ledger("claim.released"), "", b"", encode(hint))


def _is_unknown(delivery: Delivery) -> bool:
    """Whether nobody but its publisher is known to have this decision, and it spends a claim."""
    return not delivery.stored and delivery.decision is not None and bool(claim_of(delivery.decision))
