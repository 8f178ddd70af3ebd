"""Tasks end although something in them swallows a cancellation, and tidying up is not interrupted by it."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from koord.bus import ordered
from koord.bus.connection import Bus
from koord.bus.ending import end, finish
from koord.bus.errors import NobodyThere
from koord.bus.ordered import OrderedReader
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
    await asyncio.wait_for(end(task, failed, None), 60)
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
    await asyncio.wait_for(end(task), 60)
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
    """A slow sink, so that the reader's backlog fills; ``broken`` raises after a while."""

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken
        self.count = 0

    async def starting(self) -> None:
        """Nothing to prepare."""

    def message(self, subject: bytes, headers: bytes | None, body: bytes, sequence: int) -> None:
        self.count += 1
        if self.broken and self.count > 2 * BACKLOG:
            raise RuntimeError("a defect of the sink")
        time.sleep(0.002)

    def caught_up(self) -> None:
        """Nobody waits for it."""

    def pause(self) -> None:
        """Nothing to hand on."""


BACKLOG = 200


@pytest.fixture
async def full(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Bus, OrderedReader, Reading]]:
    """A reader that is behind, so that the connection's read loop waits for it."""
    monkeypatch.setattr(ordered, "BACKLOG_MESSAGES", BACKLOG)
    bus, writer = await connect(), await connect("writer")
    subjects = bus.subjects
    await asyncio.gather(
        *(writer.acks.publish(subjects.state("pods_core", "ns", f"p{number}"), b"{}") for number in range(3000))
    )
    reading = Reading()
    reader = OrderedReader(bus, subjects.state_stream, subjects.state_of("pods_core"), reading)
    reader.start()
    await until(lambda: reader._full, what="the backlog is full")
    yield bus, reader, reading
    await reader.close()


async def serves(bus: Bus) -> bool:
    """Whether the connection still reads."""
    info = await asyncio.wait_for(bus.js.stream_info(bus.subjects.state_stream), 60)
    return info.state.messages == 3000


async def test_a_reader_whose_closing_is_cancelled_does_not_stop_the_connection(
    full: tuple[Bus, OrderedReader, Reading],
) -> None:
    """A gateway that lost its Lease while it read the stream back never read anything from NATS again."""
    bus, reader, _ = full
    closing = asyncio.create_task(reader.close())
    await asyncio.sleep(0)  # it waits for the reader's task now
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    assert await serves(bus)


async def test_a_reader_that_crashed_does_not_stop_the_connection(full: tuple[Bus, OrderedReader, Reading]) -> None:
    bus, reader, reading = full
    reading.broken = True
    task = reader._task
    assert task is not None
    await until(task.done)
    assert await serves(bus)


async def test_a_subscription_that_was_cut_off_while_it_was_made_answers_nobody(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, subscribed = asyncio.Event(), set(bus.nc._subs)

    async def never() -> None:
        reached.set()
        await asyncio.Event().wait()

    async def echo(body: bytes) -> bytes:
        return body

    with monkeypatch.context() as patch:
        patch.setattr(bus, "barrier", never)
        serving = asyncio.create_task(bus.serve("koord.ask.somebody", echo))
        await asyncio.wait_for(reached.wait(), 60)
        assert set(bus.nc._subs) > subscribed
        await end(serving)
    assert set(bus.nc._subs) == subscribed
    with pytest.raises(NobodyThere):
        await bus.ask("koord.ask.somebody", b"x")
