"""Pods: binding, status, priority, and what may change."""

from typing import Any

import pytest

from tests.localcluster.api.rig import Client, pod


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def test_binding_assigns_once_and_merges_annotations(client: Client, pods: str) -> None:
    made = client.post(pods, pod("a")).body
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "a",
            "uid": made["metadata"]["uid"],
            "resourceVersion": made["metadata"]["resourceVersion"],
            "annotations": {"koord.sh/traceparent": "00-1-1-01"},
        },
        "target": {"kind": "Node", "name": "node-1"},
    }
    answer = client.post(f"{pods}/a/binding", binding)
    assert (answer.code, answer.body["status"]) == (201, "Success")
    bound = client.get(f"{pods}/a").body
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"] == {"koord.sh/traceparent": "00-1-1-01"}
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    again = client.post(f"{pods}/a/binding", {"target": {"name": "node-2"}})
    assert (again.code, again.body["reason"]) == (409, "Conflict")
    assert 'already assigned to node "node-1"' in again.body["message"]
    assert client.get(f"{pods}/a").body == bound


def test_binding_preconditions_and_errors(client: Client, pods: str) -> None:
    client.post(pods, pod("a"))
    path = f"{pods}/a/binding"
    target = {"target": {"name": "node-1"}}
    assert client.post(path, {**target, "metadata": {"uid": "another"}}).code == 409
    assert client.post(path, {**target, "metadata": {"resourceVersion": "1"}}).code == 409
    assert client.post(path, {**target, "metadata": {"name": "b"}}).code == 400
    missing = client.post(path, {"metadata": {"name": "a"}, "target": {}})
    assert (missing.code, missing.body["message"]) == (500, "target.name: Required value")  # sic, as Kubernetes
    assert client.post(path, {"target": {"kind": "Pod", "name": "x"}}).code == 500
    assert client.post(path, {"target": "x"}).code == 400
    assert client.post(path, {**target, "metadata": {"annotations": {"x": 1}}}).code == 400
    assert client.post(f"{pods}/none/binding", target).code == 404
    assert "nodeName" not in client.get(f"{pods}/a").body["spec"]
    # Without metadata, as kubernetes_asyncio sends it, and through the namespace's own resource.
    assert client.post(path, {**target, "metadata": None}).code == 201
    client.post(pods, pod("b"))
    bindings = pods.removesuffix("pods") + "bindings"
    assert client.post(bindings, {**target, "metadata": {"name": "b"}}).code == 201
    assert client.get(f"{pods}/b").body["spec"]["nodeName"] == "node-1"


def test_a_gated_or_dying_pod_cannot_be_bound(client: Client, pods: str) -> None:
    gated = client.post(pods, pod("a", schedulingGates=[{"name": "koord.sh/gate"}])).body
    assert gated["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert client.post(f"{pods}/a/binding", {"target": {"name": "n"}}).code == 409
    assert client.patch(f"{pods}/a", {"spec": {"schedulingGates": None}}).code == 200
    held = pod("b")
    held["metadata"]["finalizers"] = ["koord.sh/hold"]
    client.post(pods, held)
    client.delete(f"{pods}/b")
    refused = client.post(f"{pods}/b/binding", {"target": {"name": "n"}})
    assert refused.code == 409 and "is being deleted" in refused.body["message"]


def test_spec_and_status_are_written_apart(client: Client, pods: str) -> None:
    client.post(pods, pod("a"))
    changed = client.patch(f"{pods}/a", {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}).body
    assert changed["status"]["phase"] == "Pending" and changed["metadata"]["labels"] == {"x": "y"}
    patch = {"status": {"phase": "Running"}, "spec": {"nodeName": "n"}}
    running = client.patch(f"{pods}/a/status", patch).body
    assert running["status"]["phase"] == "Running" and "nodeName" not in running["spec"]
    running["status"] = {"phase": "Succeeded"}
    assert client.put(f"{pods}/a/status", running).body["status"] == {"phase": "Succeeded"}
    assert client.get(f"{pods}/a/status").body["status"] == {"phase": "Succeeded"}
    stale = {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Failed"}}
    assert client.patch(f"{pods}/a/status", stale).code == 409


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"nodeName": "n"}, "spec.nodeName"),
        ({"schedulerName": "other"}, "spec.schedulerName"),
        ({"priority": 5}, "spec.priority"),
        ({"nodeSelector": {"a": "b"}}, "spec.nodeSelector"),
        ({"containers": [{"name": "main", "image": "busybox", "command": ["x"]}]}, "spec.containers"),
    ],
)
def test_most_of_the_spec_is_fixed(client: Client, pods: str, patch: dict[str, Any], field: str) -> None:
    before = client.post(pods, pod("a")).body
    answer = client.patch(f"{pods}/a", {"spec": patch})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in answer.body["details"]["causes"]] == [field]
    assert client.get(f"{pods}/a").body == before


def test_images_deadline_and_more_tolerations_may_change(client: Client, pods: str) -> None:
    made = client.post(pods, pod("a")).body
    assert made["metadata"]["generation"] == 1
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "busybox:2"}]
    changed = client.patch(f"{pods}/a", image, "json-patch")
    assert changed.code == 200 and changed.body["metadata"]["generation"] == 2
    more = [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "k", "operator": "Exists"}}]
    assert client.patch(f"{pods}/a", more, "json-patch").code == 200
    assert client.patch(f"{pods}/a", {"spec": {"activeDeadlineSeconds": 5}}).code == 200
    labelled = client.patch(f"{pods}/a", {"metadata": {"labels": {"a": "b"}}}).body
    assert labelled["metadata"]["generation"] == 4


def test_priority_class_is_resolved(client: Client, pods: str) -> None:
    client.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "koord-test"}, "value": 9500})
    spec = client.post(pods, pod("a", priorityClassName="koord-test")).body["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (9500, "PreemptLowerPriority")
    unknown = client.post(pods, pod("b", priorityClassName="none-such"))
    assert unknown.code == 403 and "no PriorityClass with name none-such" in unknown.body["message"]
    assert client.post(pods, pod("c", priorityClassName="koord-test", priority=1)).code == 403
    assert (
        client.post(pods, pod("d", priorityClassName="system-node-critical")).body["spec"]["priority"] == 2_000_001_000
    )


def test_unbound_and_bound_pods_go_at_once_without_kubelets(client: Client, pods: str) -> None:
    client.post(pods, pod("a"))
    client.post(pods, pod("b"))
    client.post(f"{pods}/b/binding", {"target": {"name": "n"}})
    assert client.delete(f"{pods}/a").body["kind"] == "Pod"
    assert client.delete(f"{pods}/b").code == 200
    assert client.post(pods, pod("c")).code == 201
    assert client.post(f"{pods}/c/eviction", {"metadata": {"name": "c"}}).code == 201
    assert client.get(pods).body["items"] == []


def test_field_selectors(client: Client, pods: str) -> None:
    for name in "abc":
        client.post(pods, pod(name, schedulerName="koord-scheduler" if name == "a" else "default-scheduler"))
    client.post(f"{pods}/b/binding", {"target": {"name": "node-7"}})
    client.patch(f"{pods}/c/status", {"status": {"phase": "Running"}})

    def names(selector: str) -> list[str]:
        answer = client.get(f"{pods}?fieldSelector={selector}")
        assert answer.code == 200, answer.body
        return [item["metadata"]["name"] for item in answer.body["items"]]

    assert names("spec.nodeName%3Dnode-7") == ["b"]
    assert names("spec.nodeName%3D") == ["a", "c"]
    assert names("spec.nodeName!%3D") == ["b"]
    assert names("status.phase%3DRunning") == ["c"]
    assert names("spec.schedulerName%3Dkoord-scheduler,spec.nodeName%3D") == ["a"]
    assert names("metadata.name%3Db") == ["b"]
    assert names("spec.hostNetwork%3Dfalse,status.phase!%3DRunning") == ["a", "b"]
    bad = client.get(f"{pods}?fieldSelector=spec.nope%3D1")
    assert bad.code == 400 and "field label not supported: spec.nope" in bad.body["message"]
    assert client.get(f"{pods}?labelSelector=a%20b%20c").code == 400


def test_a_node_is_validated(client: Client) -> None:
    bad_taint = {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "k", "effect": "Never"}]}}
    assert "spec.taints[0].effect" in client.post("/api/v1/nodes", bad_taint).body["message"]
    bad_amount = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "four"}}}
    assert "quantities must match" in client.post("/api/v1/nodes", bad_amount).body["message"]
    good = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}}
    assert client.post("/api/v1/nodes", good).body["status"] == {"allocatable": {"cpu": "4"}}
    assert client.patch("/api/v1/nodes/n1/status", {"status": {"allocatable": {"cpu": "x"}}}).code == 422
    assert client.delete("/api/v1/nodes/n1").code == 200
