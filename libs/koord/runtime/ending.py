"""Ending tasks for sure.

``asyncio.wait_for`` of Python 3.11 drops a cancellation that comes in the same moment as its result, and a library may
do the same: a task told once to end can go on for ever. So it is told again until it has.
"""

import asyncio
from typing import Any

AGAIN_S = 0.5


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel the tasks and wait until all have ended; what they raise is dropped."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
