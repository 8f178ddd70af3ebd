"""One pod on one machine as the plain reference has it: sets of NUMA nodes, shares of them, CPUs, and the texts."""

from fractions import Fraction
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.scheduler.numa.allocation import CPUWish
from koord.scheduler.numa.placing import PodWish, Scoring, place
from koord.scheduler.numa.state import NodeState
from tests.reference.scheduler import numa as plain
from tests.scheduler.clusters import GIB
from tests.scheduler.comparison.drawing import examples
from tests.scheduler.numa import drawing
from tests.scheduler.numa.machines import NumaBed

wishes = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from((0, 1000, 2000, 3000, 4000, 6000, 500, 2500)),
        "memory": st.sampled_from((0, GIB, 3 * GIB, 6 * GIB)),
        "other": st.sampled_from((0, 0, 2)),
        "bind": st.sampled_from(("", "", "FullPCPUs", "SpreadByPCPUs")),
        "required": st.booleans(),
        "exclusive": st.sampled_from(("", "", "PCPULevel", "NUMANodeLevel")),
        "policy": st.sampled_from(("", "BestEffort", "Restricted", "SingleNUMANode")),
        "alone": st.booleans(),
        "most": st.booleans(),
        "zones_most": st.booleans(),
        "weights": st.sampled_from(({"cpu": 1, "memory": 1}, {"cpu": 3, "memory": 1}, {"memory": 2, "x.io/a": 1})),
        "burst": st.sampled_from((0, 0, 2000, 4000)),
        "burst_required": st.booleans(),
    }
).filter(lambda drawn: drawn["cpu"] or drawn["memory"] or drawn["other"])


def bits(mask: int) -> set[int]:
    return {number for number in range(mask.bit_length()) if mask >> number & 1}


def machine(bed: NumaBed, state: NodeState) -> plain.Machine:
    """What the node was told, for the reference."""
    layout = state.layout
    assert layout.topology is not None
    pods = [
        plain.Pod(bits(pod.cpus), pod.exclusive, {zone: dict(amounts) for zone, amounts in pod.zones})
        for pod in state.pods.values()
    ]
    return plain.Machine(
        layout.topology.cpus,
        {zone.id: dict(zone.allocatable) for zone in layout.zones},
        pods,
        bits(layout.reserved),
        Fraction(str(layout.ratio)),
    )


def both(drawn: dict[str, Any]) -> tuple[PodWish, plain.Wish]:
    request = {"cpu": drawn["cpu"], "memory": drawn["memory"], "x.io/a": drawn["other"]}
    request = {name: amount for name, amount in request.items() if amount}
    cpu = request.get("cpu", 0)
    bind = drawn["bind"] if cpu and not cpu % 1000 else ""
    burst = max(drawn["burst"], cpu) if cpu and drawn["burst"] else 0
    cpus = CPUWish(cpu // 1000, bind, drawn["required"], drawn["exclusive"]) if bind else None
    strategy = "MostAllocated" if drawn["most"] else "LeastAllocated"
    scoring = Scoring(drawn["zones_most"], tuple(drawn["weights"].items()))
    policy, alone = drawn["policy"], drawn["alone"]
    fast = PodWish(request, cpus, policy, alone, strategy, scoring, burst, drawn["burst_required"])
    slow = plain.Wish(
        request,
        bind,
        drawn["required"],
        drawn["exclusive"],
        policy,
        alone,
        drawn["most"],
        drawn["weights"],
        drawn["zones_most"],
        burst,
        drawn["burst_required"],
    )
    return fast, slow


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(drawing.nodes, wishes)
def test_like_the_reference(node: drawing.Node, drawn: dict[str, Any]) -> None:
    bed = NumaBed()
    drawing.build(bed, "n", node)
    state = bed.plugin.books.state("n")
    fast, slow = both(drawn)
    told = place(state, fast)
    expected = plain.place(machine(bed, state), slow)
    if isinstance(told, str) or isinstance(expected, str):
        assert told == expected
        return
    allocation = told.allocation
    assert (bits(allocation.cpus), {zone: dict(amounts) for zone, amounts in allocation.zones}) == expected
