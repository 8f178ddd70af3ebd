"""Creating, replacing and patching: names, versions, uids, dry runs, the four kinds of patches, and the refusals."""

from typing import Any

import pytest

from tests.conformance.client import JSON_PATCH, MERGE, STRATEGIC, Answer, Client
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


# --- patches


async def test_merge_patches(client: Client, maps: str) -> None:
    await make(client, maps, "c", a="1", b="2")
    changed = await client.patch(f"{maps}/c", {"data": {"a": None, "c": "3", "none": None}})
    assert changed.body["data"] == {"b": "2", "c": "3"}
    gone = await client.patch(f"{maps}/c", {"data": None, "metadata": {"labels": {"x": None}}})
    assert "data" not in gone.body and "labels" not in gone.body["metadata"]


async def test_patches_with_preconditions(client: Client, maps: str) -> None:
    made = (await make(client, maps, "c"))["metadata"]
    current = {"metadata": {"resourceVersion": made["resourceVersion"], "uid": made["uid"], "labels": {"a": "b"}}}
    assert (await client.patch(f"{maps}/c", current)).status == 200
    stale = await client.patch(f"{maps}/c", {**current, "data": {"x": "y"}})
    assert (stale.status, stale.reason) == (409, "Conflict")
    for change, status in (({"uid": "1234"}, 422), ({"name": "d"}, 400), ({"namespace": "other"}, 400)):
        assert (await client.patch(f"{maps}/c", {"metadata": change})).status == status, change
    assert (await client.patch(f"{maps}/none", {})).status == 404


@pytest.mark.parametrize(
    ("operations", "data"),
    [
        ([], {"a": "1"}),
        ([{"op": "add", "path": "/data/b", "value": "2"}], {"a": "1", "b": "2"}),
        ([{"op": "replace", "path": "/data/a", "value": "2"}], {"a": "2"}),
        ([{"op": "replace", "path": "/data/b", "value": "2"}], {"a": "1", "b": "2"}),
        ([{"op": "remove", "path": "/data/a"}], None),
        ([{"op": "move", "from": "/data/a", "path": "/data/b"}], {"b": "1"}),
        ([{"op": "copy", "from": "/data/a", "path": "/data/b"}], {"a": "1", "b": "1"}),
        ([{"op": "test", "path": "/data/a", "value": "1"}], {"a": "1"}),
        ([{"op": "test", "path": "/data/none", "value": None}], {"a": "1"}),
        (
            [
                {"op": "add", "path": "/metadata/finalizers", "value": ["x/1", "x/2"]},
                {"op": "add", "path": "/metadata/finalizers/-", "value": "x/3"},
                {"op": "add", "path": "/metadata/finalizers/0", "value": "x/0"},
                {"op": "test", "path": "/metadata/finalizers", "value": ["x/0", "x/1", "x/2", "x/3"]},
                {"op": "remove", "path": "/metadata/finalizers/-1"},
                {"op": "test", "path": "/metadata/finalizers/2", "value": "x/2"},
                {"op": "remove", "path": "/metadata/finalizers"},
            ],
            {"a": "1"},
        ),
        (
            [
                {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1", "c~d": "2"}},
                {"op": "remove", "path": "/metadata/annotations/a~1b"},
                {"op": "test", "path": "/metadata/annotations/c~0d", "value": "2"},
                {"op": "remove", "path": "/metadata/annotations"},
            ],
            {"a": "1"},
        ),
    ],
)
async def test_json_patches(client: Client, maps: str, operations: list[Any], data: dict[str, str] | None) -> None:
    await make(client, maps, "c", a="1")
    changed = await client.patch(f"{maps}/c", operations, JSON_PATCH)
    assert changed.status == 200, changed.body
    assert changed.body.get("data") == data


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "9"},
        {"op": "test", "path": "/none/a", "value": "9"},
        {"op": "remove", "path": "/data/none"},
        {"op": "move", "from": "/data/none", "path": "/data/b"},
        {"op": "move", "from": "/data", "path": "/data/a"},
        {"op": "add", "path": "/none/a", "value": "1"},
        {"op": "add", "path": "/data/a/b", "value": "1"},
        {"op": "add", "path": "data", "value": "1"},
        {"op": "add", "value": "1"},
        {"op": "spin", "path": "/data"},
    ],
)
async def test_json_patches_that_do_not_apply(client: Client, maps: str, operation: dict[str, Any]) -> None:
    made = await make(client, maps, "c", a="1")
    also = {"op": "add", "path": "/data/more", "value": "1"}
    wrong = await client.patch(f"{maps}/c", [also, operation], JSON_PATCH)
    refused(wrong, 422, "Invalid", "the server rejected our request due to an error in our request")
    assert (await client.get(f"{maps}/c")).body == made


DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "d", "labels": {"app": "d"}},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {
                "containers": [
                    {"name": "a", "image": "a:1", "env": [{"name": "E", "value": "1"}]},
                    {"name": "b", "image": "b:1"},
                ],
                "tolerations": [{"key": "k", "operator": "Exists"}],
            },
        },
    },
}


@pytest.mark.parametrize(
    ("change", "containers"),
    [
        ({"containers": [{"name": "a", "image": "a:2"}]}, ["a:2", "b:1"]),
        ({"containers": [{"name": "c", "image": "c:1"}]}, ["c:1", "a:1", "b:1"]),
        ({"containers": [{"name": "b", "image": "b:2"}, {"name": "a", "image": "a:2"}]}, ["b:2", "a:2"]),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, ["b:1"]),
        ({"containers": [{"name": "z", "image": "z:1"}, {"$patch": "replace"}]}, ["z:1"]),
        (
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "a:2"}],
            },
            ["b:1", "a:2"],
        ),
    ],
)
async def test_strategic_patches_of_lists(
    client: Client, namespace: str, change: dict[str, Any], containers: list[str]
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    assert (await client.post(path, DEPLOYMENT)).status == 201
    patched = await client.patch(f"{path}/d", {"spec": {"template": {"spec": change}}}, STRATEGIC)
    assert patched.status == 200, patched.body
    spec = patched.body["spec"]["template"]["spec"]
    assert [one["image"] for one in spec["containers"]] == containers
    for one in spec["containers"]:
        if one["name"] == "a":
            assert one["env"] == [{"name": "E", "value": "1"}]


async def test_strategic_patches_of_maps_and_plain_lists(client: Client, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    made = (await client.post(path, DEPLOYMENT)).body
    one = f"{path}/d"

    async def patch(body: dict[str, Any]) -> Any:
        answer = await client.patch(one, body, STRATEGIC)
        assert answer.status == 200, answer.body
        return answer.body

    recreate = await patch({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}})
    assert recreate["spec"]["strategy"] == {"type": "Recreate"}
    # Tolerations have no merge key: the list is replaced.
    tolerant = await patch({"spec": {"template": {"spec": {"tolerations": [{"key": "n", "operator": "Exists"}]}}}})
    assert [one["key"] for one in tolerant["spec"]["template"]["spec"]["tolerations"]] == ["n"]
    assert (await patch({"metadata": {"labels": {"$patch": "replace", "x": "y"}}}))["metadata"]["labels"] == {"x": "y"}
    assert "labels" not in (await patch({"metadata": {"labels": {"$patch": "delete"}}}))["metadata"]
    held = await patch({"metadata": {"finalizers": ["x/1", "x/2"]}})
    assert held["metadata"]["finalizers"] == ["x/1", "x/2"]
    fewer = await patch({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/1"]}})
    assert fewer["metadata"]["finalizers"] == ["x/2"]
    await patch({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/2"]}})
    for wrong in ([{"image": "q"}], [{"name": "z", "$patch": "spin"}]):
        answer = await client.patch(one, {"spec": {"template": {"spec": {"containers": wrong}}}}, STRATEGIC)
        assert (answer.status, answer.reason) == (500, "")
    # Generation counts changes of what is wanted, not of metadata or status.
    now = (await client.get(one)).body["metadata"]["generation"]
    assert now == made["metadata"]["generation"] + 2
    noted = await patch({"metadata": {"annotations": {"a": "b"}}})
    # An annotation of a Deployment goes on to its ReplicaSets, so it counts; a status does not.
    assert noted["metadata"]["generation"] == now + 1
    assert (await patch({"status": {"replicas": 9}}))["metadata"]["generation"] == now + 1


@pytest.mark.since("1.37", "words")
async def test_kinds_of_patches(client: Client, maps: str) -> None:
    await make(client, maps, "c")
    for kind in ("application/json", "text/plain", ""):
        wrong = await client.request("PATCH", f"{maps}/c", b"{}", content_type=kind or "application/x-none")
        refused(wrong, 415, "UnsupportedMediaType", "415: Unsupported Media Type")
    for kind in (MERGE, STRATEGIC, JSON_PATCH):
        garbage = await client.request("PATCH", f"{maps}/c", b"{x", content_type=kind)
        refused(garbage, 400, "BadRequest", "invalid JSON patch")
    assert (await client.patch(f"{maps}/c", [], MERGE)).status == 400
    assert (await client.patch(f"{maps}/c", [], STRATEGIC)).status == 400
    assert (await client.patch(f"{maps}/c", {}, JSON_PATCH)).status == 400
    assert (
        await client.patch(f"{maps}/c", [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001, JSON_PATCH)
    ).status == 413


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
