"""Golden examples of spec 10 section 6 about what objects become: G36 node reservation, G37 batch translation."""

import json
from typing import Any

import msgspec
import pytest

from koord.kube.podresources import translate_resources
from koord.kube.pods import PodSpec
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.transformers.nodes import transform_node


@pytest.mark.parametrize(
    ("reservation", "cpu"),
    [
        ({"resources": {"cpu": "2"}}, 14_000),
        ({"resources": {"cpu": "2"}, "reservedCPUs": "0-3"}, 12_000),
        ({"reservedCPUs": "0-3", "applyPolicy": "ReservedCPUsOnly"}, 16_000),
    ],
)
def test_g36_node_reservation(reservation: dict[str, Any], cpu: int) -> None:
    node = NodeInfo("n", {"cpu": 16_000}, annotations={"node.koordinator.sh/reservation": json.dumps(reservation)})
    made, problems = transform_node(node)
    assert (made.allocatable["cpu"], problems) == (cpu, ())


def test_g37_batch_translation() -> None:
    spec = msgspec.convert(
        {
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1500m", "memory": "2Gi"}}},
                {"name": "b", "resources": {"limits": {"cpu": "2"}}},
            ]
        },
        PodSpec,
    )
    first, second = (container.resources for container in translate_resources(spec, "koord-batch").containers)
    assert first.requests == {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "2Gi"}
    assert first.limits == {}
    assert second.requests == {"kubernetes.io/batch-cpu": "2000"}
    assert second.limits == {"kubernetes.io/batch-cpu": "2000"}
