"""How nodes are rated by what they really use."""

from typing import Any

import pytest

from koord.scheduler.config.koordinatorargs import AggregatedArgs
from koord.scheduler.engine.placement import Placed
from tests.scheduler.clusters import GIB, requests
from tests.scheduler.loadaware.beds import NOW, LoadBed, pod_metric

PROD = {"koordinator.sh/priority-class": "koord-prod"}
BATCH = {"koordinator.sh/priority-class": "koord-batch"}


def test_the_less_used_node_is_chosen() -> None:
    bed = LoadBed()
    for name, cpu in (("a", "20"), ("b", "2"), ("c", "10")):
        bed.machine(name)
        bed.report(name, cpu=cpu)
    outcome = bed.engine.place_one(bed.pod("p", requests("1", "1Gi")), NOW)
    assert isinstance(outcome, Placed)
    assert outcome.node == "b"


def test_nodes_without_numbers_score_nothing() -> None:
    bed = LoadBed()
    bed.machine("a")
    bed.machine("b")
    bed.report("b", numbers=False)
    assert bed.scores(bed.pod("p")) == [0, 0]


@pytest.mark.parametrize(
    ("mode", "cpu", "expected"),
    [
        # 850 milli-cores of 32 are expected of the pod.
        ("LeastUsed", "15150m", 50),
        ("MostUsed", "15150m", 50),
        ("LeastUsed", "0", 97),
        ("MostUsed", "0", 2),
        ("LeastUsed", "31150m", 0),
        ("MostUsed", "31150m", 100),
        ("LeastUsed", "31151m", 0),
        ("MostUsed", "31151m", 0),
    ],
)
def test_modes(mode: str, cpu: str, expected: int) -> None:
    bed = LoadBed(resource_weights={"cpu": 7}, scoring_mode=mode)
    bed.machine()
    bed.report(cpu=cpu)
    assert bed.scores(bed.pod("p", requests("1", "1Gi"))) == [expected]


def test_weights_and_the_worst() -> None:
    args: dict[str, Any] = {"resource_weights": {"cpu": 3, "memory": 1}, "dominant_resource_weight": 2}
    pod = requests("1", "1Gi")
    bed = LoadBed(**args)
    bed.machine()
    # cpu: 32000 - 12000 - 850 are 59.8 percent; memory: 128 - 32 - 0.7 GiB are 74.4.
    bed.report(cpu="12", memory="32Gi")
    assert bed.scores(bed.pod("p", pod)) == [(3 * 59 + 74 + 2 * 59) // 6]
    most = LoadBed(**args, scoring_mode="MostUsed")
    most.machine()
    most.report(cpu="12", memory="32Gi")
    assert most.scores(most.pod("p", pod)) == [(3 * 40 + 25 + 2 * 25) // 6]


def test_a_resource_that_the_node_lacks() -> None:
    weights = {"cpu": 1, "nvidia.com/gpu": 1}
    for mode, expected in (("LeastUsed", (97 + 0 + 97) // 3), ("MostUsed", (2 + 0 + 2) // 3)):
        bed = LoadBed(
            resource_weights=weights,
            estimated_scaling_factors={"nvidia.com/gpu": 100},
            dominant_resource_weight=1,
            scoring_mode=mode,
        )
        bed.machine()
        bed.report(cpu="0")
        assert bed.scores(bed.pod("p", requests("1", "1Gi"))) == [expected]


def test_prod_pods_by_what_prod_uses() -> None:
    bed = LoadBed(resource_weights={"cpu": 1}, score_according_prod_usage=True)
    bed.machine()
    bed.assign(bed.pod("prod", requests("4", "1Gi"), labels=PROD), since=NOW - 500)
    bed.assign(bed.pod("batch", requests("4", "1Gi"), labels=BATCH), since=NOW - 500)
    bed.report(cpu="30", pods=[pod_metric("prod", "8"), pod_metric("batch", "22", priority="koord-batch")])
    # An estimate of 850 for the prod pod, of 250 for the batch pod, which asks for no batch resource.
    assert bed.scores(bed.pod("p", requests("1", "1Gi"), labels=PROD)) == [(32_000 - 8_850) * 100 // 32_000]
    assert bed.scores(bed.pod("p", requests("1", "1Gi"), labels=BATCH)) == [(32_000 - 30_250) * 100 // 32_000]
    bed.assign(bed.pod("new", requests("4", "1Gi"), labels=BATCH))
    assert bed.scores(bed.pod("p", requests("1", "1Gi"), labels=PROD)) == [(32_000 - 8_850) * 100 // 32_000]
    bed.assign(bed.pod("more", requests("4", "1Gi"), labels=PROD))
    assert bed.scores(bed.pod("p", requests("1", "1Gi"), labels=PROD)) == [(32_000 - 12_250) * 100 // 32_000]


def test_by_an_aggregate() -> None:
    bed = LoadBed(resource_weights={"cpu": 1}, aggregated=AggregatedArgs(score_aggregation_type="p90"))
    bed.machine()
    windows = [
        {"duration": "5m", "usage": {"p90": {"resources": {"cpu": "1"}}}},
        {"duration": "30m", "usage": {"p90": {"resources": {"cpu": "16"}}, "p95": {"resources": {"cpu": "20"}}}},
    ]
    bed.report(cpu="3", aggregated=windows)
    assert bed.scores(bed.pod("p", requests("1", "1Gi"))) == [(32_000 - 16_850) * 100 // 32_000]


def test_large_numbers_are_exact() -> None:
    bed = LoadBed(resource_weights={"memory": 1})
    bed.machine("a", memory=(1 << 45) + 1)
    capacity, used = (1 << 45) + 1, 123_456_789_012
    bed.report("a", memory=str(used))
    expected = (capacity - used - GIB * 7 // 10) * 100 // capacity
    assert bed.scores(bed.pod("p", requests("1", "1Gi"))) == [expected]
