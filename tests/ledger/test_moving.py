"""Rows 2, 3, 4 and 7 of the transition table of spec 20 section 3.12, and who may make them."""

import pytest

from koord.ledger.client import Ledger
from koord.ledger.model import (
    Advance,
    ClaimRequest,
    Ended,
    ItemClosed,
    LedgerError,
    LedgerRefused,
    LimitSet,
    NodeSeen,
    PodGone,
    Release,
)
from tests.ledger.world import World, pod

# ---- rows 2 and 4: leases --------------------------------------------------------------------------------------------


async def test_members_are_added_with_the_token(world: World) -> None:
    held = await world.claim(pod("a", "n1", 1000), strict=False)
    more = ClaimRequest(held.request.id, (pod("b", "n2", 1000),), token=held.answer.token)
    assert (await world.s1.claim([more, more]))[1].token == held.answer.token
    assert await world.amounts("node/n2") == (0, 1000)
    wrong = ClaimRequest(held.request.id, (pod("c", "n2", 1000),), token=held.answer.token + 1)
    assert (await world.s1.claim([wrong]))[0].status == "stale"
    advanced = await world.claim(pod("d", "n1", 1000), pod("e", "n1", 1000), strict=False)
    await world.advance(advanced, "d")
    late = ClaimRequest(advanced.request.id, (pod("f", "n2", 1000),), token=advanced.answer.token)
    assert (await world.s1.claim([late]))[0].status == "stale"
    assert (await world.release(held)).released == ("a", "b")
    assert (await world.s1.claim([more]))[0].status == "stale"


async def test_lease_lapses_as_a_whole(world: World) -> None:
    held = await world.claim(pod("a", "n1", 1000), pod("b", "n2", 1000))
    await world.lapse(held)
    answer = await world.r.sweep(world.reconciler_epoch)
    assert answer.expired == (Ended(held.request.id, ("a", "b"), "expired"),)
    assert answer.freed == ("node/n1", "node/n2")
    assert await world.s1.record("a") is None
    assert await world.amounts("node/n1") == (0, 0)
    assert (await world.r.sweep(world.reconciler_epoch)).expired == ()


async def test_any_call_expires_and_the_reconciler_tells(world: World) -> None:
    held = await world.claim(pod("a", "n1", 4000))
    await world.lapse(held)
    assert (await world.claim(pod("b", "n1", 4000), by=world.s2)).answer.status == "ok"
    answer = await world.see()
    assert answer.expired == (Ended(held.request.id, ("a",), "expired"),)
    assert answer.freed == ("node/n1",)


async def test_renew_extends_all_leases_of_the_incarnation(redis_url: str, world: World) -> None:
    async with (
        await Ledger.connect(redis_url, world.cluster, "s", lease_s=-1.0) as over,
        await Ledger.connect(redis_url, world.cluster, "s", lease_s=30.0) as alive,
    ):
        await over.claim([ClaimRequest("s-1", (pod("a", "n1", 1),))])
        # A renewal comes too late for a lease that was over.
        assert await alive.renew() == 0
        assert await alive.record("a") is None
        await alive.claim([ClaimRequest("s-2", (pod("b", "n1", 1),))])
        assert await alive.renew() == 1
        await over.claim([ClaimRequest("s-3", (pod("c", "n1", 1),))])
        await world.see()
        assert await alive.renew() == 2
        assert await world.s1.renew() == 0


async def test_at_most_64_leases_a_call(redis_url: str, world: World) -> None:
    async with await Ledger.connect(redis_url, world.cluster, "dead", lease_s=-1.0) as dead:
        await dead.claim([ClaimRequest(f"dead-{i}", (pod(f"p{i}", "n1", 1),)) for i in range(100)])
    # Row 7 does not advance what is overdue, swept or not.
    answers = await world.g.advance(
        [Advance(f"dead-{i}", i + 1, world.g.epoch, "d", (f"p{i}",)) for i in range(100)], world.gateway_epoch
    )
    assert {answer.status for answer in answers} == {"gone"}
    assert (await world.s1.status()).held == 36
    assert len((await world.see()).expired) == 100
    assert (await world.s1.status()).held == 0


# ---- row 3: release --------------------------------------------------------------------------------------------------


async def test_release_needs_the_token(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1500))
    [answer] = await world.s1.release([Release(held.request.id, held.answer.token + 1, ("p",))])
    assert (answer.status, answer.refused) == ("stale", ("p",))
    answer = await world.release(held, "p")
    assert (answer.released, answer.items) == (("p",), ("node/n1",))
    assert await world.amounts("node/n1") == (0, 0)
    assert await world.release(held, "p") == type(answer)("ok", epoch=world.s1.epoch)


async def test_strict_claim_is_released_whole_others_by_member(world: World) -> None:
    strict = await world.claim(pod("a", "n1", 100), pod("b", "n1", 100))
    assert (await world.release(strict, "a")).released == ("a", "b")
    loose = await world.claim(pod("c", "n1", 100), pod("d", "n1", 100), strict=False)
    assert (await world.release(loose, "c")).released == ("c",)
    assert await world.amounts("node/n1") == (0, 100)


async def test_release_is_refused_once_binding(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1500))
    await world.advance(held)
    answer = await world.release(held)
    assert (answer.released, answer.refused) == ((), ("p",))
    assert await world.state(held.request.members[0]) == "BINDING"


async def test_release_frees_what_was_taken_whatever_became_of_the_quota(world: World) -> None:
    await world.quota("quota/leaf", "quota/root", cpu=4000)
    held = await world.claim(pod("p", "n1", 1500, ("leaf", "root")))
    await world.see(ItemClosed("quota/leaf"))
    assert "quota/leaf" in await world.r.items("quota/")
    await world.release(held)
    items = await world.r.items("quota/")
    assert "quota/leaf" not in items
    assert items["quota/root"].held == {}


# ---- row 7: advance --------------------------------------------------------------------------------------------------


async def test_advance_counts_attempts_of_its_decision(world: World) -> None:
    held = await world.claim(pod("a", "n1", 100), pod("b", "n1", 100))
    assert (await world.advance(held)).attempt == 1
    again = await world.advance(held)
    assert (again.status, again.attempt, again.gone) == ("ok", 2, ())
    other = await world.advance(held, decision="another")
    assert (other.status, other.gone) == ("gone", ("a", "b"))
    record = await world.s1.record("a")
    assert record is not None
    assert (record.state, record.decision, record.attempts) == ("BINDING", held.request.id, 2)
    status = await world.s1.status()
    assert (status.held, status.binding, status.observed) == (0, 2, 0)


async def test_binding_has_no_lease(world: World) -> None:
    held = await world.claim(pod("p", "n1", 100))
    await world.advance(held)
    assert await world.raw.zcard(world.key + ":leases") == 0
    assert await world.s1.renew() == 0


async def test_advance_needs_token_and_epoch(world: World) -> None:
    held = await world.claim(pod("p", "n1", 100))
    request, token, epoch = held.request, held.answer.token, held.answer.epoch
    answers = await world.g.advance(
        [
            Advance(request.id, token + 1, epoch, "d", ("p",)),
            Advance(request.id, token, epoch - 1, "d", ("p",)),
            Advance("nobody-1", token, epoch, "d", ("p",)),
        ],
        world.gateway_epoch,
    )
    assert [answer.status for answer in answers] == ["gone", "epoch", "gone"]
    assert answers[1].epoch == epoch
    assert await world.state(request.members[0]) == "HELD"


async def test_strict_claim_is_advanced_whole(world: World) -> None:
    held = await world.claim(pod("a", "n1", 100), pod("b", "n1", 100))
    assert (await world.advance(held, "a")).status == "gone"
    assert (await world.advance(held, "a", "b", "ghost")).status == "gone"
    assert await world.state(held.request.members[0]) == "HELD"
    assert (await world.advance(held, "a", "b")).status == "ok"
    # Later those still BINDING by it.
    await world.refuse(held, "a")
    again = await world.advance(held)
    assert (again.status, again.gone) == ("ok", ("a",))


async def test_loose_claim_is_advanced_by_member(world: World) -> None:
    held = await world.claim(pod("a", "n1", 100), pod("b", "n1", 100), strict=False)
    await world.deleted(held.request.members[1])
    answer = await world.advance(held)
    assert (answer.status, answer.gone) == ("ok", ("b",))


async def test_advance_tells_what_is_done(world: World) -> None:
    held = await world.claim(pod("a", "n1", 100), pod("b", "n1", 100))
    await world.advance(held)
    await world.bound(held.request.members[0])
    answer = await world.advance(held)
    assert (answer.status, answer.observed, answer.gone) == ("ok", {"a": "n1"}, ())


# ---- fencing ---------------------------------------------------------------------------------------------------------


async def test_role_epochs_rise_and_fence(world: World) -> None:
    held = await world.claim(pod("p", "n1", 100))
    old = world.gateway_epoch
    assert await world.g.lead("gateway") == old
    new = await world.s2.lead("gateway")
    assert new > old
    assert (await world.advance(held)).status == "stale"
    [answer] = await world.s2.advance([Advance(held.request.id, 1, world.g.epoch, "d", ("p",))], new)
    assert answer.status == "ok"
    # The same epoch from another incarnation is no better.
    assert (await world.advance(held, role_epoch=new)).status == "stale"
    assert (await world.refuse(held)).status == "stale"
    assert await world.g.lead("gateway") > new


async def test_an_old_leader_that_wakes_up_in_an_emptied_redis_does_not_turn_the_epochs_back(world: World) -> None:
    """Others remember the newer one (the gateway's barrier does), and would refuse who comes next for good."""
    newest = await world.s1.lead("reconciler")
    await world.raw.delete(*await world.raw.keys(world.key + ":*"))
    await world.r.shut(world.reconciler_epoch)
    assert await world.s2.lead("reconciler") > newest


async def test_older_reconciler_is_stale(world: World) -> None:
    await world.s2.lead("reconciler")
    answer = await world.r.observe([NodeSeen("node/n1", {}, "9")], role_epoch=world.reconciler_epoch)
    assert answer.status == "stale"
    assert (await world.r.items("node/n1"))["node/n1"].limits["cpu"] == 4000
    for call in (world.r.open, world.r.begin):
        with pytest.raises(LedgerError, match="stale"):
            await call(world.reconciler_epoch)


async def test_quota_leader_keeps_quota_limits_only(world: World) -> None:
    epoch = await world.s2.lead("quota")
    answer = await world.s2.observe([LimitSet("quota/q", {"cpu": 1})], role="quota", role_epoch=epoch)
    assert (answer.status, answer.freed) == ("ok", ("quota/q",))
    with pytest.raises(LedgerRefused, match="quota leader keeps quota limits only"):
        await world.s2.observe([PodGone("p", "ns", "p", "1")], role="quota", role_epoch=epoch)
    with pytest.raises(LedgerRefused, match="quota leader keeps quota limits only"):
        await world.s2.observe([ItemClosed("node/n1")], role="quota", role_epoch=epoch)
