"""Which nodes are refused: thresholds of arguments and nodes, reports that are too old, prod pods and aggregates."""

from typing import Any

import msgspec
import pytest

from koord.kube.meta import now_rfc3339
from koord.scheduler.config.koordinatorargs import AggregatedArgs
from koord.scheduler.framework.events import ClusterEvent
from tests.scheduler.clusters import GIB, requests
from tests.scheduler.loadaware.beds import NOW, LoadBed, limited, metric, pod_metric

PROD = {"koordinator.sh/priority-class": "koord-prod"}
SMALL = requests("100m", "1Mi")
CPU = "node(s) cpu usage exceed threshold"
THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"


def busy(**args: Any) -> LoadBed:
    """A node at 31 of 32 cpu, which is too much."""
    bed = LoadBed(**args)
    bed.machine()
    bed.report(cpu="31")
    return bed


def test_a_node_without_a_report_passes() -> None:
    bed = LoadBed()
    bed.machine()
    assert bed.passes(bed.pod("p", requests("30", "100Gi"))) == [True]
    bed.report(cpu="31")
    assert bed.texts(bed.pod("p", SMALL)) == [CPU]
    bed.unreport()
    assert bed.passes(bed.pod("p", SMALL)) == [True]


def test_the_first_resource_above_is_the_reason() -> None:
    bed = busy()
    assert bed.texts(bed.pod("p", SMALL)) == [CPU]
    bed.report(cpu="31", memory="127Gi")
    assert bed.texts(bed.pod("p", SMALL)) == [CPU]
    bed.report(cpu="1", memory="127Gi")
    assert bed.texts(bed.pod("p", SMALL)) == ["node(s) memory usage exceed threshold"]
    bed.report(cpu="1")
    assert bed.texts(bed.pod("p", SMALL)) == []


def test_daemon_sets_pass() -> None:
    bed = busy()
    class_ = bed.pod("p", SMALL).class_
    template = msgspec.structs.replace(class_.template, owner="DaemonSet")
    assert bed.load.filter_terms(template, bed.cluster) is None
    assert bed.load.score_terms(template, bed.cluster) is not None


def test_a_threshold_of_nothing_is_none() -> None:
    assert busy(usage_thresholds={"cpu": 0, "memory": 95}).passes(LoadBed().pod("p", SMALL)) == [True]


def test_a_resource_that_the_node_lacks_is_not_checked() -> None:
    bed = LoadBed(usage_thresholds={"cpu": 65, "nvidia.com/gpu": 10})
    bed.machine()
    bed.report()
    assert bed.passes(bed.pod("p", SMALL)) == [True]


def test_capacity_before_amplification() -> None:
    bed = LoadBed()
    bed.machine(annotations={"node.koordinator.sh/raw-allocatable": '{"cpu":"20"}'})
    bed.report(cpu="14")
    assert bed.texts(bed.pod("p", SMALL)) == [CPU]
    assert bed.machine(annotations={"node.koordinator.sh/raw-allocatable": '{"cpu":"plenty"}'}) == (
        'Node n: metadata.annotations: node.koordinator.sh/raw-allocatable[cpu]: quantity "plenty": must match '
        "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$",
    )
    assert bed.passes(bed.pod("p", SMALL)) == [True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"usageThresholds":{"cpu":90}}', True),
        ('{"usageThresholds":{"cpu":0}}', True),
        ('{"usageThresholds":{"cpu":40}}', False),
        ('{"usageThresholds":{}}', False),
        ('{"usageThresholds":{"nvidia.com/gpu":1}}', True),
        ('{"prodUsageThresholds":{"cpu":99}}', True),
        ('{"aggregatedUsage":{"usageThresholds":{"cpu":99}}}', False),
        ('{"aggregatedUsage":{"usageThresholds":{"cpu":99},"usageAggregationType":"p95"}}', True),
    ],
)
def test_thresholds_of_a_node(text: str, expected: bool) -> None:
    bed = LoadBed()
    assert bed.machine(annotations={THRESHOLDS: text}) == ()
    bed.report(cpu="24")
    assert bed.passes(bed.pod("p", SMALL)) == [expected]


def test_thresholds_that_cannot_be_read() -> None:
    bed = LoadBed()
    bed.machine(annotations={THRESHOLDS: '{"usageThresholds":{"cpu":99}}'})
    bed.report(cpu="24")
    assert bed.passes(bed.pod("p", SMALL)) == [True]
    for text, rule in (
        ('{"usageThresholds":{"cpu":"99"}}', "Expected `int`"),
        ("{", "Input data was truncated"),
        (
            '{"aggregatedUsage":{"usageThresholds":{"cpu":1},"usageAggregationType":"p95",'
            '"usageAggregatedDuration":"1d"}}',
            "aggregatedUsage.usageAggregatedDuration",
        ),
    ):
        problems = bed.machine(annotations={THRESHOLDS: text})
        assert len(problems) == 1
        assert problems[0].startswith(f"Node n: metadata.annotations: {THRESHOLDS}: ")
        assert rule in problems[0]
        # The arguments hold, as in the original.
        assert bed.passes(bed.pod("p", SMALL)) == [False]


def windows(**cpu_by_window: str) -> list[dict[str, Any]]:
    """p95 by window."""
    return [
        {"duration": window, "usage": {"p95": {"resources": {"cpu": cpu, "memory": "1Gi"}}}}
        for window, cpu in cpu_by_window.items()
    ]


@pytest.mark.parametrize(
    ("seconds", "reported", "expected"),
    [
        (0.0, {"5m": "1", "15m": "31"}, False),
        (300.0, {"5m": "1", "15m": "31"}, True),
        # Not reported: what is expected of the pods alone.
        (60.0, {"5m": "31", "15m": "31"}, True),
        # No window has the type: the last report.
        (0.0, {}, False),
    ],
)
def test_aggregates(seconds: float, reported: dict[str, str], expected: bool) -> None:
    bed = LoadBed(aggregated=AggregatedArgs({"cpu": 65}, "p95", seconds), usage_thresholds={"cpu": 1})
    bed.machine()
    bed.report(cpu="30", aggregated=windows(**reported))
    pod = bed.pod("p", SMALL)
    assert bed.passes(pod) == [expected]
    assert bed.texts(pod) == ([] if expected else ["node(s) cpu aggregated usage exceed threshold"])


def test_only_the_pods_count_where_the_window_is_not_reported() -> None:
    bed = LoadBed(aggregated=AggregatedArgs({"cpu": 65}, "p95", 60.0))
    bed.machine()
    bed.assign(bed.pod("old", requests("24", "1Gi")), since=NOW - 1000)
    bed.report(cpu="30", pods=[pod_metric("old", "1")], aggregated=windows(**{"5m": "31"}))
    # 20400 of the pod; 65.5 % are 20960.
    assert bed.passes(bed.pod("p", requests("650m", "1Mi"))) == [True]
    assert bed.passes(bed.pod("p", requests("660m", "1Mi"))) == [False]


def test_prod_pods_and_the_others() -> None:
    bed = busy(prod_usage_thresholds={"cpu": 50})
    bed.assign(bed.pod("prod", requests("4", "1Gi"), labels=PROD), since=NOW - 500)
    pods = [pod_metric("prod", "10"), pod_metric("unknown", "20")]
    bed.report(cpu="31", pods=pods)
    assert bed.passes(bed.pod("p", SMALL, labels=PROD)) == [True]
    # Without a label, LS by Kubernetes' own class: prod as well. BE is not.
    assert bed.passes(bed.pod("p", SMALL)) == [True]
    assert bed.passes(bed.pod("p", SMALL, labels={"koordinator.sh/qosClass": "BE"})) == [False]
    bed.report(cpu="31", pods=pods, system={"cpu": "20"})
    assert bed.passes(bed.pod("p", SMALL, labels=PROD)) == [True]
    # Called a batch pod by the agent: its estimate counts, and it does whatever is reported.
    bed.report(cpu="31", pods=[pod_metric("prod", "20", priority="koord-batch")])
    assert bed.passes(bed.pod("p", requests("14", "1Mi"), labels=PROD)) == [True]
    assert bed.passes(bed.pod("p", requests("16", "1Mi"), labels=PROD)) == [False]


def test_the_systems_own_usage_is_of_prod_if_told() -> None:
    bed = busy(prod_usage_thresholds={"cpu": 50}, prod_usage_include_sys=True)
    bed.report(cpu="31", system={"cpu": "20"})
    pod = bed.pod("p", SMALL, labels=PROD)
    assert (bed.passes(pod), bed.texts(pod)) == ([False], [CPU])


def test_both_sets_are_checked_if_told() -> None:
    bed = LoadBed(prod_usage_thresholds={"cpu": 50}, check_node_and_prod=True)
    bed.machine()
    pod = bed.pod("p", requests("4", "1Gi"), labels=PROD)
    bed.report(cpu="31")
    assert (bed.passes(pod), bed.texts(pod)) == ([False], [CPU])
    bed.report(cpu="17")
    assert bed.passes(pod) == [True]
    batch = {"koordinator.sh/priority-class": "koord-batch"}
    # A pod that is no prod pod takes from the node's room alone.
    bed.assign(bed.pod("other", requests("", "", resources={"kubernetes.io/batch-cpu": "2000"}), labels=batch))
    assert bed.passes(pod) == [False]


@pytest.mark.parametrize(
    ("args", "fits"),
    [
        ({}, False),
        ({"enable_schedule_when_node_metrics_expired": True}, True),
        ({"filter_expired_node_metrics": False}, False),
        ({"expired_policy": "Block"}, False),
        ({"expired_policy": "Ignore"}, True),
        ({"filter_expired_node_metrics": True, "expired_policy": "UseStale"}, False),
    ],
)
def test_reports_grow_old(args: dict[str, Any], fits: bool) -> None:
    bed = LoadBed(**args)
    bed.machine()
    bed.report(cpu="20")
    pod = bed.pod("p", requests("4", "1Gi"))
    assert bed.passes(pod) == [False]
    bed.report(cpu="1")
    assert (bed.passes(pod), bed.scores(pod) > [0]) == ([True], True)
    bed.report(cpu="20")
    events = bed.engine.tick(NOW + 179)
    assert (list(events), bed.passes(pod), bed.scores(pod) > [0]) == ([], [False], True)
    events = bed.engine.tick(NOW + 180)
    assert (bed.passes(pod), bed.scores(pod)) == ([fits], [0])
    assert list(events) == ([ClusterEvent.NODE_METRIC_UPDATE] if fits else [])
    stale = args.get("expired_policy") == "UseStale" or not args.get("filter_expired_node_metrics", True)
    assert bed.texts(pod) == ([] if fits else [CPU] if stale else ["node(s) nodeMetric expired"])
    bed.report(cpu="1", updated=now_rfc3339(NOW + 150))
    assert (bed.passes(pod), bed.scores(pod) > [0]) == ([True], True)


def test_never_reported_is_expired() -> None:
    bed = LoadBed()
    bed.machine()
    bed.report(updated=None)
    assert bed.texts(bed.pod("p", SMALL)) == ["node(s) nodeMetric expired"]


def test_a_report_without_numbers_passes() -> None:
    bed = LoadBed()
    bed.machine()
    bed.report(numbers=False)
    assert (bed.passes(bed.pod("p", SMALL)), bed.scores(bed.pod("p", SMALL))) == ([True], [0])


def test_nothing_is_checked_where_all_thresholds_are_nothing() -> None:
    bed = LoadBed()
    bed.machine(annotations={THRESHOLDS: '{"usageThresholds":{"cpu":0}}'})
    bed.report(updated=None)
    assert bed.passes(bed.pod("p", SMALL)) == [True]


def test_a_report_that_cannot_be_read_changes_nothing() -> None:
    bed = busy()
    pod = bed.pod("p", SMALL)
    for bad, field in (
        ({"cpu": "much"}, "nodeMetric.nodeUsage.resources[cpu]"),
        ({"updated": "yesterday"}, 'time "yesterday"'),
        ({"pods": [pod_metric("x", "much")]}, "podsMetric[default/x].podUsage.resources[cpu]"),
        ({"aggregated": [{"duration": "1d", "usage": {}}]}, 'duration "1d"'),
    ):
        with pytest.raises(ValueError, match=r"^NodeMetric n: status: ") as caught:
            bed.report(**bad)
        assert field in str(caught.value)
        assert bed.passes(pod) == [False]


def test_what_comes_before_the_node() -> None:
    bed = LoadBed()
    bed.assign(bed.pod("early", requests("4", "1Gi")))
    bed.report(cpu="15")
    pod = bed.pod("p", requests("4", "1Gi"))
    bed.machine()
    # 15000 + 3400 + 3400 of 32000 are 68 percent.
    assert bed.passes(pod) == [False]
    bed.engine.remove_node("n")
    bed.machine()
    assert bed.passes(pod) == [False]
    bed.engine.uncount("uid-default-early")
    assert bed.passes(pod) == [True]


def test_a_row_that_changes_hands_starts_anew() -> None:
    bed = busy()
    bed.engine.remove_node("n")
    bed.machine("other")
    assert bed.passes(bed.pod("p", SMALL)) == [True]
    assert bed.scores(bed.pod("p", SMALL)) == [0]


def test_estimates_count_until_a_deadline() -> None:
    pods = [pod_metric("slow", "1", "0")]
    cases: tuple[tuple[dict[str, Any], dict[str, Any], bool], ...] = (
        ({}, {}, True),
        ({"estimated_seconds_after_pod_scheduled": 400}, {}, True),
        ({"estimated_seconds_after_pod_scheduled": 600}, {}, False),
        ({"estimated_seconds_after_pod_scheduled": 600}, {"initialized": NOW - 400}, False),
        ({"estimated_seconds_after_initialized": 600}, {"initialized": NOW - 400}, False),
        ({"estimated_seconds_after_initialized": 300}, {"initialized": NOW - 400}, True),
        ({"estimated_seconds_after_initialized": 600}, {}, True),
    )
    for args, fields, expected in cases:
        bed = LoadBed(**args)
        bed.machine()
        bed.assign(bed.pod("slow", requests("8", "1Mi")), since=NOW - 500, **fields)
        bed.report(cpu="14", pods=pods)
        # 14000 + 6800 - 1000 + 1700 of 32000 are 67 percent.
        assert bed.passes(bed.pod("p", requests("2", "1Mi"))) == [expected], (args, fields)


def test_pods_speak_for_themselves_if_they_may() -> None:
    prefix = "scheduling.koordinator.sh/load-estimated-"
    annotations = {f"{prefix}scaling-factors": '{"cpu":10}', f"{prefix}seconds-after-pod-scheduled": "600"}
    for allowed in (False, True):
        bed = LoadBed(allow_customize_estimation=allowed)
        bed.machine()
        pod = bed.pod("p", requests("4", "1Gi"), annotations=annotations)
        terms: Any = bed.load.filter_terms(pod.class_.template, bed.cluster)
        assert terms.estimate == ((400.0, 751619277.0) if allowed else (3400.0, 751619277.0))
        bed.assign(bed.pod("slow", requests("60", "1Mi"), annotations=annotations), since=NOW - 500)
        bed.report(cpu="14", pods=[pod_metric("slow", "1")])
        assert bed.passes(pod) == [True]
        bed.report(cpu="16", pods=[pod_metric("slow", "1")])
        # With its own 600 s the pod's 6000 - 1000 still come on top.
        assert bed.passes(pod) == [not allowed]
    bed = LoadBed(allow_customize_estimation=True, estimated_seconds_after_pod_scheduled=600)
    bed.machine()
    off = {f"{prefix}seconds-after-pod-scheduled": "0", f"{prefix}scaling-factors": "{"}
    bed.assign(bed.pod("slow", requests("8", "1Mi"), annotations=off), since=NOW - 500)
    bed.report(cpu="19", pods=[pod_metric("slow", "1")])
    assert bed.passes(bed.pod("p", SMALL)) == [True]


def test_a_planned_pod_is_not_in_any_report() -> None:
    bed = LoadBed()
    bed.machine()
    bed.report(cpu="14", pods=[pod_metric("web-0", "6800m")])
    # Somebody else had the name when the report was made.
    bed.assign(bed.pod("web-0", requests("8", "1Mi")), planned=True)
    assert bed.passes(bed.pod("p", SMALL)) == [True]
    assert bed.passes(bed.pod("p", requests("1", "1Mi"))) == [False]
    bed.assign(bed.pod("web-0", requests("8", "1Mi")), since=NOW - 1)
    assert bed.passes(bed.pod("p", requests("1", "1Mi"))) == [True]


def test_only_what_helps_wakes_a_pod() -> None:
    bed = LoadBed()
    bed.machine("a")
    bed.machine("b")
    template = bed.pod("p", requests("4", "1Gi")).class_.template
    for name in ("a", "b"):
        bed.report(name, cpu="31")
    update = ClusterEvent.NODE_METRIC_UPDATE
    assert not bed.load.helps(template, update, metric("a"))
    bed.report("a", cpu="1")
    assert bed.load.helps(template, update, metric("a"))
    assert not bed.load.helps(template, update, metric("b"))
    assert not bed.load.helps(template, update, metric("unknown"))
    assert bed.load.helps(template, update, None)
    node = bed.cluster.nodes[0]
    assert bed.load.helps(template, ClusterEvent.NODE_ALLOCATABLE, node)


def test_events() -> None:
    bed = LoadBed()
    assert bed.report() == [ClusterEvent.NODE_METRIC_ADD]
    resource = bed.load.watches()[0].resource
    assert list(bed.load.changed(resource, "n", metric(), metric())) == [ClusterEvent.NODE_METRIC_UPDATE]
    assert list(bed.load.changed(resource, "n", metric(), None)) == [ClusterEvent.NODE_METRIC_DELETE]


def test_without_any_report_nobody_is_asked() -> None:
    bed = LoadBed()
    bed.machine()
    template = bed.pod("p", SMALL).class_.template
    assert bed.load.filter_terms(template, bed.cluster) is not None
    epoch = bed.load.epoch
    bed.unreport("elsewhere")
    assert bed.load._book._nodes.keys() == {"n"}
    assert bed.load.epoch > epoch
    assert bed.load.filter_terms(template, bed.cluster) is None
    assert bed.load.score_terms(template, bed.cluster) is None
    assert bed.message(bed.pod("p", SMALL)) == ""
    # The engine looks anew at the class when the first report comes.
    bed.report(cpu="31")
    assert bed.message(bed.pod("p", SMALL)) == f"0/1 nodes are available: 1 {CPU}."


def test_limits_of_the_estimate() -> None:
    bed = LoadBed(estimated_scaling_factors={"cpu": 100, "memory": 100, "nvidia.com/gpu": 50})
    spec = limited("2", "2Gi", cpu_limit="1", resources={"nvidia.com/gpu": "4"})
    terms: Any = bed.load.filter_terms(bed.pod("p", spec).class_.template, bed.cluster)
    # Never above the limit, though the request is more; gpus without a floor.
    assert dict(zip(bed.load.resources, terms.estimate, strict=True)) == {
        "cpu": 1000,
        "memory": 2 * GIB,
        "nvidia.com/gpu": 2,
    }


def test_the_load_of_a_node_is_shown() -> None:
    bed = LoadBed()
    show = bed.load.endpoints()["node/{node}"]
    assert show({"node": "unknown"}) == {}
    bed.machine()
    bed.assign(bed.pod("web", requests("4", "1Gi"), labels=PROD), since=NOW - 500)
    bed.assign(bed.pod("job", requests("", ""), labels={"koordinator.sh/priority-class": "koord-batch"}))
    pods = [
        {
            "timestamp": now_rfc3339(NOW - age),
            "pod": {"metadata": {"namespace": "default", "name": name, "uid": f"uid-default-{name}"}},
        }
        for name, age in (("job", 0), ("web", 500))
    ]
    # 3400 and 250 milli-cores; 70 percent of 1 GiB, and 200 MiB.
    memory = {"memory": str(751619277)}
    assert show({"node": "n"}) == {
        "pods": pods,
        "nodeDelta": {"cpu": "3650m", "memory": str(751619277 + (200 << 20))},
        "prodDelta": {"cpu": "3400m", **memory},
        "nodeEstimated": {"cpu": "3650m", "memory": str(751619277 + (200 << 20))},
        "nodeDeltaPods": ["default/job", "default/web"],
        "prodDeltaPods": ["default/web"],
        "nodeEstimatedPods": ["default/job", "default/web"],
    }
    bed.report(cpu="14", memory="40Gi", pods=[pod_metric("web", "5", "1Gi")])
    assert show({"node": "n"}) == {
        "pods": pods,
        "prodUsage": {"cpu": "5", "memory": "1Gi"},
        "nodeDelta": {"cpu": "250m", "memory": "200Mi"},
        "nodeEstimated": {"cpu": "3650m", "memory": str(751619277 + (200 << 20))},
        "nodeDeltaPods": ["default/job"],
        "nodeEstimatedPods": ["default/job", "default/web"],
        "updateTime": now_rfc3339(NOW),
        "nodeUsage": {"cpu": "14", "memory": "40Gi"},
    }
