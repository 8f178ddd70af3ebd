"""A task that drops its first cancellation still ends, and what it had at hand goes with it."""

import asyncio
import gc

import pytest

from koord.runtime.ending import end, finish


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
    await asyncio.wait_for(end(task), 60)
    assert (task.done(), dropped) == (True, 2)


async def test_failures_of_ended_tasks_are_dropped() -> None:
    async def fails() -> None:
        raise ValueError("x")

    task = asyncio.create_task(fails())
    await asyncio.wait({task})
    await end(task)


class Load:
    """What a task has at hand."""


class Owner:
    """Something that keeps its task, as services do."""

    def __init__(self, way: str) -> None:
        self.begun = asyncio.Event()
        self.task = asyncio.create_task(self.run(way))

    async def run(self, way: str) -> None:
        load = Load()
        await getattr(self, way)()
        assert load

    async def waiting(self) -> None:
        load = Load()
        self.begun.set()
        await asyncio.Event().wait()
        assert load

    async def with_a_deadline(self) -> None:
        async with asyncio.timeout(3600):
            await asyncio.wait_for(self.waiting(), 3600)

    async def after_a_failure(self) -> None:
        load = Load()
        try:
            raise ConnectionError
        except ConnectionError:
            await self.waiting()
        assert load

    async def with_a_task_of_its_own(self) -> None:
        helper = asyncio.create_task(self.waiting())
        try:
            await asyncio.wait({helper})
        finally:
            await finish(end(helper))

    async def cancelled_again_while_it_tidies_up(self) -> None:
        again = asyncio.Event()

        async def tidy() -> None:
            await again.wait()

        load = Load()
        try:
            await self.waiting()
        finally:
            own = asyncio.current_task()
            assert own is not None
            asyncio.get_running_loop().call_soon(own.cancel)
            asyncio.get_running_loop().call_later(0.01, again.set)
            await finish(tidy())
        assert load

    async def for_several(self) -> None:
        await asyncio.gather(self.waiting(), asyncio.create_task(self.waiting()))


def loads() -> int:
    return sum(isinstance(one, Load) for one in gc.get_objects())


@pytest.mark.parametrize(
    "way",
    [
        "waiting",
        "with_a_deadline",
        "after_a_failure",
        "with_a_task_of_its_own",
        "cancelled_again_while_it_tidies_up",
        "for_several",
    ],
)
async def test_what_a_cancelled_task_had_at_hand_goes_with_it(collected_never: None, way: str) -> None:
    owner = Owner(way)
    await asyncio.wait_for(owner.begun.wait(), 60)
    assert loads() >= 2
    await asyncio.wait_for(end(owner.task), 60)
    assert owner.task.cancelled()
    assert loads() == 0


async def test_a_coroutine_whose_error_went_to_another_task_too_goes_on() -> None:
    """Its frame is in the error's traceback: whoever would clear the frames of an ended task's error would end it."""
    asked: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
    go_on = asyncio.Event()

    async def worker() -> str:
        question = await asked.get()
        try:
            raise ConnectionError("away")
        except ConnectionError as error:
            question.set_exception(error)
            await go_on.wait()
        return "went on"

    async def asking() -> None:
        question: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked.put_nowait(question)
        await question

    working, asker = asyncio.create_task(worker()), asyncio.create_task(asking())
    await asyncio.wait({asker}, timeout=30)
    await end(asker)
    go_on.set()
    assert await asyncio.wait_for(working, 60) == "went on"
