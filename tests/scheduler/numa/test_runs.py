"""Pods that are given CPUs in runs: bit for bit what one at a time, everything computed anew, gives them."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.kube.protocol.cputopology import CPU
from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings, Strategy
from tests.scheduler.clusters import GIB
from tests.scheduler.numa import drawing
from tests.scheduler.numa.machines import POLICY_LABEL, NumaBed, zones

stories = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from((1, 3, 4, 9)), st.integers(0, 3)), min_size=1, max_size=5
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(drawing.nodes, min_size=1, max_size=3),
    st.sampled_from((1, 2, 12)),
    st.lists(drawing.wishes, min_size=1, max_size=3),
    stories,
    st.booleans(),
    st.booleans(),
)
def test_runs_are_as_one_by_one(
    nodes: list[drawing.Node],
    times: int,
    wishes: list[dict[str, Any]],
    story: list[tuple[int, int, int]],
    most: bool,
    zones_most: bool,
) -> None:
    kinds = ("LeastAllocated", "MostAllocated")
    made = NUMASettings(scoring=Strategy(type=kinds[most]), zones=Strategy(type=kinds[zones_most]))  # type: ignore[arg-type]
    together, singly = NumaBed(made), NumaBed(made)
    for bed in (together, singly):
        for number, node in enumerate(nodes * times):
            drawing.build(bed, f"n{number}", node)
    serial = 0
    there: list[str] = []
    for which, many, leaving in story:
        wish = wishes[which % len(wishes)]
        names = [f"p{serial + number}" for number in range(many)]
        serial += many
        pods = [drawing.pod(together, wish, name) for name in names]
        outcomes: list[Outcome] = []
        while len(outcomes) < many:
            together.engine.place(pods[len(outcomes) :], outcomes)
        for name, outcome in zip(names, outcomes, strict=True):
            singly.engine.forget_evaluations()
            assert outcome == singly.place(drawing.pod(singly, wish, name))
        there += [pod.uid for pod, outcome in zip(pods, outcomes, strict=True) if isinstance(outcome, Placed)]
        for uid in there[:leaving]:
            assert together.engine.forget(uid) and singly.engine.forget(uid)
        del there[:leaving]
        if pods[0].class_.program is not None and pods[0].class_.program.names is None:
            kept = together.engine.ranked(pods[0].class_)[1].tolist()
            together.engine.forget_evaluations()
            assert kept == together.engine.ranked(pods[0].class_)[1].tolist()
    assert together.cluster.usage.tobytes() == singly.cluster.usage.tobytes()
    for number in range(len(nodes) * times):
        one, other = together.plugin.books.state(f"n{number}"), singly.plugin.books.state(f"n{number}")
        assert (one.pods, one.allocated, one.signature) == (other.pods, other.allocated, other.signature)
    assert not together.engine.errors


def test_a_run_fills_machines_to_the_last_cpu() -> None:
    """Machines of several NUMA nodes, more pods than fit, more rows than are asked node by node."""
    cpus = [CPU(i, i // 2, i // 16, i // 8) for i in range(32)]
    together, singly = NumaBed(), NumaBed()
    for bed in (together, singly):
        for number in range(40):
            parts = zones(*[{"cpu": "8", "memory": "16Gi"}] * 4)
            bed.machine(f"n{number}", cpus, parts, memory=64 * GIB, labels={POLICY_LABEL: "SingleNUMANode"})
    pods = [together.bound_pod("4", "1Gi", name=f"p{number}") for number in range(330)]
    outcomes: list[Outcome] = []
    while len(outcomes) < len(pods):
        together.engine.place(pods[len(outcomes) :], outcomes)
    assert outcomes == [singly.place(singly.bound_pod("4", "1Gi", name=f"p{number}")) for number in range(330)]
    placed = [outcome for outcome in outcomes if isinstance(outcome, Placed)]
    assert len(placed) == 320
    assert len({slot for outcome in placed for slot in outcome.slots}) == 40 * 32
    assert together.engine.evaluation(pods[0].class_).full_passes == 2  # for the first run and the second
