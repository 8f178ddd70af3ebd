"""What a running pod alone has is told with it: its ports, its volumes, the CPUs that its annotation names."""

import json
from typing import Any

import msgspec
import pytest

from koord.ledger.model import PodSeen
from koord.reconciler.folding import Folder
from koord.reconciler.sights import PodSight, slots_of

STATUS = "scheduling.koordinator.sh/resource-status"


def sight(annotations: dict[str, str] | None = None, version: str = "1", **spec: Any) -> PodSight:
    body = {
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version, "annotations": annotations or {},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], **spec},
        "status": {"phase": "Running"},
    }  # fmt: skip
    return msgspec.json.decode(json.dumps(body), type=PodSight)


def ports(*some: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "c", "ports": list(some)}]


@pytest.mark.parametrize(
    ("pod", "slots"),
    [
        (sight(), ()),
        (sight(containers=ports({"containerPort": 80})), ()),
        (sight(containers=ports({"containerPort": 80, "hostPort": 8080})), ("port/n1/TCP/8080",)),
        (
            sight(containers=ports({"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"})),
            ("port/n1/UDP/53/10.0.0.1",),
        ),
        (sight(initContainers=ports({"hostPort": 1})), ()),
        (sight(initContainers=[{**ports({"hostPort": 1})[0], "restartPolicy": "Always"}]), ("port/n1/TCP/1",)),
        (sight(containers=ports({"hostPort": "odd"})), ()),
        (
            sight(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e"}]),
            ("claim/ns/data",),
        ),
        (sight(volumes=[{"name": "v", "persistentVolumeClaim": 3}]), ()),
        (sight({STATUS: '{"cpuset":"2,4-5"}'}), ("cpu/n1/2", "cpu/n1/4", "cpu/n1/5")),
        (sight({STATUS: '{"cpuset":"no"}'}), ()),
    ],
)
def test_what_a_pod_has(pod: PodSight, slots: tuple[str, ...]) -> None:
    assert slots_of(pod) == slots


def test_it_is_told_once_and_when_it_changes() -> None:
    folder = Folder()
    before = sight()
    [seen] = folder.pod(None, before, "1", 0.0)
    assert isinstance(seen, PodSeen) and seen.slots == ()
    given = sight({STATUS: '{"cpuset":"3"}'}, "2")
    [seen] = folder.pod(before, given, "2", 0.0)
    assert isinstance(seen, PodSeen) and seen.slots == ("cpu/n1/3",)
    assert folder.pod(given, sight({STATUS: '{"cpuset":"3"}'}, "3"), "3", 0.0) == []
    folder.forget()
    [seen] = folder.pod(None, given, "2", 0.0)
    assert isinstance(seen, PodSeen) and seen.slots == ("cpu/n1/3",)
