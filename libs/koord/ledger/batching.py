"""Many callers, few calls: what is asked while calls are under way goes out together with the next one.

Each request keeps its place, a caller gets its answers in the order it asked, and a caller that is cancelled disturbs
nobody: its requests still run (a call that was sent cannot be taken back), their answers are dropped.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class _Group(Generic[A]):
    """One caller's answers, as they come in."""

    __slots__ = ("answers", "future", "missing")

    def __init__(self, size: int, future: "asyncio.Future[list[A]]") -> None:
        self.answers: list[A | None] = [None] * size
        self.missing = size
        self.future = future

    def put(self, index: int, answer: A) -> None:
        self.answers[index] = answer
        self.missing -= 1
        if not self.missing and not self.future.done():
            self.future.set_result(self.answers)  # type: ignore[arg-type]  # none is missing


class Batcher(Generic[Q, A]):
    """Collects requests into calls of at most ``limit`` weight, at most ``in_flight`` calls at a time.

    ``send`` answers one batch, in order; what it raises goes to every caller that has a request in the batch.
    """

    def __init__(
        self,
        send: Callable[[list[Q]], Awaitable[Sequence[A]]],
        *,
        weight: Callable[[Q], int],
        limit: int,
        in_flight: int = 2,
    ) -> None:
        self._send = send
        self._weight = weight
        self._limit = limit
        self._free = in_flight
        self._queue: deque[tuple[Q, _Group[A], int]] = deque()
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, requests: Sequence[Q]) -> list[A]:
        """The answers to ``requests``, in their order."""
        if not requests:
            return []
        loop = asyncio.get_running_loop()
        group: _Group[A] = _Group(len(requests), loop.create_future())
        self._queue.extend((request, group, index) for index, request in enumerate(requests))
        if not self._scheduled:
            self._scheduled = True
            # Not at once: other callers of this turn of the loop come along.
            loop.call_soon(self._flush)
        return await group.future

    async def close(self) -> None:
        """Wait for what is under way; what is queued goes out too."""
        while self._tasks or self._queue:
            if not self._tasks:
                self._flush()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _flush(self) -> None:
        self._scheduled = False
        queue, weight, limit = self._queue, self._weight, self._limit
        while queue and self._free:
            batch: list[tuple[Q, _Group[A], int]] = []
            total = 0
            while queue and (not batch or total + weight(queue[0][0]) <= limit):
                entry = queue.popleft()
                total += weight(entry[0])
                batch.append(entry)
            self._free -= 1
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: list[tuple[Q, _Group[A], int]]) -> None:
        try:
            answers = await self._send([entry[0] for entry in batch])
            for (_, group, index), answer in zip(batch, answers, strict=True):
                group.put(index, answer)
        except Exception as error:
            for _, group, _ in batch:
                if not group.future.done():
                    group.future.set_exception(error)
        finally:
            self._free += 1
            if self._queue:
                self._flush()
