"""Idle shares are handed on: who gets them, in which order, and what never happens (docs/decisions/005)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.quota.filling import Ints
from koord.quota.idle import HOLD_S, IdleRoom
from koord.quota.runtime import RuntimeTree
from koord.quota.shape import QuotaRow
from koord.quota.standing import Order
from koord.quota.usage import Usage
from koord.quota.waiting import Rank
from tests.reference.idle import PlainIdle

BLOCK = Order(blocks=True)


class Bench:
    """Quotas of one resource under one total; jobs that wait or run."""

    def __init__(self, total: int, *rows: QuotaRow) -> None:
        self.tree = RuntimeTree(rows)
        self.tree.set_total("", {"cpu": total})
        self.usage = Usage()
        self.idle = IdleRoom()
        self.order = Order()
        self.now = 0.0
        self._age = 0

    def hand_out(self, order: Order) -> None:
        """All queues work so from now on."""
        self.order = order
        self.idle.reorder()

    def wait(self, job: str, quota: str, cpu: int = 0, gpu: int = 0) -> None:
        self._age += 1
        rank = Rank(0, f"{self._age:04}")
        self.usage.put_unit(job, quota, (("cpu", cpu), ("gpu", gpu)), ("", ""), waits=True, queue=quota, rank=rank)

    def run(self, job: str, quota: str, cpu: int = 0, gpu: int = 0) -> None:
        self.usage.put_unit(job, quota, (("cpu", cpu), ("gpu", gpu)), ("", ""), admitted=True, queue=quota)

    def shares(self) -> Ints:
        """Runtimes; ``admission`` then has how far units may be admitted."""
        self.tree.set_all_own(self.usage.asked, self.usage.used)
        self.tree.set_all_occupied(self.usage.occupied)
        self.tree.compute()
        below, _ = self.tree.up(self.tree.occupied, np.zeros_like(self.tree.occupied))
        shares, self.admission = self.idle.share(
            self.tree, below, self.usage.lines, lambda queue, quota: self.order, self.now
        )
        return shares

    def share(self, now: float = 0.0) -> dict[str, int]:
        self.now = now
        shares = self.shares()
        return {name: self.tree.runtime(self.tree.row[name], shares)["cpu"] for name in sorted(self.tree.names)}


def row(
    name: str, parent: str = "", *, most: int = 1000, low: int = 0, lends: bool = True, weight: int = 1
) -> QuotaRow:
    return QuotaRow(name, parent, {"cpu": low}, {"cpu": most}, {"cpu": weight}, lends)


def test_two_teams_whose_jobs_are_larger_than_their_shares_take_turns() -> None:
    bench = Bench(20, row("a"), row("b"))
    for n in range(3):
        bench.wait(f"a{n}", "a", 12)
        bench.wait(f"b{n}", "b", 12)
    order = []
    for _ in range(6):
        shares = bench.share()
        assert sum(shares.values()) <= 20
        (helped,) = [name for name, share in shares.items() if share >= 12]
        assert bench.share() == shares  # nothing changed, nothing moves
        job = bench.usage.lines.of(helped)[0].key.removeprefix("unit ")
        bench.run(job, helped, 12)
        assert bench.share()[helped] == 12  # while nobody else can use it, it stays
        bench.usage.drop_unit(job)
        order.append(job)
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_what_stays_beyond_the_share_is_not_admitted_to_again() -> None:
    bench = Bench(20, row("a"), row("b"))
    bench.run("a0", "a", 12)
    bench.wait("a1", "a", 12)
    bench.wait("b0", "b", 12)
    assert bench.share() == {"a": 12, "b": 8}
    assert bench.admission.tolist() == [[10, 8]]  # no a1 the moment a0 ends: it is b's turn
    bench.usage.drop_unit("a0")
    bench.usage.lines.serve("a")
    assert bench.share() == {"a": 8, "b": 12}
    assert bench.admission.tolist() == [[8, 12]]


def test_whoever_fits_into_the_shares_changes_nothing() -> None:
    bench = Bench(20, row("a"), row("b"))
    for n in range(9):
        bench.wait(f"a{n}", "a", 5)
        bench.wait(f"b{n}", "b", 2)
    assert bench.share() == {"a": 10, "b": 10}


def test_who_has_least_per_weight_is_first() -> None:
    bench = Bench(100, row("a", weight=3), row("b", weight=1))
    bench.run("a0", "a", 40)
    bench.run("b0", "b", 20)
    bench.wait("a1", "a", 40)
    bench.wait("b1", "b", 30)
    assert bench.share() == {"a": 80, "b": 20}  # 40/3 is less than 20/1


def test_a_share_that_its_own_job_fits_into_is_not_handed_on() -> None:
    bench = Bench(20, row("a"), row("b"))
    bench.wait("a0", "a", 12)
    bench.wait("b0", "b", 10)
    assert bench.share() == {"a": 10, "b": 10}
    bench.run("b0", "b", 10)
    bench.wait("b1", "b", 3)  # does not fit beside b0 within the share
    assert bench.share() == {"a": 10, "b": 10}  # and a's 12 does not fit beside b0 at all, 3 of b's would


def test_the_first_in_line_holds_idle_room_for_a_while() -> None:
    bench = Bench(20, row("a"), row("b"))
    bench.run("b0", "b", 12)
    bench.wait("a0", "a", 12)
    bench.wait("b1", "b", 4)
    assert bench.share(0.0) == {"a": 8, "b": 12}
    assert bench.idle.due_s == HOLD_S
    assert bench.share(HOLD_S - 1) == {"a": 8, "b": 12}
    assert bench.share(HOLD_S) == {"a": 4, "b": 16}


def test_a_job_that_can_never_fit_holds_nothing() -> None:
    bench = Bench(20, row("a"), row("b"))
    bench.run("b0", "b", 12)
    bench.wait("a0", "a", 30)
    bench.wait("b1", "b", 4)
    assert bench.share() == {"a": 4, "b": 16}


def test_behind_a_head_that_blocks_nobody_counts() -> None:
    bench = Bench(20, row("a"), row("b"))
    bench.hand_out(BLOCK)
    for name in "ab":
        bench.wait(f"{name}0", name, 12)
        bench.wait(f"{name}1", name, 9)
    assert bench.share() == {"a": 12, "b": 8}
    bench.hand_out(Order())
    assert bench.share() == {"a": 10, "b": 10}  # passed over: both 9 fit


def test_room_comes_from_far_in_the_tree() -> None:
    rows = [row("p", most=20), row("q", most=20), row("a", "p"), row("b", "q"), row("c", "q")]
    bench = Bench(20, *rows)
    bench.wait("a0", "a", 14)
    bench.wait("b0", "b", 12)
    bench.wait("c0", "c", 12)
    assert bench.share() == {"p": 14, "a": 14, "q": 6, "b": 3, "c": 3}


def test_max_is_never_passed_and_a_min_that_is_not_lent_stays() -> None:
    bench = Bench(20, row("a", most=11), row("b", low=5, lends=False), row("c"))
    bench.wait("a0", "a", 12)
    bench.wait("c0", "c", 16)
    assert bench.share()["a"] <= 11
    assert bench.share()["b"] == 5
    bench.wait("c0", "c", 15)
    assert bench.share() == {"a": 0, "b": 5, "c": 15}


def test_what_is_borrowed_goes_back_when_the_lender_can_use_it() -> None:
    bench = Bench(20, row("a", low=10), row("b", low=10))
    for n in range(5):
        bench.run(f"a{n}", "a", 4)
    assert bench.share() == {"a": 20, "b": 0}
    bench.wait("b0", "b", 10)
    assert bench.share() == {"a": 10, "b": 10}


def test_amounts_beyond_counting_do_no_harm() -> None:
    bench = Bench(2**62, row("a", most=2**53), row("b", most=2**53))
    for n in range(600):
        bench.wait(f"a{n}", "a", 2**70)
        bench.wait(f"b{n}", "b", 2**52)
    bench.share()


amounts = st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 30), min_size=1)


@st.composite
def benches(draw: st.DrawFn) -> Bench:
    """Trees of two resources, of which a max may name only one."""
    rows: list[QuotaRow] = []
    names = [f"q{i}" for i in range(draw(st.integers(1, 7)))]
    for i, name in enumerate(names):
        parent = draw(st.sampled_from(["", *names[:i]]))
        most = draw(st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 60), min_size=1))
        least = {key: draw(st.integers(0, amount)) for key, amount in most.items()}
        weight = {key: draw(st.integers(0, 3)) for key in most}
        rows.append(QuotaRow(name, parent, least, most, weight, draw(st.booleans())))
    bench = Bench(0, *rows)
    bench.tree.set_total("", {"cpu": draw(st.integers(0, 80)), "gpu": draw(st.integers(0, 80))})
    bench.order = draw(st.sampled_from([Order(), BLOCK, Order(depth=2)]))
    for n in range(draw(st.integers(0, 12))):
        put = bench.run if draw(st.booleans()) else bench.wait
        put(f"u{n}", draw(st.sampled_from(names)), **draw(amounts))
    return bench


@settings(deadline=None, max_examples=150)
@given(benches())
def test_runtimes_only_move_and_never_above_any_max(bench: Bench) -> None:
    shares = bench.shares()
    tree = bench.tree
    filled = tree.runtimes
    most = tree.most
    assert ((shares <= most) | (shares <= filled)).all()
    assert (shares >= 0).all()
    assert (bench.admission <= shares).all()
    below, _ = tree.up(tree.occupied, np.zeros_like(filled))
    for owner in set(tree.parent.tolist()):
        rows = np.flatnonzero(tree.parent == owner)
        total = shares[:, owner] if owner >= 0 else tree.totals[:, -1 - owner]
        assert (shares[:, rows].sum(axis=1) <= np.maximum(total, filled[:, rows].sum(axis=1))).all()
    # Nobody loses room that is occupied within its share.
    assert (shares >= np.minimum(filled, below)).all()
    if tree.satisfied().all() and (below <= filled).all():
        assert (shares == filled).all()
    assert (bench.shares() == shares).all()


@pytest.mark.parametrize("blocks", [False, True])
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20)), min_size=1, max_size=10))
def test_nobody_waits_for_ever_while_the_room_is_idle(blocks: bool, jobs: list[tuple[str, int]]) -> None:
    """Whatever waits, as long as each job fits into the whole: one after the other all of them run."""
    bench = Bench(20, row("p", most=20), row("a", "p"), row("b", "p"), row("c"))
    bench.order = Order(blocks)
    for n, (quota, cpu) in enumerate(jobs):
        bench.wait(f"u{n}", quota, cpu)
    for _ in jobs:
        share = bench.share()
        started = [
            (one, name)
            for name in bench.usage.lines
            for one in (bench.usage.lines.of(name)[:1] if blocks else bench.usage.lines.of(name))
            if one.amounts[0][1] <= share[name]
        ]
        assert started
        one, name = started[0]
        bench.run(one.key.removeprefix("unit "), name, one.amounts[0][1])
        bench.share()
        bench.usage.drop_unit(one.key.removeprefix("unit "))
    assert not list(bench.usage.lines)


def test_a_job_that_lacks_only_one_resource_is_helped_with_that() -> None:
    both = {"cpu": 100, "gpu": 100}
    bench = Bench(0, *(QuotaRow(name, "", {}, both, {"cpu": 1, "gpu": 1}) for name in "ab"))
    bench.tree.set_total("", {"cpu": 100, "gpu": 20})
    bench.wait("a0", "a", 10, gpu=12)
    bench.wait("b0", "b", 10, gpu=12)
    shares = bench.shares()
    rows = {name: bench.tree.runtime(bench.tree.row[name], shares) for name in "ab"}
    assert rows == {"a": {"cpu": 10, "gpu": 12}, "b": {"cpu": 10, "gpu": 8}}


def test_nobody_is_refused_for_a_resource_it_does_not_ask_for() -> None:
    both = {"cpu": 100, "gpu": 100}
    bench = Bench(0, *(QuotaRow(name, "", {}, both, {"cpu": 1, "gpu": 1}) for name in "ab"))
    bench.tree.set_total("", {"cpu": 20, "gpu": 20})
    bench.run("a0", "a", 0, gpu=15)
    bench.wait("b0", "b", 12, gpu=5)
    bench.wait("a1", "a", 8)  # a has more GPUs than its share, which are none of this job's business
    shares = bench.shares()
    assert bench.tree.runtime(bench.tree.row["a"], shares)["cpu"] >= 8


@st.composite
def forests(draw: st.DrawFn) -> list[QuotaRow]:
    rows: list[QuotaRow] = []
    names = [f"q{i}" for i in range(draw(st.integers(1, 9)))]
    draw(st.randoms(use_true_random=False)).shuffle(names)
    big = draw(st.sampled_from([1, 1, 2**49, 2**51]))
    for i, name in enumerate(names):
        parent = draw(st.sampled_from(["", *names[:i]]))
        most = draw(st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 60), min_size=1))
        least = {key: draw(st.integers(0, amount)) * big for key, amount in most.items()}
        weight = {key: draw(st.integers(0, 3)) for key in most}
        most = {key: amount * big for key, amount in most.items()}
        tree = draw(st.sampled_from(["", "t"])) if not parent else ""
        rows.append(QuotaRow(name, parent, least, most, weight, draw(st.booleans()), tree))
    return rows


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_it_equals_the_plain_reference(data: st.DataObject) -> None:
    """Over changes of who waits, of how queues work, of totals and of the trees, and as time passes."""
    draw = data.draw
    bench, plain = Bench(0), PlainIdle(HOLD_S)
    for step in range(draw(st.integers(1, 5))):
        if not step or draw(st.integers(0, 4)) == 0:
            rows = draw(forests())
            bench.tree = RuntimeTree(rows)
            big = max([1, *(amount // 60 for row in rows for amount in row.max.values())])
        for tree in ("", "t"):
            bench.tree.set_total(tree, {key: draw(st.integers(0, 90)) * big for key in ("cpu", "gpu")})
        if draw(st.booleans()):
            bench.hand_out(draw(st.sampled_from([Order(), BLOCK, Order(depth=2), Order(depth=0)])))
        for _ in range(draw(st.integers(0, 9))):
            job, quota = f"u{draw(st.integers(0, 20))}", f"q{draw(st.integers(0, 9))}"
            asked = {key: amount * big for key, amount in draw(amounts).items()}
            match draw(st.sampled_from(["wait", "wait", "wait", "run", "end", "serve"])):
                case "wait":
                    bench.wait(job, quota, **asked)
                case "run":
                    bench.run(job, quota, **asked)
                case "end":
                    bench.usage.drop_unit(job)
                case _:
                    bench.usage.lines.serve(quota)
        bench.now += draw(st.sampled_from([0.0, 1.0, HOLD_S]))
        shares = bench.shares()
        runtime, admission = plain.share(bench.tree, bench.usage.lines, lambda queue, quota: bench.order, bench.now)
        for given_, expected in ((shares, runtime), (bench.admission, admission)):
            columns = [[expected[name][key] for key in bench.tree.resources] for name in bench.tree.names]
            assert given_.T.tolist() == columns
        assert bench.idle.due_s == plain.due_s
