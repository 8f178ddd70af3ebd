"""Shutting, rebuilding under a given epoch, retiring the dead, and the sums that an audit compares."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import redis.asyncio

from koord.accounting.takes import Take
from koord.ledger.client import Ledger
from koord.ledger.model import (
    Advance,
    ClaimRequest,
    LedgerError,
    LimitSet,
    Member,
    NodeSeen,
    Observation,
    PodSeen,
    UnitSeen,
)

CPU = {"cpu": 1000}


class Two:
    """A reconciler and a gateway on one ledger that is open."""

    def __init__(self, r: Ledger, g: Ledger, epochs: tuple[int, int]) -> None:
        self.r, self.g = r, g
        self.reconciler, self.gateway = epochs


@pytest.fixture
async def two(redis_url: str, cluster: str) -> AsyncIterator[Two]:
    async with (
        await Ledger.connect(redis_url, cluster, "r") as r,
        await Ledger.connect(redis_url, cluster, "g") as g,
    ):
        made = Two(r, g, (await r.lead("reconciler"), await g.lead("gateway")))
        await fill(made, 100)
        yield made


async def fill(two: Two, epoch: int) -> None:
    await two.r.rebuild(two.reconciler, epoch, [("gateway", two.gateway, "g")])
    seen: list[Observation] = [NodeSeen("node/n1", {"cpu": 8000, "pods": 10}, "1"), LimitSet("quota/q", {"cpu": 4000})]
    await two.r.observe(seen, role_epoch=two.reconciler)
    await two.r.open(two.reconciler)
    await two.g.status()


def member(uid: str, quota: str = "q") -> Member:
    takes = (Take("node/n1", {"cpu": 1000, "pods": 1}), Take(f"quota/{quota}", CPU))
    return Member(uid, "ns", uid, "n1", takes)


async def test_a_rebuild_takes_the_epoch_it_is_given_and_no_earlier_one(two: Two) -> None:
    assert (await two.r.status()).epoch == 100
    with pytest.raises(LedgerError, match="open"):
        await two.r.rebuild(two.reconciler, 101)
    await two.r.shut(two.reconciler)
    with pytest.raises(LedgerError, match="epoch"):
        await two.r.rebuild(two.reconciler, 99)
    assert await two.r.rebuild(two.reconciler, 101) == 101
    assert await two.r.rebuild(two.reconciler, 101) == 101
    status = await two.r.status()
    assert (status.open, status.epoch, status.items) == (False, 101, 0)
    assert status.token >= 101


async def test_a_shut_ledger_takes_nothing_and_keeps_what_it_holds(two: Two) -> None:
    [held] = await two.g.claim([ClaimRequest("c-1", (member("a"),))])
    before = await two.r.items()
    await two.r.shut(two.reconciler)
    [refused] = await two.g.claim([ClaimRequest("c-2", (member("b"),))])
    [moved] = await two.g.advance([Advance("c-1", held.token, held.epoch, "d", ("a",))], two.gateway)
    assert (refused.status, moved.status) == ("closed", "closed")
    assert await two.r.items() == before


async def test_only_the_newest_reconciler_shuts_and_rebuilds(two: Two, redis_url: str, cluster: str) -> None:
    async with await Ledger.connect(redis_url, cluster, "r2") as newer:
        await newer.shut(await newer.lead("reconciler"))
    for call in (two.r.shut(two.reconciler), two.r.rebuild(two.reconciler, 200)):
        with pytest.raises(LedgerError, match="stale"):
            await call


async def test_after_a_rebuild_an_older_gateway_is_known_to_be_older(two: Two, redis_url: str, cluster: str) -> None:
    """A Redis that lost everything learns the roles with the rebuild, before anybody else can call."""
    async with await Ledger.connect(redis_url, cluster, "zombie") as zombie:
        await two.r.shut(two.reconciler)
        await two.r.rebuild(two.reconciler, 101, [("gateway", two.gateway + 5, "g")])
        await two.r.observe([NodeSeen("node/n1", {"cpu": 8000, "pods": 10}, "1")], role_epoch=two.reconciler)
        await two.r.open(two.reconciler)
        await zombie.status()
        [answer] = await zombie.advance([Advance("c", 1, 101, "d", ("a",))], two.gateway + 4)
        assert answer.status == "stale"


async def test_the_dead_give_back_what_they_only_held(two: Two, redis_url: str, cluster: str) -> None:
    async with (
        await Ledger.connect(redis_url, cluster, "s1") as dead,
        await Ledger.connect(redis_url, cluster, "s2") as successor,
        await Ledger.connect(redis_url, cluster, "other") as other,
    ):
        claims = await dead.claim([ClaimRequest(f"s1-{uid}", (member(uid),)) for uid in ("a", "b", "c")])
        assert [claim.status for claim in claims] == ["ok"] * 3
        [kept] = await other.claim([ClaimRequest("other-1", (member("d"),))])
        assert kept.status == "ok"
        sent = Advance("s1-a", claims[0].token, claims[0].epoch, "s1-a", ("a",))
        await two.g.advance([sent], two.gateway)
        assert await successor.owners() == {"s1", "other"}
        answer = await successor.retire(["s1"])
        assert {ended.claim for ended in answer.ended} == {"s1-b", "s1-c"}
        assert answer.items == ("node/n1", "quota/q")
        # What was being bound stays, and so does what a living scheduler holds.
        records = {uid: await two.r.record(uid) for uid in "abcd"}
        states = {uid: record.state if record else "none" for uid, record in records.items()}
        assert states == {"a": "BINDING", "b": "none", "c": "none", "d": "HELD"}
        late = Advance("s1-b", claims[1].token, claims[1].epoch, "s1-b", ("b",))
        [gone] = await two.g.advance([late], two.gateway)
        assert (gone.status, gone.gone) == ("gone", ("b",))
        assert await successor.owners() == {"other"}
        assert (await successor.retire(["s1"])).ended == ()
        # If it lives after all it goes on with new claims, and what it had is not there to be renewed.
        assert await dead.renew() == 0
        [again] = await successor.claim([ClaimRequest("s2-1", (member("b"),))])
        assert again.status == "ok"
        assert all(sums.right for sums in (await two.r.sums(["node/n1", "quota/q"])).values())


async def test_sums_are_what_the_records_say(two: Two) -> None:
    await two.g.claim([ClaimRequest("c-1", (member("a"),))])
    takes = member("b").takes
    await two.r.observe([PodSeen("b", "ns", "b", "n1", takes, "5")], role_epoch=two.reconciler)
    found = await two.r.sums(["node/n1", "quota/q", "node/none"])
    assert all(sums.right for sums in found.values())
    assert (found["node/n1"].used, found["node/n1"].held) == ({"cpu": 1000, "pods": 1}, {"cpu": 1000, "pods": 1})
    assert (found["node/none"].item, found["node/none"].refs) == (None, 0)


async def test_a_damaged_item_is_found(two: Two, redis_url: str, cluster: str) -> None:
    await two.g.claim([ClaimRequest("c-1", (member("a"),))])
    async with redis.asyncio.Redis.from_url(redis_url) as raw:
        key = f"{{koord:{cluster}}}:items"
        item = await raw.hget(key, "quota/q")
        await raw.hset(key, "node/n1", item)
    found = await two.r.sums(["node/n1", "quota/q"])
    assert (found["node/n1"].right, found["quota/q"].right) == (False, True)


async def test_the_same_version_counts_once_more_when_it_is_charged_anew(two: Two) -> None:
    elsewhere = member("a", "other").takes
    for first, second in (
        (PodSeen("a", "ns", "a", "n1", elsewhere, "5"), PodSeen("a", "ns", "a", "n1", member("a").takes, "5")),
        (
            UnitSeen("u", "ns", "u", (Take("admitted/other", CPU),), "5"),
            UnitSeen("u", "ns", "u", (Take("admitted/q", CPU),), "5"),
        ),
    ):
        await two.r.observe([first, second], role_epoch=two.reconciler)
        record = await two.r.record(first.uid)
        assert record is not None and record.takes == first.takes
        recharged = msgspec.structs.replace(second, recharge=True)
        await two.r.observe([recharged], role_epoch=two.reconciler)
        record = await two.r.record(first.uid)
        assert record is not None and record.takes == second.takes
        late = msgspec.structs.replace(first, recharge=True, resource_version="4")
        await two.r.observe([late], role_epoch=two.reconciler)
        record = await two.r.record(first.uid)
        assert record is not None and record.takes == second.takes
    names = ["quota/q", "quota/other", "admitted/q", "admitted/other", "node/n1"]
    assert all(sums.right for sums in (await two.r.sums(names)).values())
