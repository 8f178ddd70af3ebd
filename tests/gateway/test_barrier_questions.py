"""Questions for a barrier that come side by side: one barrier runs, and nothing is spent until it is done."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from koord.contracts.asks import RaiseBarrier
from koord.contracts.decisions import Decision
from koord.gateway import barrier as module
from koord.gateway.advancing import Advancer
from koord.gateway.barrier import Barrier
from koord.gateway.podindex import PodIndex


async def test_of_two_new_questions_at_once_the_later_one_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 0.2)
    running = 0

    async def never_known() -> str:
        nonlocal running
        running += 1
        try:
            await asyncio.Event().wait()
        finally:
            running -= 1
        return ""

    async def nothing() -> AsyncIterator[list[Decision]]:
        for page in list[list[Decision]]():
            yield page

    # Neither the API nor the ledger is reached before the queue's age is known.
    nobody = cast(Any, None)
    advancer = Advancer(nobody, 1)
    barrier = Barrier(nobody, PodIndex(), advancer, nothing, never_known, lambda: (), {}, "gateway-1")
    await barrier.answer(RaiseBarrier("a", 1, 1, []))
    assert (running, advancer.stopped) == (1, True)
    answers = await asyncio.gather(*(barrier.answer(RaiseBarrier(id_, 1, 1, [])) for id_ in ("b", "c", "c")))
    assert [(answer.id, answer.step) for answer in answers] == [("b", "settling"), ("c", "settling"), ("c", "settling")]
    assert (running, advancer.stopped) == (1, True)
    await barrier.close()
    assert (running, advancer.stopped) == (0, False)
