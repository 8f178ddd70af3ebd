"""HTTP: what is accepted and answered in which form, discovery, unknown paths, questions about access."""

import gzip
import json
from typing import Any

import pytest
import yaml

from tests.conformance.client import Client
from tests.conformance.definitions import DEFINITIONS, definition
from tests.conformance.rig import config_map, unique
from tests.conformance.test_schemas import define

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture
async def maps(client: Client, namespace: str) -> str:
    """A path with one ConfigMap, `c`."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = await client.post(path, {**config_map("c", a="b"), "metadata": {"name": "c", "labels": {"x": "y"}}})
    assert made.status == 201
    return path


async def accepting(client: Client, path: str, accept: str, **params: Any) -> Any:
    return await client.request("GET", path, headers={"Accept": accept}, params=params)


async def test_metadata_alone(client: Client, maps: str) -> None:
    one = (await accepting(client, f"{maps}/c", PARTIAL)).body
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert one["metadata"]["labels"] == {"x": "y"} and one.keys() == {"kind", "apiVersion", "metadata"}
    many = (await accepting(client, maps, PARTIAL_LIST, labelSelector="x=y")).body
    assert (many["kind"], many["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert [item["metadata"]["name"] for item in many["items"]] == ["c"]
    assert many["items"][0].keys() == {"kind", "apiVersion", "metadata"}
    made = await client.request("POST", maps, config_map("d"), headers={"Accept": PARTIAL})
    assert made.status == 201 and made.body["kind"] == "PartialObjectMetadata"
    for path, accept in ((maps, PARTIAL), (f"{maps}/c", PARTIAL_LIST)):
        wrong = await accepting(client, path, accept)
        assert (wrong.status, wrong.reason) == (406, "NotAcceptable") and "you requested" in wrong.message


async def test_tables(client: Client, maps: str) -> None:
    one = (await accepting(client, f"{maps}/c", TABLE)).body
    assert (one["kind"], one["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in one["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert one["rows"][0]["cells"][:2] == ["c", 1]
    assert one["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = (await accepting(client, f"{maps}/c", TABLE, includeObject="Object")).body
    assert whole["rows"][0]["object"]["kind"] == "ConfigMap"
    none = (await accepting(client, f"{maps}/c", TABLE, includeObject="None")).body
    assert not none["rows"][0].get("object")
    many = (await accepting(client, maps, f"{TABLE},application/json", labelSelector="x=y", limit=1)).body
    assert many["kind"] == "Table" and len(many["rows"]) == 1 and many["metadata"]["resourceVersion"]


@pytest.mark.since("1.30", "words")
async def test_negotiation(client: Client, maps: str) -> None:
    for accept in ("*/*", "application/json", "text/plain, application/json", "application/json;q=0.5,text/html"):
        answer = await accepting(client, f"{maps}/c", accept)
        assert answer.status == 200 and answer.headers["Content-Type"] == "application/json", accept
    for accept in ("text/plain", "application/xml", "application/*"):
        refused = await accepting(client, f"{maps}/c", accept)
        assert (refused.status, refused.reason) == (406, "NotAcceptable"), accept
        assert refused.message.startswith("406: Not Acceptable\n\nAvailable representations: application/json")
    shown = await accepting(client, f"{maps}/c", "application/json;q=0.1,application/yaml")
    assert shown.headers["Content-Type"] == "application/yaml"
    assert yaml.safe_load(shown.body)["data"] == {"a": "b"}
    listed = await accepting(client, maps, "application/yaml")
    assert yaml.safe_load(listed.body)["kind"] == "ConfigMapList"
    # The table of a version that is not served is passed over for what follows.
    second = await accepting(client, f"{maps}/c", "application/json;as=Table;g=meta.k8s.io;v=v9,application/json")
    assert second.body["kind"] == "ConfigMap"


async def test_bodies_in_other_forms(client: Client, maps: str) -> None:
    refused = await client.request("POST", maps, b"{}", content_type="text/plain")
    assert (refused.status, refused.reason) == (415, "UnsupportedMediaType")
    assert refused.message.startswith(
        "the body of the request was in an unknown format - accepted media types include:"
    )
    large = await client.request("POST", maps, b" " * (3 * 1024 * 1024 + 1))
    assert large.status == 413


async def test_gzip_is_offered_for_long_lists_and_not_forced(client: Client, maps: str) -> None:
    for number in range(3):
        await client.post(maps, config_map(f"big{number}", text="x" * 100_000))
    plain = await client.get(maps)
    assert "Content-Encoding" not in plain.headers and len(plain.raw) > 300_000
    # The client undoes what the server did: what arrives is the same.
    zipped = await client.request("GET", maps, headers={"Accept-Encoding": "gzip"})
    assert [item["metadata"]["name"] for item in zipped.body["items"]] == [
        item["metadata"]["name"] for item in plain.body["items"]
    ]
    body = gzip.compress(json.dumps(config_map("z")).encode())
    sent = await client.request("POST", maps, body, headers={"Content-Encoding": "gzip"})
    assert sent.status == 400  # nobody unpacks bodies


async def test_paths_that_lead_nowhere(client: Client, maps: str, namespace: str) -> None:
    for path in (
        f"/api/v1/namespaces/{namespace}/gizmos",
        f"/api/v1/namespaces/{namespace}/nodes",
        "/apis/apps/v9/deployments",
        f"{maps}/c/status",
        f"{maps}/c/nothing",
        f"{maps}/c/a/b/c",
        "/api/v1/configmaps/c",
    ):
        answer = await client.get(path)
        assert (answer.status, answer.reason) == (404, "NotFound"), path
        assert answer.message == "the server could not find the requested resource" and answer.body["details"] == {}
    for path in ("/nope", "/apis/nope.io/v1", "/apis/nope.io/v1/things", "/apis/nope.io"):
        answer = await client.get(path)
        assert (answer.status, answer.body) == (404, "404 page not found\n"), path


async def test_verbs_that_are_not_there(client: Client, maps: str) -> None:
    for method, path in (
        ("POST", f"{maps}/c"),
        ("PUT", maps),
        ("PATCH", maps),
        ("POST", "/api/v1/configmaps"),
        ("OPTIONS", maps),
        ("DELETE", "/api/v1/configmaps"),
    ):
        answer = await client.request(method, path, {} if method not in ("OPTIONS", "DELETE") else None)
        assert (answer.status, answer.reason) == (405, "MethodNotAllowed"), (method, path)
        assert answer.message == "the server does not allow this method on the requested resource"


async def test_who_may_not_ask(client: Client, maps: str) -> None:
    # A wrong token; without a client certificate, which the session of these tests may have.
    if "Authorization" not in client.server.headers:
        pytest.skip("this server knows its administrator by certificate")
    answer = await client.request("GET", maps, headers={"Authorization": "Bearer wrong"})
    assert (answer.status, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")


async def test_discovery(client: Client) -> None:
    core = (await client.get("/api")).body
    assert core["kind"] == "APIVersions" and core["versions"] == ["v1"]
    groups = (await client.get("/apis")).body
    assert (groups["kind"], groups["apiVersion"]) == ("APIGroupList", "v1")
    names = {group["name"] for group in groups["groups"]}
    assert names >= {"apps", "batch", "policy", "coordination.k8s.io", "events.k8s.io", "apiextensions.k8s.io"}
    assert names >= {"authorization.k8s.io", "authentication.k8s.io", "rbac.authorization.k8s.io"}
    apps = (await client.get("/apis/apps")).body
    assert (apps["kind"], apps["preferredVersion"]) == ("APIGroup", {"groupVersion": "apps/v1", "version": "v1"})
    listed = (await client.get("/api/v1")).body
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "v1")
    resources = {item["name"]: item for item in listed["resources"]}
    pods = resources["pods"]
    assert (
        pods["shortNames"] == ["po"] and pods["kind"] == "Pod" and pods["namespaced"] and pods["categories"] == ["all"]
    )
    assert sorted(pods["verbs"]) == ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert resources["pods/binding"]["verbs"] == ["create"] and resources["pods/binding"]["kind"] == "Binding"
    eviction = resources["pods/eviction"]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    assert resources["bindings"]["verbs"] == ["create"] and not resources["nodes"]["namespaced"]
    batch = {item["name"] for item in (await client.get("/apis/batch/v1")).body["resources"]}
    assert {"jobs", "jobs/status", "cronjobs"} <= batch and "jobs/scale" not in batch


@pytest.mark.parametrize("root", ["/api", "/apis"])
@pytest.mark.since("1.30", "aggregated discovery v2")
async def test_aggregated_discovery(client: Client, root: str) -> None:
    answer = await client.request("GET", root, headers={"Accept": f"{AGGREGATED},application/json"})
    assert answer.headers["Content-Type"].replace(" ", "") == AGGREGATED
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    plural = "pods" if root == "/api" else "deployments"
    group = next(item for item in answer.body["items"] if item["metadata"].get("name", "") in ("", "apps"))
    (version,) = (one for one in group["versions"] if one["version"] == "v1")
    found = next(item for item in version["resources"] if item["resource"] == plural)
    assert found["scope"] == "Namespaced" and found["responseKind"]["kind"] in ("Pod", "Deployment")
    assert "status" in {item["subresource"] for item in found["subresources"]}


async def test_questions_about_access(client: Client, namespace: str) -> None:
    reviews = "/apis/authorization.k8s.io/v1"
    attributes = {"verb": "create", "resource": "pods", "namespace": namespace}
    own = await client.post(f"{reviews}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}})
    assert own.status == 201 and own.body["kind"] == "SelfSubjectAccessReview"
    assert own.body["status"]["allowed"] is True and own.body["spec"]["resourceAttributes"] == attributes
    path = {"verb": "get", "path": "/metrics"}
    plain = await client.post(f"{reviews}/selfsubjectaccessreviews", {"spec": {"nonResourceAttributes": path}})
    assert plain.body["status"]["allowed"] is True
    neither = await client.post(f"{reviews}/selfsubjectaccessreviews", {"spec": {}})
    assert (neither.status, neither.reason) == (422, "Invalid")
    bob = {"user": unique("bob"), "resourceAttributes": attributes}
    theirs = await client.post(f"{reviews}/subjectaccessreviews", {"spec": bob})
    assert theirs.status == 201 and theirs.body["status"]["allowed"] is False
    here = await client.post(f"{reviews}/namespaces/{namespace}/localsubjectaccessreviews", {"spec": bob})
    assert here.status == 201 and here.body["status"]["allowed"] is False
    rules = await client.post(f"{reviews}/selfsubjectrulesreviews", {"spec": {"namespace": namespace}})
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in rules.body["status"]["resourceRules"]
    assert (await client.get(f"{reviews}/selfsubjectaccessreviews")).status == 405
    token = await client.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "wrong"}})
    assert token.status == 201 and not token.body["status"].get("authenticated")


@pytest.mark.since("1.28", "SelfSubjectReview")
async def test_who_i_am(client: Client) -> None:
    who = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert who.status == 201 and "system:masters" in who.body["status"]["userInfo"]["groups"]


async def test_deprecated_versions_say_so(client: Client, namespace: str) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    body = definition({"type": "object"})
    kept = body["spec"]["versions"][0]
    old = {"name": "v1beta1", "served": True, "storage": False, "schema": schema, "deprecated": True}
    told = {**old, "name": "v1alpha1", "deprecationWarning": "do not use this"}
    body["spec"]["versions"] = [told, kept, old]
    await define(client, body)
    group = body["spec"]["group"]

    async def warned(version: str) -> list[str]:
        return (await client.get(f"/apis/{group}/{version}/namespaces/{namespace}/things")).warnings

    assert await warned("v1") == []
    assert await warned("v1beta1") == [f'299 - "{group}/v1beta1 Thing is deprecated; use {group}/v1 Thing"']
    assert await warned("v1alpha1") == ['299 - "do not use this"']
    listed = (await client.get(f"/apis/{group}")).body
    assert [one["version"] for one in listed["versions"]] == ["v1", "v1beta1", "v1alpha1"]
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")
