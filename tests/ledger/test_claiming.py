"""What is admissible: row 1 of the transition table of spec 20 section 3.12, sums, conflicts and slots."""

import pytest

from koord.accounting.takes import Take
from koord.ledger.model import (
    ClaimRequest,
    LedgerRefused,
    LimitSet,
    Member,
    NodeSeen,
    Short,
    Slot,
)
from tests.ledger.world import World, pod, unit

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
