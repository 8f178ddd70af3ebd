"""Plugin sets merged point by point (spec 10 section 2.1)."""

from typing import Any

import pytest

from koord.scheduler.config.errors import ConfigError
from koord.scheduler.config.model import POINTS, ProfileConfig
from koord.scheduler.config.registry import KINDS, UPSTREAM
from tests.scheduler.config.documents import problems, profile, warnings

DEFAULT_FILTERS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
)


def names(*plugins: str) -> list[dict[str, str]]:
    return [{"name": name} for name in plugins]


def with_plugins(plugins: dict[str, Any]) -> ProfileConfig:
    return profile({"plugins": plugins})


def test_without_plugins_upstreams_defaults_are_in_force() -> None:
    found = profile({})
    assert found.plugins == tuple(UPSTREAM)
    assert found.at("preEnqueue") == ("SchedulingGates", "DynamicResources", "DefaultPreemption")
    assert found.at("queueSort") == ("PrioritySort",)
    assert found.at("filter") == DEFAULT_FILTERS
    assert found.at("postFilter") == ("DynamicResources", "DefaultPreemption")
    assert found.weights() == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert found.at("bind") == ("DefaultBinder",)
    assert found.at("permit") == found.at("postBind") == ()
    assert "DefaultPreBind" not in found.at("preBind")  # there is no plugins block


def test_explicit_plugins_follow_those_of_multi_point() -> None:
    found = with_plugins({"filter": {"enabled": names("LoadAwareScheduling", "NodeNUMAResource")}})
    assert found.at("filter") == (*DEFAULT_FILTERS, "LoadAwareScheduling", "NodeNUMAResource")


def test_what_is_listed_again_goes_first_in_the_profiles_order() -> None:
    found = with_plugins({"filter": {"enabled": names("LoadAwareScheduling", "NodePorts", "NodeName")}})
    rest = tuple(name for name in DEFAULT_FILTERS if name not in ("NodePorts", "NodeName"))
    assert found.at("filter") == ("NodePorts", "NodeName", *rest, "LoadAwareScheduling")


def test_disabled_at_a_point_alone() -> None:
    found = with_plugins({"score": {"disabled": names("NodeAffinity", "ImageLocality")}})
    assert not {"NodeAffinity", "ImageLocality"} & set(found.at("score"))
    assert "NodeAffinity" in found.at("filter")
    assert "ImageLocality" not in found.plugins  # it has no other point
    assert "NodeAffinity" in found.args


def test_all_disabled_at_a_point() -> None:
    found = with_plugins({"postFilter": {"disabled": names("*"), "enabled": names("Coscheduling", "ElasticQuota")}})
    assert found.at("postFilter") == ("Coscheduling", "ElasticQuota")
    assert "DefaultPreemption" in found.at("preEnqueue")  # through multiPoint


def test_all_disabled_and_one_of_them_listed() -> None:
    found = with_plugins({"score": {"disabled": names("*"), "enabled": [{"name": "NodeAffinity", "weight": 7}]}})
    assert found.points["score"] == (("NodeAffinity", 7),)


def test_disabled_and_listed_at_a_point_stands_with_the_explicit_ones() -> None:
    plugins = {
        "disabled": names("NodeAffinity"),
        "enabled": [{"name": "LoadAwareScheduling"}, {"name": "NodeAffinity"}],
    }
    found = with_plugins({"score": plugins})
    assert found.at("score")[-2:] == ("LoadAwareScheduling", "NodeAffinity")
    assert found.weights()["NodeAffinity"] == 1  # explicit without weight


def test_multi_point_disabled_drops_everywhere() -> None:
    found = with_plugins({"multiPoint": {"disabled": names("NodeAffinity", "DefaultPreemption")}})
    assert not {"NodeAffinity", "DefaultPreemption"} & set(found.plugins)
    assert not {"NodeAffinity", "DefaultPreemption"} & set(found.args)


def test_multi_point_replaced_in_place_and_extended() -> None:
    found = with_plugins(
        {
            "multiPoint": {
                "enabled": [{"name": "LoadAwareScheduling", "weight": 4}, {"name": "NodeAffinity", "weight": 9}]
            }
        }
    )
    assert found.plugins[: len(UPSTREAM)] == tuple(UPSTREAM)
    assert found.weights()["NodeAffinity"] == 9
    assert found.weights()["LoadAwareScheduling"] == 4
    assert found.at("filter")[-1] == found.at("score")[-1] == found.at("reserve")[-1] == "LoadAwareScheduling"


def test_multi_point_all_disabled() -> None:
    plugins = {"disabled": names("*"), "enabled": names("PrioritySort", "NodeResourcesFit", "DefaultBinder")}
    found = with_plugins({"multiPoint": plugins})
    assert found.plugins == ("PrioritySort", "NodeResourcesFit", "DefaultBinder", "DefaultPreBind")
    assert found.at("filter") == ("NodeResourcesFit",)


@pytest.mark.parametrize(
    ("prebind", "expected"),
    [
        ({}, True),
        ({"enabled": names("NodeNUMAResource")}, True),
        ({"enabled": names("DefaultPreBind", "NodeNUMAResource")}, True),
        ({"disabled": names("DefaultPreBind")}, False),
        ({"disabled": names("*")}, False),
    ],
)
def test_default_prebind_is_appended(prebind: dict[str, Any], expected: bool) -> None:
    found = with_plugins({"preBind": prebind})
    assert ("DefaultPreBind" in found.at("preBind")) is expected
    if prebind.get("enabled") == names("NodeNUMAResource"):
        assert found.at("preBind")[-2:] == ("NodeNUMAResource", "DefaultPreBind")


@pytest.mark.parametrize("weight", [0, None])
def test_weight_zero_or_absent_is_one(weight: int | None) -> None:
    found = with_plugins({"score": {"enabled": [{"name": "TaintToleration", "weight": weight}]}})
    assert found.weights()["TaintToleration"] == 1
    assert found.at("score")[0] == "TaintToleration"


def test_weights_stand_at_score_only() -> None:
    found = profile({})
    assert {use.weight for point in POINTS if point != "score" for use in found.points[point]} == {0}


def test_a_plugin_twice_is_an_error() -> None:
    twice = {"enabled": names("NodeNUMAResource", "NodeNUMAResource")}
    assert problems({"profiles": [{"plugins": {"filter": twice, "multiPoint": twice}}]}) == [
        'profiles[0].plugins.multiPoint.enabled: Duplicate value: "NodeNUMAResource"',
        'profiles[0].plugins.filter.enabled: Duplicate value: "NodeNUMAResource"',
    ]


def test_unknown_misplaced_and_removed_plugins() -> None:
    plugins = {
        "filter": {"enabled": [{"name": "Nonsense"}, {"name": "PrioritySort"}, {"name": "EBSLimits"}, {}]},
        "score": {"enabled": [{"name": "NodeAffinity", "weight": -1}]},
    }
    assert problems({"profiles": [{"plugins": plugins}]}) == [
        'profiles[0].plugins.filter.enabled[0].name: Invalid value: "Nonsense": plugin "Nonsense" does not exist',
        'profiles[0].plugins.filter.enabled[1].name: Invalid value: "PrioritySort": plugin "PrioritySort" does not '
        "extend filter; it has queueSort",
        'profiles[0].plugins.filter.enabled[2]: Invalid value: "EBSLimits": is not a plugin of '
        "kubescheduler.config.k8s.io/v1 any more",
        'profiles[0].plugins.filter.enabled[3].name: Invalid value: "": plugin "" does not exist',
        "profiles[0].plugins.score.enabled[0].weight: Invalid value: -1: must be non-negative",
    ]


def test_exactly_one_queue_sort_and_at_least_one_bind() -> None:
    assert problems(
        {"profiles": [{"plugins": {"queueSort": {"disabled": names("*")}, "bind": {"disabled": names("*")}}}]}
    ) == [
        "profiles[0].plugins.queueSort: Required value: at least one plugin",
        "profiles[0].plugins.bind: Required value: at least one plugin",
    ]


def test_two_queue_sorts() -> None:
    text = {"profiles": [{"plugins": {"queueSort": {"enabled": names("Other")}}}]}
    with pytest.raises(ConfigError, match="only one queue sort plugin can be enabled"):
        profile(text["profiles"][0], plugins={"Other": frozenset({"queueSort"})})


def test_old_names() -> None:
    plugins = {
        "filter": {"enabled": names("BatchResourceFit")},
        "postFilter": {"disabled": names("DefaultPreemption"), "enabled": names("CompatibleDefaultPreemption")},
    }
    config = [
        {"name": "CompatibleDefaultPreemption", "args": {"minCandidateNodesAbsolute": 3}},
        {"name": "BatchResourceFit"},
    ]
    given = {"plugins": plugins, "pluginConfig": config}
    found = profile(given)
    assert found.at("filter") == DEFAULT_FILTERS
    assert found.at("postFilter") == ("DynamicResources", "DefaultPreemption")
    assert found.args["DefaultPreemption"].min_candidate_nodes_absolute == 3  # type: ignore[union-attr]
    assert warnings({"profiles": [given]}) == [
        "profiles[0].plugins.filter.enabled[0]: BatchResourceFit has no effect: batch resources are ordinary resources "
        "of NodeResourcesFit",
        "profiles[0].plugins.postFilter.enabled[0]: CompatibleDefaultPreemption is DefaultPreemption now",
        'profiles[0].pluginConfig[1]: arguments of "BatchResourceFit" have no effect: batch resources are ordinary '
        "resources of NodeResourcesFit",
    ]


def test_the_old_name_beside_the_new_one_is_no_duplicate() -> None:
    plugins = {"disabled": names("*"), "enabled": names("CompatibleDefaultPreemption", "DefaultPreemption")}
    assert with_plugins({"postFilter": plugins}).at("postFilter") == ("DefaultPreemption",)


def test_disabling_what_is_not_there_warns() -> None:
    given = {"profiles": [{"plugins": {"filter": {"disabled": names("Nonsense", "CinderLimits")}}}]}
    assert warnings(given) == ['profiles[0].plugins.filter.disabled[0].name: there is no plugin "Nonsense" to disable']


def test_third_party_plugins() -> None:
    given = {
        "plugins": {"multiPoint": {"enabled": [{"name": "Cheapest", "weight": 5}]}},
        "pluginConfig": [{"name": "Cheapest", "args": {"currency": "EUR", "nested": {"a": [1]}}}],
    }
    found = profile(given, plugins={"Cheapest": frozenset({"filter", "score"})})
    assert found.at("filter")[-1] == found.at("score")[-1] == "Cheapest"
    assert found.weights()["Cheapest"] == 5
    assert found.args["Cheapest"] == {"currency": "EUR", "nested": {"a": [1]}}


def test_every_known_plugin_may_stand_where_it_says() -> None:
    for name, kind in KINDS.items():
        for point in kind.points:
            found = with_plugins({point: {"disabled": names("*"), "enabled": names(name)}})
            assert found.at(point)[0] == name
