"""Golden examples of spec 10 section 3.15 about pods among pods: G41, the texts, and the rules one by one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from koord.kube.meta import ObjectMeta, PartialObject
from koord.kube.resources import NAMESPACES, SERVICES
from koord.scheduler.config.upstreamargs import InterPodAffinityArgs, PodTopologySpreadArgs
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, Reason, ScorePlugin
from koord.scheduler.plugins.interpodaffinity import InterPodAffinity
from koord.scheduler.plugins.topologyspread import PodTopologySpread
from koord.scheduler.plugins.topologyspread.constraints import HOSTNAME, ZONE
from koord.scheduler.plugins.topologyspread.services import Service, ServiceSpec
from koord.scheduler.podview import PodView
from tests.scheduler.clusters import Bed, pod_body, pod_view, requests

WEB = {"matchLabels": {"app": "web"}}
SKEW = "node(s) didn't match pod topology spread constraints"


class Town(Bed):
    """Nodes with a zone and a host name, and pods on them; the plugin under test beside those that ship."""

    def __init__(self, plugin: PodTopologySpread | InterPodAffinity) -> None:
        super().__init__(extra=[plugin])
        self.plugin = plugin

    def host(self, name: str, zone: str = "", **more: Any) -> None:
        labels = {HOSTNAME: name, **({ZONE: zone} if zone else {})}
        self.node(name, labels=labels | more.pop("labels", {}), **more)

    def put(
        self, node: str, count: int, labels: Mapping[str, str], spec: Mapping[str, Any] | None = None, **meta: Any
    ) -> None:
        for number in range(count):
            name = f"{node}-{len(self.cluster.pods)}-{number}"
            view = pod_view(name, spec if spec is not None else requests("0", "0"), labels=labels, **meta)
            self.engine.count(self.catalogue.assigned(view, node))

    def rate(self, spec: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> dict[str, int]:
        template = self.pod("rated", requests() | dict(spec), labels=labels).class_.template
        plugin: ScorePlugin = self.plugin
        terms = plugin.score_terms(template, self.cluster)
        assert terms is not None
        window = Window.full(self.cluster)
        final = plugin.final(terms, window, self.cluster.alive[window.rows])
        return {str(self.cluster.index.name(row)): int(value) for row, value in enumerate(final)}

    def refusals(
        self, spec: Mapping[str, Any], labels: Mapping[str, str] | None = None, **meta: Any
    ) -> dict[str, tuple[str, bool]]:
        """What stands against each node, and whether taking pods away could help."""
        template = self.pod("refused", requests() | dict(spec), labels=labels, **meta).class_.template
        plugin: FilterPlugin = self.plugin
        terms = plugin.filter_terms(template, self.cluster)
        if terms is None:
            return {}
        window = Window.full(self.cluster)
        passed = plugin.filter(terms, window)
        reasons: list[Reason] = plugin.reasons(terms, window)
        told = {}
        for row in range(window.size):
            of_row = [(reason.text, reason.resolvable) for reason in reasons if reason.rows[row]]
            assert len(of_row) == (0 if passed[row] else 1), "one reason exactly where the filter refuses"
            told.update({str(self.cluster.index.name(row)): one for one in of_row})
        return told


def spread(*constraints: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB, **one} for one in constraints
        ]
    }


def terms(side: str, *required: Mapping[str, Any], preferred: Sequence[tuple[int, Mapping[str, Any]]] = ()) -> Any:
    return {
        side: {
            "requiredDuringSchedulingIgnoredDuringExecution": list(required),
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": weight, "podAffinityTerm": term} for weight, term in preferred
            ],
        }
    }


def term(key: str = ZONE, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": WEB, **more}


def three_zones(*counts: int) -> Town:
    town = Town(PodTopologySpread())
    for number, count in enumerate(counts):
        town.host(f"n{number}", f"z{number}")
        town.put(f"n{number}", count, {"app": "web"})
    return town


# PodTopologySpread ----------------------------------------------------------------------------------------------------


def test_g41_topology_spread() -> None:
    town = three_zones(2, 0, 1)
    soft = spread({"topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"})
    assert town.rate(soft) == {"n0": 0, "n1": 100, "n2": 33}


def test_soft_constraints_leave_nodes_without_the_key_at_nothing() -> None:
    town = three_zones(2, 0, 1)
    town.host("nowhere")
    soft = spread({"topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"})
    assert town.rate(soft) == {"n0": 0, "n1": 100, "n2": 33, "nowhere": 0}


def test_hard_constraint_refuses_what_would_be_too_far_ahead() -> None:
    town = three_zones(2, 1, 1)
    hard = spread({"topologyKey": ZONE})
    assert town.refusals(hard, {"app": "web"}) == {"n0": (SKEW, True)}
    assert town.refusals(hard, {"app": "other"}) == {}, "it does not count itself"
    town.host("nowhere")
    assert town.refusals(hard, {"app": "web"}) == {
        "n0": (SKEW, True),
        "nowhere": (f"{SKEW} (missing required label)", False),
    }


def test_min_domains_makes_the_least_nothing() -> None:
    town = three_zones(1, 1)
    assert town.refusals(spread({"topologyKey": ZONE, "minDomains": 2}), {"app": "web"}) == {}
    assert set(town.refusals(spread({"topologyKey": ZONE, "minDomains": 3}), {"app": "web"})) == {"n0", "n1"}


def test_policies_say_which_nodes_count() -> None:
    town = three_zones(1, 1)
    town.host("reserved", "z2", taints=[("k", "", "NoSchedule")])
    only = {"nodeSelector": {ZONE: "z0"}}
    labels = {"app": "web"}
    # The empty zone z2 is the least, unless taints are honoured.
    assert set(town.refusals(spread({"topologyKey": ZONE}), labels)) == {"n0", "n1"}
    assert town.refusals(spread({"topologyKey": ZONE, "nodeTaintsPolicy": "Honor"}), labels) == {}
    # Only z0 counts for a pod that may go nowhere else, unless its node affinity is ignored.
    assert town.refusals(spread({"topologyKey": ZONE}) | only, labels) == {}
    assert "n0" in town.refusals(spread({"topologyKey": ZONE, "nodeAffinityPolicy": "Ignore"}) | only, labels)


def test_match_label_keys_compare_with_pods_of_the_same_revision() -> None:
    town = three_zones(0, 0)
    town.put("n0", 2, {"app": "web", "pod-template-hash": "old"})
    hard = spread({"topologyKey": ZONE, "matchLabelKeys": ["pod-template-hash", "none"]})
    assert town.refusals(hard, {"app": "web", "pod-template-hash": "new"}) == {}
    assert set(town.refusals(hard, {"app": "web", "pod-template-hash": "old"})) == {"n0"}


def test_terminating_pods_and_those_of_other_namespaces_do_not_count() -> None:
    town = three_zones(0, 0)
    town.put("n0", 3, {"app": "web"}, namespace="other")
    view = pod_view("ending", requests("0", "0"), labels={"app": "web"})
    view.metadata.deletion_timestamp = "2026-03-02T09:00:00Z"
    town.engine.count(town.catalogue.assigned(view, "n0"))
    assert town.refusals(spread({"topologyKey": ZONE}), {"app": "web"}) == {}
    town.put("n0", 1, {"app": "web"})
    assert set(town.refusals(spread({"topologyKey": ZONE}), {"app": "web"})) == {"n0"}


def test_pods_that_change_on_their_node_are_counted_as_they_are() -> None:
    town = three_zones(0, 0)
    hard = spread({"topologyKey": ZONE})
    for labels, ending, refused in (
        ({"app": "web"}, False, {"n0"}),
        ({"app": "db"}, False, set()),
        ({"app": "web", "more": "x"}, False, {"n0"}),
        ({"app": "web", "more": "x"}, True, set()),
    ):
        view = pod_view("changes", requests("0", "0"), uid="one", labels=labels)
        view.metadata.deletion_timestamp = "2026-03-02T09:00:00Z" if ending else None
        town.engine.count(town.catalogue.assigned(view, "n0"))
        assert set(town.refusals(hard, {"app": "web"})) == refused
    town.engine.uncount("one")
    assert town.refusals(hard, {"app": "web"}) == {}


def test_default_constraints_for_pods_of_a_service() -> None:
    plugin = PodTopologySpread()
    town = Town(plugin)
    for name, zone in (("a", "z0"), ("b", "z0"), ("c", "z1"), ("bare", "")):
        town.host(name, zone)
    town.put("a", 1, {"app": "web"})
    labels = {"app": "web"}
    template = town.pod("p", labels=labels).class_.template
    assert plugin.score_terms(template, town.cluster) is None
    service = Service(metadata=ObjectMeta(name="web", namespace="default"), spec=ServiceSpec(selector=labels))
    epoch = plugin.epoch
    plugin.changed(SERVICES, "default/web", None, service)
    assert plugin.epoch > epoch
    # Hosts: ln(6) per pod, skew 3; zones: ln(4) per pod, skew 5. A node without a zone only lacks that term.
    # a: 1.79 + 2 + 1.39 + 4 = 9.18; b: 2 + 1.39 + 4 = 7.39; c: 6; bare: 2.
    assert town.rate({}, labels) == {"a": 100 * 2 // 9, "b": 100 * 4 // 9, "c": 100 * 5 // 9, "bare": 100}
    plugin.changed(SERVICES, "default/web", service, None)
    assert plugin.score_terms(template, town.cluster) is None


def test_a_service_of_one_pod_spreads_nothing_and_tells_no_classes_apart() -> None:
    town = Town(PodTopologySpread())
    town.host("a", "z0")
    index = "training.kubeflow.org/replica-index"
    for number in ("0", "1"):
        selector = {"job-name": "j", index: number}
        service = Service(metadata=ObjectMeta(name=f"j-{number}"), spec=ServiceSpec(selector=selector))
        for watching in town.profile.watching:
            if SERVICES in [watch.resource for watch in watching.watches()]:
                watching.changed(SERVICES, f"default/j-{number}", None, service)
    first, second = (town.pod(n, labels={"job-name": "j", index: n}).class_ for n in ("0", "1"))
    assert first is second
    assert town.plugin.score_terms(first.template, town.cluster) is None


@pytest.mark.parametrize(
    ("owner", "mark"), [("ReplicaSet", "pod-template-hash"), ("StatefulSet", "controller-revision-hash")]
)
def test_default_constraints_for_pods_of_a_controller(owner: str, mark: str) -> None:
    town = Town(PodTopologySpread())
    for name, zone in (("a", "z0"), ("b", "z1")):
        town.host(name, zone)
    body = json.loads(pod_body("p", labels={mark: "x1"}))
    body["metadata"]["ownerReferences"] = [{"kind": owner, "name": "web", "uid": "1", "controller": True}]
    view = msgspec.json.decode(json.dumps(body), type=PodView)
    town.engine.count(town.catalogue.assigned(view, "a"))
    template = town.catalogue.pod(view).class_.template
    terms_ = town.plugin.score_terms(template, town.cluster)
    assert terms_ is not None
    window = Window.full(town.cluster)
    a, b = town.plugin.final(terms_, window, town.cluster.alive[window.rows]).tolist()
    assert a < b == 100


def test_a_list_of_defaults_without_any_is_none() -> None:
    plugin = PodTopologySpread(PodTopologySpreadArgs((), "List"))
    assert [watch.resource for watch in plugin.watches()] == [NAMESPACES], "Services mean nothing then"


# InterPodAffinity -----------------------------------------------------------------------------------------------------


def test_g41_inter_pod_affinity() -> None:
    town = Town(InterPodAffinity())
    for name in ("near", "neither", "far"):
        town.host(name)
    town.put("near", 1, {"app": "web"})
    town.put("far", 1, {"app": "noisy"})
    noisy = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "noisy"}}}
    affinity = terms("podAffinity", preferred=[(50, term(HOSTNAME))]) | terms(
        "podAntiAffinity", preferred=[(20, noisy)]
    )
    assert town.rate({"affinity": affinity}) == {"near": 100, "neither": 28, "far": 0}


def test_affinity_counts_a_pod_only_if_it_matches_every_term() -> None:
    town = Town(InterPodAffinity())
    for name, zone in (("a", "z0"), ("b", "z1"), ("bare", "")):
        town.host(name, zone)
    town.put("a", 1, {"app": "web"})
    town.put("b", 1, {"app": "web", "tier": "x"})
    both = terms("podAffinity", term(), term(labelSelector={"matchLabels": {"tier": "x"}}))
    text = ("node(s) didn't match pod affinity rules", False)
    assert town.refusals({"affinity": both}) == {"a": text, "bare": text}


def test_the_first_pod_of_its_own_affinity_may_go_anywhere_with_the_label() -> None:
    town = Town(InterPodAffinity())
    for name, zone in (("a", "z0"), ("b", "z1"), ("bare", "")):
        town.host(name, zone)
    spec = {"affinity": terms("podAffinity", term())}
    assert set(town.refusals(spec, {"app": "web"})) == {"bare"}
    assert set(town.refusals(spec, {"app": "other"})) == {"a", "b", "bare"}
    first = town.engine.place_one(town.pod("first", requests() | spec, labels={"app": "web"}))
    assert isinstance(first, Placed)
    assert set(town.refusals(spec, {"app": "web"})) == {"a", "b", "bare"} - {first.node}


def test_anti_affinity_both_ways() -> None:
    town = Town(InterPodAffinity())
    for name, zone in (("a", "z0"), ("b", "z0"), ("c", "z1")):
        town.host(name, zone)
    town.put("a", 1, {"app": "web"})
    own = {"affinity": terms("podAntiAffinity", term())}
    text = "node(s) didn't match pod anti-affinity rules"
    assert town.refusals(own) == {"a": (text, True), "b": (text, True)}
    assert town.refusals({}, {"app": "web"}) == {}, "nothing concerns it"
    town.put("c", 1, {"app": "guard"}, requests("0", "0") | own)
    foreign = "node(s) didn't satisfy existing pods anti-affinity rules"
    assert town.refusals({}, {"app": "web"}) == {"c": (foreign, True)}


def test_required_affinity_of_others_draws_by_the_weight_of_the_arguments() -> None:
    for weight, expected in ((1, {"a": 100, "b": 0}), (0, None)):
        town = Town(InterPodAffinity(InterPodAffinityArgs(hard_pod_affinity_weight=weight)))
        for name in ("a", "b"):
            town.host(name, f"z-{name}")
        town.put("a", 1, {"app": "fan"}, requests("0", "0") | {"affinity": terms("podAffinity", term())})
        if expected is not None:
            assert town.rate({}, {"app": "web"}) == expected
        else:
            template = town.pod("p", labels={"app": "web"}).class_.template
            assert town.plugin.score_terms(template, town.cluster) is None


def test_preferred_terms_of_existing_pods_may_be_ignored() -> None:
    liked = requests("0", "0") | {"affinity": terms("podAffinity", preferred=[(7, term())])}
    for ignore in (False, True):
        town = Town(InterPodAffinity(InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=ignore)))
        town.host("a", "z0")
        town.put("a", 1, {}, liked)
        template = town.pod("p", labels={"app": "web"}).class_.template
        assert (town.plugin.score_terms(template, town.cluster) is None) is ignore


def test_namespace_selectors_follow_the_labels_of_namespaces() -> None:
    plugin = InterPodAffinity()
    town = Town(plugin)
    for name in ("a", "b"):
        town.host(name, f"z-{name}")
    town.put("a", 1, {"app": "web"}, namespace="other")
    red = {"affinity": terms("podAntiAffinity", term(namespaceSelector={"matchLabels": {"team": "red"}}))}
    assert town.refusals(red) == {}
    old = None
    for team, refused in (("red", {"a"}), ("blue", set()), ("red", {"a"})):
        new = PartialObject(metadata=ObjectMeta(name="other", labels={"team": team}))
        for watching in town.profile.watching:  # one of them keeps the books of all
            if NAMESPACES in [watch.resource for watch in watching.watches()]:
                watching.changed(NAMESPACES, "other", old, new)
        old = new
        assert set(town.refusals(red)) == refused
    assert set(town.refusals({"affinity": terms("podAntiAffinity", term(namespaceSelector={}))})) == {"a"}
    assert set(town.refusals({"affinity": terms("podAntiAffinity", term(namespaces=["other"]))})) == {"a"}


def test_labels_of_the_pod_itself_narrow_whom_its_terms_mean() -> None:
    town = Town(InterPodAffinity())
    for name in ("a", "b"):
        town.host(name)
    town.put("a", 1, {"app": "web", "tenant": "red"})
    town.put("b", 1, {"app": "web", "tenant": "blue"})
    same = {"affinity": terms("podAntiAffinity", term(HOSTNAME, matchLabelKeys=["tenant"]))}
    other = {"affinity": terms("podAntiAffinity", term(HOSTNAME, mismatchLabelKeys=["tenant"]))}
    assert set(town.refusals(same, {"tenant": "red"})) == {"a"}
    assert set(town.refusals(other, {"tenant": "red"})) == {"b"}
    assert set(town.refusals(same, {})) == {"a", "b"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"affinity": terms("podAffinity", {"topologyKey": ZONE, "labelSelector": {"matchExpressions": [
                {"key": "a", "operator": "Near", "values": ["b"]}]}})},
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector."
            'matchExpressions[0].operator: must be In, NotIn, Exists or DoesNotExist, got "Near"',
        ),
        (
            {"affinity": terms("podAntiAffinity", preferred=[(1, {"labelSelector": WEB})])},
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm."
            "topologyKey: must not be empty",
        ),
        (
            spread({"topologyKey": ZONE, "maxSkew": 0}),
            "spec.topologySpreadConstraints[0].maxSkew: must be greater than zero, got 0",
        ),
        (
            spread({"topologyKey": ZONE}, {"topologyKey": ZONE, "whenUnsatisfiable": "Later"}),
            "spec.topologySpreadConstraints[1].whenUnsatisfiable: must be DoNotSchedule or ScheduleAnyway, got "
            '"Later"',
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(spec: Mapping[str, Any], message: str) -> None:
    plugin = InterPodAffinity() if "affinity" in spec else PodTopologySpread()
    town = Town(plugin)
    town.host("a", "z0")
    outcome = town.engine.place_one(town.pod("p", requests() | dict(spec)))
    assert isinstance(outcome, Diagnosis)
    assert outcome.message == f"0/1 nodes are available: {message}."
    assert not outcome.error
    assert isinstance(town.engine.place_one(town.pod("q")), Placed), "the loop goes on"
