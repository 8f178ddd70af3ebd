"""Arguments of every plugin: defaults, and what holds for all (spec 10 section 2.4, 20 section 2.2, 30 section 2.6)."""

from typing import Any

import msgspec
import pytest

from koord.scheduler.config.decoding import Args
from koord.scheduler.config.deviceargs import DeviceShareArgs
from koord.scheduler.config.jobargs import ElasticQuotaArgs, ReservationArgs
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs, NodeNUMAResourceArgs
from koord.scheduler.config.registry import KINDS
from koord.scheduler.config.upstreamargs import NodeResourcesFitArgs
from tests.scheduler.config.documents import problems, profile

TWO = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]

DEFAULTS: dict[str, dict[str, Any]] = {
    "NodeResourcesFit": {
        "ignoredResources": [],
        "ignoredResourceGroups": [],
        "scoringStrategy": {"type": "LeastAllocated", "resources": TWO, "requestedToCapacityRatio": None},
    },
    "NodeResourcesBalancedAllocation": {"resources": TWO, "relative": False},
    "NodeAffinity": {"addedAffinity": None},
    "InterPodAffinity": {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False},
    "PodTopologySpread": {"defaultConstraints": [], "defaultingType": "System"},
    "VolumeBinding": {"bindTimeoutSeconds": 600, "shape": None},
    "DefaultPreemption": {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100},
    "DynamicResources": {"filterTimeout": 10.0, "bindingTimeout": 600.0},
    "LoadAwareScheduling": {
        "filterExpiredNodeMetrics": True,
        "nodeMetricExpirationSeconds": 180,
        "enableScheduleWhenNodeMetricsExpired": False,
        "resourceWeights": {"cpu": 1, "memory": 1},
        "dominantResourceWeight": 0,
        "usageThresholds": {"cpu": 65, "memory": 95},
        "prodUsageThresholds": {},
        "prodUsageIncludeSys": False,
        "scoreAccordingProdUsage": False,
        "estimator": "",
        "estimatedScalingFactors": {"cpu": 85, "memory": 70},
        "estimatedSecondsAfterPodScheduled": None,
        "estimatedSecondsAfterInitialized": None,
        "allowCustomizeEstimation": False,
        "aggregated": None,
        "supportedResources": [],
        "checkNodeAndProd": False,
        "expiredPolicy": "",
        "scoringMode": "LeastUsed",
        "estimateNative": True,
        "usePredictedPeak": False,
        "evictionCoolDownSeconds": 0,
    },
    "NodeNUMAResource": {
        "defaultCPUBindPolicy": "FullPCPUs",
        "scoringStrategy": {"type": "LeastAllocated", "resources": TWO},
        "numaScoringStrategy": {"type": "LeastAllocated", "resources": TWO},
    },
    "NodeResourcesFitPlus": {"resources": {}},
    "ScarceResourceAvoidance": {"resources": []},
    "SchedulingHint": {"maxHintNodes": 100},
    "Coscheduling": {
        "defaultTimeout": 600.0,
        "controllerWorkers": 1,
        "skipCheckScheduleCycle": False,
        "enablePreemption": False,
        "awareNetworkTopology": False,
        "defaultMatchPolicy": "once-satisfied",
    },
    "ElasticQuota": {
        "delayEvictTime": 120.0,
        "revokePodInterval": 1.0,
        "defaultQuotaGroupMax": {"cpu": "1844674407370955161", "memory": "1844674407370955161"},
        "systemQuotaGroupMax": {"cpu": "1844674407370955161", "memory": "1844674407370955161"},
        "quotaGroupNamespace": "koordinator-system",
        "monitorAllQuotas": False,
        "enableCheckParentQuota": False,
        "enableRuntimeQuota": True,
        "enableMinQuotaScale": True,
        "disableDefaultQuotaPreemption": True,
        "enableQueueHint": False,
        "quotaSnapshotUpdateInterval": 120.0,
        "hookPlugins": [],
    },
    "Reservation": {
        "enablePreemption": False,
        "minCandidateNodesPercentage": 10,
        "minCandidateNodesAbsolute": 100,
        "controllerWorkers": 1,
        "gcDurationSeconds": 86400,
        "gcIntervalSeconds": 60,
        "disableGarbageCollection": False,
        "resyncIntervalSeconds": 60,
        "preAllocationConfig": {
            "enableClusterMode": False,
            "clusterLabelKey": "pod.koordinator.sh/is-pre-allocatable",
            "clusterPriorityAnnotationKey": "pod.koordinator.sh/pre-allocatable-priority",
            "preferNoPreAllocatedPods": False,
        },
        "ignoredResources": [],
        "ignoredResourceGroups": [],
        "reservationSelectorIndex": {"enabled": False, "keyPrefixes": [], "keys": []},
    },
}


def using(plugin: str) -> dict[str, Any]:
    """Plugins of a profile that uses ``plugin``."""
    point = next(point for point in ("preFilter", "score", "postFilter", "filter") if point in KINDS[plugin].points)
    return (
        {"multiPoint": {}} if plugin in DEFAULTS and KINDS[plugin].weight else {point: {"enabled": [{"name": plugin}]}}
    )


def read(plugin: str, args: dict[str, Any] | None) -> Args:
    config = [] if args is None else [{"name": plugin, "args": args}]
    found = profile({"plugins": using(plugin), "pluginConfig": config}).args[plugin]
    assert isinstance(found, Args)
    return found


def test_every_kind_is_known() -> None:
    assert {name for name, kind in KINDS.items() if kind.args} == {*DEFAULTS, "DeviceShare"}


@pytest.mark.parametrize("plugin", DEFAULTS)
def test_defaults(plugin: str) -> None:
    assert msgspec.json.decode(msgspec.json.encode(read(plugin, None), enc_hook=str)) == DEFAULTS[plugin]
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{plugin}Args"}
    assert read(plugin, kind) == read(plugin, {}) == read(plugin, None)
    found = read(plugin, None)
    assert found.completed() == found
    assert list(found.problems("args")) == []


def test_device_share_defaults_each_field() -> None:
    names = ["gpu-memory-ratio", "gpu-memory", "rdma", "fpga"]
    own_name: dict[str, Any] = {"gpuSharedResourceTemplatesConfig": {"configMapName": "mine"}}
    given: list[dict[str, Any] | None] = [None, {"scoringStrategy": {}}, own_name]
    for args in given:
        found = read("DeviceShare", args)
        assert isinstance(found, DeviceShareArgs)
        assert found.scoring_strategy.type == "LeastAllocated"
        assert [each.name for each in found.scoring_strategy.resources] == [f"koordinator.sh/{name}" for name in names]
        assert {each.weight for each in found.scoring_strategy.resources} == {1}
        assert found.gpu_shared_resource_templates_config.config_map_namespace == "koordinator-system"
        assert found.gpu_shared_resource_templates_config.matched_resources == ("huawei.com/npu-core",)
    named = read("DeviceShare", own_name)
    assert isinstance(named, DeviceShareArgs)
    assert named.gpu_shared_resource_templates_config.config_map_name == "mine"


def test_load_aware_defaults_that_depend_on_others() -> None:
    found = read(
        "LoadAwareScheduling", {"dominantResourceWeight": 1, "estimatedScalingFactors": {"cpu": 50, "a.b/c": 9}}
    )
    assert isinstance(found, LoadAwareSchedulingArgs)
    assert found.resource_weights == {}
    assert found.estimated_scaling_factors == {"cpu": 50, "memory": 70, "a.b/c": 9}
    found = read("LoadAwareScheduling", {"usageThresholds": {"cpu": 0}, "resourceWeights": {}})
    assert isinstance(found, LoadAwareSchedulingArgs)
    assert found.usage_thresholds == {"cpu": 0}
    assert found.resource_weights == {"cpu": 1, "memory": 1}


def test_an_explicit_empty_bind_policy_is_not_the_default() -> None:
    found = read("NodeNUMAResource", {"defaultCPUBindPolicy": ""})
    assert isinstance(found, NodeNUMAResourceArgs)
    assert found.default_cpu_bind_policy == ""


def test_fit_weights_of_zero_are_one() -> None:
    found = read("NodeResourcesFit", {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}})
    assert isinstance(found, NodeResourcesFitArgs)
    assert [(each.name, each.weight) for each in found.strategy.resources] == [("cpu", 1)]
    found = read("NodeResourcesFit", {"scoringStrategy": {"type": "MostAllocated"}})
    assert isinstance(found, NodeResourcesFitArgs)
    assert [each.name for each in found.strategy.resources] == ["cpu", "memory"]


def test_reservation_seconds_of_zero_are_the_default() -> None:
    found = read("Reservation", {"gcDurationSeconds": 0, "gcIntervalSeconds": 0, "resyncIntervalSeconds": 0})
    assert found == ReservationArgs()


def test_quota_maxima_are_quantities() -> None:
    found = read("ElasticQuota", {"defaultQuotaGroupMax": {"cpu": 10, "memory": "1Gi"}, "delayEvictTime": "1m"})
    assert isinstance(found, ElasticQuotaArgs)
    assert {name: str(value) for name, value in found.default_quota_group_max.items()} == {"cpu": "10", "memory": "1Gi"}
    assert found.delay_evict_time == 60


def test_arguments_twice_without_a_name_or_of_the_wrong_shape() -> None:
    config = [
        {"name": "InterPodAffinity"},
        {"name": "InterPodAffinity"},
        {"args": {}},
        {"name": "NodeAffinity", "args": []},
        {"name": "VolumeBinding", "args": {"apiVersion": "v9"}},
    ]
    assert problems({"profiles": [{"pluginConfig": config}]}) == [
        'profiles[0].pluginConfig[1]: Duplicate value: "InterPodAffinity"',
        "profiles[0].pluginConfig[2].name: Required value",
        "profiles[0].pluginConfig[3].args: Invalid value: []: must be a mapping",
        'profiles[0].pluginConfig[4].args.apiVersion: Unsupported value: "v9": supported values: '
        '"kubescheduler.config.k8s.io/v1", "kubescheduler.config.k8s.io/v1beta3", '
        '"kubescheduler.config.k8s.io/v1beta2"',
    ]


def test_a_weight_threshold_or_factor_of_100_is_allowed() -> None:
    """Though the message says "less"."""
    hundred = {"cpu": 100, "memory": 100}
    args = {"resourceWeights": hundred, "usageThresholds": hundred, "estimatedScalingFactors": hundred}
    found = read("LoadAwareScheduling", {**args, "dominantResourceWeight": 100})
    assert list(found.problems("args")) == []
