"""Golden examples G28 to G34 of spec 10 section 6: LoadAwareScheduling.

Node 32 cpu, 128 GiB; usage cpu 14, memory 40 GiB; thresholds 65/95, factors 85/70; a fresh report every 60 s.
"""

from typing import Any

import pytest

from koord.kube.meta import now_rfc3339
from tests.scheduler.clusters import requests
from tests.scheduler.loadaware.beds import NOW, LoadBed, limited, pod_metric

G28: dict[str, Any] = limited("4", "8Gi", cpu_limit="8", memory_limit="8Gi")
LS = {"koordinator.sh/qosClass": "LS"}
PROD = {"koordinator.sh/priority-class": "koord-prod"}
# Estimated at 3400 milli-cores.
FOUR = requests("4", "1Mi")


def estimate(bed: LoadBed, spec: dict[str, Any], **meta: Any) -> list[float]:
    terms: Any = bed.load.filter_terms(bed.pod("estimated", spec, **meta).class_.template, bed.cluster)
    return list(terms.estimate)


def test_g28_estimate() -> None:
    assert estimate(LoadBed(), G28, labels=LS) == [6800, 6012954214]


def test_g29_threshold() -> None:
    bed = LoadBed()
    bed.machine()
    bed.report()
    pod = bed.pod("p", G28, labels=LS)
    assert bed.passes(pod) == [True]
    bed.report(cpu="14160m")
    assert bed.passes(pod) == [False]
    assert bed.message(pod) == "0/1 nodes are available: 1 node(s) cpu usage exceed threshold."


def test_g30_score() -> None:
    one = {"cpu": 1, "memory": 1}
    factors = {"cpu": 85, "memory": 70}
    for args, expected in (
        ({"resource_weights": one}, 49),
        ({"resource_weights": one, "dominant_resource_weight": 1}, 44),
        ({"dominant_resource_weight": 1}, 35),
        # The original: 33, because the node lacks the resource.
        ({"resource_weights": one, "dominant_resource_weight": 1, "supported_resources": ("nvidia.com/gpu",)}, 44),
    ):
        bed = LoadBed(estimated_scaling_factors=factors, **args)
        bed.machine()
        bed.report()
        assert bed.scores(bed.pod("p", G28, labels=LS)) == [expected]


def test_g31_pods_that_the_report_does_not_cover_yet() -> None:
    reported = [pod_metric("early", "1")]
    room = {}
    for since in (NOW - 10, NOW - 70):
        bed = LoadBed(usage_thresholds={"cpu": 62})
        bed.machine()
        bed.report(pods=reported)
        bed.assign(bed.pod("early", FOUR), since=since)
        assert bed.passes(bed.pod("p", FOUR)) == [True]
        # The largest usage with which the pod still passes: 62.5 % of 32000 are 20000.
        for cpu in range(12_000, 18_000, 100):
            bed.report(cpu=f"{cpu}m", pods=reported)
            if not bed.passes(bed.pod("p", FOUR))[0]:
                room[since] = cpu
                break
    # 20000 - 3400 - nodeDelta of 2400, or of 0 a minute before the report.
    assert room == {NOW - 10: 14_200, NOW - 70: 16_600}


def test_g32_prod_thresholds_stand_alone() -> None:
    bed = LoadBed(prod_usage_thresholds={"cpu": 50}, usage_thresholds={"cpu": 60})
    bed.machine()
    for name in ("a", "b", "c"):
        bed.assign(bed.pod(name, FOUR, labels=PROD), since=NOW - 100)
    bed.assign(bed.pod("new", FOUR, labels=PROD))
    bed.report(cpu="24", pods=[pod_metric(name, "3") for name in ("a", "b", "c")])
    assert bed.passes(bed.pod("p", FOUR, labels=PROD)) == [True]
    batch = bed.pod("q", FOUR, labels={"koordinator.sh/priority-class": "koord-batch"})
    assert bed.passes(batch) == [False]
    bed.assign(bed.pod("another", FOUR, labels=PROD))
    # 9000 + 3 * 3400 = 19200: 60 percent.
    assert bed.passes(bed.pod("p", FOUR, labels=PROD)) == [False]


BATCH = {"kubernetes.io/batch-cpu": "8000", "kubernetes.io/batch-memory": "4Gi"}


@pytest.mark.parametrize(
    ("class_", "spec", "original", "expected"),
    [
        ("koord-batch", requests("", "", resources=BATCH), [6800, 3006477107], [6800, 3006477107]),
        ("", {"containers": [{"name": "c"}]}, [250, 209715200], [250, 209715200]),
        ("koord-mid", requests("", ""), [0, 0], [250, 209715200]),
        ("koord-free", requests("4", "8Gi"), [0, 0], [3400, 6012954214]),
    ],
)
def test_g33_estimates_by_class(
    class_: str, spec: dict[str, Any], original: list[float], expected: list[float]
) -> None:
    labels = {"koordinator.sh/priority-class": class_} if class_ else {}
    assert estimate(LoadBed(estimate_native=False), spec, labels=labels) == original
    assert estimate(LoadBed(), spec, labels=labels) == expected


@pytest.mark.parametrize(
    ("age", "fits", "score"),
    [(300, False, 0), (299, True, 49)],
)
def test_g34_expired_reports(age: int, fits: bool, score: int) -> None:
    bed = LoadBed(node_metric_expiration_seconds=300)
    bed.machine()
    bed.report(updated=now_rfc3339(NOW - age))
    pod = bed.pod("p", G28, labels=LS)
    assert (bed.passes(pod), bed.scores(pod)) == ([fits], [score])
    if not fits:
        assert bed.message(pod) == "0/1 nodes are available: 1 node(s) nodeMetric expired."
