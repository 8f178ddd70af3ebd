"""Spec 10 section 3.15, DynamicResources: where its PostFilter runs, pods without claims have it in their message."""

import pytest

from koord.scheduler.config.reading import read
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.plugins.profile import configured_profiles, shipped_profile
from tests.scheduler.clusters import requests
from tests.scheduler.dra.objects import DeviceBed, using

UPSTREAM = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_no_new_claims_to_deallocate() -> None:
    [profile] = configured_profiles(read(UPSTREAM), Coscheduling(), ElasticQuota(None)).values()
    assert [plugin.name for plugin in profile.post_filters] == ["DynamicResources", "DefaultPreemption"]
    assert profile.quiet == frozenset()
    assert "DynamicResources" not in shipped_profile().at("postFilter")


@pytest.mark.parametrize(("quiet", "told"), [(False, "no new claims to deallocate"), (True, None)])
def test_it_is_told_where_the_plugin_is_listed(quiet: bool, told: str | None) -> None:
    world = DeviceBed("a")
    assert world.profile.quiet == {"DynamicResources"}
    if not quiet:
        world.profile.quiet = frozenset()
    pod = world.pod("p", requests(cpu="999"))
    refused = world.refusal(pod)
    assert isinstance(refused, Diagnosis)
    assert world.plugin.post_filter(pod, world.engine, refused) == told
    claiming = world.pod("q", using("missing"))
    assert world.plugin.post_filter(claiming, world.engine, refused) is None
