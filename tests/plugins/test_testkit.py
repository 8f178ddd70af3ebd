"""The checks of the testing kit find plugins that break the contract, rule by rule, and no others."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.cluster import Cluster, RowColumn
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    Plugin,
    PluginError,
    Reason,
    ScorePlugin,
    Template,
    Terms,
)
from koord.scheduler.testkit.bench import PluginBench
from koord.scheduler.testkit.contract import ContractError, check

NODES = 9
"""Of few nodes a change of one is a change of most, and all are asked anew."""


class Few(FilterPlugin, ScorePlugin, AssignPlugin):
    """At most two pods a node, and the fewer the better; subclasses get one thing wrong."""

    name: ClassVar[str] = "Few"

    def attach(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pods = cluster.column(dtype=np.int32)

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return 2

    score_terms = filter_terms

    def per_pod(self, terms: Terms) -> Mapping[RowColumn, float]:
        return {self.pods: 1.0}

    def filter(self, terms: Terms, window: Window) -> Bools:
        return window.column(self.pods) < 2

    def score(self, terms: Terms, window: Window) -> Floats:
        return 100.0 - 10 * window.column(self.pods)

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return [Reason("node(s) had enough", ~self.filter(terms, window))]

    def assigned(self, pod: AssignedPod) -> None:
        self._add(pod, 1)

    def unassigned(self, pod: AssignedPod) -> None:
        self._add(pod, -1)

    def _add(self, pod: AssignedPod, count: int) -> None:
        row = self.cluster.index.find(pod.node)
        if row is not None:
            self.pods.data[row] += count


class Relative(Few):
    """Looks at the other rows of the window."""

    def score(self, terms: Terms, window: Window) -> Floats:
        pods = window.column(self.pods)
        score: Floats = 100.0 * (pods == pods.min())
        return score


class Shapeless(Few):
    def filter(self, terms: Terms, window: Window) -> Bools:
        return np.asarray([True])


class Silent(Few):
    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return []


class Proud(Few):
    def score(self, terms: Terms, window: Window) -> Floats:
        return 100.5 + window.column(self.pods)


class Unhashable(Few):
    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return [2]  # type: ignore[return-value]

    score_terms = filter_terms


class Untouching(Few):
    """Changes its column behind the engine's back."""

    def later(self) -> None:
        self.pods.data[:] = 1


class Far(Few):
    """Counts the pods of all nodes, and does not say when they change."""

    filter_locality: ClassVar[Locality] = "cluster"
    score_locality: ClassVar[Locality] = "cluster"
    version = 1

    def filter(self, terms: Terms, window: Window) -> Bools:
        return np.full(window.size, self.pods.data.sum() < 2)

    def score(self, terms: Terms, window: Window) -> Floats:
        return np.zeros(window.size)

    def filter_version(self, terms: Terms) -> int:
        return self.version

    score_version = filter_version


class Restless(Far):
    def filter_version(self, terms: Terms) -> int:
        self.version += 1
        return self.version


def made(plugin: Plugin) -> PluginBench:
    bench = PluginBench(plugin)
    for number in range(NODES):
        bench.node(f"n{number}")
    bench.bound("there", "n0")
    return bench


def test_a_good_plugin_passes() -> None:
    bench = made(Few())
    for _ in range(2 * NODES):
        check(bench, bench.pod())
        bench.place(bench.pod())
    assert bench.scores(bench.pod()) == {}
    check(bench, bench.pod())


@pytest.mark.parametrize(
    ("plugin", "rule"),
    [
        (Relative(), "Few: score of n0 depends on which rows are asked"),
        (Shapeless(), "Few: filter must answer 9 booleans"),
        (Proud(), "Few: final scores must be whole numbers from 0 to 100"),
        (Restless(), "Few: filter_version moves although nothing changed"),
    ],
)
def test_what_is_wrong_at_once(plugin: Plugin, rule: str) -> None:
    bench = made(plugin)
    with pytest.raises((ContractError, ValueError), match=rule):
        check(bench, bench.pod())


def test_terms_must_be_hashable() -> None:
    bench = made(Unhashable())
    with pytest.raises((ContractError, TypeError, PluginError), match=r"hashable"):
        check(bench, bench.pod())


def test_reasons_must_be_told() -> None:
    bench = made(Silent())
    check(bench, bench.pod())
    bench.bound("second", "n0")
    with pytest.raises(ContractError, match="reasons must name exactly the rows that filter refuses: n0"):
        check(bench, bench.pod())


def test_what_changed_must_be_said() -> None:
    untouching = Untouching()
    bench = made(untouching)
    check(bench, bench.pod())
    untouching.later()
    with pytest.raises(ContractError, match="a row was not touched"):
        check(bench, bench.pod())
    bench = made(Far())
    check(bench, bench.pod())
    bench.bound("second", "n0")
    with pytest.raises(ContractError, match="a version did not move"):
        check(bench, bench.pod())


def test_a_plugin_that_raises_is_named() -> None:
    class Broken(Few):
        def assigned(self, pod: AssignedPod) -> None:
            raise KeyError("lost")

    with pytest.raises(PluginError, match='running "Few" Reserve plugin: KeyError'):
        made(Broken())


def test_objects_times_and_nodes_reach_plugins() -> None:
    bench = made(Few())
    assert bench.tick(1.0) == []
    bench.remove_node("n1")
    assert set(bench.scores(bench.pod())) == {f"n{number}" for number in range(NODES)} - {"n1"}
    assert bench.node("n1", labels={"a": "b"}) == ()
    info: Any = bench.cluster.nodes[1]
    assert info.labels == {"a": "b"}
