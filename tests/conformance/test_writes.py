"""Creating and replacing: names, versions, uids, dry runs, deletion of collections, and the refusals."""

from typing import Any

import pytest

from tests.conformance.client import MERGE, Answer, Client
from tests.conformance.rig import config_map

LABEL_RULE = "a valid label must be an empty string or consist of alphanumeric characters"


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


async def make(client: Client, path: str, name: str, **data: str) -> dict[str, Any]:
    made = await client.post(path, config_map(name, **data))
    assert made.status == 201, made.body
    body: dict[str, Any] = made.body
    return body


def refused(answer: Answer, status: int, reason: str, message: str, **details: Any) -> None:
    assert (answer.status, answer.reason, answer.message) == (status, reason, message)
    assert (answer.body["kind"], answer.body["status"], answer.body["code"]) == ("Status", "Failure", status)
    for name, value in details.items():
        assert answer.body["details"].get(name) == value


# --- create


async def test_a_created_object_is_complete(client: Client, maps: str, namespace: str) -> None:
    sent: dict[str, Any] = {"metadata": {"name": "c", "labels": {}, "uid": "mine", "creationTimestamp": None}}
    made = await client.post(maps, {**sent, "data": {"a": "b"}})
    assert made.status == 201
    metadata = made.body["metadata"]
    assert (made.body["kind"], made.body["apiVersion"]) == ("ConfigMap", "v1")
    assert metadata["uid"] != "mine" and metadata["namespace"] == namespace
    assert not metadata.keys() & {"labels", "annotations", "deletionTimestamp"}
    assert metadata["creationTimestamp"].endswith("Z") and int(metadata["resourceVersion"]) > 0
    assert (await client.get(f"{maps}/c")).body == made.body


async def test_names_that_are_taken_missing_or_wrong(client: Client, maps: str) -> None:
    await make(client, maps, "c")
    again = await client.post(maps, config_map("c"))
    refused(again, 409, "AlreadyExists", 'configmaps "c" already exists', name="c", kind="configmaps")
    nameless = await client.post(maps, {"metadata": {}})
    message = "metadata.name: Required value: name or generateName is required"
    refused(nameless, 422, "Invalid", f'ConfigMap "" is invalid: {message}', kind="ConfigMap", name=None)
    for name in ("A", "a_b", "-a", "a" * 254, "a/b", ".."):
        wrong = await client.post(maps, config_map(name))
        assert (wrong.status, wrong.reason) == (422, "Invalid")
        assert {cause["field"] for cause in wrong.body["details"]["causes"]} == {"metadata.name"}


async def test_generated_names(client: Client, maps: str) -> None:
    names = set()
    for _ in range(5):
        made = await client.post(maps, {"metadata": {"generateName": "gen-"}})
        assert made.status == 201 and made.body["metadata"]["generateName"] == "gen-"
        names.add(made.body["metadata"]["name"])
    assert len(names) == 5 and all(name.startswith("gen-") and len(name) == 9 for name in names)
    long = await client.post(maps, {"metadata": {"generateName": "g" * 300}})
    assert long.status in (201, 422)
    both = await client.post(maps, {"metadata": {"generateName": "gen-", "name": "fixed"}})
    assert both.body["metadata"]["name"] == "fixed"


async def test_namespaces_of_path_and_body(client: Client, maps: str) -> None:
    other = await client.post(maps, {"metadata": {"name": "c", "namespace": "other"}})
    message = "the namespace of the provided object does not match the namespace sent on the request"
    refused(other, 400, "BadRequest", message)
    nowhere = await client.post("/api/v1/namespaces/none-such/configmaps", config_map("c"))
    refused(nowhere, 404, "NotFound", 'namespaces "none-such" not found', name="none-such", kind="namespaces")
    assert (await client.post("/api/v1/configmaps", config_map("c"))).status == 405


async def test_labels_annotations_and_finalizers_are_checked(client: Client, maps: str) -> None:
    for field, value, part in (
        ("labels", {"-x": "y"}, "metadata.labels"),
        ("labels", {"a/b/c": "y"}, "metadata.labels"),
        ("labels", {"ok": "not ok"}, "metadata.labels"),
        ("labels", {"ok": "y" * 64}, "metadata.labels"),
        ("annotations", {"-x": "y"}, "metadata.annotations"),
        ("annotations", {"big": "y" * (256 * 1024 + 1)}, "metadata.annotations"),
        ("finalizers", ["nodomain"], "metadata.finalizers[0]"),
    ):
        wrong = await client.post(maps, {"metadata": {"name": "c", field: value}})
        assert (wrong.status, wrong.reason) == (422, "Invalid"), (field, value, wrong.body)
        assert [cause["field"] for cause in wrong.body["details"]["causes"]] == [part]
    assert LABEL_RULE in (await client.post(maps, {"metadata": {"name": "c", "labels": {"a": "b c"}}})).message


async def test_a_version_has_no_place_in_what_is_created(client: Client, maps: str) -> None:
    wrong = await client.post(maps, {"metadata": {"name": "c", "resourceVersion": "5"}})
    # Kubernetes answers 500 without a reason.
    refused(wrong, 500, "", "resourceVersion should not be set on objects to be created")


@pytest.mark.parametrize(
    "body", [b"{", b"", b"[]", b'"x"', b'{"metadata":5}', b'{"metadata":{"name":"c"},"data":5}', b"metadata: {name: ["]
)
async def test_bodies_that_cannot_be_read(client: Client, maps: str, body: bytes) -> None:
    kind = "application/yaml" if body.startswith(b"meta") else "application/json"
    wrong = await client.request("POST", maps, body, content_type=kind)
    assert (wrong.status, wrong.reason) == (400, "BadRequest"), wrong.body


async def test_kinds_that_do_not_belong_to_the_path(client: Client, maps: str) -> None:
    for kind in (
        {"kind": "Secret", "apiVersion": "v1"},
        {"kind": "ConfigMap", "apiVersion": "v2"},
        {"kind": "ConfigMap", "apiVersion": "apps/v1"},
    ):
        wrong = await client.post(maps, {**kind, "metadata": {"name": "c"}})
        assert (wrong.status, wrong.reason) == (400, "BadRequest"), wrong.body


async def test_yaml_is_read(client: Client, maps: str) -> None:
    made = await client.request(
        "POST", maps, b"metadata: {name: in-yaml}\ndata: {a: b}\n", content_type="application/yaml"
    )
    assert made.status == 201 and made.body["data"] == {"a": "b"}


# --- replace


async def test_replacing_by_version(client: Client, maps: str) -> None:
    made = await make(client, maps, "c", a="1")
    made["data"]["a"] = "2"
    changed = await client.put(f"{maps}/c", made)
    assert changed.status == 200 and changed.body["data"] == {"a": "2"}
    stale = await client.put(f"{maps}/c", made)
    message = (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; please apply your changes to'
        " the latest version and try again"
    )
    refused(stale, 409, "Conflict", message, name="c", kind="configmaps")
    same = await client.put(f"{maps}/c", changed.body)
    assert same.body["metadata"]["resourceVersion"] == changed.body["metadata"]["resourceVersion"]
    unconditional = await client.put(f"{maps}/c", config_map("c", b="3"))
    assert unconditional.status == 200 and unconditional.body["data"] == {"b": "3"}
    assert unconditional.body["metadata"]["uid"] == made["metadata"]["uid"]


async def test_replacing_the_wrong_thing(client: Client, maps: str) -> None:
    made = await make(client, maps, "c")
    uid = made["metadata"]["uid"]
    other = await client.put(f"{maps}/c", config_map("d"))
    refused(other, 400, "BadRequest", "the name of the object (d) does not match the name on the URL (c)")
    nameless = await client.put(f"{maps}/c", {"metadata": {}})
    message = "the name of the object (c based on URL) was undeterminable: name must be provided"
    refused(nameless, 400, "BadRequest", message)
    wrong = await client.put(f"{maps}/c", {"metadata": {"name": "c", "uid": "1234"}})
    assert (wrong.status, wrong.reason) == (409, "Conflict")
    assert f"Precondition failed: UID in precondition: 1234, UID in object meta: {uid}" in wrong.message
    missing = await client.put(f"{maps}/none", config_map("none"))
    refused(missing, 404, "NotFound", 'configmaps "none" not found', name="none", kind="configmaps")


@pytest.mark.since("1.37", "each broken rule is told once")
async def test_what_the_server_says_of_an_object_cannot_be_changed(client: Client, maps: str) -> None:
    made = await make(client, maps, "c")
    change = {"creationTimestamp": "2020-01-01T00:00:00Z", "generation": 77}
    changed = await client.patch(f"{maps}/c", {"metadata": change})
    assert changed.status == 200 and changed.body == made
    dying = await client.patch(f"{maps}/c", {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})
    assert (dying.status, dying.reason) == (422, "Invalid")
    assert [cause["field"] for cause in dying.body["details"]["causes"]] == ["metadata.deletionTimestamp"]


# --- dry run


@pytest.mark.since("1.34", "words: values as JSON")
async def test_a_dry_run_answers_and_changes_nothing(client: Client, maps: str) -> None:
    made = await make(client, maps, "c", a="1")
    tried = await client.post(maps, config_map("d"), dryRun="All")
    assert tried.status == 201 and tried.body["metadata"]["uid"]
    assert (await client.get(f"{maps}/d")).status == 404
    assert (await client.post(maps, config_map("c"), dryRun="All")).status == 409
    patched = await client.patch(f"{maps}/c", {"data": {"a": "2"}}, dryRun="All")
    assert patched.body["data"] == {"a": "2"}
    replaced = await client.put(f"{maps}/c", config_map("c", b="1"), dryRun="All")
    assert replaced.body["data"] == {"b": "1"}
    assert (await client.delete(f"{maps}/c", dryRun="All")).status == 200
    assert (await client.delete(maps, dryRun="All")).status == 200
    assert (await client.get(f"{maps}/c")).body == made
    for method, path, kind in (
        ("POST", maps, "CreateOptions"),
        ("PUT", f"{maps}/c", "UpdateOptions"),
        ("PATCH", f"{maps}/c", "PatchOptions"),
        ("DELETE", f"{maps}/c", "DeleteOptions"),
    ):
        body = None if method == "DELETE" else config_map("c")
        content = MERGE if method == "PATCH" else None
        wrong = await client.request(method, path, body, content_type=content, params={"dryRun": "Some"})
        message = f'{kind}.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"'
        refused(wrong, 422, "Invalid", message, kind=kind, group="meta.k8s.io")


async def test_deleting_a_collection(client: Client, maps: str) -> None:
    for name, team in (("a", "x"), ("b", "x"), ("c", "y")):
        await client.post(maps, {"metadata": {"name": name, "labels": {"team": team}}})
    gone = await client.delete(maps, labelSelector="team=x")
    assert gone.status == 200
    left = [one["metadata"]["name"] for one in (await client.get(maps)).body["items"]]
    assert [name for name in left if name != "kube-root-ca.crt"] == ["c"]
