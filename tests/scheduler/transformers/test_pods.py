"""Pods as they enter the scheduler."""

from typing import Any

import msgspec
import pytest

from koord.kube.pods import PodSpec
from koord.scheduler.transformers.pods import (
    PREEMPTION_POLICY,
    PodGates,
    device_allocated,
    pod_priority,
    preemption_policy,
    replacements,
    transform_spec,
)

ALL = PodGates(replace_resources=True, priority=True, preemption_policy=True)


def spec_of(**requests: Any) -> PodSpec:
    return msgspec.convert({"containers": [{"name": "a", "resources": {"requests": requests}}]}, PodSpec)


def asked(spec: PodSpec) -> dict[str, Any]:
    return dict(spec.containers[0].resources.requests)


def test_deprecated_names() -> None:
    old = {"koordinator.sh/batch-cpu": "1000", "kubernetes.io/gpu-core": "50", "kubernetes.io/rdma": "1"}
    assert asked(transform_spec(spec_of(**old), "", PodGates())) == {
        "kubernetes.io/batch-cpu": "1000",
        "koordinator.sh/gpu-core": "50",
        "koordinator.sh/rdma": "1",
    }
    plain = spec_of(cpu="1")
    assert transform_spec(plain, "", PodGates()) is plain


def test_replacing_resources_needs_its_gate() -> None:
    spec = spec_of(cpu="1500m", a="1", b="2")
    assert transform_spec(spec, "cpu:kubernetes.io/batch-cpu,a:", PodGates()) is spec
    made = transform_spec(spec, "b:c, cpu:kubernetes.io/batch-cpu,a:,nothing,x:y:z", ALL)
    assert asked(made) == {"kubernetes.io/batch-cpu": "1500", "c": "2"}


def test_erasing_comes_first() -> None:
    made = transform_spec(spec_of(a="1", b="2"), "a:b,b:", ALL)
    assert asked(made) == {"b": "1"}


def test_entries_without_exactly_one_colon_mean_nothing() -> None:
    assert replacements("a,b:c:d,:e,,f:g,h:") == (("h",), (("f", "g"),))


@pytest.mark.parametrize(
    ("own", "labels", "gates", "expected"),
    [
        (None, {}, ALL, 0),
        (7, {"koordinator.sh/priority-class": "koord-prod"}, ALL, 7),
        (None, {"koordinator.sh/priority-class": "koord-batch"}, ALL, 5500),
        (0, {"koordinator.sh/priority-class": "koord-prod"}, ALL, 9500),
        (0, {"koordinator.sh/priority-class": "koord-prod"}, PodGates(), 0),
        (0, {"koordinator.sh/priority-class": "nonsense"}, ALL, 0),
    ],
)
def test_priority(own: int | None, labels: dict[str, str], gates: PodGates, expected: int) -> None:
    assert pod_priority(own, labels, gates) == expected


def test_preemption_policy() -> None:
    assert preemption_policy(None, {}, PodGates()) == ""
    assert preemption_policy("PreemptLowerPriority", {}, PodGates()) == "PreemptLowerPriority"
    assert preemption_policy("PreemptLowerPriority", {}, ALL) == "Never"
    assert preemption_policy(None, {PREEMPTION_POLICY: "PreemptLowerPriority"}, ALL) == "PreemptLowerPriority"
    assert preemption_policy(None, {PREEMPTION_POLICY: "sometimes"}, ALL) == "Never"


def test_devices_given_under_old_names() -> None:
    text = '{"gpu":[{"minor":0,"resources":{"kubernetes.io/gpu-core":"100","koordinator.sh/gpu-memory":"8Gi"}}]}'
    made = msgspec.json.decode(device_allocated(text))
    assert made["gpu"][0]["resources"] == {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "8Gi"}
    for same in ("{", '["kubernetes.io/gpu"]', '{"gpu":3,"kubernetes.io/gpu":1}', '{"gpu":[{"minor":1}]}'):
        assert device_allocated(same) == same
