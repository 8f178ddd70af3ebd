"""What plugins take is measured in one batch of ten, under upstream's names; choices are the same with it."""

import pytest

from koord.scheduler.engine.placement import Outcome, PodInfo
from koord.scheduler.engine.timing import MOST, Timing
from koord.scheduler.queueing.queue import Unit
from koord.scheduler.timed import EVERY, TimedBatches
from koord.telemetry.metrics import REGISTRY
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.numa.machines import B, NumaBed
from tests.scheduler.outside import outside, scheduler, until

PLUGIN = "scheduler_plugin_execution_duration_seconds_count"
POINT = "scheduler_framework_extension_point_duration_seconds_count"


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def drawn(bed: Bed) -> list[PodInfo]:
    """Equal ones, all different ones, one more, and one that fits nowhere."""
    pods = [bed.pod(f"equal-{n}", requests("1")) for n in range(8)]
    pods += [bed.pod(f"other-{n}", requests(f"{100 + n}m")) for n in range(6)]
    pods.append(bed.pod("named", requests("1"), labels={"app": "x"}))
    pods.append(bed.pod("huge", requests("64")))
    return pods


def placed(*, timed: bool) -> tuple[list[Outcome], Bed]:
    bed = Bed()
    for number in range(12):
        bed.node(f"n{number}", labels={"zone": f"z{number % 3}"})
    if timed:
        bed.cluster.timing.begin()
    outcomes: list[Outcome] = []
    bed.engine.place(drawn(bed), outcomes)
    return outcomes, bed


def test_timing_changes_no_choice() -> None:
    timed, bed = placed(timed=True)
    plain, idle = placed(timed=False)
    assert timed == plain
    assert not idle.cluster.timing.calls
    points = {(plugin, point) for plugin, point, _ in bed.cluster.timing.calls}
    assert {("NodeResourcesFit", "Filter"), ("NodeResourcesFit", "Score"), ("TaintToleration", "Filter")} <= points


def test_nodes_looked_at_and_feasible_ones() -> None:
    _, bed = placed(timed=True)
    nodes = bed.cluster.timing.nodes
    # one run of eight, eight by themselves; the last has nowhere to go
    assert len(nodes) == 9
    assert {evaluated for evaluated, _ in nodes} == {12}
    assert nodes[0] == (12, 12)
    assert nodes[-1] == (12, 0)


def test_what_is_given_is_timed_by_its_status() -> None:
    bed = NumaBed()
    bed.machine("n", B)
    bed.cluster.timing.begin()
    bed.place(bed.bound_pod("4"))
    bed.cluster.timing.end()
    bed.place(bed.bound_pod("4"))
    assert len(bed.cluster.timing.calls["NodeNUMAResource", "Reserve", "Success"]) == 1


def test_of_many_calls_some_are_kept_and_all_are_summed() -> None:
    timing = Timing()
    timing.begin()
    for _ in range(MOST + 10):
        timing.took("A", "Filter", timing.begun() - 1.0)
    assert len(timing.calls["A", "Filter", "Success"]) == MOST
    assert timing.totals["Filter", "Success"] >= MOST + 10
    timing.end()
    assert timing.begun() == 0.0


@pytest.mark.parametrize(("batches", "expected"), [(1, 1), (EVERY, 1), (EVERY + 1, 2)])
def test_one_batch_of_ten(batches: int, expected: int) -> None:
    timing, profile = Timing(), f"of-{batches}"
    bed = Bed()
    pod = bed.pod("p")
    before = sample(PLUGIN, plugin=profile, extension_point="Filter", status="Success")
    timed = TimedBatches(timing, profile)
    unit = Unit("p", "", 0.0)
    unit.pods[pod.uid] = pod
    for _ in range(batches):
        timed.begin()
        if timing.on:
            timing.took(profile, "Filter", timing.begun())
        timed.end([unit])
    assert sample(PLUGIN, plugin=profile, extension_point="Filter", status="Success") == before + expected
    name = pod.class_.profile.scheduler_name or profile
    assert sample(POINT, extension_point="Filter", status="Success", profile=name) >= expected


async def test_a_running_scheduler_serves_them(nats_url: str, redis_url: str, cluster: str) -> None:
    ranked = sample("scheduler_pod_scheduling_evaluated_nodes_count")
    found = sample("scheduler_pod_scheduling_feasible_nodes_sum")
    calls = sample(PLUGIN, plugin="NodeResourcesFit", extension_point="Filter", status="Success")
    points = sample(POINT, extension_point="Filter", status="Success", profile="koord-scheduler")
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(3):
            await world.node(f"n{number}", cpu="2")
        await world.listed()
        await world.pod("a", cpu="1")
        async with scheduler(nats_url, redis_url, cluster):
            await until(lambda: world.node_of("a"), "bound")
            assert sample("scheduler_pod_scheduling_evaluated_nodes_count") > ranked
            assert sample("scheduler_pod_scheduling_feasible_nodes_sum") >= found + 3
            assert sample(PLUGIN, plugin="NodeResourcesFit", extension_point="Filter", status="Success") > calls
            assert sample(POINT, extension_point="Filter", status="Success", profile="koord-scheduler") > points
