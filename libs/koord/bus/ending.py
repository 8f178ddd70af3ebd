"""Ending a task for certain, and tidying up for certain.

One ``cancel()`` is not enough: ``asyncio.wait_for`` of Python 3.11 swallows it when its future completes in the same
turn of the loop, and so does nats-py's flush; the task then goes on as if nothing had happened.

So :func:`end` cancels again and again, and a task that awaits something while it tidies up is interrupted in that.
What must be done to its end goes through :func:`finish`.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

AGAIN_S = 0.1


async def end(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel ``tasks`` until they have ended. Their results and errors are dropped."""
    running = {task for task in tasks if task is not None and not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=AGAIN_S)
    for ended in tasks:
        if ended is not None and not ended.cancelled():
            ended.exception()  # seen


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end, however often the caller is cancelled meanwhile; that is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen
        raise cancelled
    return task.result()


def cancelled() -> bool:
    """Whether somebody wants the running task to end: a library below may have swallowed the exception that says so."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
