"""Tasks end although something in them swallows a cancellation."""

import asyncio

from koord.bus.ending import end


async def test_a_swallowed_cancellation_is_repeated() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    async def failing() -> None:
        raise ValueError("dropped")

    task, failed = asyncio.create_task(stubborn()), asyncio.create_task(failing())
    await asyncio.sleep(0)
    await asyncio.wait_for(end(task, failed, None), 10)
    assert task.cancelled() and failed.done() and swallowed == 3
    await end()
