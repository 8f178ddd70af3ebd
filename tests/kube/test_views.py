"""Views decode what API servers send, ignore what koord does not read, and encode back without noise."""

import json
import re
from typing import Any

import msgspec
import pytest

from koord.kube import meta, queues
from koord.kube.conditions import Condition, find, is_true, set_condition
from koord.kube.events import Event
from koord.kube.groups import PodGroup
from koord.kube.nodes import Node
from koord.kube.pods import Pod
from koord.kube.priorities import PriorityClass
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import ALL, BY_TOKEN, EVENTS, NODES, PODS, QUEUES, WATCHED

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "ml",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"a": "b"},
        "creationTimestamp": "2026-03-02T09:00:00Z",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1"},
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": True},
        ],
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "schedulerName": "koord-scheduler",
        "priority": 9500,
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"operator": "Exists", "tolerationSeconds": 300}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 5,
                        "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                    }
                ],
            },
            "podAntiAffinity": {},
        },
        "containers": [
            {
                "name": "c",
                "resources": {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": 2.5}},
                "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}],
            }
        ],
        "initContainers": [{"name": "s", "restartPolicy": "Always"}],
        "overhead": {"cpu": "100m"},
        "schedulingGates": [{"name": "g"}],
        "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "status": {
        "phase": "Pending",
        "nominatedNodeName": "n",
        "conditions": [{"type": "PodScheduled", "status": "False", "lastProbeTime": None}],
    },
}


def test_pod() -> None:
    pod = msgspec.json.decode(json.dumps(POD), type=Pod)
    assert pod.key == pod.metadata.key == meta.key("ml", "p") == "ml/p"
    assert meta.split_key(pod.key) == ("ml", "p")
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.kind == "Job"
    assert pod.spec.containers[0].resources.requests == {"cpu": 2, "memory": "1Gi"}
    assert pod.spec.containers[0].ports[0].host_ip == "10.0.0.1"
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    assert pod.spec.affinity.node_affinity.required is not None
    assert pod.spec.affinity.node_affinity.preferred[0].weight == 5
    assert pod.spec.scheduling_gates[0].name == "g"
    assert pod.status.nominated_node_name == "n"
    assert not pod.terminal
    with pytest.raises(AttributeError):
        pod.spec.node_name = "x"  # type: ignore[misc]


def test_what_was_read_is_written_back_under_the_same_names() -> None:
    pod = msgspec.json.decode(json.dumps(POD), type=Pod)
    written = msgspec.json.decode(msgspec.json.encode(pod))
    affinity = written["spec"]["affinity"]["nodeAffinity"]
    assert affinity == POD["spec"]["affinity"]["nodeAffinity"]
    assert written["spec"]["containers"] == POD["spec"]["containers"]
    assert written["metadata"]["ownerReferences"] == POD["metadata"]["ownerReferences"]
    assert "finalizers" not in written["metadata"]


def test_nulls_are_forgiven_and_types_are_not() -> None:
    body = b'{"metadata":{"name":"p","labels":null,"creationTimestamp":null},"spec":{"containers":null}}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=Pod)
    assert meta.decode(Pod, body).metadata.labels == {}
    unit = meta.decode(queues.QueueUnit, b'{"metadata":{"labels":null},"spec":{"podSet":[{"template":{"spec":{}}}]}}')
    assert bytes(unit.spec.pod_set[0].template) == b'{"spec":{}}'
    with pytest.raises(msgspec.ValidationError, match=re.escape("$.metadata.labels")):
        meta.decode(Pod, b'{"metadata":{"labels":[1]}}')


def test_node_quota_group_event_and_class() -> None:
    node = msgspec.json.decode(
        b'{"metadata":{"name":"n"},"spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]},'
        b'"status":{"allocatable":{"cpu":"64","pods":"110"},"conditions":[{"type":"Ready","status":"True"}]}}',
        type=Node,
    )
    assert node.key == "n"
    assert node.spec.unschedulable
    assert is_true(node.status.conditions, "Ready")
    quota = msgspec.json.decode(
        b'{"metadata":{"name":"q"},"spec":{"min":{"cpu":"1"},"max":{"cpu":2}}}', type=ElasticQuota
    )
    assert quota.spec.max == {"cpu": 2}
    group = msgspec.json.decode(
        b'{"spec":{"minMember":3,"scheduleTimeoutSeconds":60},"status":{"phase":"Pending"}}', type=PodGroup
    )
    assert (group.spec.min_member, group.spec.schedule_timeout_seconds) == (3, 60)
    event = msgspec.json.decode(
        b'{"involvedObject":{"kind":"Pod","name":"p"},"reason":"Scheduled","eventTime":null}', type=Event
    )
    assert event.involved_object.kind == "Pod"
    assert msgspec.json.decode(b'{"value":1000,"globalDefault":true}', type=PriorityClass).value == 1000


def test_queue_unit_in_the_wire_form_of_the_specification() -> None:
    wire = {
        "phase": "Dequeued",
        "attempts": 0,
        "message": "Waiting job extension to reclaim resources.",
        "admissions": [
            {"name": "low", "replicas": 1, "running": 0, "resources": {"cpu": "2"}, "reclaimState": {"replicas": 1}}
        ],
        "lastAllocateTime": "2026-03-02T09:00:00Z",
        "lastUpdateTime": "2026-03-02T09:01:10Z",
    }
    unit = msgspec.convert({"metadata": {"name": "low"}, "status": wire}, queues.QueueUnit)
    assert queues.status_body(unit.status) == wire
    assert queues.status_body(queues.QueueUnitStatus()) == {"phase": "", "attempts": 0, "admissions": []}


def test_queue_unit_spec_uses_the_singular_pod_set() -> None:
    unit = queues.QueueUnitSpec(
        pod_set=[queues.PodSet(name="worker", count=4, template=msgspec.Raw(b'{"spec":{}}'))], resource={"cpu": "4"}
    )
    assert msgspec.json.decode(msgspec.json.encode(unit)) == {
        "podSet": [{"name": "worker", "count": 4, "template": {"spec": {}}}],
        "resource": {"cpu": "4"},
    }
    read = msgspec.json.decode(b'{"podSet":[{"template":{"spec":{"x":1}}}],"priority":-5}', type=queues.QueueUnitSpec)
    assert (read.pod_set[0].name, read.pod_set[0].count, read.priority) == ("main", 1, -5)
    assert bytes(read.pod_set[0].template) == b'{"spec":{"x":1}}'


def test_conditions_move_their_time_only_when_the_status_flips() -> None:
    conditions: list[Condition] = []
    assert set_condition(conditions, Condition(type="Admitted", status="False", reason="Pending"), 1000.0)
    assert not set_condition(conditions, Condition(type="Admitted", status="False", reason="Pending"), 2000.0)
    assert set_condition(conditions, Condition(type="Admitted", status="False", reason="Waiting"), 3000.0)
    assert conditions[0].last_transition_time == meta.now_rfc3339(1000)
    assert set_condition(conditions, Condition(type="Admitted", status="True", reason="Admitted"), 4000.0)
    assert conditions[0].last_transition_time == meta.now_rfc3339(4000)
    assert is_true(conditions, "Admitted")
    assert find(conditions, "Other") is None


def test_times() -> None:
    assert meta.now_rfc3339(0) == "1970-01-01T00:00:00Z"
    assert meta.micro_rfc3339(1.5) == "1970-01-01T00:00:01.500000Z"
    assert meta.parse_time("2026-03-02T09:00:00Z") == meta.parse_time("2026-03-02T10:00:00+01:00")
    assert meta.parse_time(meta.now_rfc3339(1_700_000_000.9)) == 1_700_000_000
    for bad in ("", "yesterday", "2026-03-02T09:00:00"):
        with pytest.raises(ValueError, match="must be RFC 3339"):
            meta.parse_time(bad)


def test_resources() -> None:
    assert (PODS.token, PODS.api_version) == ("pods_core", "v1")
    assert QUEUES.token == "queues_scheduling_x-k8s_io"
    assert PODS.path("ns", "p", "binding") == "/api/v1/namespaces/ns/pods/p/binding"
    assert PODS.path() == "/api/v1/pods"
    assert NODES.path("", "n", "status") == "/api/v1/nodes/n/status"
    assert QUEUES.path("koord-queue") == "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/koord-queue/queues"
    assert len(BY_TOKEN) == len(ALL)
    assert EVENTS not in WATCHED
