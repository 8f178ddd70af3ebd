"""Golden examples of spec 10 section 6: G38 by ratio, G39 NodeResourcesFitPlus, G40 scarce resources, G41 images."""

from collections.abc import Mapping
from typing import Any

from koord.scheduler.config.koordinatorargs import (
    FitPlusResource,
    NodeResourcesFitPlusArgs,
    ScarceResourceAvoidanceArgs,
)
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.engine.placement import Placed
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import ScorePlugin
from koord.scheduler.plugins.fit import FitSettings, NodeResourcesFit, ShapePoint, resource_weights
from koord.scheduler.plugins.fitplus import NodeResourcesFitPlus
from koord.scheduler.plugins.imagelocality import ImageLocality
from koord.scheduler.plugins.scarce import ScarceResourceAvoidance
from tests.scheduler.clusters import GIB, Bed, requests

GPU = "nvidia.com/gpu"
MIB = 1 << 20


def score(bed: Bed, plugin: ScorePlugin, spec: Mapping[str, Any]) -> list[int]:
    template = bed.pod("scored", spec).class_.template
    terms = plugin.score_terms(template, bed.cluster)
    return [int(value) for value in plugin.score(terms, Window.full(bed.cluster))]


def test_g38_requested_to_capacity_ratio() -> None:
    bed = Bed()
    bed.node("n", cpu=16_000, memory=64 * GIB)
    assert isinstance(bed.engine.place_one(bed.pod("there", requests("6", "16Gi"))), Placed)
    fit = NodeResourcesFit(
        FitSettings(
            strategy="RequestedToCapacityRatio",
            resources=resource_weights([("cpu", 1), ("memory", 1)]),
            shape=(ShapePoint(0, 0), ShapePoint(100, 10)),
        )
    )
    assert score(bed, fit, requests("2", "8Gi")) == [44]


def test_g39_fit_plus() -> None:
    plus = NodeResourcesFitPlus(
        NodeResourcesFitPlusArgs(
            resources={
                GPU: FitPlusResource("MostAllocated", 2),
                "cpu": FitPlusResource("LeastAllocated", 1),
                "memory": FitPlusResource("LeastAllocated", 1),
            }
        )
    )
    bed = Bed()
    bed.node("n", cpu=32_000, memory=128 * GIB, more={GPU: 8})
    bed.engine.place_one(bed.pod("there", requests("10", "32Gi", resources={GPU: "3"})))
    assert score(bed, plus, requests("4", "16Gi", resources={GPU: "1"})) == [54]


def test_g40_scarce_resource_avoidance() -> None:
    scarce = ScarceResourceAvoidance(ScarceResourceAvoidanceArgs(resources=(GPU,)))
    bed = Bed()
    bed.node("gpu", more={GPU: 8, "ephemeral-storage": 100 * GIB})
    bed.node("plain", more={"ephemeral-storage": 100 * GIB})
    assert score(bed, scarce, requests("1", "1Gi")) == [50, 100]


def test_g41_image_locality() -> None:
    images = ImageLocality()
    bed = Bed(extra=[images])
    for number in range(4):
        there = {"team/app:latest": 300 * MIB} if number < 2 else {}
        bed.engine.set_node(NodeInfo(f"n{number}", {"cpu": 4000, "memory": GIB, "pods": 10}, images=there))
    spec = {"containers": [{"name": "main", "image": "team/app"}]}
    assert score(bed, images, spec) == [12, 12, 0, 0]
