"""PodTopologySpread and InterPodAffinity like the reference: pods, nodes, namespaces and services come and go."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.kube.meta import ObjectMeta, PartialObject
from koord.kube.resources import NAMESPACES, SERVICES
from koord.scheduler.config.upstreamargs import InterPodAffinityArgs, PodTopologySpreadArgs, SpreadDefault
from koord.scheduler.framework.contract import WatchPlugin
from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.fit import NodeResourcesFit
from koord.scheduler.plugins.interpodaffinity import InterPodAffinity
from koord.scheduler.plugins.tolerations import TaintToleration
from koord.scheduler.plugins.topologyspread import PodTopologySpread
from koord.scheduler.plugins.topologyspread.constraints import HOSTNAME, ZONE
from koord.scheduler.plugins.topologyspread.services import Service, ServiceSpec
from tests.reference.scheduler.objects import Node
from tests.reference.scheduler.rules import Rules
from tests.scheduler.comparison.drawing import examples, few
from tests.scheduler.comparison.pair import Kind, Pair

KEYS = (ZONE, HOSTNAME, "rack")
SPACES = ("default", "other")
WEIGHTS = {"PodTopologySpread": 2, "InterPodAffinity": 2, "NodeAffinity": 2, "TaintToleration": 3}

selectors = st.sampled_from(
    (
        {"matchLabels": {"app": "a"}},
        {"matchLabels": {"app": "b"}},
        {"matchLabels": {"app": "a", "tier": "x"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
        {},
        None,
    )
)
pod_labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from("ab"), "tier": st.sampled_from("xy"), "index": st.sampled_from("123")}
)


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], "")}


affinity_terms = st.builds(
    lambda selector, key, spaces, by_labels, same, other: _present(
        topologyKey=key,
        labelSelector=selector,
        namespaces=spaces,
        namespaceSelector=by_labels,
        # The API takes these with a selector only.
        matchLabelKeys=same if selector is not None else None,
        mismatchLabelKeys=other if selector is not None else None,
    ),
    selectors,
    st.sampled_from(KEYS),
    few(st.sampled_from(SPACES)),
    st.sampled_from((None, None, {}, {"matchLabels": {"team": "red"}})),
    few(st.just("tier"), 1),
    few(st.just("index"), 1),
)
weighted = st.builds(
    lambda weight, term: {"weight": weight, "podAffinityTerm": term}, st.sampled_from((1, 7, 100)), affinity_terms
)
sides = st.builds(
    lambda required, preferred: _present(
        requiredDuringSchedulingIgnoredDuringExecution=required,
        preferredDuringSchedulingIgnoredDuringExecution=preferred,
    ),
    few(affinity_terms),
    few(weighted),
)
spreads = st.builds(
    lambda key, skew, action, selector, least, affinity, taints, same: _present(
        topologyKey=key,
        maxSkew=skew,
        whenUnsatisfiable=action,
        labelSelector=selector,
        minDomains=least if action == "DoNotSchedule" else None,
        nodeAffinityPolicy=affinity,
        nodeTaintsPolicy=taints,
        matchLabelKeys=same if selector is not None else None,
    ),
    st.sampled_from(KEYS),
    st.integers(1, 3),
    st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
    selectors,
    st.sampled_from((None, None, 1, 2, 4)),
    st.sampled_from(("", "Honor", "Ignore")),
    st.sampled_from(("", "Honor", "Ignore")),
    few(st.just("tier"), 1),
)


@st.composite
def kinds(draw: st.DrawFn) -> dict[str, Any]:
    """A pod with some of everything."""
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    affinity = _present(podAffinity=draw(sides) or None, podAntiAffinity=draw(sides) or None)
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {ZONE: "a"}
    if draw(st.integers(0, 5)) == 0:
        names = draw(st.sampled_from((["n1"], ["n0", "n1", "n2"])))
        fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]
        terms = {"nodeSelectorTerms": [{"matchFields": [one]} for one in fields]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if draw(st.integers(0, 1)) and affinity:
        spec["affinity"] = affinity
    if draw(st.integers(0, 1)):
        spec["topologySpreadConstraints"] = draw(st.lists(spreads, min_size=1, max_size=3))
    if draw(st.integers(0, 1)):
        spec["tolerations"] = [{"key": "k", "operator": "Exists"}]
    return {"spec": spec, "labels": draw(pod_labels), "namespace": draw(st.sampled_from(SPACES))}


nodes = st.builds(
    lambda cpu, labels, tainted: (cpu, labels, tainted),
    st.sampled_from(("1", "3", "8")),
    st.fixed_dictionaries({}, optional={ZONE: st.sampled_from("abc"), "rack": st.sampled_from("12")}),
    st.sampled_from(("", "", "NoSchedule", "PreferNoSchedule")),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(("place", "place", "place", "end", "set", "remove", "namespace", "service")),
        st.integers(0, 9),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=10,
)


class Beside(Pair):
    """A pair that knows namespaces and services."""

    def tell(self, resource: Any, key: str, old: Any, new: Any) -> None:
        """An object changed."""
        for side in self._sides():
            for plugin in side.engine.plugins:
                if isinstance(plugin, WatchPlugin) and resource in [watch.resource for watch in plugin.watches()]:
                    plugin.changed(resource, key, old, new)

    def set_namespace(self, name: str, labels: dict[str, str]) -> None:
        """A namespace comes or has other labels."""
        before = self.world.namespaces.get(name)
        old = None if before is None else PartialObject(metadata=ObjectMeta(name=name, labels=before))
        self.tell(NAMESPACES, name, old, PartialObject(metadata=ObjectMeta(name=name, labels=labels)))
        self.world.namespaces[name] = labels

    def set_service(self, name: str, namespace: str, selector: dict[str, str] | None) -> None:
        """A service comes, changes, or (None) goes."""
        before = self.world.services.pop(name, None)
        old = None if before is None else Service(spec=ServiceSpec(selector=before[1]))
        new = None if selector is None else Service(spec=ServiceSpec(selector=selector))
        self.tell(SERVICES, f"{namespace}/{name}", old, new)
        if selector is not None:
            self.world.services[name] = (namespace, selector)


def _node(number: int, shape: tuple[str, dict[str, str], str]) -> Node:
    cpu, labels, effect = shape
    name = f"n{number}"
    own = {HOSTNAME: name} if number % 5 else {}  # some node lacks even this label
    taints = [{"key": "k", "effect": effect}] if effect else []
    return Node(name, {"cpu": cpu, "memory": "64Gi", "pods": "6"}, {**labels, **own}, taints)


defaults = st.sampled_from(
    (
        None,
        [],
        [{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        [
            {"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"},
            {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
        ],
    )
)
SELECTORS: tuple[dict[str, str] | None, ...] = ({"app": "a"}, {"tier": "x"}, {"app": "b", "tier": "y"}, {}, None)


def _under(hard_weight: int, ignore: bool, default: list[dict[str, Any]] | None) -> tuple[Any, Rules]:
    spread = PodTopologySpreadArgs(defaulting_type="System")
    if default is not None:
        given_ = tuple(SpreadDefault(d["maxSkew"], d["topologyKey"], d["whenUnsatisfiable"]) for d in default)
        spread = PodTopologySpreadArgs(given_, "List")

    def profile() -> Profile:
        plugins = [
            TaintToleration(),
            NodeAffinity(),
            NodeResourcesFit(),
            PodTopologySpread(spread),
            InterPodAffinity(InterPodAffinityArgs(hard_weight, ignore)),
        ]
        return Profile(plugins, WEIGHTS)

    names = [plugin.name for plugin in profile().plugins]
    rules = Rules(names, WEIGHTS, hard_weight=hard_weight, ignore_preferred=ignore, default_constraints=default)
    return profile, rules


@settings(max_examples=examples(250), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.sampled_from((0, 1, 1, 50)),
    st.booleans(),
    defaults,
    st.lists(nodes, min_size=1, max_size=9),
    st.lists(kinds(), min_size=1, max_size=4),
    steps,
)
def test_like_the_reference(
    hard_weight: int,
    ignore: bool,
    default: list[dict[str, Any]] | None,
    shapes: list[tuple[str, dict[str, str], str]],
    drawn: list[Kind],
    history: list[tuple[str, int, int]],
) -> None:
    profile, rules = _under(hard_weight, ignore, default)
    pair = Beside(profile, rules)
    for number, shape in enumerate(shapes):
        pair.set_node(_node(number, shape))
    numbers = iter(range(10_000))
    for what, which, times in history:
        if what == "place":
            pair.place([(f"p{next(numbers)}", drawn[i % len(drawn)]) for i in range(which, which + times)])
        elif what == "end":
            for _ in range(min(times, len(pair.names))):
                pair.remove_pod(pair.names[which % len(pair.names)])
        elif what == "set":
            pair.set_node(_node(which, shapes[times % len(shapes)]))
        elif what == "namespace":
            pair.set_namespace(SPACES[which % 2], {"team": ("red", "blue")[times % 2]})
        elif what == "service":
            pair.set_service(f"s{which % 3}", SPACES[which % 3 % 2], SELECTORS[times])
        elif f"n{which}" in pair.world.nodes:
            pair.remove_node(f"n{which}")
        for kind in drawn:
            pair.check(kind)
