"""Thresholds of the scheduler beside those of the agents: what disagrees is told, and what cannot be read is named."""

import json
from typing import Any

import pytest

from koord.scheduler.config.errors import ConfigError
from koord.scheduler.config.koordinatorargs import AggregatedArgs, LoadAwareSchedulingArgs
from koord.scheduler.plugins.loadaware.agreement import CONFIG_KEY, disagreements, strategies


def slo_config(strategy: Any, *nodes: dict[str, Any]) -> str:
    body = {"clusterStrategy": strategy, "nodeStrategies": list(nodes)}
    return json.dumps({"kind": "ConfigMap", "data": {CONFIG_KEY: json.dumps(body)}})


def told(text: str, **args: Any) -> list[str]:
    return list(disagreements(LoadAwareSchedulingArgs(**args).completed(), strategies(text)))


def test_agents_that_evict_before_the_scheduler_stops() -> None:
    text = slo_config({"enable": True})
    evicts = "all nodes: agents evict best-effort pods from 70% of memory on, but the scheduler places pods"
    assert told(text) == [f"{evicts} up to 95%"]
    assert told(text, usage_thresholds={"cpu": 65, "memory": 70}) == [f"{evicts} up to 70%"]
    assert told(text, usage_thresholds={"cpu": 65, "memory": 69}) == []
    assert told(text, usage_thresholds={"cpu": 65}) == [f"{evicts} whatever is used"]


def test_cpu_that_is_suppressed_or_evicted() -> None:
    text = slo_config({"enable": True, "memoryEvictThresholdPercent": 100, "cpuEvictThresholdPercent": 60})
    assert told(text) == ["all nodes: agents evict pods from 60% of cpu on, but the scheduler places pods up to 65%"]
    text = slo_config({"enable": True, "memoryEvictThresholdPercent": 100, "cpuSuppressThresholdPercent": 50})
    assert told(text) == [
        "all nodes: agents suppress best-effort pods from 50% of cpu on, but the scheduler places pods up to 65%"
    ]


def test_the_thresholds_that_hold_are_compared() -> None:
    text = slo_config({"enable": True})
    aggregated = AggregatedArgs({"cpu": 60, "memory": 60}, "p95")
    assert told(text, aggregated=aggregated) == []


def test_strategies_of_some_nodes_stand_on_that_of_all() -> None:
    text = slo_config(
        {"enable": True, "memoryEvictThresholdPercent": 98},
        {"name": "gpu", "nodeSelector": {}, "MEMORYEVICTTHRESHOLDPERCENT": 60},
        {"name": "quiet", "enable": False, "memoryEvictThresholdPercent": None},
    )
    assert told(text) == [
        'nodes of "gpu": agents evict best-effort pods from 60% of memory on, but the scheduler places pods up to 95%'
    ]


def test_agents_that_do_nothing() -> None:
    assert told(slo_config({})) == []
    assert told("kind: ConfigMap\ndata: {}\n") == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("kind: ConfigMap\n", "data: must be that of a ConfigMap"),
        (json.dumps({"data": {CONFIG_KEY: "{"}}), f"data[{CONFIG_KEY}]: "),
        (json.dumps({"data": {CONFIG_KEY: {"clusterStrategy": {}}}}), f"data[{CONFIG_KEY}]: "),
        (slo_config([1]), "a strategy must be an object"),
        (slo_config({}, [1]), "a strategy must be an object"),  # type: ignore[arg-type]
        (slo_config({"memoryEvictThresholdPercent": "60"}), "memoryEvictThresholdPercent"),
        (json.dumps({"data": {CONFIG_KEY: '{"nodeStrategies": 3}'}}), f"data[{CONFIG_KEY}]: "),
    ],
)
def test_what_cannot_be_read(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        strategies(text, "slo.yaml")
    assert named in str(caught.value)
    assert str(caught.value).startswith("slo.yaml: ")
