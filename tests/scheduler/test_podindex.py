"""The index of pods equals a count from nothing, whatever came and went; groups end with their holders."""

import gc
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.pods import Affinity, PodAffinity, PodAffinityTerm
from koord.kube.selectors import IN, NOT_IN, LabelSelector, Requirement, Selector
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.domains import Domains, DomainSum
from koord.scheduler.engine.podindex import Group, PodIndex
from koord.scheduler.engine.podselectors import PodSelector
from koord.scheduler.engine.tally import KEPT, Tally

SELECTORS = (
    Selector(),
    Selector((Requirement("app", IN, frozenset("a")),)),
    Selector((Requirement("app", IN, frozenset("ab")), Requirement("tier", IN, frozenset("x")))),
    Selector((Requirement("app", NOT_IN, frozenset("a")),)),
    None,
)
OF_RED = Selector((Requirement("t", IN, frozenset("r")),))
WHICH = tuple(
    PodSelector(selector, frozenset(namespaces), by_labels)
    for selector in SELECTORS
    for namespaces, by_labels in (("n", None), ("nm", None), ("", OF_RED))
)
CARRIED = Affinity(
    pod_anti_affinity=PodAffinity(
        required=[PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "a"}), topology_key="zone")]
    )
)
Pod = tuple[str, Mapping[str, str], str, Affinity | None, bool]

pods = st.tuples(
    st.sampled_from("nm"),
    st.fixed_dictionaries({}, optional={"app": st.sampled_from("ab"), "tier": st.sampled_from("xy")}),
    st.sampled_from(("n0", "n1", "n2", "n70")),
    st.sampled_from((None, None, CARRIED)),
    st.booleans(),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("came"), pods),
        st.tuples(st.just("run"), pods),
        st.tuples(st.just("went"), st.integers(0, 9)),
        st.tuples(st.just("node"), st.tuples(st.sampled_from((0, 1, 2, 70)), st.sampled_from(("", "z1", "z2")))),
        st.tuples(st.just("gone"), st.sampled_from((0, 1, 2, 70))),
        st.tuples(st.just("namespace"), st.tuples(st.sampled_from("nm"), st.sampled_from((None, "r", "b")))),
        st.tuples(st.just("hold"), st.tuples(st.sampled_from(WHICH), st.booleans())),
        st.tuples(st.just("drop"), st.integers(0, 9)),
    ),
    max_size=25,
)


class Books:
    """The index, and everything it was told."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.index, made = PodIndex.of(self.cluster)
        assert made and PodIndex.of(self.cluster) == (self.index, False)
        self.domains = Domains(self.index, "zone")
        self.pods: list[Pod] = []
        self.held: list[tuple[PodSelector, bool, Group, DomainSum]] = []

    def came(self, pod: Pod) -> None:
        namespace, labels, node, affinity, terminating = pod
        self.index.came(namespace, labels, node, affinity, terminating)
        self.pods.append(pod)

    def run(self, pod: Pod) -> None:
        namespace, labels, node, affinity, _ = pod
        several = [(labels, node), (dict(labels), "n1"), ({**labels, "app": "b"}, node)]
        self.index.came_run(namespace, affinity, several)
        self.pods += [(namespace, each, at, affinity, False) for each, at in several]

    def went(self, which: int) -> None:
        if self.pods:
            namespace, labels, node, affinity, terminating = self.pods.pop(which % len(self.pods))
            self.index.went(namespace, labels, node, affinity, terminating)

    def node(self, change: tuple[int, str]) -> None:
        number, zone = change
        # The 70th is beyond the first capacity of the columns.
        for each in range(3, 70) if number == 70 and "n70" not in self.cluster.index else ():
            self._set(f"n{each}", "")
        self._set(f"n{number}", zone)

    def _set(self, name: str, zone: str) -> None:
        change = self.cluster.set_node(NodeInfo(name, {"pods": 9}, {"zone": zone} if zone else {}))
        self.index.node_set(change.row, name)

    def gone(self, number: int) -> None:
        row = self.cluster.remove_node(f"n{number}")
        if row is not None:
            self.index.node_removed(row, f"n{number}")

    def namespace(self, change: tuple[str, str | None]) -> None:
        name, team = change
        self.index.namespace_set(name, None if team is None else {"t": team})

    def hold(self, wanted: tuple[PodSelector, bool]) -> None:
        which, terminating = wanted
        group = self.index.group((which,), terminating=terminating)
        total = DomainSum(self.index, self.domains, ((group.tally, 1.0),))
        self.held.append((which, terminating, group, total))

    def drop(self, which: int) -> None:
        if self.held:
            self.held.pop(which % len(self.held))

    def counted(self, which: PodSelector, terminating: bool) -> dict[str, int]:
        found: dict[str, int] = {}
        for namespace, labels, node, _, ending in self.pods:
            of_namespace = self.index.namespaces.get(namespace, {})
            if which.matches(namespace, labels, of_namespace) and (terminating or not ending):
                found[node] = found.get(node, 0) + 1
        return found

    def rows(self, tally: Tally) -> dict[str, int]:
        counts = tally.counts(self.cluster.high)
        live = {name: int(counts[row]) for name, row in self.cluster.index.items()}
        assert int(counts.sum()) == sum(live.values()), "rows without a node are empty"
        return {name: count for name, count in live.items() if count}

    def check(self) -> None:
        for which, terminating, group, total in self.held:
            counted = {n: count for n, count in self.counted(which, terminating).items() if n in self.cluster.index}
            assert self.rows(group.tally) == counted
            total.changes()
            zones: dict[str, float] = {}
            for node, count in counted.items():
                row = self.cluster.index.find(node)
                assert row is not None
                info = self.cluster.nodes[row]
                assert info is not None
                if "zone" in info.labels:
                    zones[info.labels["zone"]] = zones.get(info.labels["zone"], 0.0) + count
            column = self.cluster.labels.column("zone")
            assert {column.values[c]: v for c, v in enumerate(total.values.tolist()) if v} == zones
        carriers = [pod for pod in self.pods if pod[3] is not None]
        assert len(self.index.terms) == len({namespace for namespace, *_ in carriers})
        for namespace in "nm":
            entries = list(self.index.terms.concerning(namespace, {"app": "a"}))
            mine: dict[str, int] = {}
            for pod in carriers:
                if pod[0] == namespace and pod[2] in self.cluster.index:
                    mine[pod[2]] = mine.get(pod[2], 0) + 1
            assert [self.rows(entry) for entry in entries] == (
                [mine] if any(p[0] == namespace for p in carriers) else []
            )


@settings(max_examples=300, deadline=None)
@given(steps)
def test_the_index_is_what_a_count_from_nothing_gives(history: list[tuple[str, Any]]) -> None:
    books = Books()
    for what, argument in history:
        getattr(books, what)(argument)
        books.check()


def test_a_group_is_counted_only_while_it_is_held() -> None:
    books = Books()
    books.node((0, "z1"))
    books.hold((WHICH[3], True))
    books.came(("n", {"app": "a"}, "n0", None, False))
    kind = next(iter(books.index._kinds.values()))
    assert len(kind.groups) == 1
    books.drop(0)
    gc.collect()
    books.came(("n", {"app": "b"}, "n0", None, False))  # something new is learned, and the old is cleaned up
    assert not kind.groups


def test_a_reader_that_fell_behind_counts_anew() -> None:
    tally = Tally(4)
    start = tally.end
    for number in range(3 * KEPT):
        tally.came(number % 4)
    assert tally.since(start) is None
    assert list(tally.since(tally.end) or ()) == []
    late = tally.end
    tally.went(2)
    assert list(tally.since(late) or ()) == [~2]
    assert np.array_equal(tally.counts(4), [192, 192, 191, 192])


def test_few_rows_and_many() -> None:
    tally, codes = Tally(64), np.arange(64) % 3
    for row in (5, 7, 7, 8, 9, 9, 9, 5):
        tally.came(row)
        assert int(tally.by_code(codes, 4).sum()) == int(tally.counts(64).sum())
    tally.widen(128)
    tally.went(9)
    assert tally.counts(128).nonzero()[0].tolist() == [5, 7, 8, 9]
    assert tally.by_code(codes, 4).tolist() == [2.0, 2.0, 3.0, 0.0]
    for row in (5, 5):
        tally.went(row)
    assert tally.counts(128).nonzero()[0].tolist() == [7, 8, 9]
