"""Tasks end although something in them swallows a cancellation, and tidying up is not interrupted by it."""

import asyncio

import pytest

from koord.bus.connection import Bus
from koord.bus.ending import end, finish
from koord.bus.ordered import BACKLOG_BYTES, OrderedReader
from tests.bus.conftest import Connect, until


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


async def test_what_must_be_done_is_done_although_it_is_cancelled_again_and_again() -> None:
    steps: list[str] = []

    async def tidy() -> None:
        await asyncio.sleep(0.35)  # longer than end() waits between two cancellations
        steps.append("tidied")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await finish(tidy())
            steps.append("not reached: the cancellation goes on")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await asyncio.wait_for(end(task), 20)
    assert task.cancelled() and steps == ["tidied"]


async def test_finish_gives_the_result_or_the_error() -> None:
    async def answer() -> int:
        return 7

    async def fail() -> None:
        raise ValueError("wrong")

    assert await finish(answer()) == 7
    with pytest.raises(ValueError, match="wrong"):
        await finish(fail())


class Reading:
    """Takes whatever comes; ``broken`` raises instead."""

    def __init__(self, broken: bool = False) -> None:
        self.done = asyncio.Event()
        self.broken = broken

    async def starting(self) -> None:
        """Nothing to prepare."""

    def message(self, subject: bytes, headers: bytes | None, body: bytes, sequence: int) -> None:
        if self.broken:
            raise RuntimeError("a defect of the sink")

    def caught_up(self) -> None:
        self.done.set()

    def pause(self) -> None:
        """Nothing to hand on."""


async def flood(writer: Bus) -> None:
    """More than a reader's backlog may hold."""
    size = 4 << 20
    for number in range(BACKLOG_BYTES // size + 3):
        await writer.acks.publish(writer.subjects.state("pods_core", "ns", f"p{number}"), b"x" * size)


async def test_a_reader_whose_closing_is_cancelled_does_not_stop_the_connection(connect: Connect) -> None:
    """A gateway that lost its Lease while it read the stream back never read anything from NATS again."""
    bus, writer = await connect(), await connect("writer")
    reading = Reading()
    reader = OrderedReader(bus, bus.subjects.state_stream, bus.subjects.state_of("pods_core"), reading)
    reader.start()
    await asyncio.wait_for(reading.done.wait(), 20)
    closing = asyncio.create_task(reader.close())
    await asyncio.sleep(0)  # it waits for the reader's task now
    closing.cancel()
    await asyncio.wait({closing})
    await flood(writer)
    assert (await asyncio.wait_for(bus.js.stream_info(bus.subjects.state_stream), 20)).state.messages


async def test_a_reader_that_crashed_does_not_stop_the_connection(connect: Connect) -> None:
    bus, writer = await connect(), await connect("writer")
    reading = Reading(broken=True)
    reader = OrderedReader(bus, bus.subjects.state_stream, bus.subjects.state_of("pods_core"), reading)
    reader.start()
    await asyncio.wait_for(reading.done.wait(), 20)
    await flood(writer)
    assert (await asyncio.wait_for(bus.js.stream_info(bus.subjects.state_stream), 20)).state.messages
    task = reader._task
    assert task is not None
    await until(task.done)
    await reader.close()
