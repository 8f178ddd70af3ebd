"""Ending a task for certain, and tidying up for certain.

One ``cancel()`` is not enough: ``asyncio.wait_for`` of Python 3.11 swallows it when its future completes in the same
turn of the loop, and so does nats-py's flush; the task then goes on as if nothing had happened.

So :func:`end` cancels again and again, and a task that awaits something while it tidies up is interrupted in that.
What must be done to its end goes through :func:`finish`.

A cancelled task keeps the exception that ended it, the exception its frames, and they all that the task had at hand,
for as long as anybody keeps the task; often that is an object that the frames hold, a cycle that a service, which
collects rarely, would not come to for hours. So :func:`end` takes the exception out and drops it. Frames are never
cleared: an error may have gone to several, and its frames be those of a coroutine that lives on, which clearing ends.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

AGAIN_S = 0.1


async def end(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel ``tasks`` until they have ended. Their results and errors are dropped.

    What the cancelled ones had at hand goes with them. A failed one keeps its error, for whoever wants to tell it.
    """
    running = {task for task in tasks if task is not None and not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=AGAIN_S)
    for ended in tasks:
        if ended is not None:
            with contextlib.suppress(asyncio.CancelledError):  # asking for that one takes it out of the task
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
        try:
            raise cancelled
        finally:
            cancelled = None  # it holds this frame
    return task.result()


def cancelled() -> bool:
    """Whether somebody wants the running task to end: a library below may have swallowed the exception that says so."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
