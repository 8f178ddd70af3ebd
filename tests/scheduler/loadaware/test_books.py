"""The columns that are moved step by step are what they would be if everything were counted anew."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.meta import now_rfc3339
from koord.scheduler.config.koordinatorargs import AggregatedArgs
from koord.scheduler.engine.placement import Outcome
from tests.scheduler.clusters import requests
from tests.scheduler.loadaware.beds import NOW, LoadBed, assigned, pod_metric

NODES = ("a", "b")
PODS = ("p0", "p1", "p2", "p3")
CLASSES = ("koord-prod", "koord-batch")
NODE_TEXTS = (
    "",
    '{"usageThresholds":{"cpu":40}}',
    '{"prodUsageThresholds":{"cpu":20}}',
    '{"aggregatedUsage":{"usageThresholds":{"cpu":50},"usageAggregationType":"p95","usageAggregatedDuration":"5m"}}',
)
P95 = AggregatedArgs(usage_thresholds={"cpu": 60}, usage_aggregation_type="p95", score_aggregation_type="p95")
ARGS: tuple[dict[str, Any], ...] = (
    {},
    {"prod_usage_thresholds": {"cpu": 30}, "score_according_prod_usage": True, "prod_usage_include_sys": True},
    {"prod_usage_thresholds": {"cpu": 30}, "check_node_and_prod": True, "expired_policy": "Ignore"},
    {"aggregated": P95, "estimated_seconds_after_pod_scheduled": 90, "expired_policy": "UseStale"},
)

assigning = st.tuples(
    st.just("assign"),
    st.sampled_from(NODES),
    st.sampled_from(PODS),
    st.sampled_from(CLASSES),
    st.integers(1, 4),
    st.integers(0, 200),
    st.booleans(),
)
reporting = st.tuples(
    st.just("report"),
    st.sampled_from(NODES),
    st.integers(0, 30),
    st.integers(0, 250),
    st.lists(st.tuples(st.sampled_from(PODS), st.integers(0, 5), st.sampled_from(CLASSES)), max_size=4),
    st.booleans(),
)
others = st.one_of(
    st.tuples(st.just("unassign"), st.sampled_from(PODS)),
    st.tuples(st.just("unreport"), st.sampled_from(NODES)),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(NODE_TEXTS)),
    st.tuples(st.just("gone"), st.sampled_from(NODES)),
    st.tuples(st.just("tick"), st.integers(0, 250)),
)
Step = tuple[Any, ...]


class Books:
    """A bed, and what is left to tell a new one."""

    def __init__(self, args: dict[str, Any]) -> None:
        self.args = args
        self.bed = LoadBed(**args)
        self.nodes: dict[str, str] = {}
        self.reports: dict[str, Step] = {}
        self.pods: dict[str, Step] = {}
        self.now = 0

    def do(self, step: Step) -> None:
        """One step, in the bed and in the notes."""
        _tell(self.bed, step)
        match step:
            case ("assign", _, pod, *_):
                self.pods[pod] = step
            case ("unassign", pod):
                self.pods.pop(pod, None)
            case ("report", name, *_):
                self.reports[name] = step
            case ("unreport", name):
                self.reports.pop(name, None)
            case ("node", name, text):
                self.nodes[name] = text
            case ("gone", name):
                self.nodes.pop(name, None)
            case ("tick", seconds):
                self.now = max(self.now, seconds)

    def anew(self) -> LoadBed:
        """A bed that is told what holds now, and nothing else."""
        bed = LoadBed(**self.args)
        _tell(bed, ("tick", self.now))
        for name, text in self.nodes.items():
            _tell(bed, ("node", name, text))
        for step in (*self.reports.values(), *self.pods.values()):
            _tell(bed, step)
        return bed


def _tell(bed: LoadBed, step: Step) -> None:
    match step:
        case ("assign", node, name, class_, cpu, age, planned):
            pod = bed.pod(name, requests(str(cpu), "1Gi"), labels={"koordinator.sh/priority-class": class_})
            bed.engine.count(assigned(pod, node, since=NOW - age, planned=planned))
        case ("unassign", name):
            bed.engine.uncount(f"uid-default-{name}")
        case ("report", name, cpu, age, pods, windows):
            used = [pod_metric(pod, str(amount), priority=class_) for pod, amount, class_ in pods]
            usage = {"p95": {"resources": {"cpu": str(cpu + 1), "memory": "1Gi"}}}
            bed.report(
                name,
                cpu=str(cpu),
                updated=now_rfc3339(NOW - age),
                pods=used,
                aggregated=[{"duration": "5m", "usage": usage}] if windows else (),
                system={"cpu": "1"},
            )
        case ("unreport", name):
            bed.unreport(name)
        case ("node", name, text):
            bed.machine(name, annotations={"scheduling.koordinator.sh/usage-thresholds": text} if text else None)
        case ("gone", name):
            bed.engine.remove_node(name)
        case ("tick", seconds):
            bed.engine.tick(NOW + seconds)


def answers(bed: LoadBed, name: str) -> list[tuple[bool, int]]:
    row = bed.cluster.index.find(name)
    if row is None:
        return []
    found = []
    for class_ in CLASSES:
        for cpu in ("1", "3", "9"):
            pod = bed.pod("asked", requests(cpu, "1Gi"), labels={"koordinator.sh/priority-class": class_})
            found.append((bed.passes(pod)[row], bed.scores(pod)[row]))
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(ARGS),
    st.lists(st.one_of(assigning, reporting, others), max_size=25),
)
def test_step_by_step_is_as_counted_anew(args: dict[str, Any], steps: list[Step]) -> None:
    books = Books(args)
    for name in NODES:
        books.do(("node", name, ""))
    now = 0
    for step in steps:
        if step[0] == "tick":
            now = max(now, step[1])
            step = ("tick", now)  # time does not run backwards
        books.do(step)
    other = books.anew()
    for name in NODES:
        assert answers(books.bed, name) == answers(other, name)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(ARGS),
    st.lists(st.integers(0, 30), min_size=3, max_size=3),
    st.lists(st.sampled_from((0, 0, 0, 1)), min_size=20, max_size=40),
)
def test_looking_ahead_is_as_one_at_a_time(args: dict[str, Any], usages: list[int], kinds: list[int]) -> None:
    beds = [LoadBed(**args), LoadBed(**args)]
    outcomes: list[list[Outcome]] = [[], []]
    for bed, placed in zip(beds, outcomes, strict=True):
        for number, cpu in enumerate(usages):
            bed.machine(f"n{number}")
            bed.report(f"n{number}", cpu=str(cpu))
        pods = [
            bed.pod(f"p{n}", requests("2", "4Gi"), labels={"koordinator.sh/priority-class": CLASSES[kind]})
            for n, kind in enumerate(kinds)
        ]
        if bed is beds[0]:
            done = 0
            while done < len(pods):
                done += bed.engine.place(pods[done:], placed, now=NOW)
        else:
            placed += [bed.engine.place_one(pod, NOW) for pod in pods]
    assert outcomes[0] == outcomes[1]
    room = [bed.load._book.room_of(prod=True)[0].data[:3] for bed in beds]
    assert np.array_equal(room[0], room[1])
