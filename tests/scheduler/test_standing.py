"""What a scheduler makes of what the gateway says of preconditions: share, have all, or stand by."""

import asyncio

from koord.bus.connection import Bus
from koord.bus.questions import serve
from koord.contracts.asks import BindingGuarantees, WhichGuarantees
from koord.runtime.ending import end
from koord.scheduler.sharing import Share
from koord.scheduler.standing import watch_seat


def test_alone_is_all_or_nothing() -> None:
    keys = [f"default/{number}" for number in range(100)]
    first, second = Share("s1"), Share("s2")
    for share in (first, second):
        share.set_members(("s1", "s2"))
        assert share.set_alone("s1")
        assert not share.set_alone("s1"), "nothing new"
    assert all(map(first.mine, keys))
    assert not any(map(second.mine, keys))
    for share in (first, second):
        assert share.set_alone("")
    assert all(first.mine(key) != second.mine(key) for key in keys)
    assert any(map(second.mine, keys))


async def test_only_an_answer_changes_anything(nats_url: str, cluster: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    asked: asyncio.Queue[str] = asyncio.Queue()
    answers: list[BindingGuarantees | ValueError] = [
        ValueError("an older gateway, or one that cannot say"),
        BindingGuarantees("ignored", "v1.22.17", "s2"),
        BindingGuarantees("honoured", "v1.23.0", "s2"),
    ]

    async def answer(question: WhichGuarantees) -> BindingGuarantees:
        asked.put_nowait(question.scheduler)
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, ValueError):
            raise found
        return found

    async with await Bus.connect(nats_url, cluster, "test") as bus:
        task = asyncio.create_task(watch_seat(bus, "s1", heard.put_nowait, every_s=0.1))
        try:
            await asyncio.sleep(0)  # nobody answers the first question
            await serve(bus, "gateway", "guarantees", WhichGuarantees, answer)
            assert await asyncio.wait_for(heard.get(), 60) == "s2", "neither silence nor a refusal was an answer"
            assert await asyncio.wait_for(heard.get(), 60) == ""
            assert {asked.get_nowait() for _ in range(asked.qsize())} == {"s1"}
        finally:
            await end(task)
