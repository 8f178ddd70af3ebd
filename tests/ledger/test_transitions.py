"""The transition table of spec 20 section 3.12, row by row, and the failure rows that end in it."""

import pytest

from koord.accounting.takes import Take
from koord.ledger.client import Ledger
from koord.ledger.model import (
    Advance,
    ClaimRequest,
    Ended,
    ItemClosed,
    LedgerError,
    LedgerRefused,
    LimitSet,
    Member,
    NodeSeen,
    PodGone,
    PodSeen,
    PodUnbound,
    Release,
    Short,
    Slot,
    UnitGone,
    UnitUnbound,
)
from tests.ledger.world import World, admitted, pod, unit

# ---- row 1: claim ----------------------------------------------------------------------------------------------------


async def test_claim_holds_and_keeps_what_it_took(world: World) -> None:
    await world.quota("quota/leaf", "quota/root", cpu=9000)
    member = pod("p", "n1", 1500, ("leaf", "root"))
    held = await world.claim(member)
    assert held.answer.status == "ok"
    assert held.answer.token == 1
    for item in ("node/n1", "quota/leaf", "quota/root"):
        assert await world.amounts(item) == (0, 1500)
    record = await world.s2.record("p")
    assert record is not None
    assert (record.state, record.claim, record.token, record.owner) == (
        "HELD",
        held.request.id,
        1,
        world.s1.incarnation,
    )
    assert (record.namespace, record.name, record.node, record.takes) == ("ns", "p", "n1", member.takes)
    assert record.trace == "00-trace-span-01"


async def test_claim_is_whole_or_not_at_all(world: World) -> None:
    held = await world.claim(pod("a", "n1", 3000), pod("b", "n2", 5000))
    assert held.answer.shorts == (Short("node/n2", "cpu", "amount", 5000, 4000),)
    assert await world.amounts("node/n1") == (0, 0)
    assert await world.s1.record("a") is None


async def test_members_of_a_claim_are_summed(world: World) -> None:
    held = await world.claim(pod("a", "n1", 2500), pod("b", "n1", 2500))
    assert held.answer.shorts == (Short("node/n1", "cpu", "amount", 5000, 4000),)


async def test_conflict_names_everything_that_is_short(world: World) -> None:
    await world.quota("quota/leaf", cpu=100)
    member = Member(
        "p",
        "ns",
        "p",
        "n1",
        (
            Take("node/n1", {"cpu": 5000, "memory": 7, "pods": 1}),
            Take("quota/leaf", {"cpu": 5000, "memory": 7}),
            Take("quota/gone", {"cpu": 1}),
        ),
    )
    held = await world.claim(member)
    assert held.answer.status == "conflict"
    assert held.answer.shorts == (
        Short("node/n1", "cpu", "amount", 5000, 4000),
        Short("node/n1", "memory", "amount", 7, 0),
        Short("quota/leaf", "cpu", "amount", 5000, 100),
        Short("quota/gone", "", "closed", 0, 0),
    )


async def test_unchecked_takes_count_and_never_refuse(world: World) -> None:
    await world.quota("quota/leaf", "quota/root", cpu=1000)
    held = await world.claim(pod("p", "n1", 800, ("leaf", "root"), check_parents=False))
    assert held.answer.status == "ok"
    held = await world.claim(pod("q", "n1", 200, ("leaf", "root"), check_parents=False))
    await world.quota("quota/leaf", cpu=9000)
    held = await world.claim(pod("r", "n1", 500, ("leaf", "root"), check_parents=False))
    assert held.answer.status == "ok"
    assert await world.amounts("quota/root") == (0, 1500)
    held = await world.claim(pod("s", "n1", 1, ("leaf", "root")))
    assert held.answer.shorts == (Short("quota/root", "cpu", "amount", 1, 0),)


async def test_sums_decide_not_the_order_of_takes(world: World) -> None:
    await world.quota("quota/q", cpu=10)

    def takes(uid: str, *amounts: tuple[int, bool]) -> Member:
        return Member(uid, "ns", uid, "n1", tuple(Take("quota/q", {"cpu": cpu}, checked) for cpu, checked in amounts))

    # 12 - 5 fits although 12 does not.
    assert (await world.claim(takes("a", (12, True)), takes("b", (-5, True)))).answer.status == "ok"
    assert await world.amounts("quota/q") == (0, 7)
    # A checked amount counts what the same claim takes unchecked, before or after.
    for order in ([(2, True), (2, False)], [(2, False), (2, True)]):
        held = await world.claim(takes("c", *order))
        assert held.answer.shorts == (Short("quota/q", "cpu", "amount", 4, 3),)
    assert (await world.claim(takes("d", (2, False), (2, False)))).answer.status == "ok"
    item = (await world.r.items("quota/q"))["quota/q"]
    assert (item.held, item.refs) == ({"cpu": 11}, 4)


async def test_a_take_that_does_not_lower_free_is_admissible_below_zero(world: World) -> None:
    await world.quota("quota/leaf", cpu=1000)
    assert (await world.claim(pod("p", "n1", 1000, ("leaf",)))).answer.status == "ok"
    await world.quota("quota/leaf", cpu=200)
    nothing = Member("q", "ns", "q", "n1", (Take("node/n1", {"pods": 1}), Take("quota/leaf", {"cpu": 0, "gpu": 2})))
    assert (await world.claim(nothing)).answer.status == "ok"
    held = await world.claim(pod("r", "n1", 1, ("leaf",)))
    assert held.answer.shorts == (Short("quota/leaf", "cpu", "amount", 1, 0),)


async def test_accepted_claim_repeated_keeps_its_token(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1500))
    again = await world.s1.claim([held.request, held.request])
    assert [answer.token for answer in again] == [held.answer.token] * 2
    assert await world.amounts("node/n1") == (0, 1500)
    await world.advance(held)
    await world.bound(held.request.members[0])
    assert (await world.s1.claim([held.request]))[0] == held.answer


async def test_one_record_per_uid(world: World) -> None:
    first = await world.claim(pod("p", "n1", 100))
    other = await world.claim(pod("p", "n2", 100), by=world.s2)
    assert (other.answer.status, other.answer.busy_uid, other.answer.busy_claim) == ("busy", "p", first.request.id)
    assert await world.amounts("node/n2") == (0, 0)


async def test_ended_uid_is_remembered(world: World) -> None:
    await world.deleted(pod("p", "n1", 0))
    late = await world.claim(pod("p", "n1", 100))
    assert (late.answer.status, late.answer.busy_uid, late.answer.busy_claim) == ("busy", "p", "")
    # Ten minutes later nobody will ask, and the mark goes.
    await world.raw.zadd(world.key + ":gone", {"p": 1})
    assert (await world.claim(pod("p", "n1", 100))).answer.status == "ok"
    await world.see()
    assert await world.raw.zcard(world.key + ":gone") == 0


async def test_batch_is_judged_in_order(world: World) -> None:
    requests = [ClaimRequest(f"x-{i}", (pod(f"p{i}", "n1", 1500),)) for i in range(4)]
    answers = await world.s1.claim(requests)
    assert [answer.status for answer in answers] == ["ok", "ok", "conflict", "conflict"]
    assert answers[2].shorts == (Short("node/n1", "cpu", "amount", 1500, 1000),)


async def test_amount_beyond_exactness_is_refused(world: World) -> None:
    await world.see(LimitSet("admitted/leaf", {}))
    held = await world.claim(unit("u", 2**53 + 2, ("leaf",)))
    assert held.answer.shorts == (Short("admitted/leaf", "cpu", "amount", 2**53 + 2, 2**53),)
    for huge in (2**63 - 1, 2**63, 2**64, 2**70):
        held = await world.claim(unit("u", huge, ("leaf",)))
        assert held.answer.shorts[0].available == 2**53
    # Nor does it leave a trace in what else the batch takes.
    huge_pod = Member("h", "ns", "h", "n1", (Take("node/n1", {"pods": 1, "cpu": 2**60, "memory": 1}),))
    answers = await world.s1.claim(
        [ClaimRequest("x-1", (huge_pod,)), ClaimRequest("x-2", (pod("p", "n1", 7),)), ClaimRequest("x-3", (huge_pod,))]
    )
    assert [answer.status for answer in answers] == ["conflict", "ok", "conflict"]
    assert await world.amounts("node/n1") == (0, 7)
    assert await world.amounts("node/n1", "pods") == (0, 1)
    await world.see(LimitSet("quota/q", {"cpu": 2**70}), NodeSeen("node/n1", {"cpu": 2**64, "pods": 1}, "2"))
    assert (await world.r.items("node/n1"))["node/n1"].limits["cpu"] == 2**53


async def test_malformed_claims_are_refused_before_they_are_sent(world: World) -> None:
    with pytest.raises(LedgerRefused, match="claim x: it has no members"):
        await world.s1.claim([ClaimRequest("x", ())])
    with pytest.raises(LedgerRefused, match="claim x: 4097 members, at most 4096"):
        await world.s1.claim([ClaimRequest("x", tuple(pod(f"p{i}", "n1", 0) for i in range(4097)))])
    with pytest.raises(LedgerRefused, match="claim x: a uid is named twice"):
        await world.s1.claim([ClaimRequest("x", (pod("p", "n1", 0), pod("p", "n2", 0)))])


async def test_largest_claim(world: World) -> None:
    await world.see(NodeSeen("node/big", {"cpu": 10**9, "pods": 5000}, "1"))
    held = await world.claim(*(pod(f"p{i}", "big", 3) for i in range(4096)))
    assert held.answer.status == "ok"
    assert await world.amounts("node/big") == (0, 3 * 4096)
    assert len((await world.release(held)).released) == 4096
    assert await world.amounts("node/big", "pods") == (0, 0)


# ---- slots -----------------------------------------------------------------------------------------------------------


async def test_slot_has_one_holder(world: World) -> None:
    port = "slot/n1/port/0.0.0.0:80"
    first = ClaimRequest("x-1", (pod("p", "n1", 1),), slots=(Slot(port, "p"), Slot("gang/ns/g")))
    [answer] = await world.s1.claim([first])
    assert answer.status == "ok"
    [answer] = await world.s2.claim([ClaimRequest("y-1", (pod("q", "n1", 1),), slots=(Slot(port, "q"),))])
    assert answer.shorts == (Short(port, "", "slot", 1, 0, 0, "p"),)
    [answer] = await world.s2.claim([ClaimRequest("y-2", (pod("q", "n1", 1),), slots=(Slot("gang/ns/g"),))])
    assert answer.shorts == (Short("gang/ns/g", "", "slot", 1, 0, 0, "claim:x-1"),)
    # The claim's slot goes with the claim, the pod's with the pod.
    await world.bound(first.members[0])
    [answer] = await world.s2.claim([ClaimRequest("y-3", (pod("q", "n1", 1),), slots=(Slot("gang/ns/g"),))])
    assert answer.status == "ok"
    await world.deleted(first.members[0])
    [answer] = await world.s2.claim([ClaimRequest("y-4", (pod("s", "n1", 1),), slots=(Slot(port, "s"),))])
    assert answer.status == "ok"


# ---- rows 2 and 4: leases --------------------------------------------------------------------------------------------


async def test_members_are_added_with_the_token(world: World) -> None:
    held = await world.claim(pod("a", "n1", 1000), strict=False)
    more = ClaimRequest(held.request.id, (pod("b", "n2", 1000),), token=held.answer.token)
    assert (await world.s1.claim([more, more]))[1].token == held.answer.token
    assert await world.amounts("node/n2") == (0, 1000)
    wrong = ClaimRequest(held.request.id, (pod("c", "n2", 1000),), token=held.answer.token + 1)
    assert (await world.s1.claim([wrong]))[0].status == "stale"
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
    assert await world.s2.lead("gateway") == old + 1
    assert (await world.advance(held)).status == "stale"
    [answer] = await world.s2.advance([Advance(held.request.id, 1, world.g.epoch, "d", ("p",))], old + 1)
    assert answer.status == "ok"
    # The same epoch from another incarnation is no better.
    assert (await world.advance(held, role_epoch=old + 1)).status == "stale"
    assert (await world.refuse(held)).status == "stale"
    assert await world.g.lead("gateway") == old + 2


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
            answer = await world.see(PodUnbound("p", "ns", "p", "9"))
    reason = "gone" if how == "deleted" else how
    assert answer.released == (Ended(held.request.id, ("p",), reason),)
    assert "node/n1" in answer.freed
    assert await world.amounts("node/n1") == (0, 100)
    # Only a settle answer leaves the uid free for another claim.
    assert (await world.claim(pod("p", "n1", 100))).answer.status == ("ok" if how == "unbound" else "busy")


async def test_held_is_not_moved_by_a_settle_answer(world: World) -> None:
    held = await world.claim(pod("p", "n1", 100))
    assert (await world.see(PodUnbound("p", "ns", "p", "9"))).released == ()
    assert await world.state(held.request.members[0]) == "HELD"


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
    gpu = Member("g", "ns", "g", "n1", (Take("node/n1", {"gpu": 1, "pods": 1}),))
    assert (await world.claim(gpu)).answer.status == "ok"
    assert (await world.bound(pod("more", "n1", 1))).released == ()


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
    answer = await world.see(UnitUnbound("u", "ns", "u", "9", settled=True))
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
