"""Pods that name one node each, as those of a DaemonSet do, are one class whatever node they name."""

import json
from typing import Any

import pytest

from koord.kube.resources import SERVICES
from koord.scheduler.config.upstreamargs import PodTopologySpreadArgs, SpreadDefault
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.topologyspread import PodTopologySpread
from koord.scheduler.plugins.topologyspread.services import Service, ServiceSpec
from koord.scheduler.podshape import split_name, with_name
from tests.scheduler.clusters import Bed, pod_view, requests

GPU = {"key": "gpu", "operator": "Exists"}
PREFERRED = [{"weight": 1, "preference": {"matchExpressions": [GPU]}}]


def field(*names: str, operator: str = "In") -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": list(names)}


def affinity(*terms: dict[str, Any], **more: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": required | more}


def daemon(node: str, *expressions: dict[str, Any]) -> dict[str, Any]:
    term: dict[str, Any] = {"matchFields": [field(node)]}
    if expressions:
        term["matchExpressions"] = list(expressions)
    return requests(affinity=affinity(term))


@pytest.mark.parametrize(
    ("written", "rest", "name"),
    [
        (affinity({"matchFields": [field("n")]}), None, "n"),
        (
            affinity({"matchFields": [field("n")], "matchExpressions": [GPU]}),
            affinity({"matchExpressions": [GPU]}),
            "n",
        ),
        # One of the terms asks for nothing but the node: there the other one does not matter.
        (affinity({"matchFields": [field("n")]}, {"matchFields": [field("n")], "matchExpressions": [GPU]}), None, "n"),
        (
            affinity({"matchFields": [field("n")]}, preferredDuringSchedulingIgnoredDuringExecution=PREFERRED),
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED}},
            "n",
        ),
        ({**affinity({"matchFields": [field("n")]}), "podAffinity": {}}, {"podAffinity": {}}, "n"),
    ],
)
def test_the_node_is_taken_out(written: Any, rest: Any, name: str) -> None:
    left, found = split_name(json.dumps(written).encode())
    assert found == name
    assert (json.loads(left) if left else None) == rest
    assert split_name(with_name(left, name)) == (left, name)


@pytest.mark.parametrize(
    "written",
    [
        affinity({"matchFields": [field("n", "m")]}),
        affinity({"matchFields": [field("n", operator="NotIn")]}),
        affinity({"matchFields": [field("n")]}, {"matchFields": [field("m")]}),
        affinity({"matchFields": [field("n"), field("n", operator="NotIn")]}),
        affinity({"matchFields": [field("n")]}, {"matchExpressions": [GPU]}),
        affinity({"matchExpressions": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
        affinity({"matchFields": "metadata.name"}),
        affinity(),
        {"podAffinity": "metadata.name"},
        ["metadata.name"],
    ],
)
def test_what_is_not_one_node_stays_as_it_is(written: Any) -> None:
    text = json.dumps(written).encode()
    assert split_name(text) == (text, "")
    assert split_name(b'{"metadata.name') == (b'{"metadata.name', "")


def test_they_share_a_program_and_go_where_they_must() -> None:
    bed = Bed()
    for number in range(4):
        bed.node(f"n{number}", cpu=1500, labels={"gpu": ""} if number % 2 else {})
    pods = [bed.pod(f"p{number}", daemon(f"n{number}")) for number in range(4)]
    assert len({pod.class_.base for pod in pods}) == 1 and len({id(pod.class_) for pod in pods}) == 4
    assert pods[0].class_ is bed.pod("again", daemon("n0")).class_
    placed = [bed.engine.place_one(pod) for pod in pods]
    assert [outcome.node for outcome in placed if isinstance(outcome, Placed)] == ["n0", "n1", "n2", "n3"]
    full = bed.engine.place_one(bed.pod("late", daemon("n2")))
    assert isinstance(full, Diagnosis) and full.plugins == {"NodeAffinity", "NodeResourcesFit"}
    assert full.message == (
        "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    gone = bed.engine.place_one(bed.pod("gone", daemon("n9")))
    assert isinstance(gone, Diagnosis)
    assert gone.message == "0/4 nodes are available: 4 node(s) didn't satisfy plugin(s) [NodeAffinity]."


def test_what_else_the_affinity_asks_for_holds() -> None:
    bed = Bed()
    bed.node("plain")
    bed.node("fast", labels={"gpu": ""})
    assert isinstance(bed.engine.place_one(bed.pod("a", daemon("fast", GPU))), Placed)
    refused = bed.engine.place_one(bed.pod("b", daemon("plain", GPU)))
    assert isinstance(refused, Diagnosis)
    assert "1 node(s) didn't match Pod's node affinity/selector" in refused.message
    # Constraints may honour the node affinity, so it is left whole for them.
    constraint = {"maxSkew": 1, "topologyKey": "gpu", "whenUnsatisfiable": "DoNotSchedule"}
    whole = pod_view("c", {**daemon("fast"), "topologySpreadConstraints": [constraint]})
    assert whole.only == "" and pod_view("d", daemon("fast")).only == "fast"


def test_other_nodes_wake_nobody() -> None:
    bed = Bed()
    bed.node("n0")
    bed.node("n1")
    plugin = next(plugin for plugin in bed.profile.plugins if isinstance(plugin, NodeAffinity))
    template = bed.pod("p", daemon("n1")).class_.template
    nodes = {node.name: node for node in bed.cluster.nodes if node is not None}
    assert plugin.helps(template, ClusterEvent.NODE_ADD, nodes["n1"])
    assert not plugin.helps(template, ClusterEvent.NODE_ADD, nodes["n0"])


@pytest.mark.parametrize(("when", "classes"), [("DoNotSchedule", 2), ("ScheduleAnyway", 1)])
def test_hard_default_constraints_count_the_one_node(when: str, classes: int) -> None:
    default = SpreadDefault(max_skew=1, topology_key="zone", when_unsatisfiable=when)
    spread = PodTopologySpread(PodTopologySpreadArgs(default_constraints=(default,), defaulting_type="List"))
    bed = Bed(extra=[spread])
    spread.changed(SERVICES, "default/web", None, Service(spec=ServiceSpec(selector={"app": "web"})))
    for name in ("a", "b"):
        bed.node(name, labels={"zone": name})
    pods = [bed.pod(f"p{number}", daemon("ab"[number // 3]), labels={"app": "web"}) for number in range(4)]
    assert len({pod.class_.base or pod.class_ for pod in pods}) == classes
    # Zone b has no such pod, but none of the first three may run there: it does not count.
    placed = [bed.engine.place_one(pod) for pod in pods]
    assert [outcome.node for outcome in placed if isinstance(outcome, Placed)] == ["a", "a", "a", "b"]
