"""Ordering, shapes and the policies."""

import random

import pytest

from koord.queue.headroom import EXCEEDS_MAX, Headroom, short_of
from koord.queue.ordering import queue_rank, rank
from koord.queue.policy import BlockPolicy, Policy, PolicyError, PriorityPolicy, make_policy
from koord.queue.waiting import Waiting, WaitingUnits, shape_of


def unit(name: str, priority: int | None = None, created: int = 0, quota: str = "q", **total: int) -> Waiting:
    amounts = total or {"cpu": 1000}
    place = rank(priority, f"2026-03-02T09:00:{created:02d}Z", name, f"uid-{name}")
    return Waiting(f"uid-{name}", f"ns/{name}", place, quota, amounts, shape_of(quota, amounts))


def queue(*units: Waiting) -> WaitingUnits:
    waiting = WaitingUnits()
    for one in units:
        waiting.put(one)
    return waiting


def pass_over(waiting: WaitingUnits, room: Headroom, policy: Policy | None = None) -> tuple[list[str], list[str]]:
    """One cycle by hand: admitted and refused keys, in order."""
    walk = (policy or PriorityPolicy()).walk(waiting, None)
    admitted: list[str] = []
    refused: list[str] = []
    while (one := walk.next()) is not None:
        refusal = room.check([one.quota], one.total)
        if refusal is None:
            room.take([one.quota], one.total)
            admitted.append(one.key)
        else:
            walk.refused(one)
            waiting.refuse(one.shape, refusal)
            refused.append(one.key)
    return admitted, refused


def test_order_is_priority_then_age_then_name() -> None:
    waiting = queue(unit("a", 10, 1), unit("b", 20, 2), unit("c", 15, 0), unit("d", None, 0), unit("e", 20, 1))
    assert [one.key for one in waiting.ordered()] == ["ns/e", "ns/b", "ns/c", "ns/a", "ns/d"]


def test_uid_breaks_the_last_tie() -> None:
    assert rank(1, "t", "same", "a") < rank(1, "t", "same", "b")
    assert queue_rank(5, "t", "b") < queue_rank(None, "t", "a")


def test_many_units_of_one_shape_cost_one_check() -> None:
    waiting = queue(*(unit(f"u{i:05d}", created=i % 60) for i in range(10_000)))
    admitted, refused = pass_over(waiting, Headroom({"q": {"cpu": 1000}}, {"q": {"cpu": 1000}}))
    assert (len(admitted), len(refused)) == (0, 1)
    assert not waiting.hopeful()


def test_a_smaller_unit_passes_one_that_does_not_fit() -> None:
    waiting = queue(unit("big", 9, cpu=8000), unit("small", 1, cpu=1000), unit("big2", 9, 1, cpu=8000))
    admitted, refused = pass_over(waiting, Headroom({"q": {"cpu": 4000}}, {}))
    assert admitted == ["ns/small"]
    assert refused == ["ns/big"]


def test_room_wakes_only_shapes_refused_there() -> None:
    one, two = unit("one", quota="q1"), unit("two", quota="q2")
    waiting = queue(one, two)
    waiting.refuse(one.shape, short_of("q1", "cpu", 1000, 0))
    waiting.refuse(two.shape, short_of("parent", "cpu", 1000, 0))
    assert not waiting.room_at(frozenset(("q2",)))
    assert waiting.room_at(frozenset(("parent",)))
    assert waiting.refusal(one.shape) is not None
    assert waiting.refusal(two.shape) is None


def test_more_than_max_is_tried_again_only_after_an_edit() -> None:
    one = unit("one")
    waiting = queue(one)
    waiting.refuse(one.shape, short_of("q", "cpu", 1000, 500, EXCEEDS_MAX))
    assert not waiting.room_at(None)
    assert waiting.quotas_edited()
    assert waiting.hopeful()


def test_replacing_a_unit_moves_it() -> None:
    waiting = queue(unit("a", 1), unit("b", 2))
    assert waiting.put(unit("a", 3))
    assert not waiting.put(unit("a", 3))
    assert [one.key for one in waiting.ordered()] == ["ns/a", "ns/b"]
    assert waiting.drop("uid-a")
    assert not waiting.drop("uid-a")
    assert len(waiting) == 1


def test_depth_bounds_the_walk() -> None:
    waiting = queue(unit("big", 9, cpu=8000), unit("small", 1, cpu=1000))
    walk = PriorityPolicy().walk(waiting, 1)
    first = walk.next()
    assert first is not None and first.key == "ns/big"
    walk.refused(first)
    assert walk.next() is None


@pytest.mark.parametrize("name", ["Intelligent", "FIFO", "Round", "Lottery", ""])
def test_other_policies_are_refused_by_name(name: str) -> None:
    with pytest.raises(PolicyError, match=r"spec\.queuePolicy"):
        make_policy(name)


def test_the_walk_equals_trying_one_after_the_other() -> None:
    """Against a plain loop over the sorted units: same admissions, fewer checks."""
    chooser = random.Random(7)
    for _ in range(200):
        units = [
            unit(f"u{i}", chooser.choice([None, 1, 5]), chooser.randrange(3), cpu=chooser.choice([1000, 2000, 3000]))
            for i in range(chooser.randrange(1, 30))
        ]
        limit = chooser.randrange(0, 30) * 1000
        plain: list[str] = []
        free = limit
        for one in sorted(units, key=lambda each: each.rank):
            if one.total["cpu"] <= free:
                free -= one.total["cpu"]
                plain.append(one.key)
        admitted, refused = pass_over(queue(*units), Headroom({"q": {"cpu": limit or 1}}, {}))
        assert admitted == plain
        assert len(refused) <= 3


def handed_out(waiting: WaitingUnits, policy: Policy, depth: int | None = None) -> list[str]:
    """The units that one walk hands out when none is refused anew."""
    walk = policy.walk(waiting, depth)
    found: list[str] = []
    while (one := walk.next()) is not None:
        found.append(one.key)
    return found


@pytest.mark.parametrize("depth", [None, 9])
def test_a_known_refusal_blocks_its_quota_until_room_comes_free(depth: int | None) -> None:
    head, small, other = unit("head", 9, cpu=8000), unit("small", 1), unit("other", 0, quota="q2")
    waiting = queue(head, small, other)
    waiting.refuse(head.shape, short_of("q", "cpu", 8000, 0))
    assert handed_out(waiting, BlockPolicy(), depth) == ["ns/other"]
    assert handed_out(waiting, PriorityPolicy(), depth) == ["ns/small", "ns/other"]
    waiting.put(unit("urgent", 10, cpu=500))
    assert handed_out(waiting, BlockPolicy(), depth) == ["ns/urgent", "ns/other"]
    assert waiting.room_at(frozenset(("q",)))
    assert handed_out(waiting, BlockPolicy(), depth) == ["ns/urgent", "ns/head", "ns/small", "ns/other"]


@pytest.mark.parametrize("depth", [None, 9])
def test_a_blocked_quota_is_free_when_its_head_goes(depth: int | None) -> None:
    head = unit("head", 9, cpu=8000)
    waiting = queue(head, unit("small", 1))
    waiting.refuse(head.shape, short_of("q", "cpu", 8000, 0, EXCEEDS_MAX))
    assert handed_out(waiting, BlockPolicy(), depth) == []
    waiting.drop(head.uid)
    assert handed_out(waiting, BlockPolicy(), depth) == ["ns/small"]


def test_block_counts_those_it_skips_into_the_depth() -> None:
    head = unit("head", 9, cpu=8000)
    waiting = queue(head, unit("small", 1), unit("other", 0, quota="q2"))
    walk = BlockPolicy().walk(waiting, 2)
    assert walk.next() is not None
    walk.refused(head)
    assert walk.next() is None
    assert walk.blocked == {"q"}


def test_block_equals_trying_one_after_the_other() -> None:
    """Against a plain loop over the sorted units that leaves out what comes behind a refused one of the same quota."""
    chooser = random.Random(11)
    for _ in range(200):
        units = [
            unit(
                f"u{i}",
                chooser.choice([None, 1, 5]),
                chooser.randrange(3),
                chooser.choice(["q1", "q2", "q3"]),
                cpu=chooser.choice([1000, 2000, 3000]),
            )
            for i in range(chooser.randrange(1, 30))
        ]
        free = {name: chooser.randrange(3, 12) * 1000 for name in ("q1", "q2", "q3")}
        held = Headroom({name: {"cpu": amount} for name, amount in free.items()}, {})
        plain: list[str] = []
        blocked: set[str] = set()
        for one in sorted(units, key=lambda each: each.rank):
            if one.quota in blocked:
                continue
            if one.total["cpu"] <= free[one.quota]:
                free[one.quota] -= one.total["cpu"]
                plain.append(one.key)
            else:
                blocked.add(one.quota)
        admitted, refused = pass_over(queue(*units), held, BlockPolicy())
        assert admitted == plain
        assert len(refused) == len(blocked)
