"""CPUs to take: held to the spec's steps done slowly, and to what every taking must keep."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.protocol.cpulist import cpu_ids, format_cpus, parse_cpus
from koord.kube.protocol.cputopology import CPU
from koord.scheduler.numa.allocation import DISTRIBUTE_EVENLY, MOST_ALLOCATED, CPUState, CPUWish, allocate
from koord.scheduler.numa.take import TakeError, take
from koord.scheduler.numa.topology import CPUTopology
from tests.scheduler.numa.machines import A, B, S
from tests.scheduler.numa.slowtake import Slow

POLICIES = ("FullPCPUs", "SpreadByPCPUs")
LEVELS = ("", "PCPULevel", "NUMANodeLevel")


@st.composite
def machines(draw: st.DrawFn) -> list[CPU]:
    """Even machines, siblings next to each other or far apart."""
    sockets, nodes, cores, threads = (draw(st.integers(1, n)) for n in (2, 2, 4, 2))
    total = sockets * nodes * cores
    apart = draw(st.booleans())
    cpus = []
    for number in range(total):
        for thread in range(threads):
            id_ = number + thread * total if apart else number * threads + thread
            socket = number // (nodes * cores)
            cpus.append(CPU(id_, number % (nodes * cores), socket, number // cores))
    return cpus


@settings(max_examples=600, deadline=None)
@given(
    machines(),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(1, 24),
    st.sampled_from(POLICIES),
    st.sampled_from(LEVELS),
    st.booleans(),
)
def test_as_the_steps_say(
    cpus: list[CPU], busy: int, owned: int, need: int, policy: str, level: str, most: bool
) -> None:
    topology = CPUTopology(cpus)
    busy &= topology.mask
    owned &= busy
    free = topology.mask & ~busy
    slow = Slow(
        cpus,
        cpu_ids(free),
        need,
        level,
        {(cpu.socket, cpu.core) for cpu in cpus if owned >> cpu.id & 1},
        {cpu.node for cpu in cpus if owned >> cpu.id & 1},
        most,
    )
    expected = slow.run(full=policy == "FullPCPUs")
    marks = {"pcpu_marks": topology.touched_cores(owned), "numa_marks": topology.touched_nodes(owned)}
    if expected is None:
        with pytest.raises(TakeError):
            take(topology, free, need, policy, exclusive=level, most=most, **marks)
        return
    taken = take(topology, free, need, policy, exclusive=level, most=most, **marks)
    assert cpu_ids(taken) == sorted(expected)
    assert taken & ~free == 0
    assert taken.bit_count() == need


@given(machines(), st.integers(0, 2**32 - 1), st.integers(1, 16), st.sampled_from(POLICIES), st.booleans())
def test_a_required_policy_is_kept_or_refused(cpus: list[CPU], busy: int, need: int, policy: str, evenly: bool) -> None:
    topology = CPUTopology(cpus)
    state = CPUState(topology, topology.mask & ~busy, strategy=DISTRIBUTE_EVENLY if evenly else MOST_ALLOCATED)
    try:
        taken = allocate(state, CPUWish(need, policy, required=True))
    except TakeError:
        usable = topology.full_cores(state.free) if policy == "FullPCPUs" else topology.first_of_cores(state.free)
        assert usable.bit_count() < need or (policy == "FullPCPUs" and need % topology.per_core)
        return
    assert taken.bit_count() == need
    for core in topology.cores:
        assert taken & core in (0, core) if policy == "FullPCPUs" else (taken & core).bit_count() <= 1


@pytest.mark.parametrize(
    ("busy", "need", "policy", "cpus"),
    [
        ("", 8, "FullPCPUs", "0-1,4-5,8-9,12-13"),
        ("", 4, "SpreadByPCPUs", "0-1,4-5"),
        ("0-2,8-10", 8, "FullPCPUs", "3-6,11-14"),  # NUMA node 0 has one core left
        ("0", 3, "SpreadByPCPUs", "1,4-5"),  # the odd one comes from the freer
    ],
)
def test_distributed_evenly(busy: str, need: int, policy: str, cpus: str) -> None:
    topology = CPUTopology(B)
    state = CPUState(topology, topology.mask & ~parse_cpus(busy), strategy=DISTRIBUTE_EVENLY)
    assert format_cpus(allocate(state, CPUWish(need, policy))) == cpus


def test_shares_of_numa_nodes_are_kept() -> None:
    topology = CPUTopology(A)
    state = CPUState(topology, topology.mask)
    assert format_cpus(allocate(state, CPUWish(6, "FullPCPUs"), zones={1: 4, 3: 2})) == "8-11,24-25"
    with pytest.raises(TakeError, match="not enough cpus available to satisfy request"):
        allocate(state, CPUWish(12, "FullPCPUs"), zones={1: 10, 3: 2})


def test_preferred_cpus_come_first() -> None:
    topology = CPUTopology(S)
    state = CPUState(topology, topology.mask & ~1)
    wish = CPUWish(3, "FullPCPUs")
    assert format_cpus(allocate(state, wish, preferred=parse_cpus("0,2,7"))) == "2,4,7"
    assert format_cpus(allocate(state, wish, preferred=parse_cpus("1-3,7"))) == "1-3"


@pytest.mark.parametrize("text", ["0-3,8", "1", "0,2,4", "4000-4095", ""])
def test_lists_of_cpus(text: str) -> None:
    assert format_cpus(parse_cpus(text)) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("0-", "must be ids and ranges like 0-3,8"),
        ("a", "must be ids and ranges"),
        ("0,,1", "must be ids and ranges"),
        ("3-1", "must not go downwards"),
        ("0-99999999", "must be below 4096"),
        ("-1", "must be ids and ranges"),
    ],
)
def test_texts_that_are_no_lists(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        parse_cpus(text)
    assert json.dumps(text)[1:-1] in str(caught.value)
