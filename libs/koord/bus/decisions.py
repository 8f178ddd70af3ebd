"""Decisions: services publish them and hear results; the gateway leader consumes them.

A decision is on its way once :meth:`DecisionPublisher.publish` returned: JetStream keeps it until the gateway has
executed and acknowledged it. Results are core messages, told once; the state stream shows the object itself, so a lost
result costs only the hint. Every message carries exactly the header ``traceparent``.

In a NATS cluster decisions go on while their stream or its consumer has no leader (:mod:`koord.bus.livedecisions`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from koord.bus.client import header_block, header_value
from koord.bus.connection import TRACEPARENT, Bus
from koord.bus.ending import end
from koord.bus.errors import BusError, BusTimeout, BusUnavailable
from koord.bus.livedecisions import LiveDecisions, QueueBypass
from koord.bus.pull import Pulled, PullLoop, delivered
from koord.contracts.codec import ContractError, decode, decode_decision, encode
from koord.contracts.decisions import KINDS, Decision, RecordEvents
from koord.contracts.results import Result
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

ACK_WAIT_S = 10.0
"""What was on its way to the gateway when a connection or a server died comes again after this."""


class DecisionPublisher:
    """Publishes the decisions of one service and hears what became of them."""

    def __init__(self, bus: Bus, service: str) -> None:
        self._bus = bus
        self._service = service
        self._callbacks: list[Callable[[Result], None]] = []
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._subjects = {kind: bus.subjects.decision(service, kind) for kind in KINDS.values()}
        self._subscription = bus.subscribe_raw(bus.subjects.results_of(service), self._on_result)

    def send(self, decision: Decision, trace: TraceContext, *, timeout: float | None = 30.0) -> "asyncio.Future[int]":
        """Publish without waiting; the future resolves once JetStream has the decision. Respect ``bus.room()``."""
        return self._bus.acks.publish(
            self._subjects[KINDS[type(decision)]],
            encode(decision),
            header_block((TRACEPARENT, trace.traceparent)),
            timeout=timeout,
            # An Event that was counted twice would be wrong, one that comes later is not.
            live=not isinstance(decision, RecordEvents),
        )

    async def publish(self, decision: Decision, trace: TraceContext, *, timeout: float | None = 30.0) -> None:
        """Publish and return once JetStream has it. BusTimeout, PublishRefused; safe to repeat."""
        await self._bus.acks.room()
        await self.send(decision, trace, timeout=timeout)

    async def publish_many(
        self, decisions: Iterable[tuple[Decision, TraceContext]], *, timeout: float | None = 30.0
    ) -> None:
        """Publish several, in order, in one go; the first failure is raised after all have settled."""
        futures = []
        for decision, trace in decisions:
            await self._bus.acks.room()
            futures.append(self.send(decision, trace, timeout=timeout))
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def on_result(self, callback: Callable[[Result], None]) -> None:
        """Call ``callback`` with every result of this service's decisions."""
        self._callbacks.append(callback)

    async def settle(self, decision: Decision, trace: TraceContext, timeout: float = 30.0) -> Result:
        """Publish and wait for the result. BusTimeout when none came: ask the state, not the bus, what happened."""
        waiting: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[decision.id] = waiting
        try:
            async with asyncio.timeout(timeout):
                await self.publish(decision, trace, timeout=timeout)
                return await waiting
        except TimeoutError as error:
            raise BusTimeout(f"decision {decision.id}: no result within {timeout:g} s") from error
        finally:
            if self._waiting.get(decision.id) is waiting:
                del self._waiting[decision.id]

    def close(self) -> None:
        """Hear no more results."""
        self._bus.unsubscribe_raw(self._subscription)

    def _on_result(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        try:
            result = decode(Result, body)
        except ContractError as error:
            log.warning("a result does not decode", subject=subject.decode(), error=str(error))
            return
        waiting = self._waiting.get(result.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
        for callback in self._callbacks:
            try:
                callback(result)
            except Exception:
                log.exception("a result callback failed", decision=result.id)


class Delivery:
    """One decision handed to the gateway, decoded or with the error that says why not.

    ``delivered`` counts deliveries, this one included. Exactly one of ``ack``, ``nak`` and ``term`` ends it.

    One that did not come from the consumer does not ``settle``: ``ack`` and the others do nothing, the consumer brings
    the decision again. If it is not ``stored`` either, it came from its publisher, which still tries to get it stored.
    """

    __slots__ = ("_bus", "_headers", "_reply", "body", "decision", "error", "kind", "service", "stored", "subject")

    def __init__(self, bus: Bus, pulled: Pulled) -> None:
        self._bus = bus
        self._headers = pulled.headers
        self._reply = pulled.reply
        self.stored = pulled.stored
        self.subject = pulled.subject.decode()
        # koord.<cluster>.decision.<service>.<kind>
        parts = self.subject.split(".")
        self.service = parts[3] if len(parts) > 4 else ""
        self.kind = parts[4] if len(parts) > 4 else ""
        self.decision: Decision | None = None
        self.error: ContractError | None = None
        self.body = pulled.body
        try:
            decision = decode_decision(pulled.body)
            if KINDS[type(decision)] != self.kind:
                raise ContractError(
                    f"Decision: subject says {self.kind!r}, body says {KINDS[type(decision)]!r} - $.kind"
                )
            self.decision = decision
        except ContractError as error:
            self.error = error

    @property
    def trace(self) -> TraceContext | None:
        """The sender's span, or None when the header is missing or not valid."""
        return TraceContext.parse(header_value(self._headers, b"traceparent"))

    @property
    def settles(self) -> bool:
        """Whether the queue hears what becomes of it."""
        return bool(self._reply)

    @property
    def delivered(self) -> int:
        """How often it was handed out, this time included."""
        return delivered(self._reply) if self._reply else 1

    def ack(self) -> None:
        """Executed (or settled otherwise): the stream forgets it. If the ack is lost, the decision comes again.

        This and the others go out within ten milliseconds, together with what else is sent.
        """
        self._answer(b"+ACK")

    async def ack_confirmed(self, timeout: float = 5.0) -> None:
        """Acknowledge and wait until the server has noted it. BusTimeout."""
        if self._reply:
            await self._bus.acks.publish(self._reply.decode(), b"+ACK", timeout=timeout, raw=True)

    def nak(self, delay: float = 0.0) -> None:
        """Not now: deliver again after ``delay`` seconds."""
        body = b'-NAK {"delay": %d}' % int(delay * 1e9) if delay > 0 else b"-NAK"
        self._answer(body)

    def in_progress(self) -> None:
        """Still at it: the wait for the acknowledgement starts afresh."""
        self._answer(b"+WPI")

    def term(self, reason: str = "") -> None:
        """Never deliver it again, although it was not executed."""
        self._answer(f"+TERM {reason}".rstrip().encode())

    def _answer(self, word: bytes) -> None:
        if self._reply:
            self._bus.nc.send(self._reply.decode(), "", b"", word, now=False)


class DecisionConsumer:
    """The gateway leader's end of the work queue.

    ``max_ack_pending`` bounds what is handed out and not settled; ``ack_wait`` seconds without an acknowledgement or
    ``in_progress`` bring a decision again. ``live`` is where decisions come from that the stream has not confirmed;
    without one the consumer alone counts.
    """

    def __init__(
        self,
        bus: Bus,
        durable: str = "gateway",
        *,
        ack_wait: float = ACK_WAIT_S,
        max_ack_pending: int = 8192,
        ahead: int = 512,
        live: LiveDecisions | None = None,
    ) -> None:
        self._bus = bus
        self._durable = durable
        self._ack_wait = ack_wait
        self._max_ack_pending = max_ack_pending
        self._loop = PullLoop(bus, bus.subjects.decisions_stream, durable, self._ensure, ahead=ahead)
        self._live = live
        self._bypass: asyncio.Task[None] | None = None

    def look_past(self) -> None:
        """Hand on what comes live and, until the consumer is made, what the stream holds. :meth:`start` does so too."""
        if self._live is not None and self._bypass is None:
            subjects = self._bus.subjects
            bypass = QueueBypass(self._bus, self._loop, self._live, subjects.decisions_stream, subjects.decision_all)
            self._bypass = asyncio.create_task(bypass.run(), name="bus-bypass")

    async def start(self) -> None:
        """Make the consumer and begin to pull."""
        self.look_past()
        await self._loop.start()

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """Deliveries in the order of the queue; ends after :meth:`close`."""
        bus = self._bus
        async for batch in self._loop.batches():
            yield [Delivery(bus, pulled) for pulled in batch]

    def answer(self, service: str, result: Result, trace: TraceContext | str, *, now: bool = True) -> None:
        """Tell the author of a decision what became of it (core, at most once); ``now`` unless nobody waits for it."""
        traceparent = trace if isinstance(trace, str) else trace.traceparent
        self._bus.publish_traced(self._bus.subjects.result(service, result.id), encode(result), traceparent, now=now)

    async def close(self) -> None:
        """Pull no more; what waited unseen is given back at once."""
        await end(self._bypass)
        await self._loop.close()

    async def _ensure(self) -> None:
        stream = self._bus.subjects.decisions_stream
        wanted = ConsumerConfig(
            name=self._durable,
            durable_name=self._durable,
            description="The gateway leader",
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._ack_wait,
            max_deliver=-1,
            max_ack_pending=self._max_ack_pending,
            max_waiting=16,
            filter_subject=self._bus.subjects.decision_all,
        )
        try:
            await self._bus.js.add_consumer(stream, wanted)
        except nats.js.errors.APIError as error:
            raise BusError(f"consumer {self._durable} of {stream}: {error.description or error}") from error
        except (nats.errors.Error, TimeoutError) as error:
            raise BusUnavailable(f"consumer {self._durable} of {stream}: {error or 'no answer'}") from error
