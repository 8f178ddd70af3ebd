"""Discovery, OpenAPI and tables: what kubectl and other clients read before they do anything."""

import pytest

from koord.localcluster.api.tables import human_duration
from tests.localcluster.api.rig import Client, pod

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def test_plain_discovery(client: Client) -> None:
    assert client.get("/api").body["versions"] == ["v1"]
    groups = {group["name"] for group in client.get("/apis").body["groups"]}
    assert groups >= {"apps", "batch", "events.k8s.io", "coordination.k8s.io", "apiextensions.k8s.io", "kubeflow.org"}
    assert client.get("/apis/batch").body["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    core = {resource["name"]: resource for resource in client.get("/api/v1").body["resources"]}
    assert core["pods"]["shortNames"] == ["po"] and core["pods/binding"]["kind"] == "Binding"
    assert core["nodes"]["namespaced"] is False and "pods/scale" not in core
    batch = {resource["name"]: resource for resource in client.get("/apis/batch/v1").body["resources"]}
    assert "jobs/scale" not in batch  # as in Kubernetes
    assert client.get("/version").body["minor"] == "37"


def test_aggregated_discovery_has_its_own_content_type(client: Client) -> None:
    for root in ("/api", "/apis"):
        answer = client.get(root, Accept=f"{AGGREGATED},application/json")
        assert answer.content_type == AGGREGATED
        assert answer.body["kind"] == "APIGroupDiscoveryList"
        for group in answer.body["items"]:
            for version in group["versions"]:
                path = f"/apis/{group['metadata']['name']}/{version['version']}" if root == "/apis" else "/api/v1"
                plain = [r["name"] for r in client.get(path).body["resources"] if r["name"] != "bindings"]
                found = []
                for resource in version["resources"]:
                    found.append(resource["resource"])
                    found += [f"{resource['resource']}/{s['subresource']}" for s in resource.get("subresources", ())]
                assert found == plain
    unknown = client.get(
        "/apis", Accept="application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json"
    )
    assert unknown.body["kind"] == "APIGroupList"


def test_openapi_v3(client: Client) -> None:
    index = client.get("/openapi/v3").body["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/kubeflow.org/v1"} <= index.keys()
    for entry in index.values():
        document = client.get(entry["serverRelativeURL"]).body
        for path, item in document["paths"].items():
            if "patch" in item:
                parameters = {parameter["name"] for parameter in item["patch"]["parameters"]}
                assert "fieldValidation" in parameters, path
        for name, schema in document["components"]["schemas"].items():
            if "x-kubernetes-group-version-kind" in schema:
                reference = schema["properties"]["metadata"]["allOf"][0]["$ref"].rsplit("/", 1)[-1]
                assert reference in document["components"]["schemas"], name
    assert client.get("/openapi/v3/apis/nope/v1").code == 404


def test_tables(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    client.post(path, pod("a"))
    table = client.get(path, Accept=TABLE).body
    assert table["kind"] == "Table"
    titles = [column["name"] for column in table["columnDefinitions"]]
    assert titles[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:4] == ["a", "0/1", "Pending", "0"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert client.get(f"{path}?includeObject=None", Accept=TABLE).body["rows"][0].get("object") is None
    assert client.get(f"{path}/a?includeObject=Object", Accept=TABLE).body["rows"][0]["object"]["kind"] == "Pod"
    partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    listed = client.get(path, Accept=partial).body
    assert listed["kind"] == "PartialObjectMetadataList" and "spec" not in listed["items"][0]


def test_tables_in_watches_send_their_columns_once(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for name in "ab":
        client.post(path, pod(name))
    events = client.watch(f"{path}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true", Accept=TABLE)
    first, second, mark = list(events)
    assert first["object"]["columnDefinitions"] and not second["object"]["columnDefinitions"]
    assert [event["object"]["rows"][0]["cells"][0] for event in (first, second)] == ["a", "b"]
    assert (mark["type"], mark["object"]["kind"]) == ("BOOKMARK", "Table")
    assert mark["object"]["metadata"]["resourceVersion"]


def test_a_status_written_by_hand_does_not_break_tables(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    client.post(path, pod("a"))
    wrong = {"status": {"phase": "Running", "containerStatuses": "soon"}}
    assert client.patch(f"{path}/a/status", wrong).code == 422
    odd = {"status": {"phase": "Running", "containerStatuses": [{}], "conditions": [{}]}}
    assert client.patch(f"{path}/a/status", odd).code == 200
    assert client.get(path, Accept=TABLE).body["rows"][0]["cells"][0] == "a"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_000, "3h3m"),
        (28_800, "8h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (70_000_000, "2y80d"),
        (300_000_000, "9y"),
    ],
)
def test_ages_as_kubectl_writes_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
