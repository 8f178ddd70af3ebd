"""A pull loop on MSG.NEXT: several times the rate of nats-py's ``fetch``, in bounded batches, healed after reconnects.

At most ``ahead`` messages are asked for or wait locally, so the process never holds more than it can work off. Messages
are delivered at least once: what is not acknowledged within the consumer's ``ack_wait`` comes again, with a higher
``delivered``.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
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
HEARTBEAT_S = 2.0


class Pulled(NamedTuple):
    """One message as it came: acknowledge it on ``reply``."""

    subject: bytes
    reply: bytes
    headers: bytes | None
    body: bytes


class _Next(msgspec.Struct, omit_defaults=True):
    batch: int
    expires: int
    idle_heartbeat: int


class PullLoop:
    """Pulls from one durable consumer. ``ensure`` makes the consumer; it runs at start and after each reconnect."""

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
        self._heard = time.monotonic()
        self._inbox = bus.nc.new_inbox() + "."
        self._subscription = bus.subscribe_raw(self._inbox + "*", self._receive)
        self._off: Callable[[], None] = lambda: None
        self._watchdog: asyncio.Task[None] | None = None
        self._closed = False
        self._ready = False

    async def start(self) -> None:
        """Make the consumer and begin to ask."""
        await self._ensure()
        self._off = self._bus.on_reconnect(self._again)
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
            self._ask()
            yield batch

    async def close(self) -> None:
        """Ask for no more. What was handed out may still be acknowledged; what waits here comes again later."""
        if self._closed:
            return
        self._closed = True
        self._off()
        await end(self._watchdog)
        self._bus.unsubscribe_raw(self._subscription)
        if self._bus.connected:
            for pulled in self._waiting:
                self._bus.nc.send(pulled.reply.decode(), "", b"", b"-NAK")
        self._waiting.clear()
        self._wake.set()

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
        self._heard = time.monotonic()
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
        if not self._waiting:
            self._wake.set()
        self._waiting.append(Pulled(subject, reply, headers, body))

    def _status(self, subject: bytes, headers: bytes) -> None:
        code, text = status_of(headers)
        if code == 100:
            return  # a heartbeat
        tail = subject.rpartition(b".")[2]
        if tail.isdigit():
            self._asked.pop(int(tail), None)
        if code in (404, 408) or (code == 409 and "Batch Completed" in text):
            self._ask()  # expired or served
        else:
            # 409: the consumer was deleted or its limit exceeded; 503: JetStream is not there. Ask again a bit later.
            if code != 503 and "Exceeded" not in text:
                log.warning("the server ended a pull", consumer=self._durable, code=code, reason=text)
            asyncio.get_running_loop().call_later(0.1, self._later, "Exceeded" not in text)

    def _later(self, lost: bool) -> None:
        if self._closed:
            return
        if lost:
            self._bus.spawn(self._again())
        else:
            self._ask()

    async def _again(self) -> None:
        """Forget what was asked, make sure that the consumer exists, ask anew."""
        self._asked.clear()
        self._ready = False
        delay = 0.1
        while not self._closed:
            try:
                await self._bus.prepare()
                await self._ensure()
                break
            except (BusError, nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                log.warning("the consumer is not ready yet", consumer=self._durable, error=str(error) or repr(error))
                await asyncio.sleep(delay)
                delay = min(delay * 2, 2.0)
        self._asked.clear()
        self._ready = True
        self._heard = time.monotonic()
        self._ask()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self._ready and self._asked and self._bus.connected and time.monotonic() - self._heard > 4 * HEARTBEAT_S:
                log.warning("no heartbeat from the consumer, asking anew", consumer=self._durable)
                await self._again()


def delivered(reply: bytes) -> int:
    """How often the message was delivered, this time included, from its acknowledgement subject."""
    tokens = reply.split(b".")
    return int(tokens[4] if len(tokens) == 9 else tokens[6])
