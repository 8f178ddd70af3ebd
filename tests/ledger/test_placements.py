"""What others placed, told with the answers to claims: in order, once, and lost only where it says so."""

from collections.abc import Mapping

from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest
from koord.ledger.placements import Placement
from tests.ledger.world import World, pod


async def followers(world: World) -> None:
    for scheduler in (world.s1, world.s2):
        await scheduler.follow_placements()
        assert scheduler.placements.take() == []


async def claim(
    by: Ledger, name: str, *, sees: bool = False, repels: bool = False, given: Mapping[str, str] | None = None
) -> str:
    members = (pod(name, "n1", 100),)
    request = ClaimRequest(f"{by.incarnation}-{name}", members, sees=sees, repels=repels, given=given)
    [answer] = await by.claim([request])
    return answer.status


def lost(ledger: Ledger) -> bool:
    was, ledger.placements.lost = ledger.placements.lost, False
    return was


def names(ledger: Ledger) -> list[str]:
    return [placement.name for placement in ledger.placements.take()]


async def test_a_claim_under_a_rule_is_told_what_others_placed_before(world: World) -> None:
    await world.node("n1", 4000)
    await followers(world)
    assert await claim(world.s1, "a") == "ok"
    assert await claim(world.s1, "given", given={"given": '{"cpus":"0-1"}'}) == "ok"
    assert await claim(world.s2, "plain") == "ok"
    assert names(world.s2) == []  # it asks for nobody
    assert await claim(world.s2, "b", sees=True) == "ok"
    first, second = world.s2.placements.take()
    assert first == Placement(world.s1.incarnation, "a", "n1", "ns", "a", repels=False)
    assert second.given == '{"cpus":"0-1"}'
    assert await claim(world.s2, "c", sees=True) == "ok"
    assert names(world.s2) == []  # once, and never one's own
    assert await claim(world.s1, "d", sees=True) == "ok"
    assert names(world.s1) == ["plain", "b", "c"]


async def test_of_two_claims_the_later_one_is_told(world: World) -> None:
    await world.node("n1", 4000)
    await followers(world)
    assert await claim(world.s1, "web", repels=True, sees=True) == "ok"
    assert await claim(world.s2, "plain") == "ok"
    [told] = world.s2.placements.take()  # who keeps others off is told to all
    assert (told.name, told.repels) == ("web", True)
    assert names(world.s1) == []
    assert await claim(world.s1, "web2", repels=True, sees=True) == "ok"
    assert names(world.s1) == ["plain"]


async def test_what_is_refused_or_repeated_is_not_placed(world: World) -> None:
    await world.node("n1", 150)
    await followers(world)
    assert await claim(world.s1, "a") == "ok"
    assert await claim(world.s1, "a") == "ok"
    assert await claim(world.s1, "full") == "conflict"
    assert await claim(world.s2, "b", sees=True) == "conflict"
    assert names(world.s2) == ["a"]


async def test_one_answer_that_was_lost_is_told_with_the_next(world: World) -> None:
    await world.node("n1", 4000)
    await followers(world)
    before = world.s2.placements.since(True)
    assert await claim(world.s1, "a") == "ok"
    assert await claim(world.s2, "b", sees=True) == "ok"
    assert names(world.s2) == ["a"]
    # An answer that comes late, after one that was asked later, brings nothing back.
    after = world.s2.placements.since(True)
    world.s2.placements.learn(before, [before[0] + 1, ["other\na\nn1\nns/a\n"], before[1], []])
    assert world.s2.placements.since(True) == after


async def test_a_client_that_was_away_too_long_is_told_so(world: World) -> None:
    await world.node("n1", 1_000_000)
    await followers(world)
    assert await claim(world.s1, "a") == "ok"
    await world.raw.ltrim(f"{world.key}:placements", 1, -1)  # as if as many as are kept came after it
    assert await claim(world.s1, "b") == "ok"
    assert not lost(world.s2)
    await world.s2.follow_placements()
    assert lost(world.s2) and names(world.s2) == []
    assert {record.uid async for record in world.s2.flights()} == {"a", "b"}
    assert await claim(world.s1, "c") == "ok"
    await world.s2.follow_placements()
    assert names(world.s2) == ["c"] and not lost(world.s2)


async def test_after_a_loss_of_redis_nothing_is_mistaken(world: World) -> None:
    await world.node("n1", 4000)
    await followers(world)
    assert await claim(world.s1, "a") == "ok"
    await world.s2.follow_placements()
    assert names(world.s2) == ["a"]
    await world.raw.flushall()
    await world.start()
    await world.r.begin(world.reconciler_epoch)
    await world.node("n1", 4000)
    await world.open()
    assert await claim(world.s1, "b") == "ok"
    await world.s2.follow_placements()
    assert lost(world.s2)
    assert await claim(world.s1, "c") == "ok"
    await world.s2.follow_placements()
    assert names(world.s2) == ["c"] and not lost(world.s2)


async def test_who_does_not_follow_is_told_nothing(world: World) -> None:
    await world.node("n1", 4000)
    assert await claim(world.s1, "a", repels=True) == "ok"
    assert await claim(world.s2, "b", sees=True) == "ok"
    assert names(world.s2) == []


async def test_nothing_is_written_where_nobody_else_reads(world: World) -> None:
    await world.node("n1", 4000)
    await world.s1.follow_placements()
    assert await claim(world.s1, "a", repels=True, sees=True) == "ok"
    assert await world.raw.exists(f"{world.key}:placements") == 0
    await world.s2.follow_placements()
    assert {record.uid async for record in world.s2.flights()} == {"a"}  # what is missed so far
    assert await claim(world.s1, "b", sees=True) == "ok"
    await world.s2.follow_placements()
    assert names(world.s2) == ["b"] and not lost(world.s2)


async def test_who_was_silent_for_too_long_is_told_so(world: World) -> None:
    await world.node("n1", 4000)
    await followers(world)
    await world.raw.hset(f"{world.key}:followers", world.s2.incarnation, "1")
    assert await claim(world.s1, "a") == "ok"
    assert await claim(world.s2, "b", sees=True) == "ok"
    assert lost(world.s2) and names(world.s2) == []
    assert await claim(world.s1, "c") == "ok"
    assert await claim(world.s2, "d", sees=True) == "ok"
    assert names(world.s2) == ["c"] and not lost(world.s2)


async def test_a_rebuild_is_a_loss(world: World) -> None:
    await world.node("n1", 4000)
    await followers(world)
    await world.r.begin(world.reconciler_epoch)
    await world.node("n1", 4000)
    await world.open()
    assert await claim(world.s1, "a") == "ok"
    assert await claim(world.s2, "b") == "ok"
    assert lost(world.s2)


async def test_flights_are_what_is_held_or_being_bound(world: World) -> None:
    await world.node("n1", 4000)
    held = await world.claim(pod("a", "n1", 100), pod("b", "n1", 100))
    other = await world.claim(pod("c", "n1", 100))
    await world.advance(held)
    assert {(r.uid, r.state) async for r in world.s1.flights()} == {("a", "BINDING"), ("b", "BINDING"), ("c", "HELD")}
    await world.release(other)
    assert {r.uid async for r in world.s1.flights()} == {"a", "b"}
    assert set(await world.s1.records_of(["a", "c", "nobody"])) == {"a"}
