"""A clock and a few workers: hands items to a handler when they are due.

Inside the API server's process a handler's calls never really wait, so the workers give way to the event loop by
themselves every few milliseconds; over HTTP several handlers wait at the same time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from koord.localcluster.wheel import TimerWheel

T = TypeVar("T")

_SLICE_S = 0.005
_IDLE_S = 3600.0


class Workers(Generic[T]):
    """Calls `handle(item)` at its time, in at most `count` calls at once; the handler must not raise."""

    def __init__(self, name: str, handle: Callable[[T], Awaitable[None]], count: int = 8) -> None:
        self._name = name
        self._handle = handle
        self._count = count
        self._wheel: TimerWheel[T] = TimerWheel()
        self._ready: deque[T] = deque()
        self._work = asyncio.Event()
        self._sleeper = asyncio.Event()
        self._wake_s = 0.0
        self._turn_s = 0.0

    def at(self, due_s: float, item: T) -> None:
        """Hand out `item` at `due_s` (seconds since the epoch; the past means now). May be called for it again."""
        self._wheel.add(due_s, item)
        if due_s < self._wake_s:
            self._sleeper.set()

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Start; the tasks run until they are cancelled."""
        return [
            asyncio.create_task(self._keep_time(), name=f"{self._name}: clock"),
            *(asyncio.create_task(self._work_off(), name=f"{self._name}: worker {i}") for i in range(self._count)),
        ]

    async def give_way(self) -> None:
        """To be awaited now and then inside a long handler: lets others run if this turn has been long."""
        if time.perf_counter() - self._turn_s > _SLICE_S:
            await asyncio.sleep(0)
            self._turn_s = time.perf_counter()

    async def _keep_time(self) -> None:
        while True:
            now = time.time()
            due = self._wheel.pop_due(now)
            if due:
                self._ready.extend(due)
                self._work.set()
            next_s = self._wheel.next_due()
            self._wake_s = now + _IDLE_S if next_s is None else next_s
            self._sleeper.clear()
            try:
                async with asyncio.timeout(max(0.0, self._wake_s - time.time())):
                    await self._sleeper.wait()
            except TimeoutError:
                pass

    async def _work_off(self) -> None:
        while True:
            if not self._ready:
                self._work.clear()
                await self._work.wait()
                self._turn_s = time.perf_counter()
            else:
                await self._handle(self._ready.popleft())
                await self.give_way()
