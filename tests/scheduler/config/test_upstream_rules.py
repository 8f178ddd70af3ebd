"""Rules of the arguments of kube-scheduler's plugins, in its words (spec 10 section 3.15)."""

from typing import Any

import pytest

from tests.scheduler.config.documents import arguments, problems

BAD: list[tuple[str, dict[str, Any], list[str]]] = [
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
