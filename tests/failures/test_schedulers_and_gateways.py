"""Spec 20 section 3.12, table of failures: schedulers and gateways that die, decisions that come late or get lost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from koord.gateway.leanclient import Response
from koord.scheduler.flights import REPUBLISH_S
from koord.telemetry.context import TraceContext
from tests.failures.bed import NAMESPACE, Bed, until


async def test_s_dies_before_publishing(bed: Bed) -> None:
    """S dies before publishing | row 4: the whole gang's room back in one step, <= 30 s."""
    gang = [await bed.pod(f"a{number}", gang=("a", 3)) for number in range(3)]
    async with bed.mortal(lease_s=1.5) as dead:
        await bed.claim("n1", *gang, by=dead)
    seen = set()

    async def over() -> bool:
        _, held = await bed.amounts("n1")
        seen.add(held)
        return not held

    await until(over, "the room is back")
    assert seen <= {3000, 0}, "the room came back in parts"
    async with bed.scheduling():
        await bed.bound("a0", "a1", "a2")


async def test_s_dies_after_publishing(bed: Bed) -> None:
    """S dies after publishing | G goes on."""
    pod = await bed.pod("a")
    async with bed.mortal(lease_s=30.0) as dead:
        await bed.publish(await bed.claim("n1", pod, by=dead))
    await bed.bound("a", to="n1")
    await bed.amounts_become("n1", 1000, 0)


async def test_s_dies_after_publishing_and_its_lease_is_over_before_advance(bed: Bed) -> None:
    """... | lease over before `advance` -> `rejected(claim gone)`, no API call, another replica requeues."""
    pod = await bed.pod("a")
    async with bed.mortal(lease_s=0.2) as dead:
        late = await bed.claim("n1", pod, by=dead)
        await bed.amounts_become("n1", 0, 0)
        result = await bed.publisher.settle(late, TraceContext.new(), timeout=60)
    assert (result.outcome, result.members[0].reason) == ("rejected", "claim gone")
    assert bed.bindings == []
    async with bed.scheduling():
        await bed.bound("a")
    assert bed.bindings == ["a"]


@pytest.mark.parametrize("when", ["before advance", "after advance", "after the write"])
async def test_g_dies(bed: Bed, when: str) -> None:
    """G dies before `advance` / after it / after the API write | redelivery: 7 / 7 again, then (b) / re-read shows the
    target: done."""
    pod = await bed.pod("a")
    if when == "before advance":
        bed.advance = bed.stand
    else:
        bed.request = bed.stand if when == "after advance" else bed.made_and_stand
    bind = await bed.claim("n1", pod)
    settling = asyncio.create_task(bed.publisher.settle(bind, TraceContext.new(), timeout=60))
    await asyncio.wait_for(bed.stands.wait(), 60)
    await bed.kill("gateway")
    if when != "after the write":
        assert await bed.states(pod) == ["HELD" if when == "before advance" else "BINDING"]
    await bed.start("gateway")
    assert (await settling).outcome == "done"
    assert await bed.nodes_of("a") == ["n1"]
    # One Binding took effect; where the first one did, none was sent again.
    assert bed.bindings == ["a"] * (2 if when == "after advance" else 1)
    await bed.amounts_become("n1", 1000, 0)


@pytest.mark.parametrize("state", ["HELD", "BINDING", "OBSERVED", "gone"])
async def test_decision_redelivered_late(bed: Bed, state: str) -> None:
    """Decision redelivered late | by record: HELD or BINDING of this decision -> (a); OBSERVED on the target -> done;
    else `rejected(claim gone)`."""
    pod = await bed.pod("a")
    bind = await bed.claim("n1", pod)
    if state == "BINDING":
        bed.request = bed.stand
        await bed.publish(bind)
        await asyncio.wait_for(bed.stands.wait(), 60)
        await bed.kill("gateway")
        await bed.start("gateway")
    elif state == "OBSERVED":
        assert (await bed.publisher.settle(bind, TraceContext.new(), timeout=60)).outcome == "done"
        await bed.become("OBSERVED", pod)
        # Another gateway: it remembers nothing of the first delivery.
        await bed.kill("gateway")
        await bed.start("gateway")
    elif state == "gone":
        await bed.delete("pods", "a")
        await bed.amounts_become("n1", 0, 0)
    sent = len(bed.bindings)
    result = await bed.publisher.settle(bind, TraceContext.new(), timeout=60)
    if state == "gone":
        assert (result.outcome, result.members[0].reason) == ("rejected", "claim gone")
    else:
        assert result.outcome == "done"
        assert await bed.nodes_of("a") == ["n1"]
        await bed.amounts_become("n1", 1000, 0)
    if state in ("OBSERVED", "gone"):
        assert len(bed.bindings) == sent, "it was written again"


async def test_result_lost(bed: Bed) -> None:
    """Result lost | S sees the pod; after 30 s without either it publishes the same decision again."""
    async with bed.scheduling() as service:
        service._publisher.close()  # it hears no results
        await bed.pod("a")
        await bed.bound("a")

        async def settled() -> bool:
            return not len(service._binds.flights)

        await until(settled, "S has seen the pod")
        assert service._binds.republish(time.monotonic() + 31.0) == 0
        stop = asyncio.Event()

        async def hold(call: Callable[[], Awaitable[Any]]) -> Any:
            await stop.wait()
            return await call()

        bed.advance = hold  # neither result nor pod
        pod = await bed.pod("b")
        await bed.become("HELD", pod)

        async def published() -> bool:
            return any(flight.bind is not None for flight in service._binds.flights)

        await until(published, "the decision is published")
        [flight] = service._binds.flights
        assert service._binds.republish(flight.published_s + REPUBLISH_S - 0.1) == 0
        assert service._binds.republish(time.monotonic() + 31.0) == 1
        assert [one.claim for one in service._binds.flights] == [flight.claim]
        stop.set()
        await bed.bound("b")
    assert bed.bindings == ["a", "b"]


async def test_decision_lost_with_its_stream_while_held(bed: Bed) -> None:
    """Decision lost with its stream | HELD: S republishes, or row 4."""
    bed.advance = bed.stand
    async with bed.scheduling() as service:
        pod = await bed.pod("a")

        async def published() -> bool:
            return any(flight.bind is not None for flight in service._binds.flights)

        await until(published, "the decision is published")
        await bed.kill("gateway")
        await bed.bus.js.purge_stream(bed.bus.subjects.decisions_stream)
        await bed.start("gateway")
        assert await bed.states(pod) == ["HELD"]
        assert service._binds.republish(time.monotonic() + 31.0) == 1
        await bed.bound("a")
    assert bed.bindings == ["a"]


async def test_gang_partly_bound(bed: Bed) -> None:
    """Gang partly bound | bound members stay; S plans the missing, counting the bound under every match policy; event
    `GangPartiallyBound`."""
    refused = 0

    async def refuse_one(call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal refused
        answer = await call() if bed.bindings[-1] != "a1" or refused else None
        if answer is None:
            refused += 1
            return Response(422, b'{"kind":"Status","message":"not now"}', 0.0)
        return answer

    bed.request = refuse_one
    async with bed.scheduling():
        for number in range(3):
            await bed.pod(f"a{number}", gang=("a", 3))
        await bed.bound("a0", "a1", "a2")

        async def told() -> bool:
            events, _ = await bed.api.list("events", NAMESPACE)
            return any(event["reason"] == "GangPartiallyBound" for event in events)

        await until(told, "the event")
    assert refused == 1
    assert sorted(bed.bindings) == ["a0", "a1", "a1", "a2"], "bound members were not left alone"
