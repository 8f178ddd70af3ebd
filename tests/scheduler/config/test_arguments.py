"""Arguments of every plugin: defaults and validation messages (spec 10 section 2.4, 20 section 2.2, 30 section 2.6)."""

from typing import Any

import msgspec
import pytest

from koord.scheduler.config.decoding import Args
from koord.scheduler.config.deviceargs import DeviceShareArgs
from koord.scheduler.config.jobargs import ElasticQuotaArgs, ReservationArgs
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs, NodeNUMAResourceArgs
from koord.scheduler.config.registry import KINDS
from koord.scheduler.config.upstreamargs import NodeResourcesFitArgs
from tests.scheduler.config.documents import arguments, problems, profile

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


LESS = "should be less than 100, got"
POSITIVE = "should be a positive value, got"
BAD: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "LoadAwareScheduling",
        {"nodeMetricExpirationSeconds": 0},
        ["nodeMetricExpirationSeconds: Invalid value: 0: nodeMetricExpiredSeconds should be a positive value"],
    ),
    (
        "LoadAwareScheduling",
        {"resourceWeights": {"cpu": 0, "memory": 101}},
        [
            f'resourceWeights: Invalid value: {{"cpu": 0, "memory": 101}}: resource Weight of cpu {POSITIVE} 0',
            f'resourceWeights: Invalid value: {{"cpu": 0, "memory": 101}}: resource Weight of memory {LESS} 101',
        ],
    ),
    (
        "LoadAwareScheduling",
        {"evictionCoolDownSeconds": -1},
        ["evictionCoolDownSeconds: Invalid value: -1: should not be a negative value"],
    ),
    (
        "LoadAwareScheduling",
        {"expiredPolicy": "Maybe", "scoringMode": ""},
        [
            'expiredPolicy: Unsupported value: "Maybe": supported values: "Block", "Ignore", "UseStale"',
            'scoringMode: Unsupported value: "": supported values: "LeastUsed", "MostUsed"',
        ],
    ),
    (
        "LoadAwareScheduling",
        {"usageThresholds": {"cpu": -1}},
        [f'usageThresholds: Invalid value: {{"cpu": -1}}: resource Threshold of cpu {POSITIVE} -1'],
    ),
    (
        "LoadAwareScheduling",
        {"usageThresholds": {"cpu": 101}},
        [f'usageThresholds: Invalid value: {{"cpu": 101}}: resource Threshold of cpu {LESS} 101'],
    ),
    (
        "LoadAwareScheduling",
        {"estimatedScalingFactors": {"cpu": 0}},
        [
            'estimatedScalingFactors: Invalid value: {"cpu": 0, "memory": 70}: '
            f"estimated resource ScalingFactor of cpu {POSITIVE} 0"
        ],
    ),
    (
        "LoadAwareScheduling",
        {"estimatedScalingFactors": {"memory": 101}},
        [
            'estimatedScalingFactors: Invalid value: {"cpu": 85, "memory": 101}: '
            f"estimated resource ScalingFactor of memory {LESS} 101"
        ],
    ),
    (
        "LoadAwareScheduling",
        {"dominantResourceWeight": -1},
        ["dominantResourceWeight: Invalid value: -1: dominantResourceWeight should not be a negative value"],
    ),
    (
        "LoadAwareScheduling",
        {"dominantResourceWeight": 101},
        ["dominantResourceWeight: Invalid value: 101: dominantResourceWeight should be less than 100"],
    ),
    (
        "LoadAwareScheduling",
        {"resourceWeights": {"a.b/c": 1}},
        ['estimatedScalingFactors: Not found: "a.b/c"'],
    ),
    (
        "LoadAwareScheduling",
        {
            "aggregated": {
                "usageThresholds": {"cpu": 200},
                "usageAggregationType": "p42",
                "usageAggregatedDuration": "-5m",
                "scoreAggregationType": "max",
                "scoreAggregatedDuration": "-1s",
            }
        },
        [
            f'aggregated.usageThresholds: Invalid value: {{"cpu": 200}}: resource Threshold of cpu {LESS} 200',
            'aggregated.usageAggregationType: Unsupported value: "p42": supported values: "avg", "p50", "p90", '
            '"p95", "p99"',
            'aggregated.usageAggregatedDuration: Invalid value: "-300s": duration must be >= 0',
            'aggregated.scoreAggregationType: Unsupported value: "max": supported values: "avg", "p50", "p90", '
            '"p95", "p99"',
            'aggregated.scoreAggregatedDuration: Invalid value: "-1s": duration must be >= 0',
        ],
    ),
    (
        "NodeNUMAResource",
        {"defaultCPUBindPolicy": "ConstrainedBurst"},
        [
            'defaultCPUBindPolicy: Invalid value: "ConstrainedBurst": '
            "must specified CPU bind policy FullPCPUs or SpreadByPCPUs"
        ],
    ),
    (
        "NodeNUMAResource",
        {
            "scoringStrategy": {"type": "BalancedAllocation", "resources": [{"name": "cpu", "weight": 101}]},
            "numaScoringStrategy": {"type": "BalancedAllocation", "resources": [{"name": "memory"}]},
        },
        [
            'scoringStrategy.type: Invalid value: "BalancedAllocation": scoring strategy BalancedAllocation is '
            "not supported",
            "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range "
            "(0, 100]",
            'numaScoringStrategy.type: Invalid value: "BalancedAllocation": '
            "numa scoring strategy BalancedAllocation is not supported",
            "numaScoringStrategy.resources[0].weight: Invalid value: 0: "
            "resource weight of memory not in valid range (0, 100]",
        ],
    ),
    (
        "SchedulingHint",
        {"maxHintNodes": 0},
        ["maxHintNodes: Invalid value: 0: must be a positive value"],
    ),
    (
        "NodeResourcesFitPlus",
        {"resources": {"cpu": {"type": "Most", "weight": -1}}},
        [
            'resources[cpu].type: Unsupported value: "Most": supported values: "LeastAllocated", "MostAllocated"',
            "resources[cpu].weight: Invalid value: -1: must be non-negative",
        ],
    ),
    (
        "Coscheduling",
        {"defaultTimeout": "-1s", "controllerWorkers": 0},
        [
            'defaultTimeout: Invalid value: "-1s": coeSchedulingArgs DefaultTimeoutSeconds invalid',
            "controllerWorkers: Invalid value: 0: coeSchedulingArgs ControllerWorkers invalid",
        ],
    ),
    (
        "ElasticQuota",
        {
            "delayEvictTime": "-1s",
            "revokePodInterval": "-1s",
            "defaultQuotaGroupMax": {"cpu": "-1"},
            "systemQuotaGroupMax": {"memory": "-1Gi"},
            "hookPlugins": [{"key": "a", "factoryKey": "mine"}],
        },
        [
            'delayEvictTime: Invalid value: "-1s": elasticQuotaArgs error, DelayEvictTime should be a positive value',
            'revokePodInterval: Invalid value: "-1s": elasticQuotaArgs error, RevokePodCycle should be a '
            "positive value",
            'defaultQuotaGroupMax[cpu]: Invalid value: "-1": elasticQuotaArgs error, defaultQuotaGroupMax should be a '
            "positive value, resourceName:cpu, got -1",
            'systemQuotaGroupMax[memory]: Invalid value: "-1Gi": elasticQuotaArgs error, systemQuotaGroupMax '
            "should be a "
            "positive value, resourceName:memory, got -1Gi",
            'hookPlugins[0].factoryKey: Not found: "mine"',
        ],
    ),
    (
        "Reservation",
        {
            "minCandidateNodesPercentage": 101,
            "minCandidateNodesAbsolute": -1,
            "gcDurationSeconds": -1,
            "gcIntervalSeconds": -1,
            "resyncIntervalSeconds": -1,
            "ignoredResources": ["cpu"],
            "ignoredResourceGroups": ["kubernetes.io", "a/b"],
        },
        [
            "minCandidateNodesPercentage: Invalid value: 101: must be in the range [0, 100]",
            "minCandidateNodesAbsolute: Invalid value: -1: must be non-negative",
            "gcDurationSeconds: Invalid value: -1: must be non-negative",
            "gcIntervalSeconds: Invalid value: -1: must be non-negative",
            "resyncIntervalSeconds: Invalid value: -1: must be non-negative",
            'ignoredResources[0]: Invalid value: "cpu": must be an extended resource',
            'ignoredResourceGroups[0]: Invalid value: "kubernetes.io": must be the prefix of extended resources',
            "ignoredResourceGroups[1]: Invalid value: \"a/b\": resource group name can't contain '/'",
        ],
    ),
    (
        "DeviceShare",
        {
            "scoringStrategy": {
                "type": "",
                "resources": [{"name": "koordinator.sh/gpu", "weight": 101}],
                "fragmentation": {"measure": "Best", "window": "0s", "typicalWorkloadSource": "Static"},
            }
        },
        [
            'scoringStrategy.type: Invalid value: "": scoring strategy  is not supported',
            "scoringStrategy.resources[0].weight: Invalid value: 101: "
            "resource weight of koordinator.sh/gpu not in valid range (0, 100]",
            'scoringStrategy.fragmentation.measure: Unsupported value: "Best": supported values: '
            '"Classic", "Split", "TerminalWaste"',
            'scoringStrategy.fragmentation.window: Invalid value: "0s": must be greater than zero',
            "scoringStrategy.fragmentation.staticClasses: Required value: at least one, as the source is Static",
        ],
    ),
    (
        "NodeResourcesFit",
        {
            "ignoredResources": ["a b"],
            "ignoredResourceGroups": ["a.b/c"],
            "scoringStrategy": {"type": "Balanced", "resources": [{"name": "cpu", "weight": 101}]},
        },
        [
            'ignoredResources[0]: Invalid value: "a b": name part must consist of alphanumeric characters, '
            "'-', '_' or "
            "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
            "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "ignoredResourceGroups[0]: Invalid value: \"a.b/c\": resource group name can't contain '/'",
            'scoringStrategy.type: Unsupported value: "Balanced": supported values: "LeastAllocated", "MostAllocated", '
            '"RequestedToCapacityRatio"',
            "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range "
            "(0, 100]",
        ],
    ),
    (
        "NodeResourcesFit",
        {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
        [
            "scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified",
        ],
    ),
    (
        "NodeResourcesFit",
        {
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": {
                    "shape": [{"utilization": 50, "score": 11}, {"utilization": 50, "score": -1}, {"utilization": 101}]
                },
            }
        },
        [
            f"scoringStrategy.requestedToCapacityRatio.shape{text}"
            for text in (
                "[1].utilization: Invalid value: 50: values must be sorted in increasing order",
                "[0].score: Invalid value: 11: not in valid range [0, 10]",
                "[1].score: Invalid value: -1: not in valid range [0, 10]",
                "[2].utilization: Invalid value: 101: not in valid range [0, 100]",
            )
        ],
    ),
    (
        "NodeResourcesBalancedAllocation",
        {"resources": [{"name": "cpu", "weight": 2}, {"name": "cpu"}]},
        [
            'resources[1].name: Duplicate value: "cpu"',
            "resources[0].weight: Invalid value: 2: must be 1",
        ],
    ),
    (
        "NodeAffinity",
        {
            "addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [{"key": "x", "operator": "In", "values": ["a"]}]}]
                }
            }
        },
        [
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key: "
            'must be metadata.name, got "x"'
        ],
    ),
    (
        "NodeAffinity",
        {"addedAffinity": {"required": {}}},
        [
            "addedAffinity.required: unknown field; known: requiredDuringSchedulingIgnoredDuringExecution, "
            "preferredDuringSchedulingIgnoredDuringExecution"
        ],
    ),
    (
        "InterPodAffinity",
        {"hardPodAffinityWeight": 101},
        ["hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"],
    ),
    (
        "PodTopologySpread",
        {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]},
        ['defaultingType: Invalid value: "System": when .defaultConstraints are not empty'],
    ),
    (
        "PodTopologySpread",
        {
            "defaultingType": "List",
            "defaultConstraints": [
                {"topologyKey": "zone", "whenUnsatisfiable": "Never", "labelSelector": {}},
                {"maxSkew": 1},
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Never"},
            ],
        },
        [
            "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
            'defaultConstraints[0].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", '
            '"ScheduleAnyway"',
            "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they "
            "deduced for "
            "each pod",
            "defaultConstraints[1].topologyKey: Required value: can not be empty",
            "defaultConstraints[1].whenUnsatisfiable: Required value: can not be empty",
            'defaultConstraints[2].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", '
            '"ScheduleAnyway"',
            'defaultConstraints[2]: Duplicate value: "{zone, Never}"',
        ],
    ),
    (
        "PodTopologySpread",
        {"defaultingType": "Mine"},
        ['defaultingType: Unsupported value: "Mine": supported values: "System", "List"'],
    ),
    (
        "VolumeBinding",
        {"bindTimeoutSeconds": -1, "shape": []},
        [
            "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
            "shape: Required value: at least one point must be specified",
        ],
    ),
    (
        "VolumeBinding",
        {"shape": [{"utilization": 10, "score": 11}, {"utilization": 5, "score": 0}]},
        [
            "shape[1].utilization: Invalid value: 5: values must be sorted in increasing order",
            "shape[0].score: Invalid value: 11: not in valid range [0, 10]",
        ],
    ),
    (
        "DefaultPreemption",
        {"minCandidateNodesPercentage": 101, "minCandidateNodesAbsolute": -1},
        [
            "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
            "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
        ],
    ),
    (
        "DefaultPreemption",
        {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
        [
            "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as "
            "minCandidateNodesAbsolute",
            "minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as "
            "minCandidateNodesPercentage",
        ],
    ),
    (
        "DynamicResources",
        {"filterTimeout": "-1s", "bindingTimeout": "0s"},
        [
            'filterTimeout: Invalid value: "-1s": must be zero or positive',
            'bindingTimeout: Invalid value: "0s": must be at least 1 second',
        ],
    ),
    (
        "ElasticQuota",
        {"defaultQuotaGroupMax": {"cpu": "x"}},
        [
            'defaultQuotaGroupMax[cpu]: Invalid value: quantity "x": must match '
            "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        ],
    ),
    (
        "InterPodAffinity",
        {"kind": "NodeAffinityArgs"},
        ['kind: Unsupported value: "NodeAffinityArgs": supported values: "InterPodAffinityArgs"'],
    ),
]


@pytest.mark.parametrize(
    ("plugin", "args", "expected"), BAD, ids=[f"{index}-{bad[0]}" for index, bad in enumerate(BAD)]
)
def test_each_rule_by_its_path(plugin: str, args: dict[str, Any], expected: list[str]) -> None:
    assert problems(arguments(plugin, args)) == [f"profiles[0].pluginConfig[0].args.{text}" for text in expected]


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
