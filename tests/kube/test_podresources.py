"""Renaming, erasing and translating what a pod asks for."""

from typing import Any

import msgspec
import pytest

from koord.kube.podresources import (
    erase_resources,
    kubernetes_qos,
    rename_resources,
    translate_resources,
    translated_name,
)
from koord.kube.pods import PodSpec
from koord.kube.quantity import QuantityError


def spec_of(**fields: Any) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def test_everything_that_asks_is_renamed() -> None:
    spec = spec_of(
        containers=[{"name": "a", "resources": {"requests": {"old": "2", "cpu": "1"}, "limits": {"old": "3"}}}],
        initContainers=[{"name": "i", "resources": {"requests": {"old": 4}}}],
        overhead={"old": "1", "memory": "1Mi"},
    )
    made = rename_resources(spec, {"old": "new"})
    assert made.containers[0].resources.requests == {"new": "2", "cpu": "1"}
    assert made.containers[0].resources.limits == {"new": "3"}
    assert made.init_containers[0].resources.requests == {"new": 4}
    assert made.overhead == {"new": "1", "memory": "1Mi"}
    assert spec.containers[0].resources.requests == {"old": "2", "cpu": "1"}
    assert rename_resources(spec, {"other": "new"}) is spec


def test_a_name_that_is_there_already_wins() -> None:
    spec = spec_of(containers=[{"name": "a", "resources": {"requests": {"old": "2", "new": "1"}}}])
    made = rename_resources(spec, {"old": "new"})
    assert made.containers[0].resources.requests == {"old": "2", "new": "1"}


def test_cpu_under_another_name_counts_in_milli() -> None:
    spec = spec_of(containers=[{"name": "a", "resources": {"requests": {"cpu": "1.5"}}}])
    assert rename_resources(spec, {"cpu": "x"}).containers[0].resources.requests == {"x": "1500"}
    bad = spec_of(containers=[{"name": "a", "resources": {"requests": {"cpu": "much"}}}])
    with pytest.raises(QuantityError, match="much"):
        rename_resources(bad, {"cpu": "x"})


def test_erasing() -> None:
    spec = spec_of(containers=[{"name": "a", "resources": {"limits": {"x": "1", "y": "2"}}}], overhead={"x": 1})
    made = erase_resources(spec, ["x"])
    assert (made.containers[0].resources.limits, made.overhead) == ({"y": "2"}, {})
    assert erase_resources(spec, ["z"]) is spec


def test_translation_leaves_other_classes_alone() -> None:
    spec = spec_of(containers=[{"name": "a", "resources": {"requests": {"cpu": "1"}}}])
    for name in ("koord-prod", "koord-free", ""):
        assert translate_resources(spec, name) is spec
    mid = translate_resources(spec, "koord-mid").containers[0].resources.requests
    assert mid == {"kubernetes.io/mid-cpu": "1000"}


def test_names_by_priority_class() -> None:
    assert translated_name("koord-batch", "cpu") == "kubernetes.io/batch-cpu"
    assert translated_name("koord-mid", "memory") == "kubernetes.io/mid-memory"
    assert translated_name("koord-mid", "nvidia.com/gpu") == "nvidia.com/gpu"
    assert translated_name("koord-prod", "cpu") == "cpu"
    assert translated_name("koord-free", "cpu") == ""


def containers(*resources: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **more: Any) -> PodSpec:
    """A pod with containers of these resources."""
    return spec_of(
        containers=[{"name": f"c{n}", "resources": each} for n, each in enumerate(resources)],
        initContainers=[{"name": f"i{n}", "resources": each} for n, each in enumerate(init)],
        **more,
    )


FULL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (containers({}), "BestEffort"),
        (containers({"requests": {"nvidia.com/gpu": "1"}}), "BestEffort"),
        (containers({"requests": {"cpu": "0"}}), "BestEffort"),
        (containers(FULL), "Guaranteed"),
        (containers({"limits": FULL["limits"]}), "Guaranteed"),
        (containers(FULL, {}), "Burstable"),
        (containers(FULL, init=({"requests": {"cpu": "1"}},)), "Burstable"),
        (containers(FULL, init=(FULL,)), "Guaranteed"),
        (containers({"requests": {"cpu": "1"}}), "Burstable"),
        (containers({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}), "Burstable"),
        (containers({"limits": {"cpu": "1"}}), "Burstable"),
        (containers({}, resources=FULL), "Guaranteed"),
        (containers(FULL, resources={"requests": {"cpu": "1"}}), "Burstable"),
        (containers(FULL, resources={"requests": {"hugepages-2Mi": "2Mi"}}), "Guaranteed"),
    ],
)
def test_kubernetes_own_class(spec: PodSpec, expected: str) -> None:
    assert kubernetes_qos(spec) == expected
