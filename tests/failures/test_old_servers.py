"""An API server that ignores preconditions of Bindings (before Kubernetes 1.23): one scheduler binds, and it waits.

The weaker guarantee stands in docs/compatibility.md.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from koord.gateway.guarantees import Guarantees
from koord.gateway.leanclient import OutcomeUnknown, Response
from koord.ledger.client import Ledger
from koord.scheduler.standing import watch_seat
from koord.telemetry.context import TraceContext
from tests.failures.bed import Bed, made, until

OUTLIVE_S = 1.0


@pytest.fixture
async def old(nats_url: str, redis_url: str, cluster: str, tmp_path: Path) -> AsyncIterator[Bed]:
    """Two nodes of 4 cpu, a gateway that found out what the server ignores, a reconciler, and an open ledger."""
    async with made(nats_url, redis_url, cluster, tmp_path / "api") as bed:
        bed.guarantees = Guarantees(OUTLIVE_S)
        bed.guarantees.found("ignored", "v1.22.17", "tried")
        for name in ("n1", "n2"):
            await bed.node(name, 4)
        await bed.start("gateway", "reconciler")
        await bed.opened()
        yield bed


async def test_one_scheduler_binds_and_another_follows_it(old: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koord.gateway.guarantees.SEAT_S", 600.0)  # nobody loses it to a busy machine
    monkeypatch.setattr("koord.scheduler.service.watch_seat", partial(watch_seat, every_s=0.2))
    async with old.scheduling() as second:
        async with old.scheduling() as first:

            async def one_stands_by() -> bool:
                return [service._replicas.share.mine("default/any") for service in (first, second)].count(True) == 1

            await until(one_stands_by, "one of the two stands by")
            binds, stands_by = sorted(
                (first, second), key=lambda service: not service._replicas.share.mine("default/any")
            )
            names = [f"a{number}" for number in range(6)]
            for name in names:
                await old.pod(name)
            await old.bound(*names)
            assert sorted(old.bindings) == names, "each once"
            assert not len(stands_by._binds.flights)
            assert binds._queue.counts["elsewhere"] == 0
        monkeypatch.setattr("koord.gateway.guarantees.SEAT_S", 0.5)
        if binds is first:  # it has ended; the other one is heard next
            await until(_has_the_keys(second), "the other one has the seat")
        await old.pod("b")
        await old.bound("b")
    assert old.bindings.count("b") == 1


def _has_the_keys(service: Any) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return bool(service._replicas.share.mine("default/any"))

    return check


async def test_a_bind_of_another_scheduler_is_rejected_and_its_room_is_back(
    old: Bed, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.gateway.guarantees.SEAT_S", 60.0)  # nothing asks for it between the two binds
    assert old.guarantees is not None
    pods = [await old.pod(name) for name in ("a", "b")]
    result = await old.publisher.settle(await old.claim("n1", pods[0]), TraceContext.new(), timeout=60)
    assert result.outcome == "done"
    async with await Ledger.connect(redis_url, old.cluster, "other", lease_s=3600.0) as other:
        await other.status()
        bind = await old.claim("n1", pods[1], by=other)
        result = await old.publisher.settle(bind, TraceContext.new(), timeout=60)
    assert result.outcome == "rejected"
    assert result.members[0].reason.startswith(f"only one scheduler may bind, which is {old.ledger.incarnation}: ")
    assert "v1.22.17" in result.members[0].reason
    assert old.bindings == ["a"]
    await old.amounts_become("n1", 1000, 0)


async def test_a_refusal_after_an_unknown_outcome_waits_until_nothing_is_under_way(old: Bed) -> None:
    """A new version fails no older request here, so the room is given back only when none can succeed any more."""
    pod = await old.pod("a")
    answers = iter([None, Response(422, json.dumps({"kind": "Status", "message": "not now"}).encode(), 0.0)])
    lost_s = 0.0

    async def lose_one(call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal lost_s
        answer = next(answers)
        if answer is None:
            lost_s = time.monotonic()
            raise OutcomeUnknown("connection lost")
        return answer

    old.request = lose_one
    bind = await old.claim("n1", pod)
    result = await old.publisher.settle(bind, TraceContext.new(), timeout=60)
    assert result.outcome == "rejected"
    assert time.monotonic() - lost_s >= OUTLIVE_S
    await old.amounts_become("n1", 0, 0)


async def test_a_lost_decision_is_settled_when_nothing_is_under_way(old: Bed) -> None:
    pod = await old.pod("a")
    old.request = old.stand
    await old.publish(await old.claim("n1", pod))
    await asyncio.wait_for(old.stands.wait(), 60)
    stood_s = time.monotonic()
    await old.kill("gateway")
    await old.bus.js.purge_stream(old.bus.subjects.decisions_stream)
    await old.start("gateway")
    await old.become("-", pod)
    assert time.monotonic() - stood_s >= OUTLIVE_S
    await old.amounts_become("n1", 0, 0)
