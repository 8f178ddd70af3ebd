"""Rows 5 and 8 to 13 of the transition table of spec 20 section 3.12, and the failure rows that end in them."""

import pytest

from koord.accounting.takes import Take
from koord.ledger.model import (
    Ended,
    ItemClosed,
    LedgerRefused,
    LimitSet,
    Member,
    NodeSeen,
    PodGone,
    PodSeen,
    Settled,
    Short,
    UnitGone,
    UnitUnbound,
)
from tests.ledger.world import World, admitted, pod, unit

# ---- rows 8 and 9 ----------------------------------------------------------------------------------------------------


async def test_definite_refusal_releases_only_binding(world: World) -> None:
    held = await world.claim(pod("a", "n1", 100), pod("b", "n1", 100))
    assert (await world.refuse(held)).refused == ("a", "b")
    await world.advance(held)
    answer = await world.refuse(held, "a")
    assert (answer.released, answer.items) == (("a",), ("node/n1",))
    assert await world.amounts("node/n1") == (0, 100)
    assert await world.state(held.request.members[1]) == "BINDING"


@pytest.mark.parametrize("how", ["deleted", "elsewhere", "unbound"])
async def test_binding_ends_by_what_the_api_shows(world: World, how: str) -> None:
    held = await world.claim(pod("p", "n1", 100), pod("q", "n1", 100))
    await world.advance(held)
    member = held.request.members[0]
    match how:
        case "deleted":
            answer = await world.deleted(member)
        case "elsewhere":
            answer = await world.bound(member, "n2")
            assert await world.amounts("node/n2") == (100, 0)
            assert answer.observed == ("p",)
        case _:
            answer = await world.see(Settled("p", "ns", "p", held.answer.token, 1))
    reason = "gone" if how == "deleted" else how
    assert answer.released == (Ended(held.request.id, ("p",), reason),)
    assert "node/n1" in answer.freed
    assert await world.amounts("node/n1") == (0, 100)
    # Only a settle answer leaves the uid free for another claim.
    assert (await world.claim(pod("p", "n1", 100))).answer.status == ("ok" if how == "unbound" else "busy")


async def test_held_is_not_moved_by_a_settle_answer(world: World) -> None:
    held = await world.claim(pod("p", "n1", 100))
    assert (await world.see(Settled("p", "ns", "p", held.answer.token, 0))).released == ()
    assert await world.state(held.request.members[0]) == "HELD"


async def test_a_settle_answer_does_not_end_what_was_advanced_again_or_claimed_anew(world: World) -> None:
    held = await world.claim(pod("p", "n1", 100))
    await world.advance(held)
    settled = Settled("p", "ns", "p", held.answer.token, 1)
    await world.advance(held)  # the decision came after all: a write may follow
    assert (await world.see(settled)).released == ()
    assert await world.state(held.request.members[0]) == "BINDING"
    await world.see(Settled("p", "ns", "p", held.answer.token, 2))
    again = await world.claim(pod("p", "n1", 100))
    await world.advance(again)
    assert (await world.see(settled)).released == ()
    assert await world.amounts("node/n1") == (0, 100)
    await world.bound(again.request.members[0])
    last = Settled("p", "ns", "p", again.answer.token, 1)
    assert (await world.see(last)).released == ()
    assert await world.amounts("node/n1") == (100, 0)


async def test_binding_shows_what_is_in_flight_only(world: World) -> None:
    await world.claim(pod("held", "n1", 1))
    seen = await world.claim(pod("seen", "n1", 1))
    await world.advance(seen)
    await world.bound(seen.request.members[0])
    flying = await world.claim(pod("a", "n1", 1), pod("b", "n1", 1), pod("c", "n1", 1), strict=False)
    await world.advance(flying, "a", "b")
    assert sorted([record.uid async for record in world.r.binding()]) == ["a", "b"]


# ---- row 5 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("how", ["deleted", "elsewhere", "node"])
async def test_held_claim_is_hit(world: World, how: str, strict: bool) -> None:
    held = await world.claim(pod("a", "n1", 100), pod("b", "n2", 100), strict=strict)
    member = held.request.members[0]
    match how:
        case "deleted":
            answer = await world.deleted(member)
        case "elsewhere":
            await world.node("n3", 4000)
            answer = await world.bound(member, "n3")
        case _:
            answer = await world.see(ItemClosed("node/n1", "5"))
            assert "node/n1" not in await world.r.items("node/")
    uids = ("a", "b") if strict else ("a",)
    assert answer.released == (Ended(held.request.id, uids, "gone" if how == "deleted" else how),)
    assert await world.state(held.request.members[1]) == ("-" if strict else "HELD")


async def test_closed_node_keeps_what_is_bound_or_binding(world: World) -> None:
    running, binding = pod("a", "n1", 100), await world.claim(pod("b", "n1", 100))
    await world.bound(running)
    await world.advance(binding)
    assert (await world.see(ItemClosed("node/n1", "5"))).released == ()
    item = (await world.r.items("node/n1"))["node/n1"]
    assert (item.open, item.refs) == (False, 2)
    assert (await world.claim(pod("c", "n1", 1))).answer.shorts == (Short("node/n1", "", "closed", 0, 0),)
    await world.bound(binding.request.members[0])
    await world.deleted(running)
    await world.deleted(binding.request.members[0])
    assert await world.r.items("node/n1") == {}


async def test_foreign_bind_pushes_the_newest_claim_out(world: World) -> None:
    old = await world.claim(pod("a", "n1", 2000))
    new = await world.claim(pod("b", "n1", 2000), pod("c", "n2", 100))
    answer = await world.bound(pod("foreign", "n1", 2000))
    assert answer.released == (Ended(new.request.id, ("b", "c"), "overcommit"),)
    assert answer.overcommitted == ()
    assert await world.state(old.request.members[0]) == "HELD"
    assert await world.free("node/n1") == 0


async def test_overcommit_that_no_claim_can_pay(world: World) -> None:
    held = await world.claim(pod("a", "n1", 2000))
    await world.advance(held)
    answer = await world.bound(pod("foreign", "n1", 3000))
    assert answer.released == ()
    assert answer.overcommitted == (Short("node/n1", "cpu", "amount", 5000, 4000),)
    assert (await world.claim(pod("b", "n1", 1))).answer.shorts == (Short("node/n1", "cpu", "amount", 1, 0),)
    # A claim that takes nothing of what is short stays, and stays possible.
    await world.node("n1", 4000, version="2", gpu=2)
    gpu = Member("g", "ns", "g", "n1", (Take("node/n1", {"cpu": 0, "gpu": 1, "pods": 1}),))
    assert (await world.claim(gpu)).answer.status == "ok"
    assert (await world.bound(pod("more", "n1", 1))).released == ()


async def test_newest_claims_go_first_and_no_more_than_must(world: World) -> None:
    await world.claim(pod("a", "n1", 1000))
    parts = await world.claim(pod("b1", "n1", 800), pod("b2", "n1", 700), strict=False)
    whole = await world.claim(pod("c1", "n1", 1000), pod("c2", "n2", 1000))
    newest = await world.claim(pod("d", "n1", 500))
    answer = await world.bound(pod("f1", "n1", 1200))
    assert answer.released == (
        Ended(newest.request.id, ("d",), "overcommit"),
        Ended(whole.request.id, ("c1", "c2"), "overcommit"),
    )
    assert await world.free("node/n1") == 300
    # Of a claim that is something in parts, the members hit.
    answer = await world.bound(pod("f2", "n1", 800))
    assert answer.released == (Ended(parts.request.id, ("b1",), "overcommit"),)
    assert await world.free("node/n1") == 300
    assert answer.overcommitted == ()


async def test_shrinking_node_pushes_claims_out(world: World) -> None:
    held = await world.claim(pod("a", "n1", 2000))
    answer = await world.node("n1", 1000, version="2")
    assert answer.released == (Ended(held.request.id, ("a",), "overcommit"),)


# ---- rows 10 to 13 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("advanced", [True, False])
async def test_observed_on_its_node(world: World, advanced: bool) -> None:
    held = await world.claim(pod("p", "n1", 1500))
    if advanced:
        await world.advance(held)
    answer = await world.bound(held.request.members[0])
    assert (answer.observed, answer.changed, answer.released) == (("p",), (), ())
    assert await world.amounts("node/n1") == (1500, 0)
    record = await world.s1.record("p")
    assert record is not None
    assert (record.state, record.claim, record.trace, record.resource_version) == (
        "OBSERVED",
        held.request.id,
        "00-trace-span-01",
        "10",
    )
    await world.lapse(held)
    await world.see()
    assert await world.state(held.request.members[0]) == "OBSERVED"


async def test_charge_of_the_object_replaces_the_stored_takes(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1500))
    answer = await world.see(PodSeen("p", "ns", "p", "n1", pod("p", "n1", 2000).takes, "10"))
    assert answer.changed == ("node/n1",)
    assert await world.amounts("node/n1") == (2000, 0)
    assert held.answer.status == "ok"


async def test_foreign_pod_is_charged_even_to_items_not_known_yet(world: World) -> None:
    answer = await world.bound(pod("p", "n9", 1500, ("late",)))
    assert answer.observed == ("p",)
    assert not (await world.r.items("node/n9"))["node/n9"].open
    await world.node("n9", 2000)
    await world.quota("quota/late", cpu=1600)
    assert await world.free("node/n9") == 500
    held = await world.claim(pod("q", "n9", 600, ("late",)))
    assert held.answer.shorts == (
        Short("node/n9", "cpu", "amount", 600, 500),
        Short("quota/late", "cpu", "amount", 600, 100),
    )


async def test_recharge_by_newer_objects_only(world: World) -> None:
    await world.bound(pod("p", "n1", 1000), version="9")
    # 10 is newer than 9: versions are numbers, not text.
    await world.see(PodSeen("p", "ns", "p", "n1", pod("p", "n1", 3000).takes, "10"))
    assert await world.amounts("node/n1") == (3000, 0)
    await world.see(PodSeen("p", "ns", "p", "n1", pod("p", "n1", 1000).takes, "9"))
    await world.see(PodSeen("p", "ns", "p", "n1", pod("p", "n1", 1000).takes, "10"))
    assert await world.amounts("node/n1") == (3000, 0)
    await world.see(PodSeen("p", "ns", "p", "n1", pod("p", "n1", 500).takes, "18446744073709551617"))
    assert await world.amounts("node/n1") == (500, 0)


async def test_gone_gives_back_what_is_stored(world: World) -> None:
    await world.bound(pod("p", "n1", 1000), version="10")
    assert (await world.deleted(pod("p", "n1", 0), version="9")).gone == ()
    answer = await world.deleted(pod("p", "n1", 0), version="11")
    assert (answer.gone, answer.freed) == (("p",), ("node/n1",))
    assert await world.amounts("node/n1") == (0, 0)
    # The stream may still show an older state of it.
    assert (await world.bound(pod("p", "n1", 1000), version="10")).observed == ()
    assert await world.amounts("node/n1") == (0, 0)
    assert (await world.deleted(pod("p", "n1", 0), version="11")).gone == ()


async def test_impossible_request_of_a_foreign_pod_does_not_spoil_the_sums(world: World) -> None:
    await world.bound(pod("p", "n1", 2**63 - 1))
    assert (await world.claim(pod("q", "n1", 1))).answer.status == "conflict"
    await world.deleted(pod("p", "n1", 0))
    assert await world.free("node/n1") == 4000


async def test_node_limits_by_version(world: World) -> None:
    await world.node("n1", 8000, version="12")
    await world.node("n1", 1000, version="5")
    assert await world.free("node/n1") == 8000
    await world.see(NodeSeen("node/n1", {"memory": 5}, "13"))
    assert (await world.r.items("node/n1"))["node/n1"].limits == {"memory": 5}


# ---- QueueUnits ------------------------------------------------------------------------------------------------------


async def test_unit_from_claim_to_end(world: World) -> None:
    await world.quota("admitted/leaf", "admitted/root", cpu=4000)
    member = unit("u", 3000, ("leaf", "root"))
    held = await world.claim(member)
    assert (await world.claim(unit("v", 2000, ("leaf", "root")))).answer.shorts == (
        Short("admitted/leaf", "cpu", "amount", 2000, 1000),
        Short("admitted/root", "cpu", "amount", 2000, 1000),
    )
    assert (await world.advance(held, decision="status-1")).attempt == 1
    # The queue's own view of the unit, still without admissions, is no evidence while the write may be under way.
    await world.see(UnitUnbound("u", "ns", "u", "9"))
    assert await world.state(member) == "BINDING"
    await world.see(admitted(member))
    assert await world.state(member) == "OBSERVED"
    assert await world.amounts("admitted/root") == (3000, 0)
    # TimeoutBackoff takes the admission back; the unit queues again and may be claimed at once.
    answer = await world.see(UnitUnbound("u", "ns", "u", "11"))
    assert answer.gone == ("u",)
    assert (await world.claim(member)).answer.status == "ok"
    await world.see(UnitGone("u", "ns", "u", "12"))
    assert (await world.claim(member)).answer.status == "busy"


async def test_unit_settled_as_not_admitted(world: World) -> None:
    await world.quota("admitted/leaf", cpu=4000)
    held = await world.claim(unit("u", 3000, ("leaf",)))
    await world.advance(held)
    assert (await world.see(UnitUnbound("u", "ns", "u", "9"))).released == ()
    answer = await world.see(Settled("u", "ns", "u", held.answer.token, 1))
    assert answer.released == (Ended(held.request.id, ("u",), "unbound"),)


# ---- bad input -------------------------------------------------------------------------------------------------------


async def test_malformed_observations_are_named(world: World) -> None:
    for bad, words in (
        (PodSeen("p", "ns", "x", "", (), "1"), r"pod ns/x \(p\): seen without a node"),
        (PodGone("p", "ns", "x", "one"), "p: resourceVersion 'one' is not a whole number"),
        (NodeSeen("quota/q", {}, "1"), "quota/q: NodeSeen is for node/ items"),
        (LimitSet("node/n1", {}), "node/n1: LimitSet is not for node/ items"),
    ):
        with pytest.raises(LedgerRefused, match=words):
            await world.see(bad)
