"""Nodes as they enter the scheduler."""

import json
from typing import Any

from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.transformers.nodes import transform_node

GIB = 1 << 30


def node(reservation: Any = None, **amounts: int) -> NodeInfo:
    annotations = {}
    if reservation is not None:
        text = reservation if isinstance(reservation, str) else json.dumps(reservation)
        annotations["node.koordinator.sh/reservation"] = text
    return NodeInfo("n", {"cpu": 16_000, "memory": 64 * GIB, **amounts}, annotations=annotations)


def test_what_is_set_aside_is_taken_off() -> None:
    made, problems = transform_node(node({"resources": {"cpu": "2", "memory": "4Gi", "other": "1"}}))
    assert (made.allocatable, problems) == ({"cpu": 14_000, "memory": 60 * GIB}, ())


def test_more_than_there_is_leaves_nothing() -> None:
    made, _ = transform_node(node({"resources": {"cpu": "20"}}))
    assert made.allocatable["cpu"] == 0


def test_batch_amounts_are_net_already() -> None:
    made, _ = transform_node(
        node({"resources": {"cpu": "1", "kubernetes.io/batch-cpu": "1"}}, **{"kubernetes.io/batch-cpu": 5000})
    )
    assert made.allocatable == {"cpu": 15_000, "memory": 64 * GIB, "kubernetes.io/batch-cpu": 5000}


def test_a_reservation_that_cannot_be_read_takes_nothing_off() -> None:
    for text in ("{", '{"resources":{"cpu":"much"}}', '{"reservedCPUs":"a-b"}', '{"applyPolicy":"Sometimes"}'):
        given = node(text)
        made, problems = transform_node(given)
        assert made is given
        assert len(problems) == 1
        assert problems[0].startswith("Node n: metadata.annotations: node.koordinator.sh/reservation: ")


def test_deprecated_names() -> None:
    old = {"koordinator.sh/batch-cpu": 8000, "kubernetes.io/gpu": 100}
    made, _ = transform_node(node(**old))
    assert made.allocatable == {
        "cpu": 16_000,
        "memory": 64 * GIB,
        "kubernetes.io/batch-cpu": 8000,
        "koordinator.sh/gpu": 100,
    }
    plain = node()
    assert transform_node(plain)[0] is plain
