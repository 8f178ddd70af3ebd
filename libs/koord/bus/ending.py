"""Ending a task for certain.

One ``cancel()`` is not enough: ``asyncio.wait_for`` of Python 3.11 swallows it when its future completes in the same
turn of the loop, and so does nats-py's flush; the task then goes on as if nothing had happened.
"""

import asyncio
from typing import Any

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
