"""Who is refused again and again: counted per unit, in a row; then claims of lower rank make room."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from koord.accounting.takes import Take
from koord.bus.questions import ask
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.contracts.codec import encode
from koord.contracts.ledger import LedgerHint
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.refusals import FORGET_S, Refusals
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))


def gang(name: str, minimum: int, mode: str = "Strict") -> dict[str, str]:
    keys = {"name": name, "min-available": str(minimum), "mode": mode}
    return {f"gang.scheduling.koordinator.sh/{key}": value for key, value in keys.items()}


def test_three_in_a_row() -> None:
    refusals = Refusals()
    assert [refusals.refused("g", float(n)) for n in range(2)] == [1, 2]
    assert not refusals.insists("g")
    refusals.refused("other", 2.0)
    assert refusals.refused("g", 3.0) == 3
    assert refusals.insists("g")
    assert not refusals.insists("other")
    refusals.accepted("g")
    assert not refusals.insists("g")
    assert refusals.refused("g", 4.0) == 1


def test_long_ago_is_no_row() -> None:
    refusals = Refusals()
    for _ in range(3):
        refusals.refused("g", 0.0)
    refusals.refused("h", FORGET_S - 1)
    assert refusals.insists("g")
    refusals.refused("h", FORGET_S)
    assert not refusals.insists("g")
    assert refusals.refused("h", FORGET_S) == 3


@asynccontextmanager
async def hints(world: Outside, event: str = "observed") -> AsyncIterator[None]:
    """Somebody's records move all the time, so that what the scheduler believes of the ledger does not last."""

    async def forever() -> None:
        while True:
            body = encode(LedgerHint(event))  # type: ignore[arg-type]
            await world.bus.publish(world.bus.subjects.ledger(f"claim.{event}"), body)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(forever())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_gang_that_is_always_refused_takes_room_of_a_lower_rank(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        for number in range(2):
            await world.node(f"n{number}", cpu="2")
        await world.listed()
        takes = (Take("node/n0", {"cpu": 1000, "pods": 1}),)
        held = ClaimRequest("another-1", (Member("x", "default", "x", "n0", takes),), strict=False, priority=-1)
        [answer] = await another.claim([held])
        assert answer.status == "ok"
        async with scheduler(nats_url, redis_url, cluster, FAST), hints(world, "released"):
            # Nothing but the claim of lower rank stands in its way; a single pod of the same need waits.
            await world.pod("single", cpu="3")
            for number in range(4):
                await world.pod(f"g{number}", annotations=gang("g", 4))
            await until(lambda: len(world.bound) == 4, "the gang is bound", 60.0)
            assert await another.record("x") is None


async def test_a_gang_whose_claim_was_taken_plans_anew(nats_url: str, redis_url: str, cluster: str) -> None:
    slow = SchedulerSettings(queue=QueueSettings(initial_backoff_s=3600.0, max_backoff_s=3600.0))
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        await world.node("n0", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, slow):
            for number in range(2):
                await world.pod(f"g{number}", annotations=gang("g", 2, "NonStrict"))
            await until(lambda: world.told("g0") or world.told("g1"), "one of two fits")
            [before] = [record async for record in world.ledger.records()]
            assert before.state == "HELD"
            takes = (Take("node/n0", {"cpu": 1000, "pods": 1}),)
            urgent = ClaimRequest("another-1", (Member("x", "default", "x", "n0", takes),), priority=9, wound=True)
            [answer] = await another.claim([urgent])
            assert [one.claim for one in answer.wounded] == [before.claim]
            await world.pod("x", nodeName="n0")
            deadline = asyncio.get_running_loop().time() + 60
            while (
                await ask(world.bus, "scheduler", "explain", ExplainPod("default", "x"), PodExplanation)
            ).node != "n0":
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.02)
            [wounded] = answer.wounded
            hint = LedgerHint("released", list(wounded.items), list(wounded.uids), [wounded.claim])
            await world.bus.publish(world.bus.subjects.ledger("claim.released"), encode(hint))
            why = "the claim ended before the gang was complete"
            await until(lambda: any(why in world.told(f"g{number}") for number in range(2)), "told")
            await world.node("n1", cpu="1")
            await world.node("n2", cpu="1")
            # No backing off: that would take an hour.
            await until(lambda: len(world.bound) == 2, "planned anew at once")
            assert set(world.bound.values()) == {"n1", "n2"}


async def test_a_claim_that_lost_a_member_goes_on_with_the_others(nats_url: str, redis_url: str, cluster: str) -> None:
    """A node goes on which a gang that is something in parts holds room."""
    slow = SchedulerSettings(queue=QueueSettings(initial_backoff_s=3600.0, max_backoff_s=3600.0))
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(2):
            await world.node(f"n{number}", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, slow):
            for number in range(3):
                await world.pod(f"g{number}", annotations=gang("g", 3, "NonStrict"))
            await until(lambda: any(world.told(f"g{number}") for number in range(3)), "two of three fit")
            held = {record.node: record async for record in world.ledger.records()}
            assert sorted(held) == ["n0", "n1"]
            assert len({record.claim for record in held.values()}) == 1
            lost = await world.node_gone("n0")
            assert [(ended.claim, ended.uids) for ended in lost.released] == [(held["n0"].claim, (held["n0"].uid,))]
            why = "the claim ended before the gang was complete"
            await until(lambda: why in world.told(held["n0"].name), "told")
            kept = {record.uid: record.claim async for record in world.ledger.records()}
            assert kept == {held["n1"].uid: held["n1"].claim}
            await world.node("n2", cpu="1")
            await world.node("n3", cpu="1")
            await until(lambda: len(world.bound) == 3, "bound, the lost one at once and anew")
            assert world.bound[held["n1"].uid] == "n1"
