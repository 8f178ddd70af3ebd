"""Victims like the reference's, where ports, disks, claims, spreading and affinity decide who has to go."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.kube.resources import PERSISTENT_VOLUME_CLAIMS
from koord.kube.storage import PersistentVolumeClaim
from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.fit import NodeResourcesFit
from koord.scheduler.plugins.interpodaffinity import InterPodAffinity
from koord.scheduler.plugins.nodeports import NodePorts
from koord.scheduler.plugins.tolerations import TaintToleration
from koord.scheduler.plugins.topologyspread import PodTopologySpread
from koord.scheduler.plugins.topologyspread.constraints import HOSTNAME, ZONE
from koord.scheduler.plugins.volumerestrictions import VolumeRestrictions
from koord.scheduler.preemption.budgets import Budgets, BudgetView
from koord.scheduler.preemption.search import Search
from tests.reference.scheduler.filters import FILTERS
from tests.reference.scheduler.objects import Node
from tests.reference.scheduler.placing import judge
from tests.reference.scheduler.preempting import Budget, candidates
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.volumes import COMPLETED, StorageWorld, volume_restrictions
from tests.scheduler.comparison.drawing import examples, few
from tests.scheduler.comparison.pair import Kind, model, view
from tests.scheduler.comparison.test_pods_against_reference import (
    SPACES,
    Beside,
    _node,
    kinds,
    nodes,
    pod_labels,
)

PLUGINS = (
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    PodTopologySpread,
    InterPodAffinity,
)
ports = st.builds(
    lambda number, address: {"hostPort": number, "containerPort": number} | ({"hostIP": address} if address else {}),
    st.sampled_from((80, 81)),
    st.sampled_from(("", "10.0.0.1", "10.0.0.2")),
)
disks = st.builds(
    lambda name, only: {"name": "d", "gcePersistentDisk": {"pdName": name, "readOnly": only}},
    st.sampled_from("de"),
    st.booleans(),
)
shared = st.just({"name": "c", "persistentVolumeClaim": {"claimName": "alone"}})


@st.composite
def ranked(draw: st.DrawFn) -> dict[str, Any]:
    """A kind of pods with a priority, and some of everything."""
    kind = draw(kinds())
    spec = kind["spec"]
    spec["priority"] = draw(st.integers(0, 3))
    spec["containers"][0]["resources"]["requests"]["cpu"] = draw(st.sampled_from(("0", "1", "2")))
    if draw(st.integers(0, 2)) == 0:
        spec["containers"][0]["ports"] = draw(st.lists(ports, min_size=1, max_size=2))
    if draw(st.integers(0, 2)) == 0:
        spec["volumes"] = [draw(st.one_of(disks, shared))]
    return kind


def _profile() -> tuple[Profile, Rules]:
    profile = Profile([plugin() for plugin in PLUGINS], {})
    return profile, Rules([plugin.name for plugin in PLUGINS], {})


def _tell_claims(pair: Beside, world: StorageWorld) -> None:
    for namespace in SPACES:
        body = {
            "metadata": {"name": "alone", "namespace": namespace, "uid": namespace, "annotations": {COMPLETED: "yes"}},
            "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "held"},
            "status": {"phase": "Bound"},
        }
        world.volumes["held"] = {"metadata": {"name": "held"}, "spec": {}}
        world.claims[f"{namespace}/alone"] = body
        claim = msgspec.convert(body, PersistentVolumeClaim)
        pair.tell(PERSISTENT_VOLUME_CLAIMS, f"{namespace}/alone", None, claim)


def _budgets(drawn: list[tuple[str, dict[str, str], int]]) -> tuple[Budgets, list[Budget]]:
    budgets = Budgets()
    plain = []
    for number, (namespace, labels, allowed) in enumerate(drawn):
        if labels:
            body = {
                "metadata": {"name": str(number), "namespace": namespace},
                "spec": {"selector": {"matchLabels": labels}},
                "status": {"disruptionsAllowed": allowed},
            }
            budgets.set(msgspec.convert(body, BudgetView))
            plain.append(Budget(namespace, labels, allowed))
    return budgets, plain


FILTERS.setdefault("VolumeRestrictions", volume_restrictions)


@settings(max_examples=examples(120), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(nodes, min_size=1, max_size=5),
    st.lists(ranked(), min_size=2, max_size=5),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=3, max_size=14),
    few(st.tuples(st.sampled_from(SPACES), pod_labels, st.integers(0, 2))),
)
def test_victims_like_the_reference(
    shapes: list[tuple[str, dict[str, str], str]],
    drawn: list[Kind],
    standing: list[tuple[int, int]],
    budgets_drawn: list[tuple[str, dict[str, str], int]],
) -> None:
    profile, rules = _profile()
    pair = Beside(lambda: profile, rules)
    world = StorageWorld()
    pair.world = world
    _tell_claims(pair, world)
    for number, shape in enumerate(shapes):
        pair.set_node(_node(number, shape))
    for number, (which, node) in enumerate(standing):
        pair.bind(f"p{number}", drawn[which % len(drawn)], f"n{node % len(shapes)}")
    budgets, plain = _budgets(budgets_drawn)
    for kind in drawn:
        raised = {**kind, "spec": {**kind["spec"], "priority": kind["spec"]["priority"] + 2}}
        if not judge(model("asked", raised), world, rules).totals:
            _compare(pair, raised, budgets, plain)


def _compare(pair: Beside, wanted: Kind, budgets: Budgets, plain: list[Budget]) -> None:
    expected, text = candidates(model("asked", wanted), pair.world, pair.rules, plain)
    side = pair.side
    pod = side.catalogue.renewed(side.catalogue.pod(view("asked", wanted)))
    before, end = side.cluster.usage.copy(), side.cluster.journal.end
    found = Search(side.engine, budgets).find(pod)
    assert (side.cluster.usage == before).all()
    assert side.cluster.journal.end == end, "no book is touched"
    if not expected:
        assert found == text
        return
    assert not isinstance(found, str), (found, expected)
    one = expected[found.node]
    assert [pod.ref.uid for pod in found.victims] == [pod.uid for pod in one.victims]
    assert len(found.violating) == one.violating
    assert one.cost == min(each.cost for each in expected.values())
    pair.check(wanted)


hard = st.builds(
    lambda key, skew, least, selector: {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        "minDomains": least,
    },
    st.sampled_from((ZONE, HOSTNAME)),
    st.integers(1, 2),
    st.integers(1, 4),
    st.sampled_from(({"matchLabels": {"app": "a"}}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]})),
)


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=2, max_size=4),
    st.lists(st.tuples(st.sampled_from("aab"), st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=12),
    st.lists(hard, min_size=1, max_size=2),
    st.sampled_from("ab"),
)
def test_victims_of_spreading_like_the_reference(
    zones: list[tuple[str, bool]], standing: list[tuple[str, int, int]], constraints: list[dict[str, Any]], app: str
) -> None:
    profile, rules = _profile()
    pair = Beside(lambda: profile, rules)
    pair.world = StorageWorld()
    for number, (zone, closed) in enumerate(zones):  # one that takes nobody counts all the same
        name = f"n{number}"
        taints = [{"key": "other", "effect": "NoSchedule"}] if closed else []
        pair.set_node(Node(name, {"cpu": "8", "memory": "64Gi", "pods": "20"}, {ZONE: zone, HOSTNAME: name}, taints))
    for number, (label, rank, node) in enumerate(standing):
        kind = {"spec": {"containers": [{"name": "c"}], "priority": rank}, "labels": {"app": label}}
        pair.bind(f"p{number}", kind, f"n{node % len(zones)}")
    spec = {"containers": [{"name": "c"}], "priority": 2, "topologySpreadConstraints": constraints}
    wanted = {"spec": spec, "labels": {"app": app}}
    if not judge(model("asked", wanted), pair.world, rules).totals:
        _compare(pair, wanted, *_budgets([]))
