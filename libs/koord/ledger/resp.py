"""One pipelined connection to Redis, for the calls whose rate matters.

redis-py spends 50-100 µs on a call; this spends about ten: commands go straight through hiredis' packer, replies come
from its reader and are matched to their commands by order. A caller that is cancelled leaves its place in the queue
behind, so the order never breaks. Not promised: re-sending. What was under way when the connection went is answered
with ConnectionError, because only the caller knows whether it may be repeated.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import cast
from urllib.parse import ParseResult, parse_qs, unquote, urlparse

import hiredis

Reply = object
# hiredis' stub knows tuples of one element only.
_packed = cast(Callable[[tuple[bytes, ...]], bytes], hiredis.pack_command)
_FIRST_RETRY_S = 0.02
_LAST_RETRY_S = 1.0


class _Protocol(asyncio.Protocol):
    """The wire of one connection: packed commands out, replies in order to the futures that wait for them."""

    def __init__(self, timeout_s: float) -> None:
        self.lost = asyncio.get_running_loop().create_future()
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._reader = hiredis.Reader()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._watchdog: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def send(self, commands: tuple[tuple[bytes, ...], ...]) -> list[asyncio.Future[Reply]]:
        if self._transport is None or self.lost.done():
            raise ConnectionError("not connected")
        now = self._loop.time()
        futures = [self._loop.create_future() for _ in commands]
        self._waiting.extend((future, now) for future in futures)
        self._transport.write(b"".join([_packed(command) for command in commands]))
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self._timeout_s, self._watch)
        return futures

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                future, _ = self._waiting.popleft()
                if not future.done():
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort()

    def abort(self) -> None:
        """Close at once; what waits for an answer gets ConnectionError."""
        if self._transport is not None:
            self._transport.abort()
        if self._watchdog is not None:
            self._watchdog.cancel()
        if not self.lost.done():
            self.lost.set_result(None)
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(ConnectionError("connection lost before the answer"))
                future.exception()  # a cancelled batch may leave nobody to look at it

    def _watch(self) -> None:
        """A server that hangs looks like one that is gone."""
        self._watchdog = None
        if self._waiting:
            left = self._waiting[0][1] + self._timeout_s - self._loop.time()
            if left <= 0:
                self.abort()
            else:
                self._watchdog = self._loop.call_later(left, self._watch)


class Connection:
    """Keeps one connection to ``url`` (redis://, rediss://, unix://), reconnecting with a growing pause.

    ``on_connect`` runs at each connect before any other command may use the connection; if it raises, the connection
    is dropped and tried again (at the first start only after an ``OSError``; anything else is raised by ``start``).
    """

    def __init__(self, url: str, *, timeout_s: float, on_connect: Callable[["Connection"], Awaitable[None]]) -> None:
        self._url = urlparse(url)
        self._timeout_s = timeout_s
        self._on_connect = on_connect
        self._protocol: _Protocol | None = None
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.last_error: Exception | None = None

    @property
    def connected(self) -> bool:
        """Whether commands may be sent."""
        return self._ready.is_set()

    async def start(self, wait_s: float) -> None:
        """Connect and keep connected; ConnectionError if that takes longer than ``wait_s``."""
        self._task = asyncio.create_task(self._keep(), name="ledger-connection")
        ready = asyncio.create_task(self._ready.wait())
        done, _ = await asyncio.wait({ready, self._task}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task in done:
            self._task.result()
        if not self._ready.is_set():
            await self.close()
            raise ConnectionError(f"no connection within {wait_s:g} s: {self.last_error}")

    async def close(self) -> None:
        """Close and do not come back."""
        self._closing = True  # should the cancellation get lost, the loop still ends
        if self._protocol is not None:
            self._protocol.abort()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task
        if self._protocol is not None:
            self._protocol.abort()
        self._ready.clear()

    def call(self, *commands: tuple[bytes, ...], handshake: bool = False) -> list[asyncio.Future[Reply]]:
        """Send commands together, in order; one future each. An error reply is a ``hiredis.ReplyError`` *result*."""
        if self._protocol is None or not (handshake or self._ready.is_set()):
            raise ConnectionError(f"not connected: {self.last_error}" if self.last_error else "not connected")
        return self._protocol.send(commands)

    def drop(self) -> None:
        """Close the present connection; a new one is made (and ``on_connect`` runs again)."""
        self._ready.clear()
        if self._protocol is not None:
            self._protocol.abort()

    async def _keep(self) -> None:
        pause, been_ready = _FIRST_RETRY_S, False
        while not self._closing:
            try:
                async with asyncio.timeout(self._timeout_s):
                    self._protocol = await self._dial()
                    await self._greet()
                    await self._on_connect(self)
                self._ready.set()
                been_ready = True
                pause = _FIRST_RETRY_S
                await self._protocol.lost
                self.last_error = ConnectionError("connection lost")
            except Exception as error:
                self.last_error = error
                # What is no fault of the network is the starter's to know; later nobody waits, so it is tried again.
                if not been_ready and not isinstance(error, OSError | TimeoutError):
                    raise
            finally:
                self._ready.clear()
                if self._protocol is not None:
                    self._protocol.abort()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_RETRY_S)

    async def _dial(self) -> _Protocol:
        loop, url = asyncio.get_running_loop(), self._url
        factory = partial(_Protocol, self._timeout_s)
        if url.scheme == "unix":
            _, protocol = await loop.create_unix_connection(factory, url.path)
        else:
            context = ssl.create_default_context() if url.scheme == "rediss" else None
            _, protocol = await loop.create_connection(
                factory, url.hostname or "127.0.0.1", url.port or 6379, ssl=context
            )
        return protocol

    async def _greet(self) -> None:
        for command in greeting(self._url):
            reply = await self.call(command, handshake=True)[0]
            if isinstance(reply, hiredis.ReplyError):
                raise ConnectionError(f"{command[0].decode()}: {reply}")


def greeting(url: ParseResult) -> list[tuple[bytes, ...]]:
    """The commands that a URL's user, password and database ask for."""
    commands: list[tuple[bytes, ...]] = []
    if url.password is not None:
        name = (unquote(url.username).encode(),) if url.username else ()
        commands.append((b"AUTH", *name, unquote(url.password).encode()))
    database = parse_qs(url.query).get("db", [url.path.strip("/") if url.scheme != "unix" else ""])[0]
    if database and database != "0":
        commands.append((b"SELECT", database.encode()))
    return commands
