"""A pull loop on MSG.NEXT: several times the rate of nats-py's ``fetch``, in bounded batches, healed after reconnects.

At most ``ahead`` messages are asked for or wait locally, so the process never holds more than it can work off. Messages
are delivered at least once: what is not acknowledged within the consumer's ``ack_wait`` comes again, with a higher
``delivered``.

A consumer that does not answer has lost its leader, or is gone. It is asked anew ten times a second, for a leader that
is elected knows nothing of what its predecessor was asked; only when JetStream says that there is no such consumer is
it made again. Until it answers the loop is ``blind``; what others find on the way may be put in with ``push``.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
import nats.errors
import nats.js.errors

from koord.bus.client import status_of
from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.bus.errors import BusError
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

EXPIRES_S = 20.0
HEARTBEAT_S = 0.5
# Beats without a sign of life before the consumer is given up; counted, not timed: our own loop may have stood still.
SILENT_BEATS = 5
# After so many there may be no leader: reason enough to look past the consumer, not to trouble it.
BLIND_BEATS = 2
ASK_AGAIN_S = 0.1
LOOK_S = 1.0
COMPLAIN_S = 5.0


class Pulled(NamedTuple):
    """One message as it came: acknowledge it on ``reply`` (empty: it did not come from the consumer).

    ``stored``: the stream is known to hold it.
    """

    subject: bytes
    reply: bytes
    headers: bytes | None
    body: bytes
    stored: bool = True


class _Next(msgspec.Struct, omit_defaults=True):
    batch: int
    expires: int
    idle_heartbeat: int


class _ConsumerNames(msgspec.Struct):
    consumers: list[str] | None = None
    error: msgspec.Raw | None = None


class PullLoop:
    """Pulls from one durable consumer. ``ensure`` makes the consumer; it runs at start and when it is gone."""

    def __init__(
        self, bus: Bus, stream: str, durable: str, ensure: Callable[[], Awaitable[None]], *, ahead: int = 512
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._durable = durable
        self._ensure = ensure
        self._ahead = max(2, ahead)
        self._waiting: deque[Pulled] = deque()
        self._asked: dict[int, int] = {}
        self._number = 0
        self._wake = asyncio.Event()
        self._alive = False
        self._refused = False
        self._news = asyncio.Event()
        self._inbox = bus.nc.new_inbox() + "."
        self._subscription = bus.subscribe_raw(self._inbox + "*", self._receive)
        self._off: Callable[[], None] = lambda: None
        self._watchdog: asyncio.Task[None] | None = None
        self._mending: asyncio.Task[None] | None = None
        self._closed = False
        self._ready = False
        # Whether the consumer says nothing, and the highest sequence of the stream that was handed on.
        self.blind = False
        self.position = 0
        # How often deliveries may have got lost after ``position``, and how many of these gaps were filled. The
        # consumer itself brings such a delivery again only after its ack_wait.
        self.gaps = 0
        self.filled = 0
        self._delivered = 0

    @property
    def ready(self) -> bool:
        """Whether the consumer was made and is asked."""
        return self._ready

    @property
    def gap(self) -> bool:
        """Whether there is a gap that was not filled."""
        return self.gaps > self.filled

    @property
    def waiting(self) -> int:
        """Messages that came and are not handed on."""
        return len(self._waiting)

    def push(self, found: Sequence[Pulled]) -> None:
        """Hand these on, behind what waits."""
        if found and not self._closed:
            self._waiting.extend(found)
            self._wake.set()

    async def start(self) -> None:
        """Make the consumer and begin to ask."""
        await self._ensure()
        self._off = self._bus.on_reconnect(self._reconnected)
        self._watchdog = asyncio.create_task(self._watch(), name=f"bus-pull-{self._durable}")
        self._ready = True
        self._ask()

    async def batches(self) -> AsyncIterator[list[Pulled]]:
        """What arrived, in order, as lists; ends when the loop is closed."""
        while not self._closed:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = list(self._waiting)
            self._waiting.clear()
            self._move(batch)
            self._ask()
            yield batch

    async def close(self) -> None:
        """Ask for no more. What was handed out may still be acknowledged; what waits here comes again later."""
        if self._closed:
            return
        self._closed = True
        self._off()
        # Before anything is awaited: whoever closes may be cancelled there.
        self._bus.unsubscribe_raw(self._subscription)
        if self._bus.connected:
            for pulled in filter(attrgetter("reply"), self._waiting):
                self._bus.nc.send(pulled.reply.decode(), "", b"", b"-NAK")
        self._waiting.clear()
        self._wake.set()
        await end(self._watchdog, self._mending)

    def _move(self, batch: list[Pulled]) -> None:
        """Where the loop stands after ``batch``.

        What comes for the first time comes in the order of the stream, so the last such message is enough. The consumer
        counts its deliveries: if it counted more than came, some died with a connection or a server.
        """
        came = [pulled for pulled in batch if pulled.reply]
        if not came:
            return
        count = _place(came[-1].reply)[2]
        if self._delivered and count > self._delivered + len(came):
            self.gaps += 1
        self._delivered = count
        if self.gap:
            return  # whoever fills the gap moves on
        for pulled in reversed(came):
            times, sequence, _ = _place(pulled.reply)
            if times == 1:
                self.position = max(self.position, sequence)
                return

    def _ask(self) -> None:
        """Keep what is asked for plus what waits near ``ahead``, in requests of half of it."""
        if self._closed or not self._ready or not self._bus.connected:
            return
        half = self._ahead // 2
        while sum(self._asked.values()) + len(self._waiting) <= half:
            self._number += 1
            self._asked[self._number] = half
            body = msgspec.json.encode(_Next(half, int(EXPIRES_S * 1e9), int(HEARTBEAT_S * 1e9)))
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}"
            self._bus.nc.send(subject, f"{self._inbox}{self._number}", b"", body)

    def _receive(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        self._alive = True
        if headers is not None and headers.startswith(b"NATS/1.0 "):
            self._status(subject, headers)
            return
        # The server serves requests in the order they came, so a message counts against the oldest one.
        for number, left in self._asked.items():
            if left <= 1:
                del self._asked[number]
            else:
                self._asked[number] = left - 1
            break
        self.blind = False
        if not self._waiting:
            self._wake.set()
        self._waiting.append(Pulled(subject, reply, headers, body))

    def _status(self, subject: bytes, headers: bytes) -> None:
        code, text = status_of(headers)
        if code == 100:
            self.blind = False
            self._news.set()
            return  # a heartbeat
        tail = subject.rpartition(b".")[2]
        if tail.isdigit():
            self._asked.pop(int(tail), None)
        if code in (404, 408) or (code == 409 and "Batch Completed" in text):
            self.blind = False
            self._news.set()
            self._ask()  # expired or served
        elif "Exceeded" in text:
            asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._ask)
        else:
            # 409: the consumer was deleted or has another leader; 503: nobody is there.
            self._refused = self.blind = True
            self._news.set()
            self._mend(f"{code} {text}".strip())

    async def _reconnected(self) -> None:
        self.gaps += 1
        self._mend("the connection was lost")

    def _mend(self, why: str) -> None:
        """Ask anew until the consumer answers."""
        if self._ready and not self._closed and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._mended(why), name=f"bus-mend-{self._durable}")

    async def _mended(self, why: str) -> None:
        loop = asyncio.get_running_loop()
        look_at = loop.time() + ASK_AGAIN_S
        complain_at = loop.time() + LOOK_S
        while not self._closed and self._bus.connected:
            self._asked.clear()
            self._alive = self._refused = False
            self._news.clear()
            self._ask()
            try:
                # Something must come within two beats, a heartbeat at the least.
                await asyncio.wait_for(self._news.wait(), 2 * HEARTBEAT_S + ASK_AGAIN_S)
            except TimeoutError:
                self._refused = not self._alive
                self.blind = self.blind or self._refused
            if not self._refused:
                self.gaps += 1  # what the leader before this one had sent last may not have come
                return
            if loop.time() >= complain_at:
                complain_at = loop.time() + COMPLAIN_S
                log.warning("the consumer does not answer yet", consumer=self._durable, reason=why)
            await asyncio.sleep(ASK_AGAIN_S)
            if loop.time() >= look_at:
                look_at = loop.time() + LOOK_S
                await self._make_if_gone()

    async def _make_if_gone(self) -> None:
        try:
            if await self._is_gone():
                log.warning("the consumer is gone and made again", consumer=self._durable)
                await self._bus.prepare()
                await self._ensure()
                self.position = self._delivered = 0  # of another stream, perhaps
        except (BusError, nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            log.warning("the consumer is not ready yet", consumer=self._durable, error=str(error) or repr(error))

    async def _is_gone(self) -> bool:
        """Whether JetStream says that it knows no such stream or consumer. False while nobody says anything."""
        try:
            answer = await self._bus.nc.request(f"$JS.API.CONSUMER.NAMES.{self._stream}", b"", timeout=LOOK_S / 2)
            names = msgspec.json.decode(answer.data, type=_ConsumerNames)
        except (nats.errors.Error, msgspec.MsgspecError, TimeoutError, OSError):
            return False
        if names.error is not None:
            return b'"code":404' in bytes(names.error)
        return self._durable not in (names.consumers or ())

    async def _watch(self) -> None:
        silent = 0
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            idle = not self._asked or not self._bus.connected or self._bus.nc.is_held
            silent = 0 if self._alive or idle else silent + 1
            self._alive = False
            if silent >= BLIND_BEATS:
                self.blind = True
            if silent >= SILENT_BEATS:
                silent = 0
                self._mend("no heartbeat from the consumer")


def delivered(reply: bytes) -> int:
    """How often the message was delivered, this time included, from its acknowledgement subject."""
    return _place(reply)[0]


def _place(reply: bytes) -> tuple[int, int, int]:
    """How often it was delivered, its sequence in the stream, and the number of this delivery by the consumer's count.

    ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream sequence>.<consumer sequence>...``; the newer form has two tokens
    more before the stream.
    """
    tokens = reply.split(b".")
    first = 4 if len(tokens) == 9 else 6
    return int(tokens[first]), int(tokens[first + 1]), int(tokens[first + 2])
