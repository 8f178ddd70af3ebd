"""Incremental passes, full passes, runs and pods one by one agree bit for bit; comparison/ has the plain reference."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.plugins.fit import FitSettings, resource_weights
from tests.scheduler.clusters import Bed

RESOURCES = {"cpu": 1, "memory": 2, "example.com/thing": 1}
ZONES = ("a", "b", "c")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

taints = st.lists(
    st.tuples(st.sampled_from(("k1", "k2")), st.sampled_from(("", "v")), st.sampled_from(EFFECTS)), max_size=2
)
nodes = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.sampled_from((0, 1000, 3999, 4000, 16000)),
            "memory": st.sampled_from((0, 1 << 30, (8 << 30) + 12345, 64 << 30)),
            "pods": st.integers(0, 6),
            "thing": st.sampled_from((0, 0, 3)),
            "zone": st.sampled_from(ZONES),
            "rank": st.sampled_from(("1", "5", "x")),
            "taints": taints,
            "cordoned": st.integers(0, 5).map(lambda n: n == 0),
        }
    ),
    max_size=8,
)
expressions = st.sampled_from(
    (
        {"key": "zone", "operator": "In", "values": ["a", "b"]},
        {"key": "zone", "operator": "NotIn", "values": ["a"]},
        {"key": "gpu", "operator": "Exists"},
        {"key": "gpu", "operator": "DoesNotExist"},
        {"key": "rank", "operator": "Gt", "values": ["2"]},
        {"key": "rank", "operator": "Lt", "values": ["4"]},
    )
)
fields = st.sampled_from(
    (
        [],
        [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
        [{"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}],
    )
)
terms = st.fixed_dictionaries({"matchExpressions": st.lists(expressions, max_size=2), "matchFields": fields})
tolerations = st.lists(
    st.sampled_from(
        (
            {"key": "k1", "operator": "Exists"},
            {"key": "k2", "value": "v", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "PreferNoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
        )
    ),
    max_size=2,
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    wanted: dict[str, str] = {}
    for name, values in (
        ("cpu", ("", "0", "100m", "333m", "1", "2500m")),
        ("memory", ("", "0", "1Mi", "777Mi", "1Gi", "8Gi")),
        ("example.com/thing", ("", "", "1", "2")),
    ):
        amount = draw(st.sampled_from(values))
        if amount:
            wanted[name] = amount
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": wanted}}]}
    if draw(st.booleans()):
        spec["tolerations"] = draw(tolerations)
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"zone": draw(st.sampled_from(ZONES))}
    affinity: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": draw(st.lists(terms, min_size=1, max_size=2))
        }
    if draw(st.integers(0, 2)) == 0:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw(st.integers(1, 100)), "preference": term} for term in draw(st.lists(terms, max_size=2))
        ]
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    return spec


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    kinds = draw(st.lists(specs(), min_size=1, max_size=4))
    order = draw(st.lists(st.tuples(st.integers(0, len(kinds) - 1), st.sampled_from((1, 1, 2, 8))), max_size=12))
    pods = [kinds[which] for which, times in order for _ in range(times)]
    # Few kinds of nodes and several of each: enough rows for incremental passes and for choices within a run.
    items = draw(nodes) * draw(st.sampled_from((1, 2, 4)))
    return items, pods, draw(st.sampled_from(("LeastAllocated", "MostAllocated")))


def _bed(items: list[dict[str, Any]], strategy: str) -> Bed:
    fit = FitSettings(strategy=strategy, resources=resource_weights(list(RESOURCES.items())))  # type: ignore[arg-type]
    bed = Bed(seed="s", fit=fit, disabled=frozenset(("NodeNUMAResource",)))
    for number, item in enumerate(items):
        name = f"n{number}"
        labels = {"zone": item["zone"], "rank": item["rank"]} | ({"gpu": ""} if item["thing"] else {})
        bed.node(
            name,
            cpu=item["cpu"],
            memory=item["memory"],
            pods=item["pods"],
            labels=labels,
            taints=item["taints"],
            unschedulable=item["cordoned"],
            more={"example.com/thing": item["thing"]},
        )
    return bed


# The only feasible node gets other labels, so the extreme of a normalised score moves although nothing else does.
_RELABELLED = (
    [{"cpu": 0, "memory": 0, "pods": 0, "thing": 0, "zone": "a", "rank": "1", "taints": [], "cordoned": True}] * 4
    + [{"cpu": 0, "memory": 0, "pods": 1, "thing": 0, "zone": "a", "rank": "1", "taints": [], "cordoned": False}],
    [
        {
            "containers": [{"name": "c", "resources": {"requests": {}}}],
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {
                                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
                            },
                        },
                        {
                            "weight": 1,
                            "preference": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]},
                        },
                    ]
                }
            },
        }
    ],
    "LeastAllocated",
)


@settings(max_examples=150, deadline=None)
@given(workloads(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7)), max_size=12))
@example(_RELABELLED, [(0, 0), (7, 4)])
def test_incremental_is_a_full_pass(
    workload: tuple[list[dict[str, Any]], list[dict[str, Any]], str], changes: list[tuple[int, int]]
) -> None:
    """Pods leave, nodes go, come back and change; a kept ranking equals one made from nothing."""
    items, pods, strategy = workload
    bed = _bed(items, strategy)
    infos = [bed.pod(f"p{number}", spec) for number, spec in enumerate(pods)]
    for info in infos:
        bed.engine.place_one(info)
    for kind, which in changes:
        name = f"n{which}"
        if kind < 4 and infos:
            bed.engine.forget(infos[which % len(infos)].uid)
        elif kind < 6:
            bed.engine.remove_node(name)
        elif items:
            item = items[which % len(items)]
            bed.node(
                name,
                cpu=item["cpu"] + 500 * kind,
                memory=item["memory"],
                pods=item["pods"] + 1,
                labels={"zone": ZONES[kind % 3]},
                taints=item["taints"],
            )
        for info in infos:
            kept = bed.engine.ranked(info.class_)[1].copy()
            bed.engine.forget_evaluations()
            assert kept.tolist() == bed.engine.ranked(info.class_)[1].tolist()


@settings(max_examples=100, deadline=None)
@given(workloads())
def test_taking_back_restores_bit_for_bit(
    workload: tuple[list[dict[str, Any]], list[dict[str, Any]], str],
) -> None:
    items, pods, strategy = workload
    bed = _bed(items, strategy)
    infos = [bed.pod(f"p{number}", spec) for number, spec in enumerate(pods)]
    before = bed.cluster.usage.copy()
    outcomes: list[Outcome] = []
    done = 0
    while done < len(infos):
        done += bed.engine.place(infos[done:], outcomes)
    for info, outcome in zip(infos, outcomes, strict=True):
        assert bed.engine.forget(info.uid) is isinstance(outcome, Placed)
        assert isinstance(outcome, Placed | Diagnosis)
    shape = before.shape
    assert bed.cluster.usage[: shape[0], : shape[1]].tobytes() == before.tobytes()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 16), st.integers(1, 64)), min_size=1, max_size=40),
    st.sampled_from(("LeastAllocated", "MostAllocated")),
    st.lists(st.tuples(st.integers(100, 3000), st.integers(1, 4000), st.integers(1, 60)), min_size=1, max_size=4),
)
def test_runs_equal_one_at_a_time(
    sizes: list[tuple[int, int]], strategy: str, runs: list[tuple[int, int, int]]
) -> None:
    """Without taints and affinity nothing ends a run early: all of it goes through the look-ahead."""
    fit = FitSettings(strategy=strategy)  # type: ignore[arg-type]
    together, alone = Bed(seed="s", fit=fit), Bed(seed="s", fit=fit)
    for bed in (together, alone):
        for number, (cpu, memory) in enumerate(sizes):
            bed.node(f"n{number}", cpu=1000 * cpu, memory=memory << 30)
    for which, (cpu, memory, count) in enumerate(runs):
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}}]}
        names = [f"p{which}-{number}" for number in range(count)]
        outcomes: list[Outcome] = []
        done = 0
        pods = [together.pod(name, spec) for name in names]
        while done < count:
            done += together.engine.place(pods[done:], outcomes)
        assert outcomes == [alone.engine.place_one(alone.pod(name, spec)) for name in names]
    assert together.cluster.usage.tobytes() == alone.cluster.usage.tobytes()
