"""Keys that somebody has to look at: each at most once in the queue, again later when its handler was refused."""

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NoReturn, TypeVar

from koord.localcluster.clusterapi import ApiError
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

K = TypeVar("K", bound=Hashable)

_SLICE_S = 0.005
_FIRST_RETRY_S = 0.1
_LONGEST_RETRY_S = 5.0


class WorkQueue(Generic[K]):
    """Hands keys to `handle`, one after the other.

    `ApiError` from a handler puts its key back with a growing wait, except for 404 and 409: the object is not what it
    was, so the write that changed it has put its key into the queue already.
    """

    def __init__(self, name: str, handle: Callable[[K], Awaitable[None]]) -> None:
        self._name = name
        self._handle = handle
        self._ready: dict[K, None] = {}
        self._later: list[tuple[float, int, K]] = []
        self._waiting: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._count = 0
        self._wake = asyncio.Event()

    def add(self, key: K) -> None:
        """Handle a key soon; nothing if it waits for that already."""
        self._ready[key] = None
        self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Handle a key in a while, unless it waits for an earlier time."""
        due = time.monotonic() + seconds
        if self._waiting.get(key, due + 1) <= due:
            return
        self._waiting[key] = due
        self._count += 1
        heapq.heappush(self._later, (due, self._count, key))
        self._wake.set()

    async def run(self) -> NoReturn:
        """Work until cancelled."""
        turn = time.perf_counter()
        while True:
            self._collect_due()
            if not self._ready:
                await self._rest()
                turn = time.perf_counter()
                continue
            await self._one()
            # Calls in this process never really wait: give way to requests.
            if time.perf_counter() - turn > _SLICE_S:
                await asyncio.sleep(0)
                turn = time.perf_counter()

    async def settle(self) -> None:
        """Work until nothing is ready; what waits for its time goes on waiting."""
        self._collect_due()
        while self._ready:
            await self._one()
            self._collect_due()

    @property
    def idle(self) -> bool:
        """Whether nothing is ready."""
        return not self._ready

    async def _one(self) -> None:
        key = next(iter(self._ready))
        del self._ready[key]
        try:
            await self._handle(key)
        except ApiError as error:
            if error.code in (404, 409):
                self._failures.pop(key, None)
                self.add_after(key, _FIRST_RETRY_S)
                return
            self._again(key, str(error))
        except Exception as error:  # a defect, or an object bent in a way nobody thought of: the others must go on
            _log.exception("controller failed", controller=self._name, object=str(key))
            self._again(key, repr(error))
        else:
            self._failures.pop(key, None)

    def _again(self, key: K, why: str) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(_FIRST_RETRY_S * 2.0 ** min(failures, 16), _LONGEST_RETRY_S)
        _log.warning("controller tries again", controller=self._name, object=str(key), error=why, wait_s=wait)
        self.add_after(key, wait)

    def _collect_due(self) -> None:
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._waiting.get(key) == due:
                del self._waiting[key]
                self._ready[key] = None

    async def _rest(self) -> None:
        self._wake.clear()
        wait = self._later[0][0] - time.monotonic() if self._later else None
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            pass
