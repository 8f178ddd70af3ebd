"""Guards: versions compared when a claim is judged (spec 20 section 3.12, "guard" and "Admissible")."""

import msgspec
import pytest

from koord.ledger.model import ClaimRequest, Guard, ItemClosed, LedgerRefused, NodeSeen, PodSeen, Short
from tests.ledger.world import World, pod

TERM = "term/zone-spread"


def guarded(world: World, uid: str, *guards: Guard, node: str = "n1") -> ClaimRequest:
    return ClaimRequest(f"{world.s1.incarnation}-{uid}", (pod(uid, node, 100),), guards=guards)


async def judge(world: World, *requests: ClaimRequest) -> list[str]:
    return [answer.status for answer in await world.s1.claim(requests)]


async def test_node_must_be_as_planned(world: World) -> None:
    await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 9}, "2", 41))
    assert await world.s1.guards(["node/n1", "node/other"]) == {"node/n1": 41, "node/other": 0}
    assert await judge(world, guarded(world, "a", Guard("node/n1", 41))) == ["ok"]
    # Tainted in the meantime.
    await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 9}, "3", 42))
    [answer] = await world.s1.claim([guarded(world, "b", Guard("node/n1", 41))])
    assert answer.shorts == (Short("node/n1", "", "guard", 41, 0, 42),)
    assert await world.state(pod("b", "n1", 100)) == "-"
    assert await judge(world, guarded(world, "b", Guard("node/n1", 42))) == ["ok"]


async def test_older_node_and_older_writer_leave_the_generation(world: World) -> None:
    await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 9}, "5", 41))
    await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 9}, "4", 40))
    await world.see(NodeSeen("node/n1", {"cpu": 3000, "pods": 9}, "6"))
    assert await world.s1.guards(["node/n1"]) == {"node/n1": 41}
    assert (await world.r.items("node/n1"))["node/n1"].version == 41


async def test_guard_of_a_node_that_went(world: World) -> None:
    await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 9}, "2", 41))
    await world.see(ItemClosed("node/n1", "3"))
    [answer] = await world.s1.claim([guarded(world, "a", Guard("node/n1", 41), node="n2")])
    assert answer.shorts == (Short("node/n1", "", "guard", 41, 0, 0),)


async def test_claim_bumps_a_term(world: World) -> None:
    first = guarded(world, "a", Guard(TERM, 0, bump=True))
    assert await judge(world, first) == ["ok"]
    version = (await world.s2.guards([TERM]))[TERM]
    assert version > 0
    # The accepted claim repeated is no second bump.
    assert await judge(world, first) == ["ok"]
    assert await world.s2.guards([TERM]) == {TERM: version}
    # Somebody who has not seen the first pod's claim is refused and told the version.
    [answer] = await world.s2.claim([guarded(world, "b", Guard(TERM, 0, bump=True))])
    assert answer.shorts == (Short(TERM, "", "guard", 0, 0, version),)
    assert await world.s2.guards([TERM]) == {TERM: version}
    assert await judge(world, guarded(world, "b", Guard(TERM, version, bump=True))) == ["ok"]
    assert (await world.s2.guards([TERM]))[TERM] > version


async def test_a_refused_claim_bumps_nothing(world: World) -> None:
    request = ClaimRequest("s-1", (pod("a", "n1", 9000),), guards=(Guard(TERM, 0, bump=True),))
    assert await judge(world, request) == ["conflict"]
    assert await world.s1.guards([TERM]) == {TERM: 0}


async def test_bumps_of_one_call_are_expected(world: World) -> None:
    requests = [guarded(world, uid, Guard(TERM, 0, bump=True)) for uid in "abc"]
    assert await judge(world, *requests) == ["ok", "ok", "ok"]


async def test_only_bumping(world: World) -> None:
    """A pod that others' rules care about, and that has none itself."""
    assert await judge(world, guarded(world, "a", Guard(TERM, -1, bump=True))) == ["ok"]
    assert await judge(world, guarded(world, "b", Guard(TERM, -1, bump=True))) == ["ok"]
    assert await judge(world, guarded(world, "c", Guard(TERM, 0))) == ["conflict"]


async def test_added_members_are_guarded_too(world: World) -> None:
    held = await world.claim(pod("a", "n1", 100), strict=False)
    await judge(world, guarded(world, "x", Guard(TERM, 0, bump=True)))
    more = ClaimRequest(held.request.id, (pod("b", "n1", 100),), guards=(Guard(TERM, 0),), token=held.answer.token)
    assert await judge(world, more) == ["conflict"]
    now = await world.s1.guards([TERM])
    more = msgspec.structs.replace(more, guards=(Guard(TERM, now[TERM]),))
    assert await judge(world, more) == ["ok"]


async def test_foreign_pod_bumps_a_claimed_one_does_not(world: World) -> None:
    """Row 11 bumps; row 10 follows a claim that did, and row 12 changes no place."""
    held = await world.claim(pod("a", "n1", 100))
    seen = pod("a", "n1", 100)
    await world.see(PodSeen("a", "ns", "a", "n1", seen.takes, "10", (TERM,)))
    assert await world.state(held.request.members[0]) == "OBSERVED"
    assert await world.s1.guards([TERM]) == {TERM: 0}
    await world.see(PodSeen("f", "ns", "f", "n1", seen.takes, "11", (TERM,)))
    version = (await world.s1.guards([TERM]))[TERM]
    assert version > 0
    await world.see(PodSeen("f", "ns", "f", "n1", seen.takes, "12", (TERM,)))
    assert await world.s1.guards([TERM]) == {TERM: version}


async def test_unused_guards_go(world: World) -> None:
    await judge(
        world, guarded(world, "a", Guard(TERM, 0, bump=True)), guarded(world, "b", Guard("term/b", 0, bump=True))
    )
    await world.raw.zincrby(world.key + ":guards", -3_600_001, TERM)
    await world.see()
    versions = await world.s1.guards([TERM, "term/b"])
    assert versions[TERM] == 0
    assert versions["term/b"] > 0


async def test_a_clock_that_stepped_back_does_not_bring_a_version_back(world: World) -> None:
    await judge(world, guarded(world, "a", Guard(TERM, 0, bump=True)))
    await world.raw.zincrby(world.key + ":guards", 1_000_000, TERM)
    version = (await world.s1.guards([TERM]))[TERM]
    await judge(world, guarded(world, "b", Guard(TERM, version, bump=True)))
    assert await world.s1.guards([TERM]) == {TERM: version + 1}


async def test_guards_start_anew_with_the_ledger(world: World) -> None:
    await judge(world, guarded(world, "a", Guard(TERM, 0, bump=True)))
    await world.r.begin(world.reconciler_epoch)
    assert await world.r.guards([TERM]) == {TERM: 0}


async def test_nobody_bumps_a_node(world: World) -> None:
    with pytest.raises(LedgerRefused, match="node/n1"):
        await world.s1.claim([guarded(world, "a", Guard("node/n1", 0, bump=True))])
