"""A task that drops its first cancellation still ends."""

import asyncio

from koord.runtime.ending import end


async def test_a_task_that_drops_a_cancellation_is_told_again() -> None:
    dropped = 0

    async def stubborn() -> None:
        nonlocal dropped
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                dropped += 1
                if dropped == 2:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(end(task), 5)
    assert (task.done(), dropped) == (True, 2)


async def test_failures_of_ended_tasks_are_dropped() -> None:
    async def fails() -> None:
        raise ValueError("x")

    task = asyncio.create_task(fails())
    await asyncio.wait({task})
    await end(task)
