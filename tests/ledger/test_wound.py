"""Row 6: a claim takes the room of HELD claims of lower rank, and of nothing else."""

import msgspec

from koord.accounting.takes import Take
from koord.ledger.client import Ledger
from koord.ledger.model import (
    Advance,
    ClaimAnswer,
    ClaimRequest,
    Ended,
    Guard,
    ItemClosed,
    Member,
    NodeSeen,
    Slot,
    Wounded,
)
from tests.ledger.world import World, pod


class Ranked:
    """Claims with ranks, by name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: dict[str, ClaimRequest] = {}
        self.answers: dict[str, ClaimAnswer] = {}

    async def claim(
        self,
        name: str,
        *members: Member,
        priority: int = 10,
        ticket: int = 0,
        group: str = "",
        wound: bool = False,
        strict: bool = True,
        by: Ledger | None = None,
        slots: tuple[Slot, ...] = (),
        guards: tuple[Guard, ...] = (),
    ) -> ClaimAnswer:
        request = ClaimRequest(
            name,
            members,
            slots,
            guards,
            priority=priority,
            ticket=ticket,
            group=group,
            wound=wound,
            strict=strict,
        )
        [answer] = await (by or self.world.s1).claim([request])
        self.requests[name], self.answers[name] = request, answer
        return answer

    async def standing(self) -> str:
        """Names of the claims that still hold something, in order."""
        found = {record.claim async for record in self.world.r.records()}
        return "".join(name for name in sorted(self.requests) if name in found)


def on(node: str, cpu: int, name: str = "") -> Member:
    return pod(name or f"{node}-{cpu}", node, cpu)


async def test_lower_rank_makes_room(world: World) -> None:
    claims = Ranked(world)
    await claims.claim("x", pod("x1", "n1", 3000), pod("x2", "n2", 1000), ticket=5, strict=False, by=world.s2)
    refused = await claims.claim("y", pod("y", "n1", 3000), ticket=3)
    assert (refused.status, refused.wounded) == ("conflict", ())
    answer = await claims.claim("z", pod("y", "n1", 3000), ticket=3, wound=True)
    assert answer.wounded == (Wounded("x", world.s2.incarnation, ("x1", "x2"), ("node/n1", "node/n2")),)
    assert await claims.standing() == "z"
    assert await world.amounts("node/n1") == (0, 3000)
    assert await world.amounts("node/n2") == (0, 0)
    assert await world.raw.zrange(world.key + ":leases", 0, -1) == [b"z"]
    # Repeated: the same token, and nothing is wounded again.
    [again] = await world.s1.claim([claims.requests["z"]])
    assert (again.token, again.wounded) == (answer.token, ())
    # Should the caller have died, the reconciler tells.
    told = await world.see()
    assert told.expired == (Ended("x", ("x1", "x2"), "wounded"),)
    assert set(told.freed) == {"node/n1", "node/n2"}
    # The owner is told `gone` when it goes on with it.
    [late] = await world.s2.claim([msgspec.structs.replace(claims.requests["x"], token=claims.answers["x"].token)])
    assert late.status == "stale"


async def test_equal_and_higher_ranks_stay(world: World) -> None:
    claims = Ranked(world)
    await claims.claim("a", on("n1", 4000), priority=11, ticket=9)
    await claims.claim("b", on("n2", 4000), priority=10, ticket=3)
    assert (await claims.claim("c", pod("c", "n1", 1), priority=10, ticket=1, wound=True)).status == "conflict"
    assert (await claims.claim("d", pod("d", "n2", 1), priority=10, ticket=3, wound=True)).status == "conflict"
    assert (await claims.claim("e", pod("e", "n2", 1), priority=10, ticket=4, wound=True)).status == "conflict"
    assert await claims.standing() == "ab"


async def test_only_held_claims_go(world: World) -> None:
    claims = Ranked(world)
    await claims.claim("x", on("n1", 4000), ticket=5)
    held = claims.answers["x"]
    await world.g.advance([Advance("x", held.token, held.epoch, "x", ("n1-4000",))], world.gateway_epoch)
    answer = await claims.claim("y", pod("y", "n1", 1), priority=99, wound=True)
    assert (answer.status, answer.shorts[0].available) == ("conflict", 0)
    # Nor does what is held go in vain, when the rest of the claim would not fit.
    await claims.claim("z", on("n2", 4000), ticket=7)
    both = (pod("y1", "n1", 1), pod("y2", "n2", 1))
    assert (await claims.claim("w", *both, priority=99, wound=True)).status == "conflict"
    assert await claims.standing() == "xz"


async def test_the_fewest_the_lowest_first(world: World) -> None:
    claims = Ranked(world)
    for name, cpu, ticket in (("a", 1000, 4), ("b", 2000, 3), ("c", 500, 2), ("d", 500, 5)):
        await claims.claim(name, on("n1", cpu, name), ticket=ticket)
    # 1500 are needed: d and a would do and are the lowest, but b alone does, too.
    answer = await claims.claim("x", pod("x", "n1", 1500), ticket=1, wound=True)
    assert [one.claim for one in answer.wounded] == ["b"]
    assert await claims.standing() == "acdx"
    # 500 are free, 1000 more are needed: d is the lowest and not enough, a is.
    answer = await claims.claim("y", pod("y", "n1", 1500), ticket=1, wound=True)
    assert [one.claim for one in answer.wounded] == ["a"]
    # Of two that would do alone, the lower rank.
    answer = await claims.claim("z", pod("z", "n1", 500), ticket=1, wound=True)
    assert [one.claim for one in answer.wounded] == ["d"]
    assert await claims.standing() == "cxyz"


async def test_priority_goes_before_ticket(world: World) -> None:
    claims = Ranked(world)
    await claims.claim("a", on("n1", 2000, "a"), priority=5, ticket=2)
    await claims.claim("b", on("n1", 2000, "b"), priority=7, ticket=9)
    answer = await claims.claim("x", pod("x", "n1", 1000), priority=8, ticket=99, wound=True)
    assert [one.claim for one in answer.wounded] == ["a"]


async def test_quota_held_by_lower_ranks(world: World) -> None:
    await world.quota("quota/leaf", cpu=1000)
    claims = Ranked(world)
    await claims.claim("a", pod("a", "n1", 1000, ("leaf",)), ticket=2)
    answer = await claims.claim("x", pod("x", "n2", 1000, ("leaf",)), ticket=1, wound=True)
    assert [one.items for one in answer.wounded] == [("node/n1", "quota/leaf")]


async def test_slots_held_by_lower_ranks(world: World) -> None:
    claims = Ranked(world)
    port, group = Slot("port/n1/80", "a"), Slot("gang/g")
    await claims.claim("a", on("n1", 1, "a"), ticket=5, slots=(port,))
    await claims.claim("b", on("n1", 1, "b"), ticket=5, slots=(group,))
    await claims.claim("c", on("n1", 1, "c"), ticket=5)
    wanted = (Slot("port/n1/80", "x"), group)
    answer = await claims.claim("x", on("n1", 1, "x"), ticket=1, wound=True, slots=wanted)
    assert sorted(one.claim for one in answer.wounded) == ["a", "b"]
    assert await claims.standing() == "cx"
    assert await world.raw.hgetall(world.key + ":slots") == {b"port/n1/80": b"x", b"gang/g": b"claim:x"}


async def test_slot_of_a_running_pod_is_not_taken(world: World) -> None:
    claims = Ranked(world)
    await claims.claim("a", on("n1", 1, "a"), ticket=5, slots=(Slot("port/n1/80", "a"),))
    await world.bound(claims.requests["a"].members[0])
    await claims.claim("b", on("n2", 4000, "b"), ticket=5)
    wanted = (Slot("port/n1/80", "x"),)
    answer = await claims.claim("x", pod("x", "n2", 1), ticket=1, wound=True, slots=wanted)
    assert [short.kind for short in answer.shorts] == ["amount", "slot"]
    assert await claims.standing() == "ab"


async def test_a_changed_rule_or_a_closed_item_is_no_claim(world: World) -> None:
    claims = Ranked(world)
    await claims.claim("a", on("n1", 4000, "a"), ticket=5)
    guards = (Guard("term/x", 7),)
    answer = await claims.claim("x", pod("x", "n1", 1), ticket=1, wound=True, guards=guards)
    assert [short.kind for short in answer.shorts] == ["amount", "guard"]
    await world.see(ItemClosed("node/n2", "2"))
    both = (pod("y1", "n1", 1), pod("y2", "n2", 1))
    answer = await claims.claim("y", *both, ticket=1, wound=True)
    assert sorted(short.kind for short in answer.shorts) == ["amount", "closed"]
    assert await claims.standing() == "a"


async def test_what_is_refused_otherwise_wounds_nobody(world: World) -> None:
    """Nothing held stands in the way of more than there is."""
    claims = Ranked(world)
    await claims.claim("a", on("n1", 3000, "a"), ticket=5)
    assert (await claims.claim("x", pod("x", "n1", 4001), ticket=1, wound=True)).status == "conflict"
    huge = Member("y", "ns", "y", "n1", (Take("node/n1", {"cpu": 2**60}),))
    assert (await claims.claim("y", huge, ticket=1, wound=True)).status == "conflict"
    assert await claims.standing() == "a"


async def test_wounding_in_one_batch(world: World) -> None:
    """A claim of the same call goes too, and its answer stays what it was."""
    low = ClaimRequest("low", (on("n1", 4000, "low"),), priority=1)
    high = ClaimRequest("high", (on("n1", 4000, "high"),), priority=2, wound=True)
    answers = await world.s1.claim([low, high])
    assert [answer.status for answer in answers] == ["ok", "ok"]
    assert [one.claim for one in answers[1].wounded] == ["low"]
    assert [record.uid async for record in world.r.records()] == ["high"]
    assert await world.raw.hgetall(world.key + ":owners") == {world.s1.incarnation.encode(): b"1"}


async def test_many_small_claims(world: World) -> None:
    """Too many combinations to look at all: enough go, none in vain, and it takes no time to speak of."""
    await world.node("big", 10**6)
    claims = Ranked(world)
    sizes = [1000 + 7 * i for i in range(60)]
    for i, cpu in enumerate(sizes):
        await claims.claim(f"c{i}", on("big", cpu, f"c{i}"), ticket=100 + i)
    free = await world.free("node/big")
    needed = 15_000
    answer = await claims.claim("x", pod("x", "big", free + needed), ticket=1, wound=True)
    gained = sorted(sizes[int(one.claim[1:])] for one in answer.wounded)
    assert sum(gained) >= needed
    assert sum(gained) - gained[0] < needed


# ---- tickets ---------------------------------------------------------------------------------------------------------


async def test_a_group_keeps_the_ticket_of_its_first_claim(world: World) -> None:
    claims = Ranked(world)
    # The first claim is refused; the second comes after that of another group.
    assert (await claims.claim("a1", on("n1", 9000), group="a")).status == "conflict"
    await claims.claim("b1", on("n1", 4000), group="b")
    answer = await claims.claim("a2", on("n1", 3000), group="a", wound=True)
    assert [one.claim for one in answer.wounded] == ["b1"]
    # And not the other way round.
    assert (await claims.claim("b2", on("n1", 4000), group="b", wound=True)).status == "conflict"


async def test_a_ticket_unused_for_an_hour_is_gone(world: World) -> None:
    claims = Ranked(world)
    await claims.claim("a1", on("n1", 9000), group="a")
    await claims.claim("b1", on("n1", 4000), group="b")
    await world.raw.zincrby(world.key + ":ticketed", -3_600_001, "a")
    assert (await claims.claim("a2", on("n1", 3000), group="a", wound=True)).status == "conflict"
    await world.raw.zincrby(world.key + ":ticketed", -3_600_001, "a")
    await world.see()
    assert await world.raw.hkeys(world.key + ":tickets") == [b"b"]
    assert await world.raw.zrange(world.key + ":ticketed", 0, -1) == [b"b"]


async def test_claims_of_no_group_rank_by_their_token(world: World) -> None:
    claims = Ranked(world)
    await claims.claim("a", on("n1", 4000, "a"))
    await claims.claim("g1", pod("g1", "n1", 1), group="g")
    await claims.claim("b", on("n2", 4000, "b"))
    answer = await claims.claim("g2", pod("g1", "n2", 1), group="g", wound=True)
    assert [one.claim for one in answer.wounded] == ["b"]
    assert (await claims.claim("g3", pod("g3", "n1", 1), group="g", wound=True)).status == "conflict"
    assert (await claims.claim("c", pod("c", "n1", 1), wound=True)).status == "conflict"


async def test_a_large_gang_among_many_claims(world: World) -> None:
    """More amounts and claims than combinations can be looked at: enough go, and none in vain."""
    nodes = [f"m{i}" for i in range(50)]
    await world.see(*(NodeSeen(f"node/{node}", {"cpu": 10_000, "pods": 99}, "1") for node in nodes))
    small = [
        ClaimRequest(f"c{i}", (pod(f"c{i}", nodes[i % 50], 900 + i % 7),), priority=1, ticket=1000 - i)
        for i in range(500)
    ]
    assert {answer.status for answer in await world.s2.claim(small)} == {"ok"}
    members = tuple(pod(f"g{i}", nodes[i % 50], 1000) for i in range(200))
    [answer] = await world.s1.claim([ClaimRequest("g", members, priority=2, wound=True)])
    assert answer.status == "ok"
    # Each node had about 1,000 free, and no more is left than the smallest of the claims would have given.
    assert 150 <= len(answer.wounded) <= 200
    items = await world.r.items_named([f"node/{node}" for node in nodes])
    assert all(item.limits["cpu"] - item.held["cpu"] < 900 + 7 for item in items.values())
