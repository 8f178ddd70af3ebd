"""``koord up`` as a process of its own, for benchmarks that kill parts of it or weigh it: as users run it."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from koord.cli.clusters import ClusterFile
from koord.cli.errors import CommandError
from koord.localcluster.process import spawn, wait_exit
from koord.localcluster.tempdirs import TemporaryDirectory

_START_S = 180.0
_STOP_S = 60.0
_POLL_S = 0.02
_TAIL = 25


class UpProcess:
    """A cluster by its command line; an async context manager. CommandError carries the end of its log."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = tuple(arguments)
        self._directory = TemporaryDirectory("koord-bench-")
        self._ready = self._directory.path / "ready.json"
        self._log = self._directory.path / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    def file(self) -> ClusterFile:
        """The ready file as it is now: process ids change with restarts."""
        return msgspec.json.decode(self._ready.read_bytes(), type=ClusterFile)

    def log_tail(self) -> str:
        """The end of what it printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_TAIL:])

    async def restarted(self, name: str, before: int, timeout_s: float = 60.0) -> None:
        """Wait until the process of that name is another one and every service is ready. CommandError."""
        deadline = time.monotonic() + timeout_s
        while self.file().pids.get(name, before) == before:
            await self._pause(deadline, f"{name} was not started again")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            for slot, url in self.file().http.items():
                while not (told := await readyz(session, url)).get("ready"):
                    await self._pause(deadline, f"{slot} is not ready again, waiting for {told.get('waiting')}")

    async def leader(self, service: str, turn: int = 0) -> str:
        """The process of a service that leads; of several schedulers, which share the work, one after the other."""
        slots = {
            name: url for name, url in self.file().http.items() if name == service or name.rpartition("-")[0] == service
        }
        if len(slots) == 1:
            return next(iter(slots))
        if service == "scheduler":
            return sorted(slots)[turn % len(slots)]
        deadline = time.monotonic() + 30.0
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while True:
                for name, url in slots.items():
                    if service in (await readyz(session, url)).get("leads", ()):
                        return name
                await self._pause(deadline, f"no {service} leads")

    async def _start(self) -> None:
        argv = [sys.executable, "-m", "koord.cli.main", "up", "--ready-file", str(self._ready), *self._arguments]
        with self._log.open("wb") as log:
            self._process = spawn(argv, stdout=log)
        deadline = time.monotonic() + _START_S
        while not self._ready.exists():
            await self._pause(deadline, "koord up did not become ready")

    async def _pause(self, deadline: float, what: str) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise CommandError(f"koord up ended\n{self.log_tail()}")
        if time.monotonic() > deadline:
            raise CommandError(f"{what} in time\n{self.log_tail()}")
        await asyncio.sleep(_POLL_S)

    async def _stop(self) -> None:
        try:
            if self._process is not None:
                self._process.send_signal(signal.SIGINT)
                try:
                    async with asyncio.timeout(_STOP_S):
                        await wait_exit(self._process)
                except TimeoutError:
                    self._process.kill()
                    await wait_exit(self._process)
        finally:
            self._directory.remove()


async def readyz(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """What a service says of its readiness; empty if it says nothing."""
    try:
        async with session.get(f"{url}/readyz") as answer:
            told: dict[str, Any] = msgspec.json.decode(await answer.read())
            return told
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
        return {}


def failure(error: BaseException, up: UpProcess) -> CommandError:
    """What went wrong with a benchmark, the first of many, and the end of the cluster's log."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return CommandError(f"{error or type(error).__name__}\n{up.log_tail()}")


def say(line: str) -> None:
    """Progress, on standard error: a benchmark of minutes should not be silent."""
    print(line, file=sys.stderr, flush=True)
