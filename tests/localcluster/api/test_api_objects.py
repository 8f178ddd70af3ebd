"""Objects over HTTPS: create, read, replace, delete, and the errors in Kubernetes' shapes."""

import pytest

from tests.localcluster.api.rig import Client, Server, pod, until


def test_a_wrong_or_missing_token_is_401(server: Server, client: Client) -> None:
    wrong = Client({**server.ready, "token": "nonsense"})
    answer = wrong.get("/api/v1/pods")
    assert (answer.code, answer.body["reason"], answer.body["kind"]) == (401, "Unauthorized", "Status")
    assert wrong.get("/healthz").body == b"ok"
    assert wrong.get("/version").code == 401
    assert client.get("/readyz").body == b"ok"
    wrong.close()


def test_create_fills_in_metadata_and_defaults(client: Client, namespace: str) -> None:
    answer = client.post(f"/api/v1/namespaces/{namespace}/pods", pod("a"))
    assert answer.code == 201
    created = answer.body
    assert created["metadata"]["namespace"] == namespace
    assert created["metadata"]["uid"] and created["metadata"]["creationTimestamp"].endswith("Z")
    assert int(created["metadata"]["resourceVersion"]) > 0
    spec = created["spec"]
    assert spec["restartPolicy"] == "Always" and spec["schedulerName"] == "default-scheduler"
    assert spec["dnsPolicy"] == "ClusterFirst" and spec["terminationGracePeriodSeconds"] == 30
    assert spec["enableServiceLinks"] is True and spec["priority"] == 0
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert {t["key"] for t in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert client.get(f"/api/v1/namespaces/{namespace}/pods/a").body == created


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_qos_class_and_requests_from_limits(
    client: Client, namespace: str, resources: dict[str, dict[str, str]], qos: str
) -> None:
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = resources
    created = client.post(f"/api/v1/namespaces/{namespace}/pods", body).body
    assert created["status"]["qosClass"] == qos
    stored = created["spec"]["containers"][0]["resources"]
    for name, amount in stored.get("limits", {}).items():
        assert stored["requests"][name] == resources.get("requests", {}).get(name, amount)


def test_generate_name_makes_distinct_names(client: Client, namespace: str) -> None:
    body = pod("")
    body["metadata"] = {"generateName": "job-"}
    names = {client.post(f"/api/v1/namespaces/{namespace}/pods", body).body["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_create_again_is_409(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert client.post(path, {"metadata": {"name": "c"}}).code == 201
    answer = client.post(path, {"metadata": {"name": "c"}})
    assert (answer.code, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.body["message"] == 'configmaps "c" already exists'
    assert answer.body["details"] == {"name": "c", "kind": "configmaps"}


def test_create_in_a_missing_namespace_is_404(client: Client) -> None:
    answer = client.post("/api/v1/namespaces/nowhere/pods", pod("a"))
    assert (answer.code, answer.body["message"]) == (404, 'namespaces "nowhere" not found')


def test_unknown_paths_and_verbs(client: Client, namespace: str) -> None:
    for path in ("/api/v1/widgets", "/apis/batch/v9/jobs", "/api/v1/namespaces/x/nodes"):
        answer = client.get(path)
        assert (answer.code, answer.body["reason"]) == (404, "NotFound"), path
    for path in ("/nope", "/apis/nope", "/apis/nope/v1/things"):
        plain = client.get(path)
        assert (plain.code, plain.body, plain.content_type[:10]) == (404, b"404 page not found\n", "text/plain"), path
    assert client.post("/api/v1/pods", pod("a")).code == 405
    assert client.put(f"/api/v1/namespaces/{namespace}/pods", pod("a")).code == 405
    assert client.post("/version", {}).code == 405


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {"name": "UPPER"}}, "metadata.name"),
        ({"metadata": {"name": ""}}, "metadata.name"),
        ({"metadata": {"name": "a", "labels": {"-bad-": "x"}}}, "metadata.labels"),
        ({"metadata": {"name": "a", "labels": {"ok": "not ok"}}}, "metadata.labels"),
        ({"metadata": {"name": "a", "ownerReferences": [{"kind": "Job"}]}}, "metadata.ownerReferences[0].apiVersion"),
        ({"spec": {}}, "spec.containers"),
        ({"spec": {"containers": [{"image": "i"}]}}, "spec.containers[0].name"),
        ({"spec": {"containers": [{"name": "a"}]}}, "spec.containers[0].image"),
        ({"spec": {"containers": [{"name": "a", "image": "i"}] * 2}}, "spec.containers[1].name"),
        (
            {"spec": {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"memory": "-1"}}}]}},
            "spec.containers[0].resources.limits[memory]",
        ),
        ({"spec": {"containers": [{"name": "a", "image": "i"}], "restartPolicy": "Often"}}, "spec.restartPolicy"),
    ],
)
def test_bad_pods_are_422_and_name_the_field(
    client: Client, namespace: str, change: dict[str, object], field: str
) -> None:
    answer = client.post(f"/api/v1/namespaces/{namespace}/pods", {**pod("a"), **change})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid"), answer.body
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]
    assert field in answer.body["message"]
    assert client.get(f"/api/v1/namespaces/{namespace}/pods").body["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'{"metadata": []}',
        b'{"metadata": {"name": "a", "labels": {"x": 1}}}',
        b'{"metadata": {"name": "a"}, "spec": {"containers": {"name": "a"}}}',
        b'{"metadata": {"name": "a"}, "spec": {"containers": [{"name": 7}]}}',
        b'{"metadata": {"name": "a"}, "spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}}',
        b'{"kind": "Node", "metadata": {"name": "a"}}',
        b'{"apiVersion": "v2", "metadata": {"name": "a"}}',
        b'{"metadata": {"name": "a", "namespace": "elsewhere"}}',
    ],
)
def test_bodies_that_are_no_pod_are_400(client: Client, namespace: str, body: bytes) -> None:
    answer = client.post(f"/api/v1/namespaces/{namespace}/pods", body)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest"), answer.body
    assert answer.body["message"]


def test_content_types(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    # An envelope that names a kind whose message is not read here.
    unread = b"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Cat"
    answer = client.post(path, unread, content_type="application/vnd.kubernetes.protobuf")
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    yaml = b"metadata: {name: yy}\ndata: {a: b}\n"
    assert client.post(path, yaml, content_type="application/yaml").body["data"] == {"a": "b"}
    assert client.get(path, Accept="application/vnd.kubernetes.protobuf").code == 406
    both = "application/vnd.kubernetes.protobuf, application/json"
    assert client.get(path, Accept=both).body["kind"] == "ConfigMapList"
    assert client.post(path, b" " * (3 * 1024 * 1024 + 1)).code == 413


def test_replace_needs_the_current_version(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    first = client.post(path, {"metadata": {"name": "c"}, "data": {"a": "1"}}).body
    second = client.put(f"{path}/c", {**first, "data": {"a": "2"}})
    assert second.code == 200 and second.body["data"] == {"a": "2"}
    assert int(second.body["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    stale = client.put(f"{path}/c", {**first, "data": {"a": "3"}})
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in stale.body["message"]
    unconditional = client.put(f"{path}/c", {"metadata": {"name": "c"}, "data": {"a": "4"}})
    assert unconditional.code == 200
    assert unconditional.body["metadata"]["uid"] == first["metadata"]["uid"]
    assert unconditional.body["metadata"]["creationTimestamp"] == first["metadata"]["creationTimestamp"]
    other = client.put(f"{path}/c", {"metadata": {"name": "c", "uid": "another"}})
    assert (other.code, other.body["reason"]) == (409, "Conflict")
    assert client.put(f"{path}/c", {"metadata": {"name": "d"}}).code == 400
    assert client.put(f"{path}/none", {"metadata": {"name": "none"}}).code == 404


def test_a_write_that_changes_nothing_makes_no_version(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    first = client.post(path, {"metadata": {"name": "c"}, "data": {"a": "1"}}).body
    assert client.put(f"{path}/c", first).body == first
    assert client.patch(f"{path}/c", {"data": {"a": "1"}}).body == first


def test_dry_run_changes_nothing(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert client.post(f"{path}?dryRun=All", {"metadata": {"name": "c"}}).code == 201
    assert client.get(f"{path}/c").code == 404
    client.post(path, {"metadata": {"name": "c"}})
    before = client.get(f"{path}/c").body
    assert client.patch(f"{path}/c?dryRun=All", {"data": {"a": "1"}}).body["data"] == {"a": "1"}
    assert client.delete(f"{path}/c?dryRun=All").code == 200
    assert client.get(f"{path}/c").body == before
    assert client.post(f"{path}?dryRun=Some", {"metadata": {"name": "d"}}).code == 422


def test_delete_honours_preconditions_and_finalizers(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = client.post(path, {"metadata": {"name": "c", "finalizers": ["koord.sh/hold"]}}).body
    assert client.delete(f"{path}/c", {"preconditions": {"uid": "another"}}).code == 409
    assert client.delete(f"{path}/c", {"preconditions": {"resourceVersion": "1"}}).code == 409
    assert client.delete(f"{path}/c", {"propagationPolicy": "Sometimes"}).code == 422
    marked = client.delete(f"{path}/c", {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert marked.code == 200 and marked.body["metadata"]["deletionTimestamp"]
    again = client.patch(f"{path}/c", {"metadata": {"finalizers": ["koord.sh/hold", "koord.sh/more"]}})
    assert again.code == 422
    assert client.patch(f"{path}/c", {"metadata": {"finalizers": None}}).code == 200
    assert client.get(f"{path}/c").code == 404


def test_delete_collection_by_selector(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for i in range(10):
        client.post(path, {"metadata": {"name": f"c{i}", "labels": {"odd": str(i % 2)}}})
    assert client.delete(f"{path}?labelSelector=odd%3D1").code == 200
    assert [item["metadata"]["name"] for item in client.get(path).body["items"]] == ["c0", "c2", "c4", "c6", "c8"]
    assert client.delete("/api/v1/configmaps").code == 405


def test_namespaces_go_with_their_contents(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    client.post(f"{path}/pods", pod("a"))
    client.post(f"{path}/configmaps", {"metadata": {"name": "held", "finalizers": ["koord.sh/hold"]}})
    assert client.get(path).body["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    assert client.delete(path).code == 200
    assert client.get(path).body["status"]["phase"] == "Terminating"
    until(lambda: client.get(f"{path}/pods/a").code == 404)
    refused = client.post(f"{path}/pods", pod("b"))
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
    until(lambda: "deletionTimestamp" in client.get(f"{path}/configmaps/held").body["metadata"])
    client.patch(f"{path}/configmaps/held", {"metadata": {"finalizers": []}})
    until(lambda: client.get(path).code == 404)
    assert client.delete("/api/v1/namespaces/kube-system").code == 403


def test_cluster_scoped_objects_have_no_namespace(client: Client) -> None:
    body = {"metadata": {"name": "class-a", "namespace": "default"}, "value": 10}
    created = client.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    assert created.code == 201 and "namespace" not in created.body["metadata"]
    too_high = {"metadata": {"name": "class-b"}, "value": 2_000_000_000}
    assert client.post("/apis/scheduling.k8s.io/v1/priorityclasses", too_high).code == 422
    assert client.delete("/apis/scheduling.k8s.io/v1/priorityclasses/class-a").body["status"] == "Success"


def test_events_are_one_collection_under_two_groups(client: Client, namespace: str) -> None:
    new = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    body = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "a", "namespace": namespace},
        "reason": "Scheduled",
        "note": "assigned",
        "type": "Normal",
        "reportingController": "koord",
        "action": "Binding",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    assert client.post(new, body).body["note"] == "assigned"
    core = client.get(f"/api/v1/namespaces/{namespace}/events/e").body
    assert (core["apiVersion"], core["message"], core["involvedObject"]["name"]) == ("v1", "assigned", "a")
    assert core["reportingComponent"] == "koord"
    patched = client.patch(f"{new}/e", {"note": "assigned twice"})
    assert patched.body["apiVersion"] == "events.k8s.io/v1" and patched.body["note"] == "assigned twice"
    wanted = "fieldSelector=involvedObject.name%3Da%2CinvolvedObject.kind%3DPod"
    found = client.get(f"/api/v1/namespaces/{namespace}/events?{wanted}").body["items"]
    assert [event["message"] for event in found] == ["assigned twice"]
    wrong = {"metadata": {"name": "f"}, "involvedObject": {"namespace": "elsewhere"}}
    assert client.post(f"/api/v1/namespaces/{namespace}/events", wrong).code == 422
