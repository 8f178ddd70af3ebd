"""Golden examples of spec 10 section 6 that concern the scheduler's core, and its failure texts (section 5)."""

import pytest

from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.diagnosis import Diagnosis, fit_error, note
from koord.scheduler.engine.placement import Placed
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import PreFilterPlugin, ScorePlugin, Template, Terms
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.balanced import NodeResourcesBalancedAllocation
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit, resource_weights
from koord.scheduler.plugins.tolerations import TaintToleration
from koord.scheduler.queueing.queue import QueueSettings, backoff_s
from tests.scheduler.clusters import GIB, Bed, requests

DEFAULT = resource_weights([("cpu", 1), ("memory", 1)])


def score(bed: Bed, plugin: ScorePlugin, spec: dict[str, object]) -> list[int]:
    template = bed.pod("scored", spec).class_.template
    terms = plugin.score_terms(template, bed.cluster)
    assert terms is not None
    window = Window.full(bed.cluster)
    raw = plugin.score(terms, window)
    if plugin.normalized:
        raw = plugin.normalize(terms, raw, float(raw.min()), float(raw.max()))
    return [int(value) for value in raw]


@pytest.mark.parametrize(("strategy", "expected"), [("LeastAllocated", 56), ("MostAllocated", 43)])
def test_g38_fit_strategies(strategy: str, expected: int) -> None:
    bed = Bed()
    bed.node("n", cpu=16_000, memory=64 * GIB)
    assert isinstance(bed.engine.place_one(bed.pod("there", requests("6", "16Gi"))), Placed)
    fit = NodeResourcesFit(FitSettings(strategy=strategy, resources=DEFAULT))  # type: ignore[arg-type]
    assert score(bed, fit, requests("2", "8Gi")) == [expected]


def test_g38_balanced_allocation() -> None:
    bed = Bed()
    bed.node("n", cpu=16_000, memory=64 * GIB)
    bed.engine.place_one(bed.pod("there", requests("6", "16Gi")))
    assert score(bed, NodeResourcesBalancedAllocation(), requests("2", "8Gi")) == [93]


def test_g41_taint_toleration() -> None:
    bed = Bed()
    for count in range(3):
        bed.node(f"n{count}", taints=[(f"k{i}", "", "PreferNoSchedule") for i in range(count)])
    assert score(bed, TaintToleration(), requests()) == [100, 50, 0]


def test_g41_node_affinity() -> None:
    bed = Bed()
    for name, labels in (("a", {"x": "", "y": ""}), ("b", {"y": ""}), ("c", {})):
        bed.node(name, labels=labels)
    preferred = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key, weight in (("x", 60), ("y", 20))
    ]
    spec = requests() | {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
    assert score(bed, NodeAffinity(), spec) == [100, 25, 0]


def test_g42_backoff() -> None:
    assert [backoff_s(count, QueueSettings()) for count in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_g43_text_without_preemption() -> None:
    """The first sentence; DefaultPreemption, which adds the second, is not built yet."""
    bed = Bed()
    bed.node("a", taints=[("gpu", "", "NoSchedule")])
    bed.node("b", cpu=1000)
    bed.node("c", cpu=1000)
    outcome = bed.engine.place_one(bed.pod("p", requests("2")))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."


def test_every_missing_resource_is_a_reason() -> None:
    bed = Bed()
    bed.node("a", cpu=1000, memory=GIB, pods=0)
    bed.node("b", cpu=1000, memory=64 * GIB, more={"nvidia.com/gpu": 1})
    wanted = requests("2", "2Gi", resources={"nvidia.com/gpu": "2"})
    outcome = bed.engine.place_one(bed.pod("p", wanted))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == (
        "0/2 nodes are available: 1 Insufficient memory, 1 Too many pods, 2 Insufficient cpu, "
        "2 Insufficient nvidia.com/gpu."
    )
    assert not outcome.resolvable


def test_texts_of_node_plugins() -> None:
    bed = Bed()
    bed.node("cordoned", unschedulable=True)
    bed.node("elsewhere", labels={"zone": "b"})
    outcome = bed.engine.place_one(bed.pod("p", requests() | {"nodeSelector": {"zone": "a"}}))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == (
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable."
    )
    named = bed.engine.place_one(bed.pod("q", requests() | {"affinity": _only("gone")}))
    assert isinstance(named, Diagnosis)
    assert named.message == "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    selector = {"nodeSelector": {"zone": "a"}, "affinity": _only("elsewhere")}
    selected = bed.engine.place_one(bed.pod("s", requests() | selector))
    assert isinstance(selected, Diagnosis)
    assert selected.message == (
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("a", "b")]
    both = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": fields}]}}}  # fmt: skip
    conflict = bed.engine.place_one(bed.pod("r", requests() | {"affinity": both}))
    assert isinstance(conflict, Diagnosis)
    assert conflict.message == "0/2 nodes are available: pod affinity terms conflict."


class OnlyCordoned(PreFilterPlugin):
    """A plugin of somebody else that allows one node."""

    name = "OnlyCordoned"

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms:
        return ()

    def node_names(self, terms: Terms) -> frozenset[str]:
        return frozenset(("cordoned",))


def test_sets_of_nodes_that_have_none_in_common() -> None:
    bed = Bed(extra=[OnlyCordoned()])
    bed.node("cordoned")
    bed.node("elsewhere")
    outcome = bed.engine.place_one(bed.pod("p", requests() | {"affinity": _only("elsewhere")}))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == (
        "0/2 nodes are available: node(s) didn't satisfy plugin(s) [NodeAffinity OnlyCordoned] simultaneously."
    )


def test_zero_nodes() -> None:
    bed = Bed()
    outcome = bed.engine.place_one(bed.pod("p"))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == "no nodes available to schedule pods"


def test_a_node_without_the_resource_scores_nothing_for_it() -> None:
    """Section 4: allocatable 0 for a resource is left out of the mean."""
    bed = Bed()
    bed.node("n", cpu=4000, memory=0)
    fit = NodeResourcesFit(FitSettings(resources=DEFAULT))
    assert score(bed, fit, {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "0"}}}]}) == [
        75
    ]


def test_notes_are_cut_at_1024_bytes() -> None:
    long = fit_error(3, [("x" * 3000, 3)])
    assert len(note(long).encode()) == 1024
    assert note(long).endswith(" ...")
    assert note("short") == "short"


def _only(name: str) -> dict[str, object]:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
        }
    }
