"""Settings of the scheduler: every bad one is refused with its path before anything starts."""

from typing import Any

import pytest

from koord.runtime.settings import SettingsError, load_service
from koord.scheduler.service import SPEC
from koord.scheduler.settings import SchedulerSettings


def load(content: dict[str, Any] | None = None, **env: str) -> SchedulerSettings:
    _, settings = load_service(SPEC, file={"scheduler": content or {}}, env=env)
    assert isinstance(settings, SchedulerSettings)
    return settings


def test_defaults_make_the_shipped_profile() -> None:
    profile, _ = load().profile()
    assert [plugin.name for plugin in profile.filters] == [
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
        "LoadAwareScheduling",
        "NodeNUMAResource",
    ]
    assert {plugin.name: weight for plugin, weight in profile.scores} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "LoadAwareScheduling": 1,
        "NodeNUMAResource": 1,
    }


def test_environment_and_file() -> None:
    settings = load(
        {
            "fit": {"strategy": "MostAllocated", "resources": [{"name": "cpu", "weight": 5}]},
            "plugins": {"weights": {"TaintToleration": 0}, "disabled": ["NodeAffinity"]},
        },
        KOORD_SCHEDULER__BATCH="16",
    )
    assert settings.batch == 16
    profile, _ = settings.profile()
    scores = [plugin.name for plugin, _ in profile.scores]
    assert "NodeResourcesFit" in scores
    assert not {"NodeAffinity", "TaintToleration"} & set(scores)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"fooo": 1}, r"scheduler\.fooo .*unknown setting"),
        ({"names": ["mine"]}, r"scheduler\.names .*unknown setting"),
        ({"batch": 0}, r"batch: 0 is not in 1\.\.4096"),
        ({"batch": "many"}, r"scheduler\.batch"),
        ({"percentage_of_nodes_to_score": 101}, r"is not in 0\.\.100"),
        ({"queue": {"initial_backoff_s": 0}}, "initial_backoff_s: .* must be greater than 0"),
        ({"queue": {"max_backoff_s": 0.5}}, "max_backoff_s: 0.5 must not be less than"),
        ({"queue": {"flush_after_s": -1}}, "flush_after_s"),
        ({"fit": {"strategy": "BalancedAllocation"}}, r"scheduler\.fit\.strategy"),
        ({"fit": {"resources": [{"name": "cpu", "weight": 101}]}}, r"cpu: weight 101 not in valid range \(0, 100\]"),
        ({"fit": {"resources": []}}, r"fit\.resources: at least one"),
    ],
)
def test_bad_settings_name_their_path(content: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"plugins": {"disabled": ["Nope"]}}, r"plugins\.disabled: Nope: no such plugin; known: "),
        ({"plugins": {"weights": {"Nope": 1}}}, r"weights\.Nope: no such plugin"),
        ({"coscheduling": {"default_timeout_s": -1}}, "DefaultTimeoutSeconds invalid"),
        ({"coscheduling": {"default_match_policy": "never"}}, "'never' is not one of"),
    ],
)
def test_bad_profiles_are_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(content).profile()
