"""Patching: the four kinds of patches, their preconditions, and the refusals."""

from typing import Any

import pytest

from tests.conformance.client import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.conformance.test_writes import make, refused


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


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
