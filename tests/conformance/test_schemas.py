"""Objects by their schemas: refusals in the same words, pruning, defaults, nulls, strict decoding, versions."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conformance.client import JSON_PATCH, Client, until
from tests.conformance.definitions import COLUMNS, DEFINITIONS, definition

TYPE, VALUE, NEEDED = "FieldValueTypeInvalid", "FieldValueInvalid", "FieldValueRequired"
Things = tuple[str, str]


async def define(client: Client, body: dict[str, Any]) -> None:
    """Create a definition and wait until its resource is served, with what it says."""
    made = await client.post(DEFINITIONS, body)
    assert made.status == 201, made.body
    spec = body["spec"]
    for version in spec["versions"]:
        path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"

        async def served(path: str = path) -> bool:
            return (await client.get(path)).status == 200

        await until(served)


@pytest.fixture
async def things(client: Client, namespace: str) -> AsyncIterator[Things]:
    """Where Things are created, and their apiVersion."""
    body = definition(additionalPrinterColumns=COLUMNS)
    await define(client, body)
    group = body["spec"]["group"]
    yield f"/apis/{group}/v1/namespaces/{namespace}/things", f"{group}/v1"
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")


def thing(things: Things, spec: Any, name: str = "t", **more: Any) -> dict[str, Any]:
    return {"apiVersion": things[1], "kind": "Thing", "metadata": {"name": name}, "spec": spec, **more}


def causes(body: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(cause["reason"], cause["field"], cause["message"]) for cause in body["details"]["causes"]}


def wrong(field: str, wanted: str, given: str) -> tuple[str, str, str]:
    return TYPE, field, f'Invalid value: "{given}": {field} in body must be of type {wanted}: "{given}"'


def general(words: str) -> tuple[str, str, str]:
    return VALUE, "<nil>", f'Invalid value: "": {words}'


def rule(field: str, shown: str, words: str) -> tuple[str, str, str]:
    return VALUE, field, f"Invalid value: {shown}: {field} in body {words}"


REFUSED: list[tuple[Any, set[tuple[str, str, str]]]] = [
    ({"size": "two"}, {wrong("spec.size", "integer", "string")}),
    ({}, {(NEEDED, "spec.size", "Required value")}),
    ("x", {wrong("spec", "object", "string")}),
    (None, {(NEEDED, "spec", "Required value")}),
    ([], {wrong("spec", "object", "array")}),
    (
        {"size": 0, "half": 0.3, "i32": 3_000_000_000, "name": "A"},
        {
            rule("spec.size", "0", "should be greater than or equal to 1"),
            rule("spec.half", "0.3", "should be a multiple of 0.5"),
            general("Checked value must be of type integer with format int32 in spec.i32"),
            rule("spec.name", '"A"', "should be at least 2 chars long"),
        },
    ),
    (
        {"size": 11, "name": "abcdefg", "color": "blue", "level": 3, "half": -0.5},
        {
            rule("spec.size", "11", "should be less than or equal to 10"),
            ("FieldValueTooLong", "spec.name", "Too long: may not be more than 5 bytes"),
            ("FieldValueNotSupported", "spec.color", 'Unsupported value: "blue": supported values: "red", "green"'),
            ("FieldValueNotSupported", "spec.level", 'Unsupported value: 3: supported values: "1", "2"'),
            rule("spec.half", "-0.5", "should be greater than 0"),
        },
    ),
    (
        {"size": 1.5, "on": "yes", "list": []},
        {
            wrong("spec.size", "integer", "number"),
            general("Checked value must be of type integer (default format) in spec.size"),
            wrong("spec.on", "boolean", "string"),
            rule("spec.list", "0", "should have at least 1 items"),
        },
    ),
    (
        {"size": 1, "list": ["a", "b", "c", "d"], "set": ["a", "a"], "map": [{"name": "a"}, {"name": "a"}]},
        {
            ("FieldValueTooMany", "spec.list", "Too many: 4: must have at most 3 items"),
            ("FieldValueDuplicate", "spec.set[1]", 'Duplicate value: "a"'),
            ("FieldValueDuplicate", "spec.map[1]", 'Duplicate value: {"name":"a","port":80}'),
        },
    ),
    ({"size": 1, "labels": {}}, {rule("spec.labels", "0", "should have at least 1 properties")}),
    (
        {"size": 1, "labels": {"a": "1", "b": "2", "c": "3"}},
        {("FieldValueTooMany", "spec.labels", "Too many: 3: must have at most 2 items")},
    ),
    ({"size": 1, "labels": {"a": 1}}, {wrong("spec.labels.a", "string", "integer")}),
    ({"size": 1, "either": True}, {wrong("spec.either", "integer,string", "boolean")}),
    ({"size": 1, "either": 1.5}, {wrong("spec.either", "integer,string", "number")}),
    (
        {"size": 1, "embedded": {"a": 1}},
        {
            (NEEDED, "spec.embedded.apiVersion", "Required value"),
            (NEEDED, "spec.embedded.kind", "Required value"),
        },
    ),
    (
        {"size": 1, "when": "x", "took": "x", "bytes": "!", "uuid": "x", "address": "x", "day": "x"},
        {
            wrong("spec.when", "date-time", "x"),
            wrong("spec.took", "duration", "x"),
            wrong("spec.bytes", "byte", "!"),
            wrong("spec.uuid", "uuid", "x"),
            wrong("spec.address", "ipv4", "x"),
            wrong("spec.day", "date", "x"),
        },
    ),
    (
        {"size": 1, "one": {}},
        {
            general('"spec.one" must validate one and only one schema (oneOf). Found none valid'),
            (NEEDED, "spec.one.a", "Required value"),
        },
    ),
    (
        {"size": 1, "one": {"a": "1", "b": "2"}},
        {general('"spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives')},
    ),
    (
        {"size": 1, "some": {}},
        {
            general('"spec.some" must validate at least one schema (anyOf)'),
            (NEEDED, "spec.some.a", "Required value"),
        },
    ),
    (
        {"size": 1, "never": "xa", "all": "b"},
        {
            general('"spec.never" must not validate the schema (not)'),
            rule("spec.all", '"b"', "should match 'a'"),
            rule("spec.all", '"b"', "should be at least 2 chars long"),
            general('"spec.all" must validate all the schemas (allOf). None validated'),
        },
    ),
    ({"size": 1, "map": [{"port": 2}]}, {(NEEDED, "spec.map[0].name", "Required value")}),
    ({"size": None}, {(NEEDED, "spec.size", "Required value")}),
    (
        {"size": 1, "list": {"a": 1}, "labels": [1]},
        {wrong("spec.list", "array", "object"), wrong("spec.labels", "object", "array")},
    ),
    (
        {"size": 1, "list": ["a", 1, None]},
        {wrong("spec.list[1]", "string", "integer"), wrong("spec.list[2]", "string", "null")},
    ),
]


@pytest.mark.since("1.37", "formats of integers are checked")
async def test_what_breaks_the_schema_is_refused_in_its_words(client: Client, things: Things) -> None:
    for spec, expected in REFUSED:
        answer = await client.post(things[0], thing(things, spec))
        assert (answer.status, answer.reason) == (422, "Invalid"), (spec, answer.body)
        assert causes(answer.body) == expected, spec
        assert answer.body["details"]["kind"] == "Thing" and answer.message.startswith("Thing."), answer.message
    assert (await client.get(things[0])).body["items"] == []


@pytest.mark.since("1.25", "fieldValidation")
async def test_unknown_fields_go_defaults_come(client: Client, things: Things) -> None:
    spec = {"size": 1, "any": {"x": 1}, "open": {"zz": 1, "known": {"a": 1, "q": 2}}, "unknown": {"x": 1}}
    made = await client.post(things[0], thing(things, spec, status={"n": 1}))
    assert made.status == 201, made.body
    assert made.body["spec"] == {
        "size": 1,
        "any": {"x": 1},
        "open": {"zz": 1, "known": {"a": 1}},
        "color": "red",
        "on": True,
        "defaulted": "dd",
        "nested": {"a": 1, "b": 2},
    }
    assert "status" not in made.body
    assert made.warnings == [
        '299 - "unknown field \\"spec.open.known.q\\""',
        '299 - "unknown field \\"spec.unknown\\""',
    ]
    assert (await client.get(f"{things[0]}/t")).body["spec"] == made.body["spec"]


async def test_nulls(client: Client, things: Things) -> None:
    spec = {
        "size": 1,
        "name": None,
        "nullable": None,
        "defaulted": None,
        "color": None,
        "any": None,
        "list": None,
        "open": {"x": None},
        "map": [{"name": "a", "port": None, "value": None}],
        "nested": {},
    }
    made = await client.post(things[0], thing(things, spec))
    assert made.body["spec"] == {
        "size": 1,
        "nullable": None,
        "defaulted": None,
        "color": "red",
        "on": True,
        "open": {"x": None},
        "map": [{"name": "a", "port": 80}],
        "nested": {"b": 2},
    }


@pytest.mark.since("1.25", "fieldValidation")
async def test_strict_decoding(client: Client, things: Things) -> None:
    body = (
        f'{{"apiVersion":"{things[1]}","kind":"Thing","metadata":{{"name":"s","foo":1}},'
        '"spec":{"size":1,"zz":1,"size":2},"bar":1}'
    ).encode()
    problems = {
        'duplicate field "spec.size"',
        'unknown field "metadata.foo"',
        'unknown field "bar"',
        'unknown field "spec.zz"',
    }
    strict = await client.post(things[0], body, fieldValidation="Strict")
    assert (strict.status, strict.reason) == (400, "BadRequest")
    start = 'Thing in version "v1" cannot be handled as a Thing: strict decoding error: '
    assert strict.message.startswith(start) and set(strict.message[len(start) :].split(", ")) == problems
    silent = await client.post(things[0], body, fieldValidation="Ignore", dryRun="All")
    assert (silent.status, silent.warnings, silent.body["spec"]["size"]) == (201, [], 2)
    warned = await client.post(things[0], body)
    assert warned.status == 201 and "bar" not in warned.body
    assert set(warned.warnings) == {"299 - " + '"' + problem.replace('"', '\\"') + '"' for problem in problems}
    nonsense = await client.post(things[0], body, fieldValidation="Loud")
    assert (nonsense.status, nonsense.body["details"]["causes"][0]["field"]) == (422, "fieldValidation")

    patch = b'{"spec":{"zz":1,"size":3,"size":4},"bar":1}'
    refused = await client.patch(f"{things[0]}/s", patch, fieldValidation="Strict")
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.body["details"]["causes"][0]["field"] == "patch"
    words = refused.message.rpartition("strict decoding error: ")[2].split(", ")
    assert set(words) == {'duplicate field "spec.size"', 'unknown field "bar"', 'unknown field "spec.zz"'}
    patched = await client.patch(f"{things[0]}/s", patch)
    assert patched.status == 200 and patched.body["spec"]["size"] == 4 and len(patched.warnings) == 3
    operations = [{"op": "add", "path": "/spec/zz", "value": 1, "foo": 2}]
    warned = await client.patch(f"{things[0]}/s", operations, kind=JSON_PATCH)
    assert warned.warnings == [
        '299 - "json patch unknown field \\"[0].foo\\""',
        '299 - "unknown field \\"spec.zz\\""',
    ]


async def test_metadata_is_typed(client: Client, things: Things) -> None:
    for metadata, why in (
        ({"name": "m", "labels": {"a": 1}}, "number into Go struct field ObjectMeta.labels of type string"),
        ({"name": "m", "finalizers": "x"}, "string into Go struct field ObjectMeta.finalizers of type []string"),
        ("x", "string into Go value of type v1.ObjectMeta"),
    ):
        answer = await client.post(things[0], {**thing(things, {"size": 1}), "metadata": metadata})
        assert (answer.status, answer.reason) == (400, "BadRequest"), answer.body
        assert answer.message.endswith(f"json: cannot unmarshal {why}"), answer.message


@pytest.mark.since("1.34", "words")
async def test_changes_are_checked_too(client: Client, things: Things) -> None:
    path = f"{things[0]}/t"
    made = (await client.post(things[0], thing(things, {"size": 1}))).body
    too_big = await client.patch(path, {"spec": {"size": 100}})
    assert causes(too_big.body) == {rule("spec.size", "100", "should be less than or equal to 10")}
    replaced = await client.put(path, {**made, "spec": {"size": 2, "color": "blue"}})
    assert replaced.status == 422
    status = await client.patch(f"{path}/status", {"status": {"n": 1, "zz": 2}, "spec": {"size": 100}})
    assert (status.status, status.body["status"], status.body["spec"]["size"]) == (200, {"n": 1, "d": 3}, 1)
    assert status.warnings == ['299 - "unknown field \\"status.zz\\""']
    wrong_status = await client.patch(f"{path}/status", {"status": {"n": "x"}})
    assert causes(wrong_status.body) == {
        (TYPE, "status.n", 'Invalid value: "string": n in body must be of type integer: "string"')
    }


@pytest.mark.since("1.30", "ratcheting")
async def test_what_was_wrong_before_may_stay(client: Client, things: Things, namespace: str) -> None:
    """A schema that became stricter does not hold up changes of something else."""
    group = things[1].partition("/")[0]
    await client.post(things[0], thing(things, {"size": 9, "name": "abc"}))
    stricter = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum", "value": 5}]  # fmt: skip  # noqa: E501
    assert (await client.patch(f"{DEFINITIONS}/things.{group}", stricter, kind=JSON_PATCH)).status == 200

    async def refused() -> bool:
        answer = await client.post(things[0], thing(things, {"size": 9}, "probe"), dryRun="All")
        return answer.status == 422

    await until(refused)
    assert (await client.patch(f"{things[0]}/t", {"spec": {"name": "abd"}})).status == 200
    assert (await client.patch(f"{things[0]}/t", {"spec": {"size": 8}})).status == 422
    assert (await client.patch(f"{things[0]}/t", {"spec": {"size": 4}})).status == 200


async def test_stored_objects_get_new_defaults(client: Client, things: Things) -> None:
    group = things[1].partition("/")[0]
    made = (await client.post(things[0], thing(things, {"size": 1}))).body
    where = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/later"
    change = [{"op": "add", "path": where, "value": {"type": "string", "default": "now"}}]
    assert (await client.patch(f"{DEFINITIONS}/things.{group}", change, kind=JSON_PATCH)).status == 200

    async def defaulted() -> Any:
        current = (await client.get(f"{things[0]}/t")).body
        return current if "later" in current["spec"] else None

    current = await until(defaulted)
    assert current["spec"]["later"] == "now"
    assert current["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    async def listed() -> Any:
        return (await client.get(things[0])).body.get("items")

    assert [item["spec"]["later"] for item in await until(listed)] == ["now"]


async def test_every_version_has_its_schema(client: Client, namespace: str) -> None:
    body = definition()
    first = body["spec"]["versions"][0]
    properties = {"spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 7}}}}
    second = {"name": "v2", "served": True, "storage": False}
    second["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    body["spec"]["versions"] = [first, second]
    await define(client, body)
    group = body["spec"]["group"]
    old, new = (f"/apis/{group}/{version}/namespaces/{namespace}/things" for version in ("v1", "v2"))
    made = await client.post(new, {"apiVersion": f"{group}/v2", "kind": "Thing", "metadata": {"name": "a"}, "spec": {}})
    assert (made.status, made.body["spec"], made.body["apiVersion"]) == (201, {"size": 7}, f"{group}/v2"), made.body
    seen = (await client.get(f"{old}/a")).body
    assert (seen["apiVersion"], seen["spec"]["color"]) == (f"{group}/v1", "red")
    assert (await client.get(f"{new}/a")).body["spec"] == {"size": 7}
    refused = await client.post(
        new, {"apiVersion": f"{group}/v2", "kind": "Thing", "metadata": {"name": "b"}, "spec": {"size": "x"}}
    )
    assert causes(refused.body) == {wrong("spec.size", "integer", "string")}
    await client.delete(f"{DEFINITIONS}/things.{group}")


@pytest.mark.since("1.34", "warnings of unknown formats")
async def test_definitions_are_warned_of(client: Client) -> None:
    odd = definition({"type": "object", "properties": {"a": {"type": "string", "format": "odd"}}})
    made = await client.post(DEFINITIONS, odd, dryRun="All")
    assert (made.status, made.warnings) == (201, ['299 - "unrecognized format \\"odd\\""'])
    unknown = definition({"type": "object", "foo": 1})
    made = await client.post(DEFINITIONS, unknown, dryRun="All")
    assert made.warnings == ['299 - "unknown field \\"spec.versions[0].schema.openAPIV3Schema.foo\\""']


@pytest.mark.parametrize("kind", ["string", "integer", "boolean", "object"])
async def test_a_type_beside_integer_or_text_means_nothing(client: Client, namespace: str, kind: str) -> None:
    either = {"type": kind, "x-kubernetes-int-or-string": True}
    body = definition({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": either}}}})
    await define(client, body)
    group = body["spec"]["group"]
    things = f"/apis/{group}/v1/namespaces/{namespace}/things?dryRun=All", f"{group}/v1"
    for value in (5, "x"):
        assert (await client.post(things[0], thing(things, {"a": value}))).status == 201
    refused = await client.post(things[0], thing(things, {"a": True}))
    assert causes(refused.body) == {wrong("spec.a", "integer,string", "boolean")}
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")
