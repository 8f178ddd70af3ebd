"""NATS as an actor sees it: the work queue of decisions step by step, last values, and core messages.

As docs/bus.md has it. A decision is sent, stored, confirmed; what is not confirmed is sent again, so the queue may hold
it twice, and its publisher gives up after a while without knowing. A crash of the publisher does not stop what is on
its way. What the queue holds is handed out until it is acknowledged, in any order after the first time. A stream may
lose what it had confirmed. In a cluster an unconfirmed decision also goes out as a live copy: to whoever leads then, at
any time, more than once or never.

Events are left out: they are told once, nobody relies on them, and they would be half of all that goes on.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from koord.bus.decisions import Delivery
from koord.bus.errors import BusTimeout
from koord.bus.pull import Pulled
from koord.contracts.codec import decode_decision
from koord.contracts.decisions import Bind, Decision, Patch, RecordEvents
from koord.contracts.subjects import Subjects
from tests.model.stepping import Actor

PATIENCE_S = 30.0
Handler = Callable[[bytes, bytes, bytes | None, bytes], None]


class Message:
    """A decision of one publisher, until it is confirmed to it or given up."""

    def __init__(self, actor: Actor, subject: str, body: bytes, headers: bytes, at_s: float) -> None:
        self.actor = actor
        self.subject = subject
        self.body = body
        self.headers = headers
        self.at_s = at_s
        self.decision = decode_decision(body)
        self.confirmed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.acks: list[int] = []
        """Confirmations on their way back: numbers in the stream."""
        self.copied = False

    @property
    def awaited(self) -> bool:
        return self.actor.alive and not self.confirmed.done()

    def __repr__(self) -> str:
        return f"{self.subject.rsplit('.', 1)[1]} {self.decision.id}"


class Stored:
    """A decision in the queue."""

    def __init__(self, message: Message, number: int) -> None:
        self.message = message
        self.number = number
        self.delivered = 0
        self.out = False

    def __repr__(self) -> str:
        return f"{self.message} {'out' if self.out else 'in'}"


class Decisions:
    """The stream and its one consumer."""

    def __init__(self) -> None:
        self.on_the_way: list[Message] = []
        """Sent and not stored, or stored and sent again because nobody confirmed."""
        self.unconfirmed: list[Message] = []
        self.held: list[Stored] = []
        self.acknowledged: list[Stored] = []
        self.copies: list[Message] = []
        """Live copies on their way."""
        self.claimed: dict[str, Decision] = {}
        """What was ever decided with a claim, by id."""
        self.life = 1
        self._numbers = itertools.count(1)

    def send(self, message: Message) -> None:
        """A publisher sends."""
        if isinstance(message.decision, Bind) or (isinstance(message.decision, Patch) and message.decision.claim):
            self.claimed[message.decision.id] = message.decision
        self.on_the_way.append(message)

    def store(self, message: Message) -> None:
        """It reaches the queue; the confirmation is on its way back."""
        if message in self.on_the_way:
            self.on_the_way.remove(message)
            number = next(self._numbers)
            self.held.append(Stored(message, number))
            if message.awaited:
                message.acks.append(number)
                if message not in self.unconfirmed:
                    self.unconfirmed.append(message)

    def confirm(self, message: Message) -> None:
        """The confirmation arrives."""
        if message in self.unconfirmed:
            self.unconfirmed.remove(message)
            if message.awaited and message.acks:
                message.confirmed.set_result(message.acks[0])

    def confirmation_lost(self, message: Message) -> None:
        """The publisher heard nothing, and sends again."""
        if message in self.unconfirmed:
            self.unconfirmed.remove(message)
            message.acks.clear()
            if message.awaited:
                self.on_the_way.append(message)

    def copy(self, message: Message) -> None:
        """It was late, so a live copy goes out."""
        if (message in self.on_the_way or message in self.unconfirmed) and not message.copied:
            message.copied = True
            self.copies.append(message)

    def lose(self, message: Message) -> None:
        """It never arrives; who still waits sends it again, a dead publisher does not."""
        if message in self.on_the_way and not message.awaited:
            self.on_the_way.remove(message)

    def give_up(self, now_s: float, *, at_once: Message | None = None) -> None:
        """Publishers that waited long enough know nothing of what became of theirs; it may still arrive."""
        for message in {*self.on_the_way, *self.unconfirmed}:
            if message.awaited and (message is at_once or now_s - message.at_s >= PATIENCE_S):
                if message in self.unconfirmed:
                    self.unconfirmed.remove(message)
                message.confirmed.set_exception(BusTimeout("no acknowledgement"))
        self.unconfirmed = [message for message in self.unconfirmed if message.awaited]

    def hand_out(self, stored: Stored, bus: "SteppedBus") -> Delivery:
        """Deliver one, for the first time or again."""
        stored.out = True
        stored.delivered += 1
        reply = f"$JS.ACK.stream.gateway.{stored.delivered}.{stored.number}.1.1.0"
        message = stored.message
        return Delivery(bus, Pulled(message.subject.encode(), reply.encode(), message.headers, message.body))  # type: ignore[arg-type]

    def hand_out_live(self, message: Message, bus: "SteppedBus", *, again: bool = False) -> Delivery:
        """A live copy arrives: nothing that is answered to it goes anywhere."""
        if not again:
            self.copies.remove(message)
        return Delivery(bus, Pulled(message.subject.encode(), b"", message.headers, message.body, False))  # type: ignore[arg-type]

    def heard(self, reply: str, body: bytes) -> None:
        """An acknowledgement of any kind."""
        number = int(reply.split(".")[5])
        for stored in self.held:
            if stored.number == number:
                if body.startswith(b"-NAK"):
                    stored.out = False
                elif body.startswith((b"+ACK", b"+TERM")):
                    self.held.remove(stored)
                    self.acknowledged.append(stored)
                return

    def again(self, stored: Stored) -> None:
        """The acknowledgement was lost after all."""
        if stored in self.acknowledged:
            self.acknowledged.remove(stored)
            stored.out = False
            self.held.append(stored)

    def all_back(self) -> None:
        """The consumer was made anew, or the time to acknowledge is over."""
        for stored in self.held:
            stored.out = False

    def lose_all(self) -> None:
        """The stream's store is lost, also what it has confirmed, or what is confirmed next."""
        self.held.clear()
        self.acknowledged.clear()
        self.life += 1

    def unacknowledged(self) -> list[Decision]:
        return [stored.message.decision for stored in self.held]


class Core:
    """A message that everybody who is there hears, or nobody."""

    def __init__(self, subject: str, body: bytes) -> None:
        self.subject = subject
        self.body = body

    def __repr__(self) -> str:
        return self.subject


class Heard(NamedTuple):
    """A core message as a subscriber gets it."""

    subject: str
    data: bytes


class Network:
    """What all connections lead to."""

    def __init__(self, state_life: Callable[[], tuple[str, int]]) -> None:
        self.decisions = Decisions()
        self.core: list[Core] = []
        self.values: dict[str, tuple[int, bytes]] = {}
        """The last message of each subject of a last-value stream, and its number."""
        self.state_life = state_life


class SteppedBus:
    """What one actor has for a connection to NATS."""

    clustered = False
    connected = True

    def __init__(self, actor: Actor, network: Network) -> None:
        self.subjects = Subjects("model")
        self.nc = self
        self.acks = _Acks(self)
        self.actor = actor
        self.network = network
        self.handlers: list[tuple[str, Handler]] = []
        self.subscribers: list[tuple[str, Callable[[Any], Awaitable[None]]]] = []

    def send(self, subject: str, reply: str, headers: bytes, body: bytes, *, now: bool = True) -> None:
        if not self.actor.alive or not subject:
            return
        if subject.startswith("$JS.ACK."):
            self.network.decisions.heard(subject, body)
        else:
            self.network.core.append(Core(subject, body))

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
        self.send(subject, "", b"", payload)

    def publish_acked(self, subject: str, payload: bytes, *_: object, **__: object) -> "asyncio.Future[int]":
        """A last value: stored at once, each reader comes to it in its own time."""
        values = self.network.values
        number = values[subject][0] + 1 if subject in values else 1
        if self.actor.alive:
            values[subject] = (number, payload)
        confirmed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        confirmed.set_result(number)
        return confirmed

    async def room(self) -> None:
        return

    def state_life(self) -> tuple[str, int]:
        """The epoch of the state stream, and its last place."""
        return self.network.state_life()

    async def subscribe(self, subject: str, callback: Callable[[Any], Awaitable[None]]) -> object:
        self.subscribers.append((subject.removesuffix(">"), callback))
        return callback

    def subscribe_raw(self, subject: str, handler: Handler) -> object:
        self.handlers.append((subject.removesuffix(">"), handler))
        return handler

    def unsubscribe_raw(self, subscription: object) -> None:
        self.handlers = [pair for pair in self.handlers if pair[1] is not subscription]

    async def hear(self, message: Core) -> None:
        """A core message arrives."""
        for prefix, handler in self.handlers:
            if message.subject.startswith(prefix):
                handler(message.subject.encode(), b"", None, message.body)
        for prefix, callback in self.subscribers:
            if message.subject.startswith(prefix):
                await callback(Heard(message.subject, message.body))


class _Acks:
    def __init__(self, bus: SteppedBus) -> None:
        self._bus = bus

    async def room(self) -> None:
        return

    def publish(self, subject: str, body: bytes, headers: bytes = b"", **_: object) -> "asyncio.Future[int]":
        bus = self._bus
        message = Message(bus.actor, subject, body, headers, asyncio.get_running_loop().time())
        if isinstance(message.decision, RecordEvents):
            message.confirmed.set_result(0)
        elif bus.actor.alive:
            bus.network.decisions.send(message)
        return message.confirmed
