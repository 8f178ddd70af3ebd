"""Keeps a set of processes running: a crashed one is started again, after a wait that doubles while it keeps crashing.

Children are started in the order they are added and stopped by stages, the last stage first; those of one stage stop
together. The supervisor restarts and reports; what to run and when to give up is its caller's business.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from koord.localcluster.process import LineSink, to_stderr


class Supervised(Protocol):
    """What the supervisor needs of a process: `Child`, `NatsServer` and `RedisServer` have it."""

    @property
    def name(self) -> str:
        """A short name, unique under one supervisor."""
        ...

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        ...

    async def start(self) -> object:
        """Start it; may be called again after its end."""
        ...

    async def wait(self) -> int:
        """Wait for its end; the return code."""
        ...

    async def stop(self) -> object:
        """End it."""
        ...


class Backoff:
    """Seconds to wait before the next start: doubling, forgotten after a long enough healthy run. Time is passed in."""

    def __init__(self, first_s: float = 0.2, limit_s: float = 10.0, healthy_s: float = 30.0) -> None:
        self._first = first_s
        self._limit = limit_s
        self._healthy = healthy_s
        self._next = first_s

    def after(self, ran_s: float) -> float:
        """The wait after a run of `ran_s` seconds."""
        if ran_s >= self._healthy:
            self._next = self._first
        wait = self._next
        self._next = min(wait * 2, self._limit)
        return wait


def brief() -> Backoff:
    """For NATS and Redis: cheap to start, and nothing goes on without them."""
    return Backoff(limit_s=2.0)


class Supervisor:
    """Runs children by name until `stop`.

    `on_restart` is called with a child's name after each successful start that follows a crash (its pid is new then),
    `on_end` with its name and return code at each end that nobody asked for.
    """

    def __init__(
        self,
        *,
        sink: LineSink = to_stderr,
        backoff: Callable[[], Backoff] = Backoff,
        on_restart: Callable[[str], None] | None = None,
        on_end: Callable[[str, int], None] | None = None,
    ) -> None:
        self.restarts: dict[str, int] = {}
        self._sink = sink
        self._backoff = backoff
        self._on_restart = on_restart
        self._on_end = on_end
        self._children: dict[str, tuple[Supervised, int]] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}

    async def add(self, child: Supervised, *, stage: int = 0, backoff: Callable[[], Backoff] | None = None) -> None:
        """Start a child and keep it running; an error of its first start is the caller's, and it is not kept then.

        ``backoff`` for this child alone: one that all others wait for should not be away long.
        """
        if child.name in self._children:
            raise ValueError(f"{child.name}: a child of this name is supervised already")
        self._children[child.name] = (child, stage)
        self.restarts[child.name] = 0
        try:
            await child.start()
        except BaseException:
            self._children.pop(child.name, None)  # stop() may have taken it meanwhile
            raise
        if child.name not in self._children:  # stop() came when there was nothing to end yet
            await child.stop()
            raise RuntimeError(f"{child.name}: stopped while it started")
        self._keepers[child.name] = asyncio.create_task(
            self._keep(child, (backoff or self._backoff)()), name=f"keeper of {child.name}"
        )

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the children that run now."""
        return {name: pid for name, (child, _) in self._children.items() if (pid := child.pid) is not None}

    async def remove(self, name: str) -> None:
        """Stop one child and forget it."""
        child, _ = self._children.pop(name)
        await self._end(child)

    async def stop(self) -> None:
        """Stop all: the highest stage first, each stage together. Errors of one do not keep the others running."""
        while self._children:
            stage = max(stage for _, stage in self._children.values())
            names = [name for name, (_, own) in self._children.items() if own == stage]
            results = await asyncio.gather(*(self.remove(name) for name in names), return_exceptions=True)
            for name, result in zip(names, results, strict=True):
                if isinstance(result, Exception):
                    self._sink(f"[{name}] could not be stopped: {result}")

    async def _end(self, child: Supervised) -> None:
        keeper = self._keepers.pop(child.name, None)
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})
        await child.stop()

    async def _keep(self, child: Supervised, backoff: Backoff) -> None:
        started = time.monotonic()
        while True:
            code = await child.wait()
            if self._on_end is not None:
                self._tell(child.name, self._on_end, child.name, code)
            wait = backoff.after(time.monotonic() - started)
            self._sink(f"[{child.name}] ended with code {code}; starting again in {wait:g} s")
            while True:
                await asyncio.sleep(wait)
                started = time.monotonic()
                try:
                    await child.start()
                    break
                except Exception as error:  # whatever it is, the next attempt may do better
                    wait = backoff.after(0.0)
                    self._sink(f"[{child.name}] did not start: {error}; trying again in {wait:g} s")
            self.restarts[child.name] += 1
            if self._on_restart is not None:
                self._tell(child.name, self._on_restart, child.name)

    def _tell(self, name: str, listener: Callable[..., None], *arguments: object) -> None:
        """Whatever a listener comes to, its child is kept."""
        try:
            listener(*arguments)
        except Exception as error:
            self._sink(f"[{name}] {error}")
