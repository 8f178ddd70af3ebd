"""Nominations and victims (spec 20 section 3.12): room kept for a pod that waits, and what is locked to make it."""

import pytest

from koord.accounting.takes import Take
from koord.ledger.model import (
    ClaimAnswer,
    ClaimRequest,
    Ended,
    ItemClosed,
    LedgerRefused,
    LimitSet,
    Member,
    NodeSeen,
    PodGone,
    PodNominated,
    PodTerminating,
    Short,
)
from koord.ledger.nominations import DISRUPTIONS, NominateAnswer, NominateRequest, Nomination, Victim
from tests.ledger.world import World, connected, pod

PDB = "pdb/ns/web"


async def claim(
    world: World, member: Member, priority: int = 0, *, group: str = "", wound: bool = False
) -> ClaimAnswer:
    request = ClaimRequest(f"claim-{member.uid}", (member,), priority=priority, group=group, wound=wound)
    [answer] = await world.s1.claim([request])
    return answer


async def offer(world: World, id_: str, *members: Member, priority: int = 100, **more: object) -> NominateAnswer:
    request = NominateRequest(id_, members, priority, **more)  # type: ignore[arg-type]
    [answer] = await world.s1.nominate([request])
    return answer


def noted(member: Member, *, priority: int = 100, node: str | None = None, version: str = "7") -> PodNominated:
    where = member.node if node is None else node
    takes = pod(member.uid, where, member.takes[0].amounts["cpu"]).takes if where else ()
    return PodNominated(member.uid, "ns", member.name, where, takes, priority, version)


async def standing(world: World) -> dict[str, Nomination]:
    return {one.uid: one async for one in world.r.nominations()}


async def lapse(world: World, id_: str) -> None:
    await world.raw.zadd(world.key + ":offers", {id_: 1}, xx=True)


async def nothing_left(world: World) -> None:
    """Not a trace of nominations is stored."""
    for suffix in (":nominated", ":rooms", ":nominations", ":offers", ":slots"):
        assert not await world.raw.exists(world.key + suffix), suffix
    assert await world.raw.hget(world.key + ":meta", "nominated") == b"0"


# ---- what others must leave ------------------------------------------------------------------------------------------


async def test_lower_priorities_leave_the_room(world: World) -> None:
    n = pod("n", "n1", 3000)
    assert (await offer(world, "o", n)).status == "ok"
    refused = await claim(world, pod("low", "n1", 2000), 50)
    assert refused.shorts == (Short("node/n1", "cpu", "nomination", 2000, 1000, 0, "n"),)
    assert (await claim(world, pod("equal", "n1", 2000), 100)).status == "conflict"
    assert (await claim(world, pod("small", "n1", 1000), 50)).status == "ok"
    assert (await claim(world, pod("elsewhere", "n2", 4000), 50)).status == "ok"
    assert (await claim(world, pod("high", "n1", 3000), 101)).status == "ok"
    # Now less is free than is kept: whoever asks at all is refused, and told what is short.
    [short] = (await claim(world, pod("low", "n1", 1), 50)).shorts
    assert (short.kind, short.available) == ("amount", 0)


async def test_own_claim_takes_the_room_and_ends_it_in_one_step(world: World) -> None:
    n = pod("n", "n1", 3000)
    await offer(world, "o", n)
    # On another node than nominated: it ends, too.
    assert (await claim(world, pod("n", "n2", 3000), 100)).status == "ok"
    assert await standing(world) == {}
    assert (await claim(world, pod("low", "n1", 4000), 50)).status == "ok"
    await nothing_left(world)


async def test_a_refused_own_claim_keeps_it(world: World) -> None:
    await offer(world, "o", pod("n", "n1", 3000))
    assert (await claim(world, pod("n", "n2", 5000), 100)).status == "conflict"
    assert list(await standing(world)) == ["n"]


async def test_own_job_is_not_kept_out(world: World) -> None:
    await offer(world, "o", pod("a", "n1", 2000), pod("b", "n1", 2000), group="ns/g")
    assert (await claim(world, pod("x", "n1", 1), 100, group="ns/h")).status == "conflict"
    assert (await claim(world, pod("c", "n1", 1000), 100, group="ns/g")).status == "ok"
    # One member's own claim ends its own part only.
    assert (await claim(world, pod("a", "n1", 1000), 100, group="ns/g")).status == "ok"
    assert list(await standing(world)) == ["b"]


async def test_a_key_that_is_not_asked_for_is_not_judged(world: World) -> None:
    await world.node("n1", 4000, "2", gpu=1)
    await offer(world, "o", Member("n", "ns", "n", "n1", (Take("node/n1", {"gpu": 1}),)))
    assert (await claim(world, pod("p", "n1", 4000), 0)).status == "ok"


async def test_foreign_nominations_count_against_lower_only(world: World) -> None:
    n = pod("n", "n1", 3000)
    seen = PodNominated("n", "ns", "n", "n1", n.takes, 100, "7", foreign=True)
    await world.see(seen)
    assert (await claim(world, pod("low", "n1", 2000), 99)).status == "conflict"
    assert (await claim(world, pod("equal", "n1", 2000), 100)).status == "ok"


async def test_wound_leaves_the_room_too(world: World) -> None:
    await claim(world, pod("x", "n1", 2000), 1)
    await offer(world, "o", pod("n", "n1", 2000))
    # 1000 could be had by ending x, but not besides the nomination.
    assert (await claim(world, pod("y", "n1", 2001), 50, wound=True)).status == "conflict"
    answer = await claim(world, pod("y", "n1", 2000), 50, wound=True)
    assert [one.claim for one in answer.wounded] == ["claim-x"]


# ---- what may be nominated -------------------------------------------------------------------------------------------


async def test_no_more_than_is_free(world: World) -> None:
    await world.bound(pod("old", "n1", 3000))
    answer = await offer(world, "o", pod("a", "n1", 600), pod("b", "n1", 600))
    assert answer.shorts == (Short("node/n1", "cpu", "amount", 1200, 1000),)
    assert await standing(world) == {}
    await nothing_left_of_a_refusal(world)


async def nothing_left_of_a_refusal(world: World) -> None:
    for suffix in (":nominated", ":rooms", ":nominations", ":offers"):
        assert not await world.raw.exists(world.key + suffix), suffix


async def test_charges_of_victims_are_room(world: World) -> None:
    await world.bound(pod("v1", "n1", 2000))
    await world.bound(pod("v2", "n2", 2000))
    members = (pod("a", "n1", 4000), pod("b", "n2", 4000))
    [short] = (await offer(world, "o1", *members, victims=(Victim("v1"),))).shorts
    assert (short.item, short.needed, short.available) == ("node/n2", 4000, 2000)
    assert (await offer(world, "o2", *members, victims=(Victim("v1"), Victim("v2")))).status == "ok"
    # Until they are gone, and after, nobody of lower priority gets their room.
    assert (await claim(world, pod("low", "n1", 2000), 50)).status == "conflict"
    await world.deleted(pod("v1", "n1", 2000))
    assert (await claim(world, pod("low", "n1", 1), 50)).status == "conflict"
    assert (await claim(world, pod("a", "n1", 4000), 100)).status == "ok"


async def test_nominations_of_as_much_priority_are_left_out(world: World) -> None:
    await offer(world, "o1", pod("a", "n1", 3000), priority=100)
    [short] = (await offer(world, "o2", pod("b", "n1", 2000), priority=100)).shorts
    assert (short.kind, short.available, short.holder) == ("nomination", 1000, "a")
    assert (await offer(world, "o3", pod("c", "n1", 4000), priority=101)).status == "ok"
    assert set(await standing(world)) == {"a", "c"}


async def test_a_pod_that_is_placed_or_gone_is_busy(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1000))
    answer = await offer(world, "o", pod("a", "n1", 1000), pod("p", "n1", 1000))
    assert (answer.status, answer.busy_uid, answer.busy_claim) == ("busy", "p", held.request.id)
    await world.see(PodGone("q", "ns", "q", "9"))
    answer = await offer(world, "o", pod("q", "n1", 1000))
    assert (answer.status, answer.busy_uid, answer.busy_claim) == ("busy", "q", "")


async def test_closed_or_unknown_node(world: World) -> None:
    await world.see(ItemClosed("node/n2", "2"))
    for node in ("n2", "n9"):
        answer = await offer(world, "o", pod("a", node, 1))
        assert answer.shorts == (Short(f"node/{node}", "", "closed", 0, 0),)


async def test_the_same_again_and_another_of_the_same_pod(world: World) -> None:
    await world.bound(pod("v", "n1", 4000))
    first = (pod("a", "n1", 4000), "o1", (Victim("v"),))
    for _ in range(2):
        assert (await offer(world, first[1], first[0], victims=first[2])).status == "ok"
    assert (await standing(world))["a"].offer == "o1"
    # Planned anew: the victim that the old offer had locked is free for the new one.
    assert (await offer(world, "o2", first[0], victims=first[2])).status == "ok"
    assert (await standing(world))["a"].offer == "o2"
    assert await world.raw.hgetall(world.key + ":nominations") != {}
    assert await world.raw.zrange(world.key + ":offers", 0, -1) == [b"o2"]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (NominateRequest("o", ()), "0 members"),
        (NominateRequest("o", (pod("a", "n1", 1), pod("a", "n2", 1))), "named twice"),
        (NominateRequest("o", (pod("a", "n1", 1),), victims=(Victim("a"),)), "named twice"),
        (NominateRequest("o", (pod("a", "n1", 1),), lease_s=61.0), "lease_s 61.0"),
        (NominateRequest("o", (Member("a", "ns", "a", "", ()),)), "ns/a: without a node"),
        (NominateRequest("o", tuple(pod(f"p{i}", "n1", 1) for i in range(4097))), "4097 members"),
    ],
)
async def test_malformed(world: World, request_: NominateRequest, text: str) -> None:
    with pytest.raises(LedgerRefused, match=text):
        await world.s1.nominate([request_])


async def test_closed_ledger_and_old_epoch(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await world.node("n1", 4000)
        assert (await offer(world, "o", pod("a", "n1", 1))).status == "closed"
        await world.open()
        # The client learns the epoch and asks again.
        assert (await offer(world, "o", pod("a", "n1", 1))).status == "ok"


# ---- victims and budgets ---------------------------------------------------------------------------------------------


async def test_a_victim_is_locked_for_one_preemptor(world: World) -> None:
    await world.bound(pod("v", "n1", 4000))
    assert (await offer(world, "o1", pod("a", "n1", 1000), victims=(Victim("v"),))).status == "ok"
    answer = await offer(world, "o2", pod("b", "n1", 1000), priority=101, victims=(Victim("v"),))
    assert answer.shorts == (Short("victim/v", "", "slot", 1, 0, 0, "nomination:o1"),)
    # It ends with the nomination.
    await world.see(noted(pod("a", "n1", 1000)), noted(pod("a", "n1", 1000), node="", version="8"))
    assert (await offer(world, "o2", pod("b", "n1", 1000), victims=(Victim("v"),))).status == "ok"


async def test_units_of_disruption_budgets(world: World) -> None:
    await world.see(LimitSet(PDB, {DISRUPTIONS: 2}))
    for uid in ("v1", "v2", "v3"):
        await world.bound(pod(uid, "n1", 1000))
    many = tuple(Victim(uid, (PDB,)) for uid in ("v1", "v2", "v3"))
    answer = await offer(world, "o", pod("a", "n1", 1000), victims=many)
    assert answer.shorts == (Short(PDB, DISRUPTIONS, "amount", 3, 2),)
    assert (await offer(world, "o", pod("a", "n1", 1000), victims=many[:2])).status == "ok"
    assert await world.amounts(PDB, DISRUPTIONS) == (0, 2)
    assert (await world.r.sums([PDB]))[PDB].held == {DISRUPTIONS: 2}
    [short] = (await offer(world, "o2", pod("b", "n1", 1), priority=200, victims=many[2:])).shorts
    assert (short.item, short.available) == (PDB, 0)
    # Seen terminating: from here on the API counts it.
    await world.see(PodTerminating("v1", "ns", "v1"), LimitSet(PDB, {DISRUPTIONS: 1}))
    assert await world.amounts(PDB, DISRUPTIONS) == (0, 1)
    assert await world.raw.hkeys(world.key + ":slots") == [b"victim/v2"]
    await world.deleted(pod("v2", "n1", 1000))
    assert await world.amounts(PDB, DISRUPTIONS) == (0, 0)
    assert list(await standing(world)) == ["a"]
    assert (await offer(world, "o2", pod("b", "n1", 1), priority=200, victims=many[2:])).status == "ok"


async def test_unknown_budget(world: World) -> None:
    await world.bound(pod("v", "n1", 1000))
    answer = await offer(world, "o", pod("a", "n1", 1000), victims=(Victim("v", (PDB,)),))
    assert answer.shorts == (Short(PDB, "", "closed", 0, 0),)


async def test_all_is_given_back_when_the_last_member_is_placed(world: World) -> None:
    await world.see(LimitSet(PDB, {DISRUPTIONS: 2}))
    await world.bound(pod("v", "n1", 1000))
    await offer(world, "o", pod("a", "n1", 1000), pod("b", "n2", 1000), victims=(Victim("v", (PDB,)),))
    await claim(world, pod("a", "n1", 1000), 100)
    assert await world.amounts(PDB, DISRUPTIONS) == (0, 1)
    await claim(world, pod("b", "n2", 1000), 100)
    assert await world.amounts(PDB, DISRUPTIONS) == (0, 0)
    await nothing_left(world)


# ---- how they end ----------------------------------------------------------------------------------------------------


async def test_an_offer_lapses_and_the_reconciler_tells(world: World) -> None:
    await world.see(LimitSet(PDB, {DISRUPTIONS: 2}))
    await world.bound(pod("v", "n1", 1000))
    await offer(world, "o", pod("a", "n1", 2000), pod("b", "n1", 2000), victims=(Victim("v", (PDB,)),))
    await lapse(world, "o")
    assert (await claim(world, pod("low", "n1", 3000), 50)).status == "ok"
    told = await world.r.sweep(world.reconciler_epoch)
    assert told.expired == (Ended("o", ("a", "b"), "nomination"),)
    assert told.freed == ("node/n1", PDB)
    await nothing_left(world)


async def test_a_short_lease(world: World) -> None:
    await offer(world, "o", pod("a", "n1", 4000), lease_s=0.001)
    deadline = 500
    while await standing(world):
        await world.r.sweep(world.reconciler_epoch)
        deadline -= 1
        assert deadline, "the offer does not lapse"
    assert (await claim(world, pod("low", "n1", 4000), 50)).status == "ok"


async def test_what_was_noted_has_no_lease(world: World) -> None:
    await world.see(LimitSet(PDB, {DISRUPTIONS: 2}))
    await world.bound(pod("v", "n1", 2000))
    a, b = pod("a", "n1", 2000), pod("b", "n2", 2000)
    await offer(world, "o", a, b, victims=(Victim("v", (PDB,)),), group="ns/g")
    await world.see(noted(a))
    assert (await standing(world))["a"].noted
    await lapse(world, "o")
    told = await world.r.sweep(world.reconciler_epoch)
    assert told.expired == (Ended("o", ("b",), "nomination"),)
    [left] = (await standing(world)).values()
    assert left == Nomination("a", "", "ns", "a", "n1", {"cpu": 2000, "pods": 1}, True, 100, "ns/g", False)
    assert (await claim(world, pod("low", "n1", 2000), 50)).status == "conflict"
    # Victims and units are locked no longer.
    assert await world.amounts(PDB, DISRUPTIONS) == (0, 0)
    assert not await world.raw.exists(world.key + ":slots")


async def test_ends_with_the_pod(world: World) -> None:
    for number, observation in enumerate(("assigned", "deleted")):
        n = pod(f"n{number}", "n2", 1000)
        await offer(world, f"o{number}", n)
        told = await (world.bound(n, "n1") if observation == "assigned" else world.deleted(n))
        assert "node/n2" in told.freed
        assert await standing(world) == {}
    await nothing_left(world)


async def test_ends_with_the_node(world: World) -> None:
    await offer(world, "o", pod("a", "n1", 1000), pod("b", "n2", 1000))
    await world.see(ItemClosed("node/n1", "9"))
    assert list(await standing(world)) == ["b"]
    # A field that names a node that is not there reserves nothing.
    await world.see(noted(pod("c", "n1", 1000)))
    assert list(await standing(world)) == ["b"]


async def test_ends_with_the_field(world: World) -> None:
    n = pod("n", "n1", 1000)
    await world.see(noted(n, version="7"))
    assert (await standing(world))["n"].noted
    await world.see(noted(n, node="n2", version="6"))  # older
    assert (await standing(world))["n"].node == "n1"
    told = await world.see(noted(n, node="n2", version="8"))
    assert told.freed == ("node/n1",)
    assert (await standing(world))["n"].node == "n2"
    told = await world.see(noted(n, node="", version="9"))
    assert told.freed == ("node/n2",)
    await nothing_left(world)


async def test_an_offer_under_way_outlives_an_empty_field(world: World) -> None:
    n = pod("n", "n1", 1000)
    await offer(world, "o", n)
    await world.see(noted(n, node=""))
    assert list(await standing(world)) == ["n"]


async def test_a_late_sight_of_the_field_does_not_bring_it_back(world: World) -> None:
    n = pod("n", "n1", 1000)
    await offer(world, "o", n)
    await claim(world, n, 100)
    await world.see(noted(n))
    assert await standing(world) == {}


async def test_dropped_with_the_ledger_and_told_anew(world: World) -> None:
    """A rebuild writes NOTED ones from what the API shows; offers are made anew."""
    a, b = pod("a", "n1", 3000), pod("b", "n2", 3000)
    await offer(world, "o", a, b)
    await world.r.begin(world.reconciler_epoch)
    await nothing_left(world)
    await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 100}, "1"), noted(a))
    await world.open()
    assert (await claim(world, pod("low", "n1", 2000), 50)).status == "conflict"


async def test_many_in_one_batch_of_claims(world: World) -> None:
    """A claim of the batch that ends a nomination makes room for the next one of it."""
    await offer(world, "o", pod("n", "n1", 3000))
    requests = [
        ClaimRequest("c1", (pod("low1", "n1", 2000),), priority=50),
        ClaimRequest("c2", (pod("n", "n2", 3000),), priority=100),
        ClaimRequest("c3", (pod("low2", "n1", 2000),), priority=50),
    ]
    assert [answer.status for answer in await world.s1.claim(requests)] == ["conflict", "ok", "ok"]
