"""One address for several apiservers, as a load balancer gives it: a connection goes to one that accepts it.

TLS passes through untouched (each apiserver's certificate is good for loopback). When an apiserver ends, its
connections end and the next ones go to another. It lives in the event loop of its owner: for fail-over tests, not for
measuring.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from koord.localcluster.ports import HOST, free_port

_CHUNK = 256 << 10


class FrontDoor:
    """Listens on a loopback port and passes connections on to the ports that `ports` names, in turn."""

    def __init__(self, ports: Callable[[], Sequence[int]]) -> None:
        self._ports = ports
        self._turn = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """`https://127.0.0.1:<port>`."""
        return f"https://{HOST}:{self.port}"

    async def start(self) -> None:
        """Begin to listen."""
        while self._server is None:
            self.port = free_port()
            with contextlib.suppress(OSError):
                self._server = await asyncio.start_server(self._accept, HOST, self.port, limit=_CHUNK)

    async def stop(self) -> None:
        """End, with all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer), name="front door")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            far_reader, far = await self._reach()
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass(reader, far))
                both.create_task(_pass(far_reader, writer))
        except* OSError:
            pass
        finally:
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ports = list(self._ports())
        self._turn += 1
        for offset in range(len(ports)):
            port = ports[(self._turn + offset) % len(ports)]
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(HOST, port, limit=_CHUNK)
        raise ConnectionRefusedError("no apiserver accepts a connection")


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    # One side has ended: so does the connection, there is no half of one in HTTP over TLS.
    raise ConnectionResetError
