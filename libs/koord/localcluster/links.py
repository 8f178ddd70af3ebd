"""TCP in the middle: a proxy in front of a server's route port that can cut, silence or delay who talks to whom.

Tests make bad network weather with it, without root and on one loopback address. A connection's far end is always the
server that the proxy stands for; its near end is known once it has named itself (nats-server tells its name in the
first lines of a route); a route is of no use before that, so a cut loses nothing by letting the greeting pass.

Not meant for speed: it lives in the event loop of the test.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterable

HOST = "127.0.0.1"
_NAME = re.compile(rb'"server_name":"([^"]+)"')
# A route's greeting is below a kilobyte or two; whoever says that much without a name is not a route.
_GREETING_BYTES = 64 << 10
_CHUNK = 64 << 10


class Weather:
    """Which pairs of servers cannot reach each other, and how late the rest hear from each other. Shared by proxies.

    ``cut``: connections are reset and refused. ``silent``: they stand, but nothing passes, as when packets are
    dropped; when it is over what was held back passes. ``delay_s`` is added to each chunk, one way.
    """

    def __init__(self) -> None:
        self.delay_s = 0.0
        self._cut: set[frozenset[str]] = set()
        self._silent: set[frozenset[str]] = set()
        self._changed = asyncio.Event()

    def part(self, one: Iterable[str], others: Iterable[str], *, silent: bool = False) -> None:
        """No way between any of ``one`` and any of ``others``."""
        pairs = {frozenset((left, right)) for left in one for right in others}
        (self._silent if silent else self._cut).update(pairs)
        self._tell()

    def clear(self) -> None:
        """Fair weather."""
        self._cut.clear()
        self._silent.clear()
        self.delay_s = 0.0
        self._tell()

    def is_cut(self, left: str, right: str) -> bool:
        """Whether connections of the two are reset."""
        return frozenset((left, right)) in self._cut

    def is_silent(self, left: str, right: str) -> bool:
        """Whether connections of the two are held."""
        return frozenset((left, right)) in self._silent

    async def change(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class LinkProxy:
    """Listens on a free loopback port and passes connections on to ``target``, the port of the server ``name``."""

    def __init__(self, name: str, target: int, weather: Weather) -> None:
        self.name = name
        self.target = target
        self.port = 0
        self._weather = weather
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; ``port`` is known afterwards."""
        self._server = await asyncio.start_server(self._accept, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Reset all connections and listen no more."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        far: asyncio.StreamWriter | None = None
        try:
            far_reader, far = await asyncio.open_connection(HOST, self.target)
            await _Connection(self, self._weather).run(reader, writer, far_reader, far)
        except (OSError, asyncio.CancelledError):
            pass  # the server behind is down, or the proxy ends
        finally:
            self._connections.discard(task)
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()


class _Connection:
    """One connection, from whoever ``near`` turns out to be."""

    def __init__(self, proxy: LinkProxy, weather: Weather) -> None:
        self._proxy = proxy
        self._weather = weather
        self.near = ""

    async def run(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes both ways until one side ends or the weather cuts it."""
        tasks = [
            asyncio.create_task(self._up(reader, far_writer)),
            asyncio.create_task(self._pass(far_reader, writer)),
            asyncio.create_task(self._until_cut()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = b""
        while not self.near and len(greeting) < _GREETING_BYTES:
            chunk = await reader.read(_CHUNK)
            if not chunk:
                return
            greeting += chunk
            found = _NAME.search(greeting)
            if found is not None:
                self.near = found[1].decode()
            await self._write(writer, chunk)
        await self._pass(reader, writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK):
            await self._write(writer, chunk)

    async def _write(self, writer: asyncio.StreamWriter, chunk: bytes) -> None:
        if self._weather.delay_s:
            await asyncio.sleep(self._weather.delay_s)
        while self.near and self._weather.is_silent(self.near, self._proxy.name):
            await self._weather.change()
        if self.near and self._weather.is_cut(self.near, self._proxy.name):
            return
        writer.write(chunk)
        await writer.drain()

    async def _until_cut(self) -> None:
        while not (self.near and self._weather.is_cut(self.near, self._proxy.name)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._weather.change(), 0.05)
