"""Host ports, images, all of NodeResourcesFit's arguments, scarce resources, an affinity of the operator's."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.kube.pods import NodeAffinity as Affinity
from koord.scheduler.config.koordinatorargs import NodeResourcesFitPlusArgs, ScarceResourceAvoidanceArgs
from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.balanced import BalancedSettings, NodeResourcesBalancedAllocation
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit, ShapePoint, resource_weights
from koord.scheduler.plugins.fitplus import NodeResourcesFitPlus
from koord.scheduler.plugins.imagelocality import ImageLocality
from koord.scheduler.plugins.nodeports import NodePorts
from koord.scheduler.plugins.scarce import ScarceResourceAvoidance
from koord.scheduler.plugins.tolerations import TaintToleration
from tests.reference.scheduler.objects import Node
from tests.reference.scheduler.rules import Rules
from tests.scheduler.comparison.drawing import THING, clusters, examples, node, node_shapes, rarely, specs, steps, terms
from tests.scheduler.comparison.pair import Kind, Pair, rules_of

MIB = 1 << 20
IMAGES = ("app:latest", "registry:5000/app:latest", "app:1", "tools@sha256:abc")
AS_WRITTEN = ("app", "registry:5000/app", "app:1", "tools@sha256:abc", "unknown")
OTHER = "other.io/part"
_typed = msgspec.json.Encoder().encode

image_sets = st.dictionaries(
    st.sampled_from(IMAGES), st.sampled_from((0, 20 * MIB, 23 * MIB + 1, 300 * MIB, 3000 * MIB)), max_size=3
)
ports = st.builds(
    lambda port, protocol, address: {"containerPort": 1, "hostPort": port, "protocol": protocol, "hostIP": address},
    st.sampled_from((80, 81)),
    st.sampled_from(("TCP", "UDP")),
    st.sampled_from(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")),
)


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    """Pods with images and, now and then, host ports."""
    spec = draw(specs())
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        container["image"] = draw(st.sampled_from(AS_WRITTEN))
        if draw(st.booleans()):
            container["ports"] = draw(st.lists(ports, min_size=1, max_size=2))
    return {"spec": spec}


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    """What the plugins are told, under the names of :class:`Rules`."""
    points = draw(st.lists(st.integers(0, 100), min_size=1, max_size=4, unique=True).map(sorted))
    extra = draw(st.booleans())
    return {
        "strategy": draw(st.sampled_from(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))),
        "resources": {"cpu": draw(st.integers(1, 5)), "memory": 3} | ({THING: 2} if extra else {}),
        "shape": [(point, draw(st.sampled_from((0, 3, 10)))) for point in points],
        "ignored_resources": draw(st.sampled_from((set(), {THING}, {"cpu"}))),
        "ignored_groups": draw(st.sampled_from((set(), {"example.com"}))),
        "balanced": ("cpu", "memory", THING) if extra else ("cpu",),
        "balanced_relative": draw(st.booleans()),
        "added_affinity": draw(st.lists(terms, min_size=1, max_size=2)) if draw(rarely(4)) else None,
        "added_preferred": draw(
            st.lists(
                st.builds(lambda weight, term: {"weight": weight, "preference": term}, st.integers(1, 9), terms),
                max_size=2,
            )
        ),
        "fit_plus": draw(
            st.dictionaries(
                st.sampled_from(("cpu", "memory", THING, OTHER)),
                st.tuples(st.sampled_from(("LeastAllocated", "MostAllocated")), st.integers(1, 4)),
            )
        ),
        "scarce": draw(st.sampled_from(((THING,), ("memory", OTHER), ()))),
    }


def _under(told: dict[str, Any], weights: dict[str, int]) -> tuple[Callable[[], Profile], Rules]:
    added = None
    if told["added_affinity"] is not None or told["added_preferred"]:
        body: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": told["added_preferred"]}
        if told["added_affinity"] is not None:
            body["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": told["added_affinity"]}
        added = msgspec.json.decode(_typed(body), type=Affinity)
    plus = {name: {"type": kind, "weight": weight} for name, (kind, weight) in told["fit_plus"].items()}

    def profile() -> Profile:
        plugins = [
            TaintToleration(),
            NodeAffinity(added),
            NodePorts(),
            NodeResourcesFit(
                FitSettings(
                    told["strategy"],
                    resource_weights(list(told["resources"].items())),
                    tuple(ShapePoint(*point) for point in told["shape"]),
                    tuple(told["ignored_resources"]),
                    tuple(told["ignored_groups"]),
                )
            ),
            NodeResourcesBalancedAllocation(BalancedSettings(told["balanced"], told["balanced_relative"])),
            ImageLocality(),
            NodeResourcesFitPlus(msgspec.convert({"resources": plus}, NodeResourcesFitPlusArgs)),
            ScarceResourceAvoidance(ScarceResourceAvoidanceArgs(told["scarce"])),
        ]
        return Profile(plugins, weights)

    return profile, rules_of(profile(), **told)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    arguments(),
    st.dictionaries(st.sampled_from(("ImageLocality", "NodeResourcesFitPlus", "NodeAffinity")), st.integers(0, 9)),
    clusters(most=12),
    st.lists(image_sets, min_size=1, max_size=3),
    st.lists(kinds(), min_size=1, max_size=4),
    steps,
    st.lists(node_shapes, min_size=1, max_size=3),
)
def test_like_the_reference(
    told: dict[str, Any],
    weights: dict[str, int],
    nodes: list[Node],
    images: list[dict[str, int]],
    kinds: list[Kind],
    history: list[tuple[str, int, int]],
    shapes: list[dict[str, Any]],
) -> None:
    pair = Pair(*_under(told, weights), twin=True)
    for number, one in enumerate(nodes):
        one.images = images[number % len(images)]
        pair.set_node(one)

    def make(name: str, which: int) -> Node:
        made = node(name, shapes[which % len(shapes)])
        made.images = images[(which + 1) % len(images)]
        return made

    pair.follow(history, kinds, make)
