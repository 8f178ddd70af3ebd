"""Rules of arguments of Koordinator's plugins, in its words (spec 10 section 2.4, 20 section 2.2, 30 section 2.6)."""

from typing import Any

import pytest

from tests.scheduler.config.documents import arguments, problems

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
        "ElasticQuota",
        {"defaultQuotaGroupMax": {"cpu": "x"}},
        [
            'defaultQuotaGroupMax[cpu]: Invalid value: quantity "x": must match '
            "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        ],
    ),
]


@pytest.mark.parametrize(
    ("plugin", "args", "expected"), BAD, ids=[f"{index}-{bad[0]}" for index, bad in enumerate(BAD)]
)
def test_each_rule_by_its_path(plugin: str, args: dict[str, Any], expected: list[str]) -> None:
    assert problems(arguments(plugin, args)) == [f"profiles[0].pluginConfig[0].args.{text}" for text in expected]


SPEC_MESSAGES = (
    "nodeMetricExpiredSeconds should be a positive value",
    "resource Weight of cpu should be a positive value, got 0",
    "resource Weight of memory should be less than 100, got 101",
    "resource Threshold of cpu should be a positive value, got -1",
    "resource Threshold of cpu should be less than 100, got 101",
    "estimated resource ScalingFactor of cpu should be a positive value, got 0",
    "estimated resource ScalingFactor of memory should be less than 100, got 101",
    "dominantResourceWeight should not be a negative value",
    "dominantResourceWeight should be less than 100",
    'estimatedScalingFactors: Not found: "a.b/c"',
    "duration must be >= 0",
    'supported values: "avg", "p50", "p90", "p95", "p99"',
    "must specified CPU bind policy FullPCPUs or SpreadByPCPUs",
    "resource weight of cpu not in valid range (0, 100]",
    "scoring strategy BalancedAllocation is not supported",
    "numa scoring strategy BalancedAllocation is not supported",
    "maxHintNodes: Invalid value: 0: ",
)
"""Those that spec 10 section 2.4 words."""


@pytest.mark.parametrize("message", SPEC_MESSAGES)
def test_every_message_of_the_spec_is_tested(message: str) -> None:
    assert any(message in text for _, _, expected in BAD for text in expected)
