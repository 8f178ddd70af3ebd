"""koord's own arguments: predicted peaks as a base, and a pause for nodes that evicted best-effort pods."""

from typing import Any

import pytest

from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.loadaware.plugin import COOLING
from tests.scheduler.clusters import requests
from tests.scheduler.loadaware.beds import NOW, LoadBed, pod_metric

BE = {"koordinator.sh/qosClass": "BE"}
LS = {"koordinator.sh/qosClass": "LS"}
SMALL = requests("100m", "1Mi")


def test_a_predicted_peak_counts_where_it_is_more_than_what_is_used_now() -> None:
    """32 cpu at 65 percent: less than 21,000 milli-cores may be used."""
    pod_spec = requests("4", "1Gi")
    for peak, batch, fits in (("17", "0", True), ("18", "0", False), ("16", "2", False), ("1", "0", True)):
        bed = LoadBed(use_predicted_peak=True)
        bed.machine()
        others = [pod_metric("b", batch, priority="koord-batch"), pod_metric("p", "9")]
        bed.report(cpu="5", memory="1Gi", pods=others, peak={"cpu": peak, "memory": "1Gi"})
        assert bed.passes(bed.pod("p", pod_spec))[0] is fits, (peak, batch)
    bed = LoadBed()
    bed.machine()
    bed.report(cpu="5", memory="1Gi", peak={"cpu": "30", "memory": "1Gi"})
    assert bed.passes(bed.pod("p", pod_spec))[0], "nobody asked"
    bed = LoadBed(use_predicted_peak=True)
    bed.machine()
    bed.report(cpu="5", memory="1Gi")
    assert bed.passes(bed.pod("p", pod_spec))[0], "an agent that predicts nothing"


def test_a_predicted_peak_that_cannot_be_read_is_named() -> None:
    bed = LoadBed(use_predicted_peak=True)
    with pytest.raises(ValueError, match=r"NodeMetric n: status: prodPeakMetric\.resource\.resources"):
        bed.report(peak={"cpu": "many"})


# Evictions ------------------------------------------------------------------------------------------------------------


def evicting(seconds: int = 60, **evicted: Any) -> LoadBed:
    """A node from which a pod was evicted 10 s ago, and one from which none was."""
    bed = LoadBed(eviction_cool_down_seconds=seconds)
    bed.machine("n")
    bed.machine("quiet")
    labels = evicted.pop("labels", BE)
    bed.assign(bed.pod("gone", SMALL, labels=labels), "n", evicted=NOW - 10, **evicted)
    return bed


def test_best_effort_pods_keep_off_a_node_that_evicted_one() -> None:
    bed = evicting()
    pod = bed.pod("p", SMALL, labels=BE)
    assert bed.passes(pod) == [False, True]
    assert bed.texts(pod) == [COOLING]
    assert bed.passes(bed.pod("q", SMALL, labels=LS)) == [True, True]
    by_default = bed.pod("r", {"containers": [{"name": "c"}]})
    assert bed.passes(by_default) == [False, True]


def test_only_evicted_best_effort_pods_count_and_only_where_the_argument_asks() -> None:
    for bed in (evicting(0), evicting(labels=LS), evicting(seconds=5)):
        assert bed.passes(bed.pod("p", SMALL, labels=BE)) == [True, True]


def test_the_pause_ends_by_time_and_wakes_who_was_refused() -> None:
    bed = evicting(60)
    pod = bed.pod("p", SMALL, labels=BE)
    assert list(bed.load.tick(NOW + 49)) == []
    assert bed.passes(pod) == [False, True]
    assert list(bed.load.tick(NOW + 50)) == [ClusterEvent.NODE_METRIC_UPDATE]
    assert bed.passes(pod) == [True, True]
    assert bed.load.helps(pod.class_.template, ClusterEvent.NODE_METRIC_UPDATE, None)


def test_a_pod_that_is_evicted_later_and_a_node_that_comes_back() -> None:
    bed = LoadBed(eviction_cool_down_seconds=60)
    bed.machine("n")
    be = bed.pod("be", SMALL, labels=BE)
    bed.assign(be, "n")
    pod = bed.pod("p", SMALL, labels=BE)
    assert bed.passes(pod) == [True]
    bed.assign(be, "n", evicted=NOW)
    assert bed.passes(pod) == [False]
    bed.engine.remove_node("n")
    bed.machine("n")
    assert bed.passes(pod) == [False]
    assert "0/1 nodes are available: 1 node(s) evicted best-effort pods a moment ago." in bed.message(pod)
