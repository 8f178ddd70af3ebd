"""Random nodes, pods and histories, of small alphabets so that classes, ties and full nodes come often."""

import os
from typing import Any

from hypothesis import strategies as st

from tests.reference.scheduler.objects import Node

EXAMPLES = float(os.environ.get("KOORD_EXAMPLES", "1"))
"""How many times as many examples as the suite can afford are tried."""
THING = "example.com/thing"
ZONE, RANK, DISK = "topology.kubernetes.io/zone", "rank", "disk"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def examples(count: int) -> int:
    """``count`` times :data:`EXAMPLES`."""
    return max(1, int(count * EXAMPLES))


def few(strategy: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[list[Any]]:
    """None to ``most``, none as often as not."""
    return st.one_of(st.just([]), st.lists(strategy, max_size=most))


def rarely(one_in: int) -> st.SearchStrategy[bool]:
    """True once in so many times."""
    return st.sampled_from((False,) * (one_in - 1) + (True,))


taints = st.builds(
    lambda key, value, effect: {"key": key, "effect": effect} | ({"value": value} if value else {}),
    st.sampled_from(("k1", "k2", "k3")),
    st.sampled_from(("", "v")),
    st.sampled_from(("PreferNoSchedule", *EFFECTS)),
)
node_shapes = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(("16", "64", "4", "33", "7", "3999m", "8", "1", "0")),
        "memory": st.sampled_from(("64Gi", "250G", "16Gi", "8589946937", "33Gi", "20G", "1Gi", "0")),
        "pods": st.sampled_from(("110", "20", "110", "110", "5", "2", "0")),
        "thing": st.sampled_from(("3", "8", "", "0")),
        "labels": st.fixed_dictionaries(
            {},
            optional={
                ZONE: st.sampled_from(("a", "b", "c")),
                RANK: st.sampled_from(("1", "5", "x", "-3")),
                DISK: st.sampled_from(("", "ssd")),
            },
        ),
        "taints": few(taints, 3),
        "cordoned": rarely(10),
    }
)


def node(name: str, shape: dict[str, Any]) -> Node:
    """A node of a drawn shape."""
    allocatable = {"cpu": shape["cpu"], "memory": shape["memory"], "pods": shape["pods"]}
    if shape["thing"]:
        allocatable[THING] = shape["thing"]
    return Node(name, allocatable, dict(shape["labels"]), shape["taints"], shape["cordoned"])


expressions = st.sampled_from(
    (
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
        {"key": ZONE, "operator": "NotIn", "values": ["a"]},
        {"key": DISK, "operator": "Exists"},
        {"key": DISK, "operator": "DoesNotExist"},
        {"key": RANK, "operator": "Gt", "values": ["0"]},
        {"key": RANK, "operator": "Lt", "values": ["4"]},
    )
)
fields = st.sampled_from(
    (
        {"key": "metadata.name", "operator": "In", "values": ["n1"]},
        {"key": "metadata.name", "operator": "In", "values": ["n0"]},
        {"key": "metadata.name", "operator": "NotIn", "values": ["n0"]},
    )
)
terms = st.builds(
    lambda labels, names: {
        key: found for key, found in (("matchExpressions", labels), ("matchFields", names)) if found
    },
    st.lists(expressions, max_size=2),
    few(fields),
)
broken_terms = st.builds(
    lambda good, bad: good | bad,
    terms,
    st.sampled_from(
        (
            {"matchExpressions": [{"key": RANK, "operator": "Gt", "values": ["abc"]}]},
            {"matchExpressions": [{"key": RANK, "operator": "Gt", "values": ["0", "1"]}]},
            {"matchExpressions": [{"key": DISK, "operator": "Exists", "values": ["ssd"]}]},
            {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": []}]},
            {"matchExpressions": [{"key": ZONE, "operator": "Near", "values": ["a"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0", "n1"]}]},
            {"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n0"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]},
        )
    ),
)
"""Terms that the API server lets through (or an older one did) and that mean nothing."""
tolerations = st.sampled_from(
    (
        {"key": "k1", "operator": "Exists"},
        {"key": "k1", "value": "v"},
        {"key": "k2", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "PreferNoSchedule"},
        {"operator": "Exists"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    )
)
_CPU = ("0", "100m", "333m", "1", "2500m", "1500u")
_MEMORY = ("0", "1Mi", "777Mi", "1Gi", "8Gi", "1000001")


def resources(*, thing: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Requests, and limits that stand in for them."""
    amounts: dict[str, Any] = {"cpu": st.sampled_from(_CPU), "memory": st.sampled_from(_MEMORY)}
    requests = dict(amounts)
    if thing:
        requests[THING] = st.sampled_from(("1", "2"))
    return st.builds(
        lambda request, limit: {key: found for key, found in (("requests", request), ("limits", limit)) if found},
        st.fixed_dictionaries({}, optional=requests),
        st.one_of(st.just({}), st.fixed_dictionaries({}, optional=amounts)),
    )


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """What a pod asks for and where it may go."""
    containers = [
        {"name": f"c{i}", "resources": one} for i, one in enumerate(draw(st.lists(resources(), min_size=1, max_size=2)))
    ]
    spec: dict[str, Any] = {"containers": containers}
    if draw(rarely(3)):
        starting = draw(st.lists(st.tuples(resources(), st.booleans()), min_size=1, max_size=3))
        spec["initContainers"] = [
            {"name": f"i{i}", "resources": one} | ({"restartPolicy": "Always"} if stays else {})
            for i, (one, stays) in enumerate(starting)
        ]
    if draw(rarely(10)):
        spec["resources"] = {"requests": draw(resources(thing=False)).get("requests", {})}
    if draw(rarely(10)):
        spec["overhead"] = {"cpu": "250m", "memory": "120Mi"}
    if found := draw(st.lists(tolerations, max_size=3)):
        spec["tolerations"] = found
    if draw(rarely(6)):
        spec["nodeSelector"] = {ZONE: draw(st.sampled_from(("a", "b")))}
    affinity: dict[str, Any] = {}
    if draw(rarely(5)):
        required = draw(st.lists(st.one_of(terms, terms, broken_terms), min_size=1, max_size=2))
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    if draw(rarely(3)):
        weighted = st.tuples(st.sampled_from((1, 7, 100)), terms)
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": term} for weight, term in draw(st.lists(weighted, min_size=1, max_size=3))
        ]
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    return spec


kinds = st.builds(lambda spec: {"spec": spec}, specs())


@st.composite
def clusters(draw: st.DrawFn, most: int = 40) -> list[Node]:
    """Up to ``most`` nodes of up to four shapes, in a random order."""
    shapes = draw(st.lists(node_shapes, min_size=1, max_size=4))
    order = draw(st.lists(st.sampled_from(range(len(shapes))), min_size=1, max_size=8))
    order = (order * draw(st.sampled_from((1, 1, 2, 5))))[:most]
    return [node(f"n{number}", shapes[which]) for number, which in enumerate(order)]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.integers(0, 3), st.sampled_from((1, 1, 2, 6, 20))),
        st.tuples(st.just("mix"), st.integers(0, 3), st.integers(1, 6)),
        st.tuples(st.just("bind"), st.integers(0, 9), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(0, 99), st.integers(1, 3)),
        st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 3)),
        st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
    ),
    min_size=1,
    max_size=8,
)
"""What happens: pods of one kind, of several kinds in turn, pods that others bind, pods that end, nodes that change or
come, and go."""
