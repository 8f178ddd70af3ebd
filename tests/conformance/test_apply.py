"""Server-side apply: what a configuration makes of an object, who owns what then, and whose way that is in."""

from typing import Any

import pytest

from tests.conformance.client import APPLY, JSON_PATCH, MERGE, Answer, Client
from tests.conformance.rig import config_map, unique

Object = dict[str, Any]


class Maps:
    """Applies and other writes to the ConfigMap `a` of a namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.folder = f"/api/v1/namespaces/{namespace}/configmaps"
        self.path = f"{self.folder}/a"

    async def apply(self, manager: str, *, metadata: Object | None = None, **params: Any) -> Answer:
        data = {key: value for key, value in params.items() if len(key) == 1}
        rest = {key: value for key, value in params.items() if len(key) > 1}
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **(metadata or {})}}
        if data:
            body["data"] = data
        return await self.send(body, fieldManager=manager, **rest)

    async def send(self, body: Any, **params: Any) -> Answer:
        return await self._client.request("PATCH", self.path, body, content_type=APPLY, params=params)

    async def get(self) -> Object:
        answer = await self._client.get(self.path)
        assert answer.status == 200, answer.body
        body: Object = answer.body
        return body

    async def merge(self, manager: str, patch: Object) -> Answer:
        return await self._client.patch(self.path, patch, MERGE, fieldManager=manager)


@pytest.fixture
def maps(client: Client, namespace: str) -> Maps:
    return Maps(client, namespace)


def owners(obj: Object) -> dict[tuple[str, str, str], Object]:
    """(manager, operation, sub-resource) -> its fields."""
    entries = obj["metadata"].get("managedFields", [])
    return {(one["manager"], one["operation"], one.get("subresource", "")): one["fieldsV1"] for one in entries}


def fields(*names: str) -> Object:
    return {"f:data": {f"f:{name}": {} for name in names}}


# --- applying


async def test_apply_creates_and_owns_what_it_says(maps: Maps) -> None:
    answer = await maps.apply("m", metadata={"labels": {"l": "1"}}, x="1")
    assert answer.status == 201
    entry = answer.body["metadata"]["managedFields"][0]
    assert entry.pop("time")
    assert entry == {
        "manager": "m",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}},
    }
    assert (await maps.get())["data"] == {"x": "1"}


async def test_applying_the_same_again_makes_no_version(maps: Maps) -> None:
    first = await maps.apply("m", x="1")
    again = await maps.apply("m", x="1")
    assert again.status == 200
    assert again.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    assert again.body["metadata"]["managedFields"] == first.body["metadata"]["managedFields"]


async def test_what_is_left_out_goes_unless_others_own_it(maps: Maps) -> None:
    await maps.apply("m", x="1", y="1", z="1")
    await maps.apply("n", y="1")
    await maps.merge("tool", {"data": {"w": "1"}})
    answer = await maps.apply("m", z="1")
    assert answer.body["data"] == {"y": "1", "z": "1", "w": "1"}
    assert owners(answer.body) == {
        ("m", "Apply", ""): fields("z"),
        ("n", "Apply", ""): fields("y"),
        ("tool", "Update", ""): fields("w"),
    }


@pytest.mark.since("1.30", "what becomes of an owner's time")
async def test_owning_together_needs_the_same_value_and_changes_no_time(maps: Maps) -> None:
    await maps.apply("m", x="1")
    answer = await maps.apply("n", x="1")
    assert owners(answer.body) == {("m", "Apply", ""): fields("x"), ("n", "Apply", ""): fields("x")}
    assert ["time" in entry for entry in answer.body["metadata"]["managedFields"]] == [False, True]


async def test_a_conflict_names_fields_and_managers(maps: Maps) -> None:
    await maps.apply("m", x="1")
    await maps.merge("tool", {"data": {"y": "1"}})
    answer = await maps.apply("n", x="2", y="2")
    assert answer.status == 409
    assert answer.reason == "Conflict"
    assert answer.message == (
        'Apply failed with 2 conflicts: conflicts with "m":\n- .data.x\nconflicts with "tool" using v1:\n- .data.y'
    )
    assert set(answer.body["details"]) == {"causes"}
    assert sorted(answer.body["details"]["causes"], key=lambda cause: str(cause["field"])) == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m"', "field": ".data.x"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "tool" using v1', "field": ".data.y"},
    ]
    only = await maps.apply("n", x="2")
    assert only.message == 'Apply failed with 1 conflict: conflict with "m": .data.x'
    assert (await maps.get())["data"] == {"x": "1", "y": "1"}


async def test_force_takes_over(maps: Maps) -> None:
    await maps.apply("m", x="1", y="1")
    answer = await maps.apply("n", x="2", force="true")
    assert answer.status == 200
    assert owners(answer.body) == {("m", "Apply", ""): fields("y"), ("n", "Apply", ""): fields("x")}
    # The former owner leaves out what is no longer its own: nothing goes.
    after = await maps.apply("m", y="1")
    assert after.body["data"] == {"x": "2", "y": "1"}


async def test_an_update_takes_over_without_asking(maps: Maps) -> None:
    await maps.apply("m", x="1", y="1")
    answer = await maps.merge("tool", {"data": {"x": "2"}})
    assert owners(answer.body) == {("m", "Apply", ""): fields("y"), ("tool", "Update", ""): fields("x")}
    removed = await maps.merge("tool", {"data": {"y": None}})
    assert owners(removed.body) == {("tool", "Update", ""): fields("x")}


async def test_dry_run_changes_nothing(maps: Maps, client: Client) -> None:
    answer = await maps.apply("m", x="1", dryRun="All")
    assert answer.status == 201
    assert owners(answer.body) == {("m", "Apply", ""): fields("x")}
    assert (await client.get(maps.path)).status == 404
    await maps.apply("m", x="1")
    dry = await maps.apply("n", x="2", force="true", dryRun="All")
    assert dry.body["data"] == {"x": "2"}
    assert (await maps.get())["data"] == {"x": "1"}


@pytest.mark.since("1.30", "duplicate keys of an applied YAML are refused")
async def test_yaml_bodies(maps: Maps) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: '1'\n  when: \"2020-01-01\"\n"
    answer = await maps.send(text, fieldManager="m")
    assert answer.status == 201
    assert answer.body["data"] == {"x": "1", "when": "2020-01-01"}
    twice = await maps.send(text + b"  x: '2'\n", fieldManager="m", fieldValidation="Strict")
    assert twice.status == 400
    assert 'line 7: key "x" already set in map' in twice.message


async def test_nulls_own_and_set_nothing(maps: Maps) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": None}, "data": {"y": "1"}}
    answer = await maps.send(body, fieldManager="m")
    assert "labels" not in answer.body["metadata"]
    assert owners(answer.body)["m", "Apply", ""] == {"f:metadata": {"f:labels": {}}, **fields("y")}


# --- what is refused


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"apiVersion": None}, 400, "invalid object type: /, Kind=ConfigMap"),
        ({"apiVersion": "v2"}, 400, "invalid object type: /v2, Kind=ConfigMap"),
        ({"kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret"),
        ({"metadata": {"name": "b"}}, 400, "the name of the object (b) does not match the name on the URL (a)"),
        (
            {"metadata": {"name": "a", "namespace": "elsewhere"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ({"metadata": {"name": "a", "managedFields": []}}, 400, "metadata.managedFields must be nil"),
        (
            {"metadata": {"name": "a", "resourceVersion": "1"}},
            409,
            'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your'
            " changes to the latest version and try again",
        ),
        (
            {"metadata": {"name": "a", "uid": "u"}},
            422,
            'ConfigMap "a" is invalid: metadata.uid: Invalid value: "u": field is immutable',
        ),
        (
            {"bogus": 1},
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .bogus: field not declared in schema",
        ),
        (
            {"data": {"x": 1}},
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.x: expected string, got"
            " &value.valueUnstructured{Value:1}",
        ),
        (
            {"data": "x"},
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data: expected map, got &{x}",
        ),
    ],
)
@pytest.mark.since("1.30", "words", only=("change0-", "change1-", "change2-"))
async def test_configurations_that_are_refused(maps: Maps, change: Object, status: int, message: str) -> None:
    await maps.apply("m", x="1")
    before = await maps.get()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}} | change
    answer = await maps.send({key: value for key, value in body.items() if value is not None}, fieldManager="m")
    assert (answer.status, answer.message) == (status, message)
    assert await maps.get() == before


@pytest.mark.parametrize(
    ("params", "field", "message"),
    [
        ({}, "fieldManager", "Required value: is required for apply patch"),
        ({"fieldManager": "m" * 129}, "fieldManager", "Too long: may not be more than 128 bytes"),
        (
            {"fieldManager": "a\nb"},
            "fieldManager",
            'Invalid value: "a\\nb": invalid character U+000A (at position 1)',
        ),
    ],
)
@pytest.mark.since("1.34", "words", only=("params1",))
async def test_an_apply_needs_a_manager(maps: Maps, params: Object, field: str, message: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    answer = await maps.send(body, **params)
    assert answer.status == 422
    assert answer.message == f'PatchOptions.meta.k8s.io "" is invalid: {field}: {message}'
    assert [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]] == [(field, message)]


async def test_force_is_for_applies_only(maps: Maps, client: Client) -> None:
    await maps.apply("m", x="1")
    answer = await client.patch(maps.path, {"data": {"x": "2"}}, MERGE, force="true")
    assert answer.status == 422
    assert "force: Forbidden: may not be specified for non-apply patch" in answer.message


async def test_what_is_not_there(maps: Maps, client: Client, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "u"}}
    unnamed = await maps.send({**body, "metadata": {}}, fieldManager="m")
    assert unnamed.status == 400
    assert unnamed.message == "the name of the object (a based on URL) was undeterminable: name must be provided"
    answer = await maps.send(body, fieldManager="m")
    assert answer.status == 409
    assert answer.message.endswith(
        "uid mismatch: the provided object specified uid u, and no existing object was found"
    )
    path = f"/api/v1/namespaces/{namespace}/pods/p/status"
    status = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"message": "m"}}
    answer = await client.patch(path, status, APPLY, fieldManager="m")
    assert (answer.status, answer.message) == (404, 'pods "p" not found')
    elsewhere = unique()
    path = f"/api/v1/namespaces/{elsewhere}/configmaps/a"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    answer = await client.patch(path, body, APPLY, fieldManager="m")
    assert (answer.status, answer.message) == (404, f'namespaces "{elsewhere}" not found')


# --- managedFields


@pytest.mark.since("1.34", "words")
async def test_a_write_belongs_to_the_program_that_sent_it(maps: Maps, client: Client) -> None:
    made = await client.request(
        "POST", maps.folder, config_map("a", x="1"), headers={"User-Agent": "some tool/1.2 (linux)"}
    )
    assert owners(made.body) == {("some tool", "Update", ""): {"f:data": {".": {}, "f:x": {}}}}
    long = await client.post(maps.folder, config_map("b", x="1"), fieldManager="m" * 129)
    assert long.status == 422
    assert long.message == (
        'CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes'
    )


@pytest.mark.since("1.34", "words")
async def test_managed_fields_can_be_reset_and_set(maps: Maps) -> None:
    await maps.apply("m", x="1")
    resets: list[list[Object]] = [[], [{}]]
    for reset in resets:
        answer = await maps.merge("tool", {"metadata": {"managedFields": reset}})
        assert "managedFields" not in answer.body["metadata"]
    # Nobody's stays nobody's, until somebody applies.
    answer = await maps.merge("tool", {"data": {"y": "1"}})
    assert "managedFields" not in answer.body["metadata"]
    answer = await maps.apply("m", x="1")
    assert owners(answer.body) == {
        ("m", "Apply", ""): fields("x"),
        ("before-first-apply", "Update", ""): {"f:data": {".": {}, "f:x": {}, "f:y": {}}},
    }
    entry = {
        "manager": "k",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "time": "2020-01-01T00:00:00Z",
        "fieldsV1": fields("x"),
    }
    answer = await maps.merge("tool", {"metadata": {"managedFields": [entry]}})
    assert answer.body["metadata"]["managedFields"] == [entry]
    bad: list[Object] = [{"operation": "Other"}, {"operation": ""}, {"apiVersion": ""}, {"fieldsV1": {"x": {}}}]
    for change in bad:
        answer = await maps.merge("tool", {"metadata": {"managedFields": [{**entry, **change}]}})
        assert answer.status == 200
        assert answer.body["metadata"]["managedFields"] == [entry]
    answer = await maps.merge("tool", {"metadata": {"managedFields": [{**entry, "manager": "m" * 129}]}})
    assert answer.status == 422
    assert answer.message == (
        'ConfigMap "a" is invalid: metadata.managedFields[0].manager: Too long: may not be more than 128 bytes'
    )


async def test_what_is_read_and_sent_back_changes_nothing(maps: Maps, client: Client) -> None:
    await client.post(maps.folder, config_map("a", x="1"), fieldManager="maker")
    before = await maps.get()
    answer = await client.put(maps.path, before, fieldManager="tool")
    assert answer.body == before
    answer = await client.request(
        "PATCH",
        maps.path,
        [{"op": "replace", "path": "/metadata/managedFields", "value": before["metadata"]["managedFields"]}],
        content_type=JSON_PATCH,
    )
    assert answer.body == before


async def test_old_managers_are_joined(maps: Maps, client: Client) -> None:
    await client.post(maps.folder, config_map("a", x="1"), fieldManager="maker")
    for number in range(13):
        answer = await maps.merge(f"tool-{number:02}", {"data": {f"k{number}": "1"}})
    names = [manager for manager, _, _ in owners(answer.body)]
    assert len(names) == 10
    assert "ancient-changes" in names
