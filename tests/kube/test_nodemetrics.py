"""NodeMetrics: their status is decoded when it is asked for."""

import msgspec
import pytest

from koord.kube.nodemetrics import NodeMetric


def metric(status: str) -> NodeMetric:
    return msgspec.json.decode(f'{{"metadata":{{"name":"n"}},"status":{status}}}', type=NodeMetric)


def test_the_status_is_read_when_asked_for() -> None:
    status = metric(
        '{"updateTime":"2026-03-02T09:00:00Z","nodeMetric":{"nodeUsage":{"resources":{"cpu":"1"}},"systemUsage":null},'
        '"podsMetric":[{"namespace":"d","name":"p","priority":"koord-prod","podUsage":{"resources":{"cpu":"2"}}}]}'
    ).status
    assert status.update_time == "2026-03-02T09:00:00Z"
    assert status.node_metric is not None
    assert status.node_metric.node_usage.resources == {"cpu": "1"}
    assert [(pod.name, pod.pod_usage.resources) for pod in status.pods_metric] == [("p", {"cpu": "2"})]


def test_no_status_is_an_empty_one() -> None:
    bare = msgspec.json.decode(b'{"metadata":{"name":"n"}}', type=NodeMetric)
    for same in (bare, metric("null"), metric("{}")):
        assert same.status.update_time is None
        assert same.status.node_metric is None
        assert same.status_body is bare.status_body


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.podsMetric"):
        _ = metric('{"podsMetric":"many"}').status
