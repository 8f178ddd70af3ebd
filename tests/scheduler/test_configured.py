"""Profiles from a KubeSchedulerConfiguration: which plugin is asked where, several profiles, what is refused."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from koord.runtime.host import Host
from koord.runtime.settings import CommonSettings, SettingsError
from koord.scheduler.config.errors import ConfigError
from koord.scheduler.config.shipped import shipped_text
from koord.scheduler.configured import Profiles, profiles_of
from koord.scheduler.framework.contract import Plugin, PodRef, PreEnqueuePlugin
from koord.scheduler.plugins.elasticquota import ElasticQuotaSettings
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit, ResourceWeight
from koord.scheduler.plugins.profile import GROUP
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.service import SPEC
from koord.scheduler.settings import PluginSettings, SchedulerSettings
from koord.telemetry.metrics import REGISTRY
from koord.telemetry.setup import Telemetry
from koord.telemetry.spans import Spans
from tests.scheduler.outside import outside, scheduler, until

FEW = ["SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName", "NodeResourcesFit", "DefaultBinder"]


def profile(name: str, plugins: list[str | dict[str, Any]], *args: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A profile of ``plugins`` alone, with arguments by plugin."""
    enabled = [{"name": each} if isinstance(each, str) else each for each in plugins]
    return {
        "schedulerName": name,
        "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}},
        "pluginConfig": [
            {"name": plugin, "args": {"kind": f"{plugin}Args", "apiVersion": API, **values}} for plugin, values in args
        ],
    }


API = "kubescheduler.config.k8s.io/v1"


def written(tmp_path: Path, *profiles: Mapping[str, Any], **more: Any) -> str:
    content = {"apiVersion": API, "kind": "KubeSchedulerConfiguration", "profiles": list(profiles), **more}
    path = tmp_path / "scheduler.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def built(file: str, *names: str, **settings: Any) -> Profiles:
    return profiles_of(SchedulerSettings(config=file, **settings), names or ("koord-scheduler",))


def strategy(which: str) -> tuple[str, Mapping[str, Any]]:
    return "NodeResourcesFit", {"scoringStrategy": {"type": which, "resources": [{"name": "cpu", "weight": 1}]}}


def test_plugins_stand_where_and_in_the_order_that_the_file_says(tmp_path: Path) -> None:
    listed: list[str | dict[str, Any]] = [
        *FEW,
        {"name": "TaintToleration", "weight": 7},
        "NodeAffinity",
        "ElasticQuota",
    ]
    config = profile("koord-scheduler", listed, strategy("MostAllocated"))
    config["plugins"]["filter"] = {"enabled": [{"name": "NodeAffinity"}], "disabled": [{"name": "NodeName"}]}
    config["plugins"]["score"] = {"disabled": [{"name": "NodeAffinity"}]}
    file = written(tmp_path, config, podInitialBackoffSeconds=2, podMaxBackoffSeconds=40)
    made = built(file, queue=QueueSettings(flush_after_s=60.0))
    assert [plugin.name for plugin in made.usual.filters] == [
        "NodeAffinity",
        "NodeUnschedulable",
        "NodeResourcesFit",
        "TaintToleration",
    ]
    assert [(plugin.name, weight) for plugin, weight in made.usual.scores] == [
        ("NodeResourcesFit", 1),
        ("TaintToleration", 7),
    ]
    assert [plugin.name for plugin in made.usual.pre_enqueue] == ["SchedulingGates", "ScheduleAdmission"]
    assert [plugin.name for plugin in made.usual.prefilters] == ["NodeAffinity", "ElasticQuota"]
    assert made.coscheduling not in made.usual.plugins
    assert made.queue == QueueSettings(2.0, 40.0, 60.0)
    fit = next(plugin for plugin in made.usual.plugins if isinstance(plugin, NodeResourcesFit))
    assert fit.settings == FitSettings("MostAllocated", (ResourceWeight("cpu", 1),))


def test_profiles_share_what_is_equal_and_nothing_else(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        profile("b", [*FEW, "ElasticQuota", "Coscheduling"], strategy("MostAllocated")),
        profile("a", [*FEW, "ElasticQuota"], strategy("LeastAllocated")),
    )
    made = built(file, "a", "b")
    assert (made.usual.scheduler_name, list(made.others)) == ("a", ["b"])
    a, b = ({plugin.name: plugin for plugin in each.plugins} for each in made.all)
    assert a["ElasticQuota"] is b["ElasticQuota"]
    assert a["NodeName"] is b["NodeName"]
    assert a["NodeResourcesFit"] is not b["NodeResourcesFit"]
    assert b["Coscheduling"] is made.coscheduling
    assert "Coscheduling" not in a


def test_gangs_and_quotas_are_as_the_file_says(tmp_path: Path) -> None:
    args = (
        ("Coscheduling", {"defaultTimeout": "30s", "defaultMatchPolicy": "only-waiting"}),
        ("ElasticQuota", {"enableCheckParentQuota": True}),
    )
    made = built(written(tmp_path, profile("koord-scheduler", [*FEW, "Coscheduling", "ElasticQuota"], *args)))
    gangs = made.coscheduling.book.settings
    assert (gangs.default_timeout_s, gangs.default_match_policy) == (30.0, "only-waiting")
    quota = next(plugin for plugin in made.usual.plugins if plugin.name == "ElasticQuota")
    assert quota.settings.check_parents is True  # type: ignore[attr-defined]


class Patience(PreEnqueuePlugin):
    """A third party's plugin."""

    name: ClassVar[str] = "Patience"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        if settings.get("days", 0) < 0:
            raise ValueError("days: must not be negative")

    def pre_enqueue(self, pod: PodRef) -> str | None:
        return None


class Entry:
    def __init__(self, name: str) -> None:
        self.name = name

    def load(self) -> type[Plugin]:
        return Patience


def test_third_party_plugins_are_listed_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Entry("Patience"), Entry("NodeName"), Entry("Impatience")]
    monkeypatch.setattr("koord.scheduler.plugins.profile.entry_points", lambda group: entries if group == GROUP else [])

    def config(name: str, **args: Any) -> str:
        return written(tmp_path, profile("koord-scheduler", [*FEW, name], (name, args)))

    made = built(config("Patience", days=1))
    assert isinstance(made.usual.pre_enqueue[-1], Patience)
    with pytest.raises(ConfigError, match=r"profiles\[0\]\.pluginConfig\[Patience\]: .*days: must not be negative"):
        built(config("Patience", days=-1))
    with pytest.raises(ConfigError, match=r"pluginConfig\[Impatience\]: .*calls itself Patience"):
        built(config("Impatience"))


def test_what_is_not_built_is_named(tmp_path: Path) -> None:
    made = built(written(tmp_path, profile("koord-scheduler", [*FEW, "DeviceShare"])))
    [note] = [note for note in made.notes if "DeviceShare" in note]
    assert note.startswith('profiles[0].plugins: plugin "DeviceShare" is not there yet in koord: left out (at ')
    assert [plugin.name for plugin in made.usual.filters] == [
        plugin.name for plugin in built(written(tmp_path, profile("koord-scheduler", [*FEW]))).usual.filters
    ]


def test_the_charts_file_works_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "koord-scheduler.config"
    path.write_text(shipped_text(), encoding="utf-8")
    made = built(str(path))
    absent = [note.split('"')[1] for note in made.notes if "is not there yet" in note]
    assert absent == ["Reservation", "DeviceShare", "Coscheduling", "ElasticQuota"]
    assert any("no pod of this profile preempts" in note for note in made.notes)
    assert {"LoadAwareScheduling", "NodeNUMAResource"} <= {plugin.name for plugin in made.usual.filters}


def test_a_file_that_lists_no_plugins_has_upstreams(tmp_path: Path) -> None:
    made = built(written(tmp_path, {"schedulerName": "koord-scheduler"}))
    assert made.notes == ()
    names = [plugin.name for plugin in made.usual.filters]
    assert names[-3:] == ["PodTopologySpread", "InterPodAffinity", "DynamicResources"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fit": FitSettings("MostAllocated")}, r"scheduler\.fit and scheduler\.config \(.*\) are both given"),
        ({"plugins": PluginSettings(("NodeName",))}, r"scheduler\.plugins and scheduler\.config"),
        ({"quota": ElasticQuotaSettings(False)}, r"scheduler\.quota and scheduler\.config"),
        ({"queue": QueueSettings(max_backoff_s=20.0)}, r"scheduler\.queue\.max_backoff_s and scheduler\.config"),
    ],
)
def test_the_file_and_the_settings_cannot_say_the_same(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(written(tmp_path, profile("koord-scheduler", [*FEW])), **settings)


def test_names_and_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, profile("mine", [*FEW]))
    with pytest.raises(ConfigError, match=re.escape("mine; but scheduler_names, whose pods koord places, are yours")):
        built(file, "yours")
    with pytest.raises(ConfigError, match=r"scheduler\.config: .*absent\.yaml: No such file"):
        built(str(tmp_path / "absent.yaml"))
    both = written(
        tmp_path,
        profile("a", [*FEW, "ElasticQuota"], ("ElasticQuota", {"enableCheckParentQuota": True})),
        profile("b", [*FEW, "ElasticQuota"]),
    )
    with pytest.raises(ConfigError, match=r"profiles\[1\]\.pluginConfig\[ElasticQuota\]: must be as in profiles\[0\]"):
        built(both, "a", "b")


async def test_the_service_does_not_start_with_a_file_that_does_not_fit(tmp_path: Path) -> None:
    file = written(tmp_path, profile("mine", [*FEW]))
    host = Host("scheduler", CommonSettings(cluster="c"), Telemetry(Spans(enabled=False), None))
    with pytest.raises(SettingsError, match=r"scheduler_names, whose pods koord places, are koord-scheduler"):
        SPEC.build(host, SchedulerSettings(config=file))


def parked(profile: str) -> float | None:
    labels = {"plugin": "NodeResourcesFit", "profile": profile}
    return REGISTRY.get_sample_value("scheduler_unschedulable_pods", labels)


async def test_each_pod_is_placed_by_the_profile_of_its_scheduler(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    file = written(
        tmp_path,
        profile("koord-scheduler", [*FEW], strategy("LeastAllocated")),
        profile("packer", [*FEW], strategy("MostAllocated")),
    )
    settings = SchedulerSettings(config=file, seed="1")
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(4):
            await world.node(f"n{number}", cpu="16")
        await world.listed()
        names = ("koord-scheduler", "packer")
        async with scheduler(nats_url, redis_url, cluster, settings, scheduler_names=names):
            for number in range(4):
                await world.pod(f"p{number}", schedulerName="packer")
            await until(lambda: len(world.bound) == 4, "the packed are bound")
            assert len({world.node_of(f"p{number}") for number in range(4)}) == 1
            for number in range(3):
                await world.pod(f"s{number}")
            await until(lambda: len(world.bound) == 7, "the spread are bound")
            packed = world.node_of("p0")
            assert len({world.node_of(f"s{number}") for number in range(3)} - {packed}) == 3
            assert world.binds[0].members[0].name.startswith("p")
            await world.pod("huge", cpu="64", schedulerName="packer")
            await until(lambda: world.told("huge"), "refused")
            await until(lambda: world.told("s2", "Scheduled") and world.told("p3", "Scheduled"), "told")
            by = {(event.target.name, event.controller) for event in world.events}
            assert {("huge", "packer"), ("p3", "packer"), ("s2", "koord-scheduler")} <= by
            assert ("p3", "koord-scheduler") not in by
            await until(lambda: parked("packer") == 1.0, "counted under its profile")
            assert parked("koord-scheduler") == 0.0
            await world.delete("huge")
            await until(lambda: parked("packer") == 0.0, "counted no longer")
