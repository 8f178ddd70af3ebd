"""The profiles of spec 10 section 2.2: the chart's, and that of the repository's manifest."""

from typing import Any

import pytest
import yaml

from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
from koord.scheduler.config.model import POINTS, Point
from koord.scheduler.config.reading import read
from koord.scheduler.config.registry import KINDS, UPSTREAM, left_out
from koord.scheduler.config.shipped import shipped, shipped_text

CHART: dict[Point, list[str]] = {
    "preEnqueue": ["Coscheduling"],
    "queueSort": ["PrioritySort"],
    "preFilter": ["SchedulingHint", "Coscheduling", "Reservation", "NodeNUMAResource", "DeviceShare", "ElasticQuota"],
    "filter": ["Reservation", "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare"],
    "postFilter": ["Reservation", "Coscheduling", "ElasticQuota"],
    "preScore": ["Reservation", "Coscheduling"],
    "score": ["LoadAwareScheduling", "NodeNUMAResource", "DeviceShare", "Reservation", "Coscheduling"],
    "reserve": [
        "Reservation",
        "LoadAwareScheduling",
        "NodeNUMAResource",
        "DeviceShare",
        "Coscheduling",
        "ElasticQuota",
    ],
    "permit": ["Coscheduling"],
    "preBind": ["NodeNUMAResource", "DeviceShare", "Reservation", "Coscheduling", "DefaultPreBind"],
    "bind": ["Reservation", "DefaultBinder"],
    "postBind": ["Coscheduling"],
}
MANIFEST: dict[Point, list[str]] = {
    "preFilter": ["SchedulingHint", "Reservation", "NodeNUMAResource", "DeviceShare", "Coscheduling", "ElasticQuota"],
    "filter": ["LoadAwareScheduling", "NodeNUMAResource", "DeviceShare", "Reservation"],
    "postFilter": ["Reservation", "Coscheduling", "ElasticQuota", "DefaultPreemption"],
    "reserve": [
        "LoadAwareScheduling",
        "NodeNUMAResource",
        "DeviceShare",
        "Reservation",
        "Coscheduling",
        "ElasticQuota",
    ],
}
REPLACED = ("queueSort", "postFilter", "bind")
"""Points at which the profile disables all defaults."""


def defaults(point: Point) -> list[str]:
    return [] if point in REPLACED else [name for name, kind in UPSTREAM.items() if point in kind.points]


@pytest.mark.parametrize("point", POINTS)
def test_the_chart(point: Point) -> None:
    [profile] = shipped().profiles
    assert list(profile.at(point)) == defaults(point) + CHART[point]
    assert shipped().warnings == ()


def test_names_weights_and_arguments_of_the_chart() -> None:
    found = shipped()
    [profile] = found.profiles
    assert profile.scheduler_name == "koord-scheduler"
    assert (found.leader_election.resource_name, found.leader_election.resource_namespace) == (
        "koord-scheduler",
        "koordinator-system",
    )
    weights = profile.weights()
    assert weights["Reservation"] == 5000
    assert {weights[name] for name in ("LoadAwareScheduling", "NodeNUMAResource", "DeviceShare", "Coscheduling")} == {1}
    assert "DefaultPreemption" in profile.at("preEnqueue")
    load = profile.arguments("LoadAwareScheduling", LoadAwareSchedulingArgs)
    assert load.node_metric_expiration_seconds == 300
    assert not load.filter_expired_node_metrics
    assert load.usage_thresholds == {"cpu": 65, "memory": 95}
    fit = profile.args["NodeResourcesFit"].strategy  # type: ignore[union-attr]
    assert [each.name for each in fit.resources] == [
        "cpu",
        "memory",
        "kubernetes.io/batch-cpu",
        "kubernetes.io/batch-memory",
    ]
    assert profile.args["Coscheduling"].enable_preemption  # type: ignore[union-attr]
    assert profile.args["Coscheduling"].aware_network_topology  # type: ignore[union-attr]
    assert set(profile.plugins) == {*KINDS} - {"NodeResourcesFitPlus", "ScarceResourceAvoidance"}


def test_without_job_preemption_pods_preempt_one_by_one() -> None:
    [profile] = shipped(job_preemption=False).profiles
    assert list(profile.at("postFilter")) == [*CHART["postFilter"], "DefaultPreemption"]
    assert not profile.args["Coscheduling"].enable_preemption  # type: ignore[union-attr]


def test_the_repositorys_manifest() -> None:
    content: dict[str, Any] = yaml.safe_load(shipped_text())
    [given] = content["profiles"]
    for point, names in MANIFEST.items():
        given["plugins"][point]["enabled"] = [{"name": name} for name in names]
    config = [each for each in given["pluginConfig"] if each["name"] != "Coscheduling"]
    config[1]["args"]["usageThresholds"] = {"cpu": 0, "memory": 0}
    given["pluginConfig"] = config
    map_ = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"koord-scheduler-config": yaml.safe_dump(content)}}
    [profile] = read(yaml.safe_dump(map_)).profiles
    for point, names in MANIFEST.items():
        assert list(profile.at(point)) == defaults(point) + names
    assert profile.arguments("LoadAwareScheduling", LoadAwareSchedulingArgs).usage_thresholds == {"cpu": 0, "memory": 0}
    assert not profile.args["Coscheduling"].enable_preemption  # type: ignore[union-attr]


def test_what_is_not_built_is_named() -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders: [{urlPrefix: 'http://x'}]\n"
        "profiles: [{plugins: {filter: {enabled: [{name: VolumeZone}]}}}]\n"
    )
    found, built = read(text), set(KINDS) - {"VolumeZone", "DynamicResources"}
    assert found.warnings == (
        "extenders[0]: has none of filterVerb, prioritizeVerb, preemptVerb, bindVerb: it is never called",
    )
    assert [str(problem) for problem in left_out(found, built)] == [
        'profiles[0].plugins: plugin "VolumeZone" is not there yet in koord: left out (at preFilter, filter)',
        'profiles[0].plugins: plugin "DynamicResources" is not there yet in koord: left out '
        "(at preEnqueue, preFilter, filter, postFilter, score, reserve, preBind)",
    ]


def test_preemption_that_is_asked_for_and_not_there_is_named() -> None:
    at = "profiles[0].plugins.postFilter: "
    quota = (
        f'{at}plugin "ElasticQuota" is not there yet in koord at this point: nobody is preempted for room in a quota'
    )
    assert [str(problem) for problem in left_out(shipped(), set(KINDS))] == [
        f'{at}plugin "Coscheduling" is not there yet in koord at this point: gangs preempt nobody',
        quota,
        f"{at}no pod of this profile preempts; list DefaultPreemption for pods that are in no gang",
    ]
    assert [str(problem) for problem in left_out(shipped(job_preemption=False), set(KINDS))] == [quota]
