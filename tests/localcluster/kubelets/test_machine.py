"""The pure parts of a fake node: plans, statuses, room, node objects."""

import math

import msgspec
import pytest

from koord.localcluster.kubelets.machine import (
    EXIT,
    RUN_SECONDS,
    START_SECONDS,
    Containers,
    Plan,
    finished_status,
    plan_of,
    rejected_status,
    running_status,
)
from koord.localcluster.kubelets.nodes import Room, conditions, host_ip, node_object
from koord.localcluster.kubelets.options import KubeletOptions


@pytest.mark.parametrize(
    ("annotations", "policy", "plan"),
    [
        ({}, "Always", Plan(0.2, None, True)),
        ({}, "", Plan(0.2, None, True)),
        ({}, "Never", Plan(0.2, 1.0, True)),
        ({}, "OnFailure", Plan(0.2, 1.0, True)),
        ({RUN_SECONDS: "7.5"}, "Always", Plan(0.2, 7.5, True)),
        ({RUN_SECONDS: "0", START_SECONDS: "0"}, "Never", Plan(0.0, 0.0, True)),
        ({EXIT: "Failed"}, "Never", Plan(0.2, 1.0, False)),
        ({EXIT: "Succeeded", START_SECONDS: "3"}, "Always", Plan(3.0, None, True)),
    ],
)
def test_plan(annotations: dict[str, str], policy: str, plan: Plan) -> None:
    assert plan_of(annotations, policy, 0.2, 1.0) == plan


@pytest.mark.parametrize("bad", ["", "soon", "-1", "nan", "inf", "1s"])
def test_bad_seconds_are_named_and_not_obeyed(bad: str) -> None:
    plan = plan_of({RUN_SECONDS: bad, START_SECONDS: bad, EXIT: "Maybe"}, "Never", 0.2, 1.0)
    assert plan[:3] == (0.2, 1.0, True)
    assert plan.problems == (
        f"metadata.annotations[{START_SECONDS}]: {bad!r} must be a number of seconds, at least 0",
        f"metadata.annotations[{RUN_SECONDS}]: {bad!r} must be a number of seconds, at least 0",
        f"metadata.annotations[{EXIT}]: 'Maybe' must be Succeeded or Failed",
    )


def test_statuses() -> None:
    containers = Containers((("a", "img:1"), ("b", "img:2")), (("setup", "i"),), (("proxy", "p"),))
    status = running_status(containers, uid="u", pod_ip="10.0.0.1", host_ip="172.16.0.1", started="T0", now="T1")[
        "status"
    ]
    assert (status["phase"], status["podIP"], status["hostIP"], status["startTime"]) == (
        "Running",
        "10.0.0.1",
        "172.16.0.1",
        "T0",
    )
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }
    assert [(c["name"], c["ready"], list(c["state"])) for c in status["containerStatuses"]] == [
        ("a", True, ["running"]),
        ("b", True, ["running"]),
    ]
    assert [(c["name"], list(c["state"])) for c in status["initContainerStatuses"]] == [
        ("setup", ["terminated"]),
        ("proxy", ["running"]),
    ]
    for succeeded, phase, code in ((True, "Succeeded", 0), (False, "Failed", 1)):
        status = finished_status(containers, uid="u", succeeded=succeeded, started="T1", now="T2")["status"]
        assert status["phase"] == phase
        assert [c["state"]["terminated"]["exitCode"] for c in status["containerStatuses"]] == [code, code]
        assert next(c for c in status["conditions"] if c["type"] == "Ready")["status"] == "False"


def test_a_node_without_room_says_so_like_a_kubelet() -> None:
    room = Room({"cpu": 4000, "memory": 100, "pods": 3})
    request = {"cpu": 1500, "memory": 10, "example.com/unknown": 5}
    assert room.shortage(request) is None
    room.take(request)
    room.take(request)
    shortage = room.shortage(request)
    assert shortage is not None
    assert shortage.reason == "OutOfcpu"
    assert rejected_status(shortage, "T")["status"] == {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": "Pod was rejected: Node didn't have enough resource: cpu, "
        "requested: 1500, used: 3000, capacity: 4000",
        "startTime": "T",
    }
    room.take({})
    full = room.shortage({})
    assert full is not None and full.reason == "OutOfpods"
    room.free(request)
    assert room.shortage(request) is None
    room.free(request)
    room.free({})
    assert set(room.used.values()) == {0}


def test_node_objects_differ_where_they_should() -> None:
    options = KubeletOptions(nodes=5, gpu_nodes=2, zones=2, labels={"team": "a"})
    nodes = [node_object(number, options, 0.0) for number in range(1, 6)]
    assert [node["metadata"]["name"] for node in nodes] == [f"node-0000{i}" for i in range(1, 6)]
    assert [node["status"]["allocatable"].get("nvidia.com/gpu") for node in nodes] == [None, None, None, "8", "8"]
    labels = [node["metadata"]["labels"] for node in nodes]
    assert {label["topology.kubernetes.io/zone"] for label in labels} == {"zone-1", "zone-2"}
    assert all(label["team"] == "a" for label in labels)
    assert labels[4]["kubernetes.io/hostname"] == "node-00005"
    assert labels[4]["node.kubernetes.io/instance-type"] != labels[0]["node.kubernetes.io/instance-type"]
    assert len({host_ip(number) for number in range(1, 70_000)}) == 69_999
    ready = conditions(100.0, 50.0)[-1]
    assert (ready["type"], ready["status"]) == ("Ready", "True")
    assert ready["lastHeartbeatTime"] > ready["lastTransitionTime"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"nodes": -1}', r"nodes"),
        ('{"nodes": 2, "gpu_nodes": 3}', r"gpu_nodes: 3 is more than nodes \(2\)"),
        ('{"cpu": "lots"}', r"cpu: "),
        ('{"name_pattern": "node"}', r"name_pattern"),
        ('{"noodles": 3}', r"noodles"),
        ('{"heartbeat_s": 0}', r"heartbeat_s"),
    ],
)
def test_options_name_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=complaint):
        msgspec.json.decode(text, type=KubeletOptions)


def test_infinite_is_not_a_time() -> None:
    assert not math.isinf(plan_of({RUN_SECONDS: "1e400"}, "Never", 0.2, 1.0).run_s or 0.0)
