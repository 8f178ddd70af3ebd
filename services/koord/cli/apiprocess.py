"""The outside world as supervised processes: started when they say so in a file, not when they have been spawned."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from koord.cli.errors import CommandError, UsageProblem
from koord.localcluster.process import Child, LineSink

_READY_S = 180.0
_POLL_S = 0.05
_REFUSED = 2


class ApiProcess:
    """What a supervisor needs (`koord.localcluster.supervisor.Supervised`), around one `Child`.

    ``name`` is the process' in messages and the ready file, ``what`` its description in errors.
    """

    def __init__(
        self,
        argv: Sequence[str],
        ready: Path,
        sink: LineSink,
        *,
        name: str = "apiserver",
        what: str = "the embedded API server",
    ) -> None:
        self.name = name
        self._what = what
        self._child = Child(name, [*argv, "--ready-file", str(ready)], sink=sink)
        self._ready = ready
        self.kubeconfig = ""

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid

    async def start(self) -> None:
        """Start and wait until it serves; `UsageProblem` when it refuses what it was given, such as its directory."""
        self._ready.unlink(missing_ok=True)
        await self._child.start()
        deadline = asyncio.get_running_loop().time() + _READY_S
        while not self._ready.exists():
            if self._child.pid is None:
                code = await self._child.wait()
                problem = UsageProblem if code == _REFUSED else CommandError
                raise problem(f"{self._what} did not start, exit code {code} (see its output above)")
            if asyncio.get_running_loop().time() > deadline:
                await self._child.stop()
                raise CommandError(f"{self._what} did not start in {_READY_S:g} s (see its output above)")
            await asyncio.sleep(_POLL_S)
        self.kubeconfig = json.loads(self._ready.read_bytes())["kubeconfig"]

    async def wait(self) -> int:
        """Wait for its end; the return code."""
        return await self._child.wait()

    async def stop(self) -> None:
        """End it."""
        await self._child.stop()
