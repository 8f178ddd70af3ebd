"""Same feasible nodes, same totals, same texts, same choices as the reference, whatever happened before."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.balanced import BalancedSettings
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.fit import FitSettings, resource_weights
from koord.scheduler.plugins.profile import default_profile
from tests.reference.scheduler.filters import FILTERS
from tests.reference.scheduler.objects import Node
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.scores import SCORES, WHOLE
from tests.scheduler.comparison.drawing import THING, clusters, examples, kinds, node, node_shapes, steps
from tests.scheduler.comparison.pair import Kind, Pair, rules_of

# Compared with references of their own, next to this file and in tests/scheduler.
ELSEWHERE = {
    "ElasticQuota",
    "Coscheduling",
    "DynamicResources",
    "LoadAwareScheduling",
    "NodeNUMAResource",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
}

Fit = tuple[str, dict[str, int]]
fits = st.tuples(
    st.sampled_from(("LeastAllocated", "MostAllocated")),
    st.sampled_from(({"cpu": 1, "memory": 1}, {"cpu": 1, "memory": 2, THING: 3}, {THING: 5})),
)


def _judging(profile: Profile) -> set[str]:
    """Plugins that have a say in where a pod goes."""
    return {plugin.name for plugin in profile.filters} | {plugin.name for plugin, _ in profile.scores}


def _under(fit: Fit) -> tuple[Callable[[], Profile], Rules]:
    """The profile that ships, less what is compared elsewhere."""
    strategy, resources = fit
    balanced = ("cpu", "memory", THING) if THING in resources else ("cpu", "memory")
    left_out = _judging(default_profile(Coscheduling())) & ELSEWHERE

    def profile() -> Profile:
        return default_profile(
            Coscheduling(),
            fit=FitSettings(strategy=strategy, resources=resource_weights(list(resources.items()))),  # type: ignore[arg-type]
            balanced=BalancedSettings(balanced),
            disabled=frozenset(left_out),
        )

    return profile, rules_of(profile(), strategy=strategy, resources=resources, balanced=balanced)


def test_every_plugin_of_the_shipped_profile_is_compared() -> None:
    assert _judging(default_profile(Coscheduling())) - ELSEWHERE <= set(FILTERS) | set(SCORES) | set(WHOLE)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(fits, clusters(), st.lists(kinds, min_size=1, max_size=4), steps, st.lists(node_shapes, min_size=1, max_size=3))
def test_like_the_reference(
    fit: Fit, nodes: list[Node], kinds: list[Kind], history: list[tuple[str, int, int]], shapes: list[dict[str, Any]]
) -> None:
    pair = Pair(*_under(fit))
    for one in nodes:
        pair.set_node(one)
    pair.follow(history, kinds, lambda name, which: node(name, shapes[which % len(shapes)]))


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(fits, clusters(), st.lists(kinds, min_size=1, max_size=4), steps, st.lists(node_shapes, min_size=1, max_size=3))
def test_batches_are_pods_one_by_one_and_what_is_kept_is_what_a_new_look_finds(
    fit: Fit, nodes: list[Node], kinds: list[Kind], history: list[tuple[str, int, int]], shapes: list[dict[str, Any]]
) -> None:
    pair = Pair(*_under(fit), twin=True)
    for one in nodes:
        pair.set_node(one)
    pair.follow(history, kinds, lambda name, which: node(name, shapes[which % len(shapes)]))
    for kind in kinds:
        pair.check_kept(kind)
    assert pair.twin is not None
    assert pair.side.cluster.usage.tobytes() == pair.twin.cluster.usage.tobytes()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(("LeastAllocated", "MostAllocated")),
    clusters(most=12),
    st.lists(kinds, min_size=1, max_size=4),
    steps,
    st.lists(node_shapes, min_size=1, max_size=3),
)
def test_resources_without_a_column(
    strategy: str,
    nodes: list[Node],
    kinds: list[Kind],
    history: list[tuple[str, int, int]],
    shapes: list[dict[str, Any]],
) -> None:
    """Only pods, cpu and memory have one here (and what no node offers)."""
    pair = Pair(*_under((strategy, {"cpu": 1, "memory": 1})), twin=True, columns=4)
    for one in nodes:
        pair.set_node(one)
    pair.follow(history, kinds, lambda name, which: node(name, shapes[which % len(shapes)]))
