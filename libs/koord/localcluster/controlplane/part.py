"""What the parts of a control plane share: a binary, flags, a port off the beaten track, readiness over TLS.

A part counts as started when its readiness path answers 200 over TLS *and* the listener on its port is the process that
was started (asked of the kernel: another process may have taken the port in between).
"""

import abc
import asyncio
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import psutil

from koord.localcluster.ports import HOST
from koord.localcluster.servers import Server, ServerError

Flags = Mapping[str, str | None]
"""Command-line flags by name without dashes; None takes a flag that would be given by default away."""

NO_FLAGS: Flags = MappingProxyType({})


def binary(folder: Path, name: str) -> Path:
    """The program or file `name` in a folder of binaries; `ServerError` if it is not there."""
    path = folder / name
    if not path.is_file():
        raise ServerError(f"{name}: not found in {folder}")
    return path


class Part(Server):
    """One process of a control plane; `flags` win over what it would be given by itself."""

    ready_path = "/readyz"

    def __init__(
        self,
        program: Path,
        *,
        directory: Path,
        tls: ssl.SSLContext,
        flags: Flags = NO_FLAGS,
        start_timeout_s: float = 120.0,
    ) -> None:
        super().__init__(program, directory=directory, start_timeout_s=start_timeout_s)
        self.flags = dict(flags)
        self._context = tls

    @abc.abstractmethod
    def defaults(self) -> Flags:
        """The flags of the next start, before `flags`."""

    @property
    def url(self) -> str:
        """`https://127.0.0.1:<port>`."""
        return f"https://{HOST}:{self.port}"

    async def bounce(self) -> None:
        """Kill it, as a crash, and start it on the same port with the same data."""
        await self.kill()
        await self.start()

    def _arguments(self) -> Sequence[str]:
        flags = {**self.defaults(), **self.flags}
        return [f"--{name}={value}" for name, value in flags.items() if value is not None]

    def _tls(self) -> ssl.SSLContext | None:
        return self._context

    def _data(self) -> Sequence[Path]:
        return []

    async def _is_ours(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool | None:
        writer.write(f"GET {self.ready_path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        status = (await reader.readline()).split()
        if status[1:2] != [b"200"]:
            return None
        return await asyncio.to_thread(self._listens)

    def _listens(self) -> bool:
        # The group's leader is the program itself: what `spawn` starts replaces itself with it.
        try:
            found = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return False
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == self.port for one in found)
