"""All nodes at once is each node alone: Filter, reasons and Score of the plugin held to Reserve's own functions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.kube.protocol.cputopology import CPU
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Allocation
from koord.scheduler.numa.amplification import amplify
from koord.scheduler.numa.merge import UNALIGNED, UNSATISFIED
from koord.scheduler.numa.placing import MISSING, PodWish, Scoring, align, needs, place
from koord.scheduler.numa.scores import mean
from koord.scheduler.numa.state import NodeState
from koord.scheduler.numa.zones import members
from koord.scheduler.plugins.nodenumaresource.rows import INSUFFICIENT_AMPLIFIED, Rows
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings, ResourceWeight, Strategy
from koord.scheduler.plugins.nodenumaresource.terms import NUMATerms
from tests.scheduler.clusters import GIB
from tests.scheduler.numa import drawing
from tests.scheduler.numa.machines import NumaBed, zones


def rated(state: NodeState, wish: PodWish, scoring: Scoring) -> set[int]:
    """Spec 3.12 Score on a node with a policy; nothing where that is over the node as a whole.

    The set counts as a whole, even if a small amount leaves some of it out; one that BestEffort takes although it is
    not preferred counts as all NUMA nodes.
    """
    placed = place(state, wish)
    if isinstance(placed, str):
        return {0}
    found = placed.allocation
    if not found.zones:
        return set()
    ids = {zone for zone, _ in found.zones}
    indexes = [index for index, zone in enumerate(state.layout.zones) if zone.id in ids]
    rates = {rate(state, wish, scoring, indexes)}
    mask = align(state, wish, needs(state, wish)).mask
    if mask is not None:
        rates.add(rate(state, wish, scoring, members(mask)))
    if wish.policy == "BestEffort":
        rates.add(rate(state, wish, scoring, list(range(len(state.layout.zones)))))
    return rates


def rate(state: NodeState, wish: PodWish, scoring: Scoring, indexes: Sequence[int]) -> int:
    ratio = state.layout.ratio or 1.0
    parts = []
    for name, weight in scoring.weights:
        asked = wish.request.get(name, 0)
        used = sum(state.zone_used(index).get(name, 0) for index in indexes)
        if name == "cpu" and wish.cpus is not None:
            cpus = sum((state.layout.zones[index].cpus & state.allocated).bit_count() for index in indexes)
            used, asked = amplify(1000 * cpus, ratio), amplify(asked, ratio)
        capacity = sum(state.layout.zones[index].allocatable.get(name, 0) for index in indexes)
        parts.append((capacity, used + asked, weight))
    return mean(parts, most_allocated=scoring.most)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(drawing.nodes, min_size=1, max_size=4), drawing.wishes, st.booleans(), st.booleans())
def test_every_row_is_answered_as_that_node_alone(
    nodes: list[drawing.Node], wish: dict[str, Any], most: bool, zones_most: bool
) -> None:
    kinds = ("LeastAllocated", "MostAllocated")
    made = NUMASettings(scoring=Strategy(type=kinds[most]), zones=Strategy(type=kinds[zones_most]))  # type: ignore[arg-type]
    bed = NumaBed(made)
    for number, node in enumerate(nodes):
        drawing.build(bed, f"n{number}", node)
    wanted = drawing.pod(bed, wish)
    plugin, template = bed.plugin, wanted.class_.template
    window = Window.full(bed.cluster)
    if plugin.prefilter_terms(template, bed.cluster) is not None:
        assert wish["bound"]
        assert wish["cpu"].endswith("m")
        return
    terms = plugin.filter_terms(template, bed.cluster)
    if terms is None:
        return
    assert isinstance(terms, NUMATerms)
    fits = Rows(plugin.books, terms, window, made).fits()
    reasons = plugin.reasons(terms, window)
    refused = np.zeros(window.size, dtype=np.bool_)
    for reason in reasons:
        refused |= reason.rows
    assert (refused == ~fits).all()
    scores = Rows(plugin.books, terms, window, made).score()
    assert ((scores >= 0) & (scores <= 100) & (scores == np.floor(scores))).all()
    for row in range(window.size):
        texts = sorted(reason.text for reason in reasons if reason.rows[row])
        state = plugin.books.state(f"n{row}")
        layout = state.layout
        alone = terms.wish(layout, made)
        clash = terms.numa and layout.policy and terms.numa != layout.policy
        whole = terms.cpu % 1000 == 0 or not (layout.bind or terms.bound)
        given_ = plugin.reserve(wanted.ref, terms, row) if whole else "the requested CPUs must be integer"
        plugin.unreserve(wanted.uid)
        if fits[row]:
            assert isinstance(given_, Allocation), (row, given_)
            if alone.policy:
                expected = rated(state, alone, made.scoring.scoring)
                assert not expected or scores[row] in expected
        elif isinstance(given_, Allocation):
            # Only what Reserve does not look at can have refused it.
            bind = terms.required and layout.bind and layout.bind != terms.policy
            per_core = layout.topology.per_core if layout.topology is not None else 1
            assert clash or bind or INSUFFICIENT_AMPLIFIED in texts or terms.cpus % per_core, texts
        elif not clash and alone.policy and (given_.startswith((UNALIGNED, UNSATISFIED)) or given_ == MISSING):
            merged = align(state, alone, needs(state, alone))
            if any(text.startswith((UNALIGNED, UNSATISFIED, "node(s) missing")) for text in texts):
                assert texts == sorted(merged.reasons)
    for row in range(window.size):
        one = Window.some(bed.cluster, np.array([row, row]))
        assert plugin.filter(terms, one).tolist() == [fits[row]] * 2
        if fits[row]:
            assert plugin.score(terms, one).tolist() == [scores[row]] * 2
    few = np.array([row for row in range(window.size) if row % 2 == 0], dtype=np.int64)
    some = Window.some(bed.cluster, few)
    assert (plugin.filter(terms, some) == fits[few]).all()
    assert (plugin.score(terms, some)[fits[few]] == scores[few][fits[few]]).all()


@pytest.mark.parametrize("policy", ["Restricted", "SingleNUMANode"])
def test_pods_share_numa_nodes_only_as_they_allow(policy: str) -> None:
    bed = NumaBed()
    cpus = [CPU(i, i // 2, 0, i // 8) for i in range(16)]
    bed.machine("n", cpus, zones({"cpu": "8", "memory": "8Gi"}, {"cpu": "8", "memory": "8Gi"}))
    spanning = bed.there("n", parts=[(0, {"cpu": "1"}), (1, {"cpu": "1"})], cpu="2")
    assert UNALIGNED in bed.refusal(bed.aligned_pod("SingleNUMANode", "2"))
    bed.engine.uncount(spanning.ref.uid)
    first = bed.status(bed.aligned_pod(policy, "2"))["numaNodeResources"]
    again = bed.status(bed.aligned_pod(policy, "2"))["numaNodeResources"]
    assert [part["node"] for part in first] == [0]
    assert [part["node"] for part in again] == [1]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=5),
    st.sampled_from((("1", "1Gi"), ("3", ""), ("", "3Gi"), ("1500m", "500Mi"))),
    st.booleans(),
    st.integers(1, 3),
)
def test_the_usual_score_is_that_of_all_checks(
    nodes: list[tuple[int, int]], wanted: tuple[str, str], most: bool, weight: int
) -> None:
    kind: Any = "MostAllocated" if most else "LeastAllocated"
    by = Strategy(type=kind, resources=(ResourceWeight("memory", weight), ResourceWeight("cpu")))
    bed = NumaBed(NUMASettings(scoring=by))
    for number, (cpu, memory) in enumerate(nodes):
        bed.machine(f"n{number}", [CPU(i, i, 0, 0) for i in range(4)], memory=4 * GIB)
        bed.there(f"n{number}", cpu=str(cpu), memory=f"{memory}Gi")
    template = bed.named(*wanted).class_.template
    window = Window.full(bed.cluster)
    terms = bed.plugin.score_terms(template, bed.cluster)
    assert isinstance(terms, NUMATerms)
    usual = bed.plugin.score(terms, window)
    assert (usual == Rows(bed.plugin.books, terms, window, bed.plugin.settings).score()).all()
    bed.machine("amplified", cpu=1, annotations={"node.koordinator.sh/resource-amplification-ratio": '{"cpu":2}'})
    assert (usual == bed.plugin.score(terms, Window.full(bed.cluster))[: len(usual)]).all()
