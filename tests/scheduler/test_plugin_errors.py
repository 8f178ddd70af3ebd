"""A plugin that raises, at whichever point: the pod waits with the plugin's name, or the books go on without it."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import pytest

from koord.columns.matrix import Bools, Floats
from koord.kube.pods import PodSpec
from koord.scheduler.engine.cluster import Cluster, NodeInfo, RowColumn
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    NodePlugin,
    PluginError,
    PodRef,
    PreferPlugin,
    PreFilterPlugin,
    Reason,
    ReservePlugin,
    ScorePlugin,
    Template,
    Terms,
    TickPlugin,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.preemption.search import fits_unmasked
from tests.scheduler.clusters import Bed, requests

PLACING = (
    *("prefilter_terms", "node_names", "prefilter", "filter_terms", "filter_version", "filter"),
    *("score_terms", "score_version", "score", "final", "prefer_terms", "preferred_nodes"),
    *("reserve_terms", "reserves", "reserve"),
)
BOOKS = ("keeps", "assigned", "unassigned", "reassigned", "node_set", "node_removed", "tick", "unreserve")


class Breaks(
    PreFilterPlugin,
    FilterPlugin,
    ScorePlugin,
    PreferPlugin,
    ReservePlugin,
    AssignPlugin,
    NodePlugin,
    TickPlugin,
):
    """Raises at the point that it is told; otherwise it does the least."""

    name: ClassVar[str] = "Breaks"
    filter_locality: ClassVar[Locality] = "cluster"
    score_locality: ClassVar[Locality] = "cluster"
    normalized: ClassVar[bool] = True
    pod_keys: ClassVar[tuple[str, ...]] = ("breaks",)

    def __init__(self) -> None:
        self.at = ""

    def point(self, name: str) -> None:
        if name == self.at:
            raise RuntimeError(f"no {name}")

    def terms(self, template: Template, point: str) -> Terms | None:
        if "breaks" not in template.annotations:
            return None
        self.point(point)
        return ()

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return self.terms(template, "prefilter_terms")

    def node_names(self, terms: Terms) -> frozenset[str] | None:
        self.point("node_names")
        return None

    def prefilter(self, terms: Terms) -> str | None:
        self.point("prefilter")
        return None

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return self.terms(template, "filter_terms")

    def filter_version(self, terms: Terms) -> int:
        self.point("filter_version")
        return 0

    def filter(self, terms: Terms, window: Window) -> Bools:
        self.point("filter")
        ok: Bools = window.cluster.alive[window.rows].copy()
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return []

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return self.terms(template, "score_terms")

    def score_version(self, terms: Terms) -> int:
        self.point("score_version")
        return 0

    def score(self, terms: Terms, window: Window) -> Floats:
        self.point("score")
        return window.free(0) * 0.0

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        self.point("final")
        return raw

    def prefer_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return self.terms(template, "prefer_terms")

    def preferred_nodes(self, terms: Terms) -> tuple[str, ...]:
        self.point("preferred_nodes")
        return ()

    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return self.terms(template, "reserve_terms")

    def reserves(self, terms: Terms) -> bool:
        self.point("reserves")
        return True

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        self.point("reserve")
        return Allocation({"given": "1"})

    def unreserve(self, uid: str) -> None:
        self.point("unreserve")

    def per_pod(self, terms: Terms) -> Mapping[RowColumn, float]:
        return {}

    def keeps(self, spec: PodSpec) -> bool:
        self.point("keeps")
        return True

    def assigned(self, pod: AssignedPod) -> None:
        self.point("assigned")

    def unassigned(self, pod: AssignedPod) -> None:
        self.point("unassigned")

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        self.point("reassigned")

    def node_set(self, row: int, node: NodeInfo) -> None:
        self.point("node_set")

    def node_removed(self, row: int, name: str) -> None:
        self.point("node_removed")

    def tick(self, now: float) -> Iterable[ClusterEvent]:
        self.point("tick")
        return ()


def place(bed: Bed, name: str, *, breaks: bool = True) -> Outcome:
    annotations = {"breaks": ""} if breaks else {}
    return bed.engine.place_one(bed.pod(name, requests(), annotations=annotations))


@pytest.mark.parametrize("point", PLACING)
def test_whoever_fails_while_a_pod_is_placed_is_named(point: str) -> None:
    plugin = Breaks()
    bed = Bed(extra=[plugin])
    bed.node("n")
    plugin.at = point
    outcome = place(bed, "bad")
    assert isinstance(outcome, Diagnosis)
    assert outcome.error and outcome.plugins == {"Breaks"} and outcome.message.endswith(f"RuntimeError: no {point}")
    assert isinstance(place(bed, "other", breaks=False), Placed)
    assert "uid-default-bad" not in bed.cluster.pods
    plugin.at = ""
    good = place(bed, "bad")
    assert isinstance(good, Placed) and good.annotations == {"given": "1"}


def test_whoever_fails_while_a_way_out_is_looked_for_is_named() -> None:
    plugin = Breaks()
    bed = Bed(extra=[plugin])
    bed.node("n")
    assert bed.cluster.correct("n", "pods", 0)  # so the pod is asked about as it would be without that
    pod = bed.pod("bad", requests(), annotations={"breaks": ""})
    assert isinstance(bed.engine.place_one(pod), Diagnosis)
    plugin.at = "filter"
    with pytest.raises(PluginError, match=r"Breaks.*RuntimeError: no filter"):
        fits_unmasked(bed.engine, pod)


@pytest.mark.parametrize("point", BOOKS)
def test_books_go_on_without_a_plugin_that_fails(point: str) -> None:
    plugin = Breaks()
    bed = Bed(extra=[plugin])
    bed.node("n")
    plugin.at = point
    bed.node("m")
    bed.engine.tick(1.0)
    placed = place(bed, "p")
    assert isinstance(placed, Placed)
    counted = bed.engine.counted("uid-default-p")
    assert counted is not None
    bed.engine.count(counted)
    assert bed.engine.forget("uid-default-p")
    bed.engine.remove_node("m")
    assert [error.plugin for error in bed.engine.errors] == ["Breaks"]
    assert f"no {point}" in str(bed.engine.errors[0])
    assert isinstance(place(bed, "q"), Placed) and len(bed.cluster) == 1


def test_an_invalid_node_is_told_and_counts() -> None:
    plugin = Breaks()
    bed = Bed(extra=[plugin])

    def refuse(row: int, node: NodeInfo) -> None:
        raise ValueError(f"Node {node.name}: metadata.annotations[x]: must be a number")

    plugin.node_set = refuse  # type: ignore[method-assign]
    change = bed.engine.set_node(NodeInfo("n", {"cpu": 4000, "memory": 1 << 34, "pods": 10}))
    assert change.added and change.problems == ("Node n: metadata.annotations[x]: must be a number",)
    assert isinstance(place(bed, "p"), Placed) and not bed.engine.errors
