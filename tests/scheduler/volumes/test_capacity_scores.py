"""Nodes rated by the room for a pod's volumes: VolumeBindingArgs.shape, and what it does to a choice."""

import pytest

from koord.scheduler.config.reading import read
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import ScorePlugin
from koord.scheduler.plugins.factories import FACTORIES
from koord.scheduler.plugins.volumebinding import VolumeBinding
from tests.scheduler.volumes.objects import HOST, VolumeBed, capacity, claim, csi_driver, local, storage_class, using

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 30%s}
"""
SPREAD = ", shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]"
PACK = ", shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]"


def binding(shape: str) -> VolumeBinding:
    [profile] = read(CONFIG % shape).profiles
    made = FACTORIES[VolumeBinding.name](profile)
    assert isinstance(made, VolumeBinding)
    return made


def made_here(plugin: VolumeBinding) -> VolumeBed:
    world = VolumeBed(binding=plugin)
    world.nodes("a", "b", "c")
    world.tell("class", storage_class("made", provisioner="x.io"))
    world.tell("class", storage_class("local"))
    world.tell("csi_driver", csi_driver("x.io"))
    for node, room in (("a", "100Gi"), ("b", "40Gi"), ("c", "5Gi")):
        world.tell("capacity", capacity(f"of-{node}", "made", room, {HOST: node}))
    return world


def scores(world: VolumeBed, plugin: VolumeBinding, *claims: str) -> list[float]:
    assert isinstance(plugin, ScorePlugin)
    terms = plugin.score_terms(world.pod("asked", using(*claims)).class_.template, world.cluster)
    assert terms is not None
    return [float(score) for score in plugin.score(terms, Window.full(world.cluster))]


def test_without_a_shape_nothing_is_rated() -> None:
    assert not isinstance(binding(""), ScorePlugin)


@pytest.mark.parametrize(("shape", "node"), [(SPREAD, "a"), (PACK, "b")])
def test_a_pod_goes_where_its_volume_leaves_the_most_room_or_the_least(shape: str, node: str) -> None:
    world = made_here(binding(shape))
    world.tell("claim", claim("data", class_="made", size="10Gi"))
    assert world.place(world.pod("p", using("data"))) == node


def test_claims_of_one_class_share_its_room() -> None:
    plugin = binding(PACK)
    world = made_here(plugin)
    world.tell("claim", claim("one", class_="made", size="2Gi"))
    world.tell("claim", claim("two", class_="made", size="3Gi"))
    assert scores(world, plugin, "one", "two") == [5, 12, 100]


def test_where_volumes_exist_only_they_count() -> None:
    plugin = binding(PACK)
    world = made_here(plugin)
    world.tell("claim", claim("one", class_="local", size="3Gi"))
    world.tell("claim", claim("two", class_="made", size="4Gi"))
    for node, size in (("a", "10Gi"), ("b", "4Gi")):
        world.tell("volume", local(f"on-{node}", node, size=size))
    assert scores(world, plugin, "one", "two")[:2] == [30, 75]


def test_a_class_of_each_kind_counts_alike_and_halves_are_rounded_up() -> None:
    plugin = binding(PACK)
    world = made_here(plugin)
    world.tell("class", storage_class("other", provisioner="x.io"))
    for node, room in (("a", "100Gi"), ("b", "100Gi"), ("c", "100Gi")):
        world.tell("capacity", capacity(f"more-{node}", "other", room, {HOST: node}))
    world.tell("claim", claim("one", class_="made", size="5Gi"))
    world.tell("claim", claim("two", class_="other", size="10Gi"))
    # (5 + 10) / 2, (12 + 10) / 2, (100 + 10) / 2
    assert scores(world, plugin, "one", "two") == [8, 11, 55]


def test_room_that_changes_changes_the_scores() -> None:
    plugin = binding(PACK)
    world = made_here(plugin)
    world.tell("claim", claim("data", class_="made", size="10Gi"))
    assert scores(world, plugin, "data")[:2] == [10, 25]
    world.tell("capacity", capacity("of-a", "made", "1000Gi", {HOST: "a"}, largest="50Gi"))
    assert scores(world, plugin, "data")[:2] == [1, 25]
    world.tell("csi_driver", csi_driver("x.io", storage_capacity=False))
    assert scores(world, plugin, "data") == [0, 0, 0]
