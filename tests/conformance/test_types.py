"""What an object says of itself, and how it is refused when that is wrong: its type, owners, selectors, keys."""

from typing import Any

import pytest

from tests.conformance.client import APPLY, JSON_PATCH, MERGE, STRATEGIC, Client
from tests.conformance.definitions import DEFINITIONS, definition
from tests.conformance.rig import config_map, unique
from tests.conformance.test_schemas import define

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def causes(answer: Any) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]


async def test_a_custom_object_says_its_type(client: Client, namespace: str) -> None:
    body = definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    await define(client, body)
    group = body["spec"]["group"]
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"
    whole = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "x"}}
    try:
        for missing, words in (
            ("kind", "Object 'Kind' is missing in"),
            ("apiVersion", "the API version in the data ()"),
        ):
            sent = {name: value for name, value in whole.items() if name != missing}
            for answer in (await client.post(path, sent), await client.put(f"{path}/x", sent)):
                assert (answer.status, answer.reason) == (400, "BadRequest") and words in answer.message
        other = await client.post(path, {**whole, "apiVersion": f"{group}/v2"})
        assert other.status == 400 and "does not match the expected API version" in other.message
        wrong = await client.post(path, {**whole, "kind": "Eve"})
        assert (wrong.status, causes(wrong)) == (422, [("kind", 'Invalid value: "Eve": must be Thing')])
        assert (await client.post(path, whole)).status == 201
        for patch, field in (
            ({"kind": "Eve"}, "kind"),
            ({"apiVersion": "a/v1"}, "apiVersion"),
            ({"kind": None}, "patch"),
        ):
            refused = await client.patch(f"{path}/x", patch)
            assert refused.status == 422 and causes(refused)[0][0] == field
    finally:
        await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")


async def test_a_built_in_object_need_not_say_its_type_but_says_no_other(client: Client, namespace: str) -> None:
    path = maps(namespace)
    assert (await client.post(path, {"metadata": {"name": "c"}})).status == 201
    for wrong in ({"kind": "Pod"}, {"apiVersion": "v2"}, {"apiVersion": "a/b/c"}):
        body = {**config_map("d"), **wrong}
        made = await client.post(path, body)
        assert (made.status, made.reason) == (400, "BadRequest"), made.body
    for wrong in ({"kind": "Pod"}, {"apiVersion": "v2"}):
        patched = await client.patch(f"{path}/c", wrong)
        assert patched.status == 422 and causes(patched)[0][0] == "patch"
    assert (await client.patch(f"{path}/c", {"kind": None})).status == 200


@pytest.mark.parametrize("body", [b"k8s\x00", b"nope", b"k8s\x00\x0a\x0a\x0a\x02v1\x12\x04Nope\x12\x00"])
async def test_protobuf_of_no_known_kind(client: Client, namespace: str, body: bytes) -> None:
    answer = await client.request("POST", maps(namespace), body, content_type=PROTOBUF)
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_uid_is_the_objects(client: Client, namespace: str) -> None:
    path = f"{maps(namespace)}/c"
    assert (await client.post(maps(namespace), config_map("c"))).status == 201
    operation = [{"op": "replace", "path": "/metadata/uid", "value": "zz"}]
    wrong = {"metadata": {"uid": "zz"}}
    for body, kind in ((wrong, MERGE), (wrong, STRATEGIC), (operation, JSON_PATCH)):
        refused = await client.patch(path, body, kind)
        assert (refused.status, causes(refused)[0][0]) == (422, "metadata.uid")
    applied = await client.patch(path, {**config_map("c"), **wrong}, APPLY, fieldManager="m")
    assert applied.status == 422
    replaced = await client.put(path, {"metadata": {"name": "c", "uid": "zz"}})
    assert (replaced.status, replaced.reason) == (409, "Conflict") and "UID in precondition: zz" in replaced.message


RULE = "must be <group>/<version> or <version>"


@pytest.mark.parametrize(
    ("owner", "field", "words"),
    [
        ({"apiVersion": "v1", "kind": "Event"}, "metadata.ownerReferences[0]", "is disallowed from being an owner"),
        ({"apiVersion": "a/b/c", "kind": "X"}, "metadata.ownerReferences[0].apiVersion", RULE),
        ({"apiVersion": "/", "kind": "X"}, "metadata.ownerReferences[0].apiVersion", RULE),
        ({"apiVersion": "a/", "kind": "X"}, "metadata.ownerReferences[0].apiVersion", RULE),
        ({"apiVersion": "", "kind": "X"}, "metadata.ownerReferences[0].apiVersion", "must not be empty"),
    ],
)
@pytest.mark.since("1.37", "words")
async def test_owners_that_are_none(
    client: Client, namespace: str, owner: dict[str, Any], field: str, words: str
) -> None:
    owners = [{**owner, "name": "o", "uid": "u"}]
    refused = await client.post(maps(namespace), {"metadata": {"name": "c", "ownerReferences": owners}})
    assert refused.status == 422
    [(found, message)] = causes(refused)
    assert found == field and words in message


@pytest.mark.parametrize(
    ("expression", "field", "words"),
    [
        ({"key": "a", "operator": "Foo", "values": ["x"]}, "operator", "not a valid selector operator"),
        ({"key": "a"}, "operator", "not a valid selector operator"),
        ({"key": "a", "operator": "In"}, "values", "must be specified when"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "values", "may not be specified when"),
        ({"key": "_a", "operator": "Exists"}, "key", "name part must consist of"),
        ({"key": "a", "operator": "In", "values": ["-"]}, "values[0]", "a valid label must be"),
    ],
)
@pytest.mark.since("1.30", "values of a budget's selector are checked", only=("expression5",))
async def test_selectors_of_budgets(
    client: Client, namespace: str, expression: dict[str, Any], field: str, words: str
) -> None:
    body = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchExpressions": [expression]}}}
    refused = await client.post(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", body)
    assert refused.status == 422
    [(found, message)] = causes(refused)
    assert found == f"spec.selector.matchExpressions[0].{field}" and words in message


@pytest.mark.since("1.25", "fieldValidation")
async def test_keys_that_a_yaml_body_says_again(client: Client, namespace: str) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: d\n  name: c\ndata:\n  a: b\n  a: c\nbar: 1\n"
    path = maps(namespace)

    async def send(mode: str) -> Any:
        params = {"fieldValidation": mode, "dryRun": "All"}
        return await client.request("POST", path, body, content_type=YAML, params=params)

    strict = await send("Strict")
    assert strict.status == 400
    lines = 'yaml: unmarshal errors:\n  line 5: key "name" already set in map\n  line 8: key "a" already set in map'
    assert f'strict decoding error: {lines}, unknown field "bar"' in strict.message
    warned = await send("Warn")
    assert (warned.status, warned.body["metadata"]["name"], warned.body["data"]) == (201, "c", {"a": "c"})
    told = [
        'line 5: key \\"name\\" already set in map',
        'line 8: key \\"a\\" already set in map',
        'unknown field \\"bar\\"',
    ]
    assert warned.warnings == [f'299 - "{words}"' for words in told]
    assert (await send("Ignore")).warnings == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"y", None),
        (b"n", None),
        (b"Yes", None),
        (b"off", None),
        (b"yy", "yy"),
        (b"2020-01-01", "2020-01-01"),
        (b"~", ""),
        (b"'y'", "y"),
        (b"1_0", None),
        (b"0x10", None),
    ],
)
async def test_words_of_yaml_that_are_texts_or_not(
    client: Client, namespace: str, text: bytes, value: str | None
) -> None:
    """None: it is a boolean or a number, which a ConfigMap does not take."""
    body = b"metadata: {name: c}\ndata: {a: " + text + b"}\n"
    answer = await client.request("POST", maps(namespace), body, content_type=YAML, params={"dryRun": "All"})
    assert answer.status == (400 if value is None else 201), answer.body
    assert value is None or answer.body["data"] == {"a": value}


async def test_what_a_definition_leaves_empty(client: Client) -> None:
    body = definition({"type": "object"})
    empty: dict[str, Any] = {"singular": "", "listKind": "", "shortNames": [], "categories": []}
    body["spec"]["names"] = {"plural": "things", "kind": "Thing", **empty}
    made = await client.post(DEFINITIONS, body, dryRun="All")
    assert made.status == 201, made.body
    spec = made.body["spec"]
    assert spec["names"] == {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    assert spec["conversion"] == {"strategy": "None"}
    for conversion in ({}, {"strategy": ""}):
        body["spec"]["conversion"] = conversion
        refused = await client.post(DEFINITIONS, body, dryRun="All")
        assert causes(refused) == [("spec.conversion.strategy", "Required value")]


@pytest.mark.parametrize("additional", [5, "x", []])
async def test_additional_properties_are_a_schema_or_a_boolean(client: Client, additional: Any) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "additionalProperties": additional}}}
    refused = await client.post(DEFINITIONS, definition(schema), dryRun="All")
    assert refused.status == 400 and refused.message.endswith("boolean or JSON schema expected")


async def test_additional_properties_that_are_not_allowed(client: Client, namespace: str) -> None:
    group = f"{unique('g')}.koord.test"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "additionalProperties": False}}}
    body = definition(schema, group=group)
    await define(client, body)
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"a": 1}}
    made = await client.post(f"/apis/{group}/v1/namespaces/{namespace}/things", thing)
    assert causes(made) == [("spec", 'Invalid value: "a": spec.a in body is a forbidden property')]
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")


async def test_numbers_without_a_fraction_are_whole(client: Client, namespace: str) -> None:
    body = definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    await define(client, body)
    group = body["spec"]["group"]
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"
    spec = '{"a":2.0,"b":1e3,"c":1.5,"d":-0.0}'
    text = f'{{"apiVersion":"{group}/v1","kind":"Thing","metadata":{{"name":"x"}},"spec":{spec}}}'
    made = await client.request("POST", path, text.encode())
    assert made.status == 201, made.body
    got = await client.get(f"{path}/x")
    assert b'"a":2,' in got.raw and b'"b":1000,' in got.raw and b'"c":1.5' in got.raw
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")
