"""Water filling against a plain reference, on random groups and random trees; and what must hold of any result."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.quota.filling import Segments, fill, fill_one
from koord.quota.runtime import LARGEST, RuntimeTree
from koord.quota.shape import QuotaRow
from tests.reference.quota import Child, Quota, run_tree, water_fill

SMALL = st.integers(0, 40)
AMOUNT = st.one_of(SMALL, st.integers(0, 10**6), st.integers(0, 2**47), st.sampled_from([2**52 - 1, 2**53]))
WEIGHT = st.one_of(st.integers(-2, 5), AMOUNT, st.just(2**62))
TOTAL = st.one_of(st.integers(-5, 200), AMOUNT, st.integers(2**53, 2**60))
CHILD: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "weight": WEIGHT,
        "request": AMOUNT,
        "least": AMOUNT,
        "guaranteed": st.one_of(st.just(0), AMOUNT),
        "lends": st.booleans(),
        "scales": st.sampled_from([True, True, True, False]),
    }
)
PARENT = st.tuples(TOTAL, st.booleans(), st.lists(CHILD, min_size=1, max_size=8))


def children(given_: list[dict[str, Any]]) -> list[Child]:
    return [Child(f"c{i:03}", **each) for i, each in enumerate(given_)]


def segments(parents: list[tuple[int, bool, list[dict[str, Any]]]]) -> Segments:
    flat = [child for _, _, group in parents for child in group]
    sizes = [len(group) for _, _, group in parents]
    return Segments(
        starts=np.cumsum([0, *sizes[:-1]]).astype(np.int64),
        total=np.array([total for total, _, _ in parents], np.int64),
        known=np.array([known for _, known, _ in parents]),
        least=np.array([child["least"] for child in flat], np.int64),
        guaranteed=np.array([child["guaranteed"] for child in flat], np.int64),
        request=np.array([child["request"] for child in flat], np.int64),
        weight=np.array([child["weight"] for child in flat], np.int64),
        lends=np.array([child["lends"] for child in flat]),
        scales=np.array([child["scales"] for child in flat]),
    )


@settings(max_examples=1500, deadline=None)
@given(st.lists(PARENT, min_size=1, max_size=5))
def test_filling_equals_the_reference_and_keeps_its_promises(
    parents: list[tuple[int, bool, list[dict[str, Any]]]],
) -> None:
    runtime = fill(segments(parents)).tolist()
    at = 0
    for total, known, group in parents:
        mine = runtime[at : at + len(group)]
        at += len(group)
        expected = list(water_fill(total, children(group), known=known).values())
        assert mine == expected
        arguments = ([child[key] for child in group] for key in ("least", "guaranteed", "request", "weight"))
        flags = ([child[key] for child in group] for key in ("lends", "scales"))
        assert fill_one(total, known, *arguments, *flags) == expected
        _promises(total, known, group, mine)


def _promises(total: int, known: bool, group: list[dict[str, Any]], runtime: list[int]) -> None:
    """The properties that spec 20 section 3.8 names; with all mins scaled, m is what nobody contests."""
    idle = water_fill(total, [Child(c.name, 0, 2**60, c.least, c.guaranteed, scales=c.scales) for c in children(group)],
                      known=known)  # fmt: skip
    m = list(idle.values())
    assert sum(runtime) <= max(total, sum(m))
    assert all(got <= max(child["request"], low) for got, child, low in zip(runtime, group, m, strict=True))
    unmet = any(
        got < child["request"] and child["request"] > low and child["weight"] > 0
        for got, child, low in zip(runtime, group, m, strict=True)
    )
    if unmet:
        assert sum(runtime) >= total


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 2**50), st.lists(st.tuples(st.integers(1, 2**48), st.integers(0, 2**44)), min_size=40, max_size=60)
)
def test_many_siblings_with_large_products(total: int, pairs: list[tuple[int, int]]) -> None:
    group = [
        {"weight": weight, "request": asked, "least": asked // 7, "guaranteed": 0, "lends": True, "scales": True}
        for weight, asked in pairs
    ]
    assert fill(segments([(total, True, group)])).tolist() == list(water_fill(total, children(group)).values())


KEYS = ("cpu", "memory")


class Bed:
    """One random tree, as rows and for the reference."""

    def __init__(self, nodes: list[Any], *, guarantee: bool, scale: bool) -> None:
        self.guarantee, self.scale = guarantee, scale
        self.depth: list[int] = []
        self.parent: list[int] = []
        for i, (where, _, _) in enumerate(nodes):
            candidates = [at for at in range(i) if self.depth[at] < 4]
            pick = where % (len(candidates) + 1)
            self.parent.append(candidates[pick] if pick < len(candidates) else -1)
            self.depth.append(0 if self.parent[i] < 0 else self.depth[self.parent[i]] + 1)
        self.nodes = nodes
        self.names = [f"q{hash((i, 7)) % 997:03}-{i}" for i in range(len(nodes))]
        self.own = [[line[3] for line in lines] for _, lines, _ in nodes]
        self.total = [0, 0]

    def rows(self) -> list[QuotaRow]:
        return [
            QuotaRow(
                self.names[i],
                self.names[self.parent[i]] if self.parent[i] >= 0 else "",
                {key: line[0] for key, line in zip(KEYS, lines, strict=True)},
                {key: line[1] for key, line in zip(KEYS, lines, strict=True) if line[1] is not None},
                {key: line[2] for key, line in zip(KEYS, lines, strict=True)},
                lends,
            )
            for i, (_, lines, lends) in enumerate(self.nodes)
        ]

    def tree(self) -> RuntimeTree:
        return RuntimeTree(self.rows(), KEYS, guarantee=self.guarantee, scale=self.scale)

    def feed(self, tree: RuntimeTree) -> None:
        tree.set_total("", dict(zip(KEYS, self.total, strict=True)))
        for i, name in enumerate(self.names):
            asked = dict(zip(KEYS, self.own[i], strict=True))
            tree.set_own(name, asked, {key: amount // 2 for key, amount in asked.items()})

    def expected(self, at: int) -> dict[str, int]:
        quotas = [
            Quota(self.names[i], lines[at][2], lines[at][0], lines[at][1], self.own[i][at], self.own[i][at] // 2,
                  lends)
            for i, (_, lines, lends) in enumerate(self.nodes)
        ]  # fmt: skip
        for i, quota in enumerate(quotas):
            if self.parent[i] >= 0:
                quotas[self.parent[i]].children.append(quota)
        tops = [quota for i, quota in enumerate(quotas) if self.parent[i] < 0]
        run_tree(self.total[at], tops, guarantee=self.guarantee, scale=self.scale)
        return {quota.name: quota.runtime for quota in quotas if quota.most is not None}

    def check(self, tree: RuntimeTree) -> None:
        for at, key in enumerate(KEYS):
            runtimes = {name: tree.runtime(row) for name, row in tree.row.items()}
            assert {name: values[key] for name, values in runtimes.items() if key in values} == self.expected(at)


# Sums in trees are cut at 2^53, which the reference does not do: amounts whose sums stay below.
TREE_AMOUNT = st.one_of(SMALL, st.integers(0, 10**6), st.integers(0, 2**46))
# Where its parent is, and whether it lends; by resource: min, max or none, weight, what its own pods ask for.
LINE = st.tuples(TREE_AMOUNT, st.one_of(st.none(), TREE_AMOUNT, st.just(LARGEST)), WEIGHT, TREE_AMOUNT)
NODE = st.tuples(st.integers(0, 10**6), st.tuples(LINE, LINE), st.booleans())


@settings(max_examples=1200, deadline=None)
@given(
    st.lists(NODE, min_size=1, max_size=24),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 1), TREE_AMOUNT), max_size=6),
    st.tuples(TREE_AMOUNT, TREE_AMOUNT),
)
def test_trees_equal_the_reference_all_at_once_and_after_each_change(
    nodes: list[Any], guarantee: bool, scale: bool, edits: list[tuple[int, int, int]], total: tuple[int, int]
) -> None:
    bed = Bed(nodes, guarantee=guarantee, scale=scale)
    bed.total = list(total)
    tree = bed.tree()
    bed.feed(tree)
    tree.compute()
    bed.check(tree)
    for which, key, amount in edits:
        before = {name: (tree.runtime(at), tree.request(at)) for name, at in tree.row.items()}
        at = which % (len(nodes) + 1)
        if at == len(nodes):
            bed.total[key] = amount
        else:
            bed.own[at][key] = amount
        bed.feed(tree)
        told = {tree.names[row] for row in tree.compute()}
        bed.check(tree)
        moved = {name for name, row in tree.row.items() if before[name] != (tree.runtime(row), tree.request(row))}
        assert moved <= told
        assert tree.compute() == []


def test_many_changes_at_once_are_summed_by_level() -> None:
    rows = [QuotaRow(f"p{i}", "", {}, {"cpu": 10**6}, {"cpu": i + 1}) for i in range(20)]
    rows += [QuotaRow(f"c{i:03}", f"p{i % 20}", {"cpu": 3}, {"cpu": 900}, {"cpu": 900}) for i in range(400)]
    tree = RuntimeTree(rows)
    tree.set_total("", {"cpu": 70_000})
    tree.compute()
    for round_ in range(3):
        asked = {f"c{i:03}": {"cpu": (i * 37 + round_ * 11) % 950} for i in range(400)}
        tree.set_all_own(asked, {})
        tree.compute()
        fresh = RuntimeTree(rows)
        fresh.set_total("", {"cpu": 70_000})
        fresh.set_all_own(asked, {})
        fresh.compute()
        assert [tree.runtime(at) for at in range(420)] == [fresh.runtime(at) for at in range(420)]


def test_trees_share_nothing() -> None:
    cpu = {"cpu": 100}
    tree = RuntimeTree([QuotaRow("a", "", {}, cpu, cpu), QuotaRow("b", "", {}, cpu, cpu, tree="t")])
    tree.set_all_own({"a": cpu, "b": cpu}, {})
    tree.set_total("", {"cpu": 30})
    tree.set_total("t", {"cpu": 70})
    tree.compute()
    assert [tree.runtime(tree.row[name]) for name in "ab"] == [{"cpu": 30}, {"cpu": 70}]
    tree.set_total("t", {"cpu": 50})
    assert [tree.names[at] for at in tree.compute()] == ["b"]


def test_a_resource_that_the_total_does_not_name_scales_no_min() -> None:
    tree = RuntimeTree([QuotaRow("a", "", {"gpu": 4}, {"gpu": 8}, {"gpu": 8})])
    tree.set_all_own({"a": {"gpu": 8}}, {})
    tree.set_total("", {"cpu": 10})
    tree.compute()
    assert tree.runtime(0) == {"gpu": 4}
    tree.set_total("", {"gpu": 0})
    tree.compute()
    assert tree.runtime(0) == {"gpu": 0}


def test_no_quotas_and_no_resources() -> None:
    assert RuntimeTree([]).compute() == []
    tree = RuntimeTree([QuotaRow("a", "", {}, {}, {})])
    tree.compute()
    assert tree.runtime(0) == {}


def test_an_unknown_row_is_told() -> None:
    with pytest.raises(KeyError):
        RuntimeTree([]).set_own("a", {}, {})
