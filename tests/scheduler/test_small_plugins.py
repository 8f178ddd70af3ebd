"""Small plugins at the contract and through the engine: ports, hints, images, added affinity, ignored resources."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.pods import Affinity as PodAffinity
from koord.kube.pods import NodeAffinity as Affinity
from koord.scheduler.config.koordinatorargs import (
    FitPlusResource,
    NodeResourcesFitPlusArgs,
    ScarceResourceAvoidanceArgs,
    SchedulingHintArgs,
)
from koord.scheduler.config.rules import ResourceSpec
from koord.scheduler.config.rules import ShapePoint as ArgsPoint
from koord.scheduler.config.upstreamargs import (
    FitStrategy,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatio,
)
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import ScorePlugin
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.balanced import BalancedSettings, NodeResourcesBalancedAllocation
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit, ResourceWeight, ShapePoint, curve
from koord.scheduler.plugins.fitplus import NodeResourcesFitPlus
from koord.scheduler.plugins.hint import HINT, LEGACY_HINT, SchedulingHint
from koord.scheduler.plugins.imagelocality import ImageLocality, normalized
from koord.scheduler.plugins.nodeports import NodePorts
from koord.scheduler.plugins.scarce import ScarceResourceAvoidance
from tests.scheduler.clusters import GIB, Bed, requests
from tests.scheduler.loadaware.beds import assigned

MIB = 1 << 20
GPU = "nvidia.com/gpu"


def scores(bed: Bed, plugin: ScorePlugin, spec: Mapping[str, Any]) -> list[int]:
    terms = plugin.score_terms(bed.pod("scored", spec).class_.template, bed.cluster)
    if terms is None:
        return [0] * bed.cluster.high
    return [int(value) for value in plugin.score(terms, Window.full(bed.cluster))]


def message(outcome: Outcome) -> str:
    assert isinstance(outcome, Diagnosis)
    return outcome.message


# NodePorts ------------------------------------------------------------------------------------------------------------


def with_ports(*ports: tuple[int, str, str], init: str | None = None) -> dict[str, Any]:
    """A pod with host ports (port, protocol, address); ``init``: of an init container with that restart policy."""
    container: dict[str, Any] = {
        "name": "c",
        "ports": [
            {"containerPort": 1, "hostPort": port, "protocol": protocol, **({"hostIP": ip} if ip else {})}
            for port, protocol, ip in ports
        ],
    }
    if init is None:
        return {"containers": [container]}
    given: dict[str, Any] = {**container, **({"restartPolicy": init} if init else {})}
    return {"containers": [{"name": "main"}], "initContainers": [given]}


@pytest.mark.parametrize(
    ("taken", "wanted", "fits"),
    [
        ((80, "TCP", ""), (80, "TCP", ""), False),
        ((80, "TCP", ""), (81, "TCP", ""), True),
        ((80, "TCP", ""), (80, "UDP", ""), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.2"), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.1"), False),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", ""), False),
        ((80, "TCP", "0.0.0.0"), (80, "TCP", "10.0.0.1"), False),
        ((0, "TCP", ""), (0, "TCP", ""), True),
    ],
)
def test_ports_that_clash(taken: tuple[int, str, str], wanted: tuple[int, str, str], fits: bool) -> None:
    bed = Bed(extra=[NodePorts()])
    bed.node("n")
    assert isinstance(bed.engine.place_one(bed.pod("first", with_ports(taken))), Placed)
    outcome = bed.engine.place_one(bed.pod("second", with_ports(wanted)))
    assert isinstance(outcome, Placed) == fits
    if not fits:
        text = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
        assert message(outcome) == text
        assert bed.engine.forget("uid-default-first")
        assert isinstance(bed.engine.place_one(bed.pod("third", with_ports(wanted))), Placed)


def test_only_init_containers_that_stay_keep_ports() -> None:
    for policy, fits in (("", True), ("Always", False)):
        bed = Bed(extra=[NodePorts()])
        bed.node("n")
        pods = [bed.pod(name, with_ports((80, "TCP", ""), init=policy)) for name in ("a", "b")]
        assert isinstance(bed.engine.place_one(pods[0]), Placed)
        assert isinstance(bed.engine.place_one(pods[1]), Placed) == fits


def test_a_run_of_pods_with_one_port_takes_a_node_each() -> None:
    bed = Bed(extra=[NodePorts()])
    for number in range(6):
        bed.node(f"n{number}")
    pods = [bed.pod(f"p{number}", with_ports((8080, "TCP", ""))) for number in range(8)]
    outcomes: list[Outcome] = []
    done = 0
    while done < len(pods):
        done += bed.engine.place(pods[done:], outcomes)
    placed = [outcome.node for outcome in outcomes if isinstance(outcome, Placed)]
    assert (len(placed), len(set(placed))) == (6, 6)


def test_ports_of_nodes_that_come_and_go() -> None:
    ports = NodePorts()
    bed = Bed(extra=[ports])
    pod = bed.pod("p", with_ports((80, "TCP", "")))
    bed.engine.count(assigned(bed.pod("early", with_ports((80, "TCP", ""))), "late"))
    bed.node("a")
    bed.node("late")
    terms = ports.filter_terms(pod.class_.template, bed.cluster)
    assert ports.filter(terms, Window.full(bed.cluster)).tolist() == [True, False]
    bed.engine.remove_node("late")
    bed.node("other")
    assert ports.filter(terms, Window.full(bed.cluster)).tolist() == [True, True]
    for number in range(200):
        bed.node(f"more{number}")
    bed.node("late")
    full = ports.filter(terms, Window.full(bed.cluster))
    assert full.sum() == len(full) - 1


def test_only_a_pod_with_the_port_helps_by_going() -> None:
    ports = NodePorts()
    bed = Bed(extra=[ports])
    template = bed.pod("p", with_ports((80, "TCP", ""))).class_.template
    for spec, helps in ((with_ports((80, "TCP", "10.0.0.1")), True), (with_ports((81, "TCP", "")), False)):
        assert ports.helps(template, ClusterEvent.POD_DELETE, assigned(bed.pod("q", spec), "n")) == helps
    assert ports.helps(template, ClusterEvent.NODE_ADD, None)


steps = st.lists(
    st.tuples(
        st.sampled_from(("assign", "unassign", "gone", "node")),
        st.integers(0, 2),
        st.integers(0, 3),
        st.sampled_from(((80, "TCP", ""), (80, "TCP", "10.0.0.1"), (81, "TCP", ""), (80, "UDP", "10.0.0.1"))),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_ports_step_by_step(steps: list[tuple[str, int, int, tuple[int, str, str]]]) -> None:
    ports = NodePorts()
    bed = Bed(extra=[ports])
    wanted = [bed.pod("w", with_ports(port)) for port in ((80, "TCP", ""), (80, "TCP", "10.0.0.1"))]
    held: dict[int, tuple[int, tuple[int, str, str]]] = {}
    for what, node, pod, port in steps:
        if what == "assign":
            bed.engine.count(assigned(bed.pod(f"p{pod}", with_ports(port)), f"n{node}"))
            held[pod] = (node, port)
        elif what == "unassign":
            bed.engine.uncount(f"uid-default-p{pod}")
            held.pop(pod, None)
        elif what == "node":
            bed.node(f"n{node}")
        else:
            bed.engine.remove_node(f"n{node}")
        for want in wanted:
            terms: Any = ports.filter_terms(want.class_.template, bed.cluster)
            answer = ports.filter(terms, Window.full(bed.cluster))
            for name, row in bed.cluster.index.items():
                clash = any(
                    f"n{on}" == name and (p, proto) == (80, "TCP") and (not ip or terms[0].ip in (ip, "0.0.0.0"))
                    for on, (p, proto, ip) in held.values()
                )
                assert answer[row] == (not clash)


# SchedulingHint -------------------------------------------------------------------------------------------------------


def hinted(bed: Bed, text: str, key: str = HINT, name: str = "p", **more: Any) -> Outcome:
    return bed.engine.place_one(bed.pod(name, requests(), annotations={key: text, **more}))


def three(**args: Any) -> Bed:
    bed = Bed(extra=[SchedulingHint(SchedulingHintArgs(**args))])
    for name, cpu in (("a", 64_000), ("b", 8000), ("c", 4000)):
        bed.node(name, cpu=cpu)
    return bed


def test_only_the_nodes_that_are_named() -> None:
    for key in (HINT, LEGACY_HINT):
        outcome = hinted(three(), '{"nodeNames":["c","gone"],"extensions":{"X":{}}}', key)
        assert isinstance(outcome, Placed)
        assert outcome.node == "c"
    both = hinted(three(), '{"nodeNames":["b"]}', **{LEGACY_HINT: '{"nodeNames":["c"]}'})
    assert isinstance(both, Placed)
    assert both.node == "b"
    empty = hinted(three(), "", **{LEGACY_HINT: '{"nodeNames":["c"]}'})
    assert isinstance(empty, Placed)
    assert empty.node == "c"


def test_names_that_nobody_has() -> None:
    text = "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [SchedulingHint]."
    assert message(hinted(three(), '{"nodeNames":["gone"]}')) == text


def test_a_hint_that_cannot_be_read_says_so() -> None:
    for bad in ("{", '{"nodeNames":"a"}', "[]"):
        outcome = hinted(three(), bad)
        assert isinstance(outcome, Diagnosis)
        assert outcome.message.startswith(f"0/3 nodes are available: {HINT}: ")
        assert not outcome.error
        assert not outcome.resolvable
        assert outcome.plugins == {"SchedulingHint"}


def test_the_first_preferred_node_that_can_is_chosen() -> None:
    outcome = hinted(three(), '{"preferredNodeNames":["gone","c","b"]}')
    assert isinstance(outcome, Placed)
    assert outcome.node == "c"
    narrowed = hinted(three(), '{"nodeNames":["a","b"],"preferredNodeNames":["c","b"]}')
    assert isinstance(narrowed, Placed)
    assert narrowed.node == "b"
    none = hinted(three(), '{"preferredNodeNames":["gone"]}')
    assert isinstance(none, Placed)
    assert none.node == "a"
    few = hinted(three(max_hint_nodes=1), '{"preferredNodeNames":["gone","c"]}')
    assert isinstance(few, Placed)
    assert few.node == "a"


def test_a_full_preferred_node_is_passed_over() -> None:
    bed = three()
    pods = [bed.pod(f"p{n}", requests("2"), annotations={HINT: '{"preferredNodeNames":["c","b"]}'}) for n in range(5)]
    outcomes: list[Outcome] = []
    done = 0
    while done < len(pods):
        done += bed.engine.place(pods[done:], outcomes)
    assert [outcome.node for outcome in outcomes if isinstance(outcome, Placed)] == ["c", "c", "b", "b", "b"]


# ImageLocality --------------------------------------------------------------------------------------------------------


def image_node(bed: Bed, name: str, **images: int) -> None:
    amounts = {"cpu": 4000, "memory": 16 * GIB, "pods": 10}
    bed.engine.set_node(NodeInfo(name, amounts, images={f"team/{image}:1": size for image, size in images.items()}))


def of_images(*images: str) -> dict[str, Any]:
    return {"containers": [{"name": f"c{n}", "image": f"team/{image}:1"} for n, image in enumerate(images)]}


def by_hand(sums: float, containers: int) -> int:
    clamped = min(max(sums, 23 * MIB), 1000 * MIB * containers)
    return int(100 * (clamped - 23 * MIB) // (1000 * MIB * containers - 23 * MIB))


def test_images_are_followed_as_nodes_change() -> None:
    images = ImageLocality()
    bed = Bed(extra=[images])
    image_node(bed, "a", app=800 * MIB, side=100 * MIB)
    image_node(bed, "b", app=800 * MIB)
    spec = of_images("app", "side")
    assert scores(bed, images, spec) == [by_hand(850 * MIB, 2), by_hand(800 * MIB, 2)]
    # The engine keeps them, and must ask again for every row.
    first = bed.engine.place_one(bed.pod("p", spec))
    assert isinstance(first, Placed)
    assert first.node == "a"
    image_node(bed, "b", app=800 * MIB, side=4000 * MIB)
    assert scores(bed, images, spec) == [by_hand(900 * MIB, 2), 100]
    second = bed.engine.place_one(bed.pod("q", spec))
    assert isinstance(second, Placed)
    assert second.node == "b"
    bed.engine.remove_node("b")
    assert scores(bed, images, spec)[0] == by_hand(900 * MIB, 2)
    bed.node("c")
    assert scores(bed, images, spec) == [by_hand(450 * MIB, 2), 0]


def test_small_and_huge_images() -> None:
    images = ImageLocality()
    bed = Bed(extra=[images])
    image_node(bed, "a", tiny=20 * MIB, huge=9000 * MIB)
    assert scores(bed, images, of_images("tiny")) == [0]
    assert scores(bed, images, of_images("huge")) == [100]
    assert scores(bed, images, of_images("unknown")) == [0]
    # Two containers of one image count it twice.
    image_node(bed, "a", app=500 * MIB)
    assert scores(bed, images, of_images("app", "app")) == [by_hand(1000 * MIB, 2)]


def test_an_image_that_comes_to_a_node_later() -> None:
    images = ImageLocality()
    bed = Bed(extra=[images])
    image_node(bed, "a")
    image_node(bed, "b")
    spec = of_images("app")
    for name in ("p", "q"):
        assert isinstance(bed.engine.place_one(bed.pod(name, spec)), Placed)
    assert images.score_terms(bed.pod("asked", spec).class_.template, bed.cluster) is None
    for has, other in (("a", "b"), ("b", "a")):
        image_node(bed, has, app=900 * MIB)
        image_node(bed, other)
        outcome = bed.engine.place_one(bed.pod(f"on-{has}", spec))
        assert isinstance(outcome, Placed)
        assert outcome.node == has


def test_image_names() -> None:
    assert normalized("app") == "app:latest"
    assert normalized("host:5000/app") == "host:5000/app:latest"
    assert normalized("host:5000/app:2") == "host:5000/app:2"
    assert normalized("app@sha256:00") == "app@sha256:00"
    assert normalized("") == ""


# NodeAffinity ---------------------------------------------------------------------------------------------------------


def affinity(required: str | None = None, preferred: str | None = None, weight: int = 10) -> dict[str, Any]:
    """An affinity to nodes that have a label."""
    made: dict[str, Any] = {}
    if required:
        terms = [{"matchExpressions": [{"key": required, "operator": "Exists"}]}]
        made["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if preferred:
        preference = {"matchExpressions": [{"key": preferred, "operator": "Exists"}]}
        made["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": weight, "preference": preference}]
    return made


def test_an_affinity_that_is_added_to_every_pods() -> None:
    plugin = NodeAffinity(msgspec.convert(affinity("pool", "fast", 20), Affinity))
    bed = Bed()
    bed.node("a", labels={"pool": "", "fast": ""})
    bed.node("b", labels={"pool": "", "own": ""})
    bed.node("c", labels={"own": ""})
    window = Window.full(bed.cluster)
    plain = bed.pod("p").class_.template
    terms = plugin.filter_terms(plain, bed.cluster)
    assert plugin.filter(terms, window).tolist() == [True, True, False]
    assert [(reason.text, reason.rows.tolist()) for reason in plugin.reasons(terms, window) if reason.rows.any()] == [
        ("node(s) didn't match scheduler-enforced node affinity", [False, False, True])
    ]
    own = bed.pod("q", requests() | {"affinity": {"nodeAffinity": affinity("own", "own", 10)}}).class_.template
    terms = plugin.filter_terms(own, bed.cluster)
    assert plugin.filter(terms, window).tolist() == [False, True, False]
    assert [(reason.text, reason.rows.tolist()) for reason in plugin.reasons(terms, window)] == [
        ("node(s) didn't match scheduler-enforced node affinity", [False, False, True]),
        ("node(s) didn't match Pod's node affinity/selector", [True, False, False]),
    ]
    assert plugin.score(plugin.score_terms(own, bed.cluster), window).tolist() == [20, 10, 10]
    assert plugin.score(plugin.score_terms(plain, bed.cluster), window).tolist() == [20, 0, 0]
    # Another profile's NodeAffinity has other terms for the same pod: nothing that is kept can be taken for its own.
    assert NodeAffinity().filter_terms(own, bed.cluster) != terms


def test_names_are_found_in_any_window() -> None:
    plugin = NodeAffinity()
    bed = Bed()
    for name in "abcd":
        bed.node(name)
    for operator, value, expected in (
        ("In", "c", [False, False, True, False]),
        ("In", "x", [False] * 4),
        ("NotIn", "c", [True, True, False, True]),
        ("NotIn", "x", [True] * 4),
    ):
        field = {"key": "metadata.name", "operator": operator, "values": [value]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
        # Not through the pod: what names one node only is kept apart from its class.
        template = bed.pod("p").class_.template
        affinity_ = msgspec.convert({"nodeAffinity": required}, PodAffinity)
        spec = msgspec.structs.replace(template.spec, affinity=affinity_)
        terms = plugin.filter_terms(msgspec.structs.replace(template, spec=spec), bed.cluster)
        assert plugin.filter(terms, Window.full(bed.cluster)).tolist() == expected
        rows = np.array([3, 2, 2, 0], dtype=np.int64)
        assert plugin.filter(terms, Window.some(bed.cluster, rows)).tolist() == [expected[row] for row in rows]


# NodeResourcesFit and its like ----------------------------------------------------------------------------------------


def test_ignored_resources() -> None:
    wanted = requests(resources={"example.com/a": "9", "example.org/b": "9", "kubernetes.io/batch-cpu": "9"})
    for ignored, groups, missing in (
        ((), (), ["example.com/a", "example.org/b", "kubernetes.io/batch-cpu"]),
        (("example.com/a",), (), ["example.org/b", "kubernetes.io/batch-cpu"]),
        ((), ("example.org",), ["example.com/a", "kubernetes.io/batch-cpu"]),
        (("kubernetes.io/batch-cpu",), ("example.com", "kubernetes.io"), ["example.org/b", "kubernetes.io/batch-cpu"]),
    ):
        bed = Bed(fit=FitSettings(ignored_resources=ignored, ignored_groups=groups))
        bed.node("n", more={"example.com/a": 1})
        outcome = bed.engine.place_one(bed.pod("p", wanted))
        texts = ", ".join(f"1 Insufficient {name}" for name in missing)
        assert message(outcome) == f"0/1 nodes are available: {texts}."


def test_a_curve_is_interpolated_in_whole_numbers() -> None:
    points = curve((ShapePoint(10, 10), ShapePoint(40, 0), ShapePoint(43, 2)))
    assert points[[0, 10, 11, 25, 39, 40, 41, 42, 43, 100]].tolist() == [100, 100, 97, 50, 4, 0, 6, 13, 20, 20]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((), "fit.shape: RequestedToCapacityRatio needs at least one point"),
        ((ShapePoint(5, 11),), "fit.shape[0].score: 11 is not in 0..10"),
        ((ShapePoint(5, 1), ShapePoint(101, 1)), "fit.shape[1].utilization: 101 is not in 6..100"),
        ((ShapePoint(5, 1), ShapePoint(5, 2)), "fit.shape[1].utilization: 5 is not in 6..100"),
    ],
)
def test_a_curve_that_is_none(shape: tuple[ShapePoint, ...], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        FitSettings(strategy="RequestedToCapacityRatio", shape=shape)


def test_by_ratio_beyond_capacity_and_without_it() -> None:
    shape = (ShapePoint(0, 10), ShapePoint(100, 0))
    fit = NodeResourcesFit(
        FitSettings(
            strategy="RequestedToCapacityRatio",
            resources=(ResourceWeight("cpu", 3), ResourceWeight("memory"), ResourceWeight(GPU)),
            shape=shape,
        )
    )
    bed = Bed()
    bed.node("half", cpu=2000, memory=4 * GIB)
    bed.node("small", cpu=500, memory=4 * GIB)
    bed.node("bare", cpu=2000, memory=0)
    # What scores 0 is left out: "small" has cpu 200 percent used, "bare" no memory at all.
    assert scores(bed, fit, requests("1", "1Gi")) == [(3 * 50 + 75 + 2) // 4, 75, 50]


def test_settings_from_arguments() -> None:
    args = NodeResourcesFitArgs(
        ignored_resources=("a.b/c",),
        ignored_resource_groups=("d.e",),
        scoring_strategy=FitStrategy(
            "RequestedToCapacityRatio",
            (ResourceSpec("cpu", 2),),
            RequestedToCapacityRatio((ArgsPoint(0, 0), ArgsPoint(100, 10))),
        ),
    ).completed()
    assert FitSettings.of(args) == FitSettings(
        "RequestedToCapacityRatio",
        (ResourceWeight("cpu", 2),),
        (ShapePoint(0, 0), ShapePoint(100, 10)),
        ("a.b/c",),
        ("d.e",),
    )
    balanced = NodeResourcesBalancedAllocationArgs(resources=(ResourceSpec("cpu", 1),), relative=True)
    assert BalancedSettings.of(balanced) == BalancedSettings(("cpu",), relative=True)


def test_relative_balance() -> None:
    plugin = NodeResourcesBalancedAllocation(BalancedSettings(relative=True))
    bed = Bed()
    bed.node("n", cpu=10_000, memory=10 * GIB)
    # (0, 0) -> (0.4, 0.2): 100 -> 90.
    assert scores(bed, plugin, requests("4", "2Gi")) == [70]
    bed.engine.place_one(bed.pod("there", requests("1", "5Gi")))
    # (0.1, 0.5) -> (0.5, 0.7): 80 -> 90.
    assert scores(bed, plugin, requests("4", "2Gi")) == [80]
    assert scores(bed, NodeResourcesBalancedAllocation(), requests("4", "2Gi")) == [90]


def test_fit_plus_without_anything_that_counts() -> None:
    plus = NodeResourcesFitPlus(NodeResourcesFitPlusArgs(resources={GPU: FitPlusResource("MostAllocated", 1)}))
    bed = Bed()
    bed.node("n")
    assert scores(bed, plus, requests()) == [100]
    # Nobody offers it: weighed, and worth nothing.
    assert scores(bed, plus, requests(resources={GPU: "1"})) == [0]


def test_scarce_resources_follow_what_nodes_offer() -> None:
    scarce = ScarceResourceAvoidance(ScarceResourceAvoidanceArgs(resources=(GPU, "example.com/fpga")))
    bed = Bed(extra=[scarce])
    bed.node("a")
    assert scores(bed, scarce, requests("1", "")) == [100]
    first = bed.engine.place_one(bed.pod("p", requests("1", "")))
    assert isinstance(first, Placed)
    bed.node("b", cpu=64_000, memory=512 * GIB, more={GPU: 1, "example.com/fpga": 1})
    # Memory, gpu and fpga are not asked for.
    assert scores(bed, scarce, requests("1", "")) == [100, 33]
    assert scores(bed, scarce, requests("1", "1Gi", resources={GPU: "1", "example.com/fpga": "1"})) == [100, 100]
    bed.node("b", cpu=64_000, memory=512 * GIB)
    assert scores(bed, scarce, requests("1", "")) == [100, 100]


def test_a_required_term_that_cannot_be_read_leaves_the_others() -> None:
    bed = Bed()
    bed.node("a", labels={"rank": "1"})
    bed.node("b", labels={"rank": "7"})

    def asking(*terms: Mapping[str, Any]) -> dict[str, Any]:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return requests(affinity={"nodeAffinity": required})

    bad = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["abc"]}]}
    good = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["3"]}]}
    placed = bed.engine.place_one(bed.pod("p", asking(bad, good)), 0.0)
    assert isinstance(placed, Placed) and placed.node == "b"
    alone = bed.engine.place_one(bed.pod("q", asking(bad)), 0.0)
    assert message(alone) == "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    [remark] = NodeAffinity().remarks(bed.pod("r", asking(good, bad)).class_.template)
    assert "nodeSelectorTerms[1].matchExpressions[0]" in remark
    assert remark.endswith("; the term matches no node")


def test_a_preferred_term_that_cannot_be_read_is_an_error_that_names_it() -> None:
    bed = Bed()
    bed.node("a")
    bed.node("b")
    bad = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["abc"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": bad}]}
    refused = bed.engine.place_one(bed.pod("p", requests(affinity={"nodeAffinity": preferred})), 0.0)
    assert 'running "NodeAffinity"' in message(refused)
    assert "matchExpressions[0]" in message(refused)
