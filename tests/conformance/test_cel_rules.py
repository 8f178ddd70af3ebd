"""Rules in CEL of custom resources: at which level they are held against what, what is told, changes, ratcheting."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conformance.client import MERGE, Client, until
from tests.conformance.definitions import DEFINITIONS, definition
from tests.conformance.test_schemas import Things, causes, define, thing

RULES = "x-kubernetes-validations"
INVALID = "FieldValueInvalid"


def rule(text: str, **more: Any) -> dict[str, Any]:
    return {"rule": text, **more}


def held(schema: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    """A schema with rules."""
    return {**schema, RULES: list(rules)}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


NUMBER, TEXT = {"type": "integer"}, {"type": "string", "maxLength": 10}
ITEM = held(
    {**fields(k=TEXT, x=NUMBER), "required": ["k"]},
    rule("self.x >= oldSelf.x", message="x may not fall"),
    rule("self.x != 13"),
)
KEYED = {
    "type": "array",
    "maxItems": 5,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
    "items": ITEM,
}
VALUE = held(fields(x=NUMBER), rule("self.x > 0"), rule("self.x >= oldSelf.x", message="x may not fall"))
SPEC = held(
    fields(
        a=held(NUMBER, rule("self != 5"), rule("self > 0", message=" positive ")),
        b=NUMBER,
        forbidden=NUMBER,
        needed=NUMBER,
        twice=NUMBER,
        said=NUMBER,
        born=NUMBER,
        missing=NUMBER,
        list=held(
            {"type": "array", "maxItems": 5, "items": held(TEXT, rule("self != 'bad'"))}, rule("self.size() < 3")
        ),
        set=held(
            {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": TEXT},
            rule("self == oldSelf", message="the set is fixed"),
        ),
        keyed=KEYED,
        map={"type": "object", "maxProperties": 5, "additionalProperties": VALUE},
        half=held({"type": "number"}, rule("self < 1.5")),
        none=held({**TEXT, "nullable": True}, rule("self != 'q'")),
        when=held({"type": "string", "format": "date-time"}, rule("self > timestamp('2020-01-01T00:00:00Z')")),
        color={"type": "string", "enum": ["red", "green"]},
    ),
    rule("!has(self.forbidden)", reason="FieldValueForbidden", fieldPath=".forbidden", message="not that"),
    rule("!has(self.needed)", reason="FieldValueRequired"),
    rule("!has(self.twice)", reason="FieldValueDuplicate"),
    rule("!has(self.said) || self.said != 7", messageExpression="'%d it is'.format([self.said])"),
    rule("!has(self.said) || self.said != 8", messageExpression="self.color", message="no color"),
    rule("!has(self.said) || self.said != 9", messageExpression="'a\\nb'"),
    rule("!has(self.b) || !has(oldSelf.b) || self.b == oldSelf.b", message="b is fixed", fieldPath=".b"),
    rule("!has(self.born) || oldSelf.hasValue()", optionalOldSelf=True, message="not at birth"),
    rule("!has(self.missing) || self.color == 'red'"),
)
SCHEMA = held(
    fields(spec=SPEC, status=fields(n=NUMBER, s=held({"type": "string"}, rule("self != 'x'")))),
    rule("self.metadata.name != 'nobody'", message="nobody is no name"),
    rule("!has(self.status) || !has(self.spec.b) || self.status.n <= self.spec.b", message="more than b"),
)


@pytest.fixture
async def things(client: Client, namespace: str) -> AsyncIterator[Things]:
    body = definition(SCHEMA)
    await define(client, body)
    group = body["spec"]["group"]
    yield f"/apis/{group}/v1/namespaces/{namespace}/things", f"{group}/v1"
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")


def failed(field: str, text: str, shown: str = "") -> tuple[str, str, str]:
    return INVALID, field, f"Invalid value: {shown + ': ' if shown else ''}{text}"


REFUSED: list[tuple[dict[str, Any], set[tuple[str, str, str]]]] = [
    ({"a": 1, "b": 2, "list": ["a"], "said": 1, "half": 1, "none": None}, set()),
    ({"a": 5}, {failed("spec.a", "failed rule: self != 5", "5")}),
    ({"a": -1}, {failed("spec.a", "positive", "-1")}),
    ({"forbidden": 1}, {("FieldValueForbidden", "spec.forbidden", "Forbidden: not that")}),
    ({"needed": 1}, {("FieldValueRequired", "spec", "Required value: failed rule: !has(self.needed)")}),
    ({"twice": 1}, {("FieldValueDuplicate", "spec", "Duplicate value")}),
    ({"said": 7}, {failed("spec", "7 it is")}),
    ({"said": 8}, {failed("spec", "no color")}),
    ({"said": 9}, {failed("spec", "failed rule: !has(self.said) || self.said != 9")}),
    ({"born": 1}, {failed("spec", "not at birth")}),
    (
        {"missing": 1},
        {failed("spec", "no such key: color evaluating rule: !has(self.missing) || self.color == 'red'", '"object"')},
    ),
    (
        {"list": ["bad", "x", "bad"]},
        {failed("spec.list", "failed rule: self.size() < 3")}
        | {failed(f"spec.list[{i}]", "failed rule: self != 'bad'", '"bad"') for i in (0, 2)},
    ),
    ({"map": {"j": {"x": 0}, "k": {"x": 1}}}, {failed("spec.map[j]", "failed rule: self.x > 0")}),
    ({"map": {"j": {}}}, {failed("spec.map[j]", "no such key: x evaluating rule: self.x > 0", '"object"')}),
    ({"keyed": [{"k": "a", "x": 1}, {"k": "b", "x": 13}]}, {failed("spec.keyed[1]", "failed rule: self.x != 13")}),
    ({"half": 2}, {failed("spec.half", "failed rule: self < 1.5", "2")}),
    ({"none": "q"}, {failed("spec.none", "failed rule: self != 'q'", '"q"')}),
    (
        {"when": "2019-01-01T00:00:00Z"},
        {failed("spec.when", "failed rule: self > timestamp('2020-01-01T00:00:00Z')", '"2019-01-01T00:00:00Z"')},
    ),
    # Rules may count on the schema: what breaks it is all that is told.
    (
        {"color": "blue", "a": 5},
        {
            ("FieldValueNotSupported", "spec.color", 'Unsupported value: "blue": supported values: "red", "green"'),
            failed(
                "<nil>",
                "some validation rules were not checked because the object was invalid; correct the existing errors to "
                "complete validation",
                "null",
            ),
        },
    ),
]


@pytest.mark.since("1.35", "the words and functions of CEL are those of today")
async def test_rules_at_every_level(client: Client, things: Things) -> None:
    for spec, wanted in REFUSED:
        answer = await client.post(f"{things[0]}?dryRun=All", thing(things, spec))
        assert answer.status == (422 if wanted else 201), (spec, answer.body)
        assert not wanted or causes(answer.body) == wanted, spec
    refused = await client.post(things[0], thing(things, {}, name="nobody"))
    assert refused.status == 422 and causes(refused.body) == {failed("<nil>", "nobody is no name")}
    # Status is not taken at creation, so it is not looked at.
    created = await client.post(things[0], thing(things, {"b": 1}, status={"n": 5, "s": "x"}))
    assert created.status == 201


@pytest.mark.since("1.35", "the words and functions of CEL are those of today")
async def test_rules_about_changes(client: Client, things: Things) -> None:
    before = {
        "b": 1,
        "set": ["p", "q"],
        "map": {"j": {"x": 2}},
        "keyed": [{"k": "a", "x": 2}, {"k": "b", "x": 2}],
    }
    assert (await client.post(things[0], thing(things, before))).status == 201
    cases: list[tuple[dict[str, Any], set[tuple[str, str, str]]]] = [
        ({"b": 2}, {failed("spec.b", "b is fixed")}),
        ({"b": None}, set()),
        ({"map": {"j": {"x": 1}}}, {failed("spec.map[j]", "x may not fall")}),
        ({"map": {"new": {"x": 1}}}, set()),
        ({"set": ["q", "p"]}, set()),
        ({"set": ["q"]}, {failed("spec.set", "the set is fixed")}),
        ({"set": None}, set()),
        ({"keyed": [{"k": "b", "x": 1}, {"k": "a", "x": 3}]}, {failed("spec.keyed[0]", "x may not fall")}),
        ({"keyed": [{"k": "c", "x": 1}, {"k": "a", "x": 2}]}, set()),
        ({"born": 1}, set()),
    ]
    for change, wanted in cases:
        answer = await client.patch(f"{things[0]}/t?dryRun=All", {"spec": change}, MERGE)
        assert answer.status == (422 if wanted else 200), (change, answer.body)
        assert not wanted or causes(answer.body) == wanted, change


@pytest.mark.since("1.35", "the words and functions of CEL are those of today")
async def test_rules_and_the_status(client: Client, things: Things) -> None:
    assert (await client.post(things[0], thing(things, {"b": 1}))).status == 201
    refused = await client.patch(f"{things[0]}/t/status", {"status": {"n": 5}}, MERGE)
    assert refused.status == 422 and causes(refused.body) == {failed("<nil>", "more than b")}
    refused = await client.patch(f"{things[0]}/t/status", {"status": {"n": 1, "s": "x"}}, MERGE)
    assert refused.status == 422 and causes(refused.body) == {failed("status.s", "failed rule: self != 'x'", '"x"')}
    assert (await client.patch(f"{things[0]}/t/status", {"status": {"n": 1}}, MERGE)).status == 200


@pytest.mark.since("1.35", "the words and functions of CEL are those of today")
async def test_what_was_wrong_before_may_stay(client: Client, things: Things) -> None:
    """A rule that came later holds for what changes, and for all that contains it."""
    before = {"a": 1, "b": 1, "map": {"j": {"x": 1}, "k": {"x": 1}}, "keyed": [{"k": "a", "x": 1}, {"k": "b", "x": 1}]}
    assert (await client.post(things[0], thing(things, before))).status == 201
    path = f"{DEFINITIONS}/things.{things[1].partition('/')[0]}"
    stricter = (await client.get(path)).body
    spec = stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["a"][RULES] = [rule("self > 100", message="a low")]
    spec["properties"]["map"]["additionalProperties"][RULES] = [rule("self.x > 100", message="x low")]
    spec["properties"]["keyed"]["items"][RULES] = [rule("self.x > 100", message="kx low")]
    spec[RULES] = [rule("self.b > 100", message="b low")]
    assert (await client.put(path, stricter)).status == 200

    async def in_force() -> bool:
        return (await client.post(f"{things[0]}?dryRun=All", thing(things, {"b": 1}, name="u"))).status == 422

    await until(in_force)
    low = failed("spec", "b low")
    cases: list[tuple[dict[str, Any], set[tuple[str, str, str]]]] = [
        ({"metadata": {"labels": {"a": "b"}}}, set()),
        ({"spec": {"color": "red"}}, {low}),
        ({"spec": {"a": 2}}, {low, failed("spec.a", "a low", "2")}),
        ({"spec": {"map": {"j": {"x": 2}}}}, {low, failed("spec.map[j]", "x low")}),
        ({"spec": {"keyed": [{"k": "b", "x": 1}, {"k": "a", "x": 2}]}}, {low, failed("spec.keyed[1]", "kx low")}),
        ({"spec": {"keyed": [{"k": "b", "x": 1}, {"k": "a", "x": 1}]}}, set()),
        ({"spec": {"b": 101, "a": 101}}, set()),
    ]
    for change, wanted in cases:
        answer = await client.patch(f"{things[0]}/t?dryRun=All", change, MERGE)
        assert answer.status == (422 if wanted else 200), (change, answer.body)
        assert not wanted or causes(answer.body) == wanted, change
    assert (await client.patch(f"{things[0]}/t/status", {"status": {"n": 1}}, MERGE)).status == 200


async def refusal(client: Client, spec: dict[str, Any]) -> set[tuple[str, str, str]]:
    """What a definition is refused for; fields begin at the schema of the spec."""
    answer = await client.post(f"{DEFINITIONS}?dryRun=All", definition(fields(spec=spec)))
    if answer.status == 201:
        return set()
    assert answer.status == 422, answer.body
    prefix = "spec.validation.openAPIV3Schema"
    found = causes(answer.body)
    return {
        (reason, field.removeprefix(prefix).removeprefix(".properties[spec]."), words) for reason, field, words in found
    }


@pytest.mark.since("1.34", "the words and functions of CEL are those of today")
async def test_rules_that_are_not_complete(client: Client) -> None:
    rules = [
        rule(" "),
        rule("true", message=" "),
        rule("true", message="a\nb"),
        rule("self.a\n> 1"),
        rule("true", messageExpression=" "),
        rule("true", reason="Other"),
        rule("true", fieldPath=".zz"),
        rule("true", fieldPath="a"),
        rule("true", fieldPath=".m['x'].y", message="fine"),
    ]
    value = fields(a=NUMBER, m={"type": "object", "additionalProperties": fields(y=NUMBER)})
    reasons = ", ".join(f'"FieldValue{name}"' for name in ("Duplicate", "Forbidden", "Invalid", "Required"))
    at = f"{RULES}[%d].%s"
    assert await refusal(client, held(value, *rules)) == {
        ("FieldValueRequired", at % (0, "rule"), "Required value: rule is not specified"),
        (INVALID, at % (1, "message"), 'Invalid value: " ": must be non-empty if specified'),
        (INVALID, at % (2, "message"), 'Invalid value: "a\\nb": must not contain line breaks'),
        (
            "FieldValueRequired",
            at % (3, "message"),
            "Required value: message must be specified if rule contains line breaks",
        ),
        (
            "FieldValueRequired",
            at % (4, "messageExpression"),
            "Required value: messageExpression must be non-empty if specified",
        ),
        ("FieldValueNotSupported", at % (5, "reason"), f'Unsupported value: "Other": supported values: {reasons}'),
        (INVALID, at % (6, "fieldPath"), 'Invalid value: ".zz": must be a valid path'),
        (INVALID, at % (7, "fieldPath"), 'Invalid value: "a": must be a valid path'),
    }


@pytest.mark.parametrize("junctor", ["allOf", "anyOf", "oneOf", "not"])
@pytest.mark.since("1.30", "rules in CEL")
async def test_rules_stand_in_the_structure_alone(client: Client, junctor: str) -> None:
    inner = {"properties": {"a": {RULES: [rule("self > 1")]}}}
    value = {**fields(a=NUMBER), junctor: inner if junctor == "not" else [inner]}
    where = f"{junctor}{'' if junctor == 'not' else '[0]'}.properties[a].{RULES}"
    assert await refusal(client, value) == {("FieldValueForbidden", where, "Forbidden: must be empty to be structural")}


@pytest.mark.since("1.34", "the words and functions of CEL are those of today")
async def test_messages_and_states_before_that_are_wrong(client: Client) -> None:
    told = await refusal(
        client,
        held(
            fields(
                a=NUMBER,
                list={"type": "array", "maxItems": 3, "items": held(TEXT, rule("self == oldSelf"))},
                keyed={**KEYED, "items": {**ITEM, RULES: [rule("self == oldSelf")]}},
            ),
            rule("self.a > 1", messageExpression="1"),
            rule("self.a > 1", messageExpression="nope"),
            rule("self.a > 1", optionalOldSelf=True),
            rule("oldSelf.a > 1", optionalOldSelf=True),
        ),
    )
    at = f"{RULES}[%d].%s"
    where = "spec.validation.openAPIV3Schema.properties[spec].properties[list]"
    by_field = {field: words for _, field, words in told}
    assert by_field[at % (0, "messageExpression")].endswith(": messageExpression must evaluate to a string")
    assert ": messageExpression compilation failed: ERROR: <input>:1:1: " in by_field[at % (1, "messageExpression")]
    assert by_field[at % (2, "optionalOldSelf")] == "Invalid value: true: may not be set if oldSelf is not used in rule"
    words = "<input>:1:11: found no matching overload for '_>_' applied to '(optional_type(int), int)'"
    assert f": compilation failed: ERROR: {words}" in by_field[at % (3, "rule")]
    why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {where}"
    assert by_field[f"properties[list].items.{at % (0, 'rule')}"] == f'Invalid value: "self == oldSelf": {why}'
    # What does not compile is not known to use it.
    assert by_field[at % (3, "optionalOldSelf")] == by_field[at % (2, "optionalOldSelf")]
    assert len(told) == 6


LONG = {"type": "string"}
OPEN = {"type": "array", "items": LONG}
ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


@pytest.mark.parametrize(
    ("value", "text", "factor"),
    [
        (fields(l=OPEN), "self.l.all(x, x.startsWith('a'))", ""),
        (fields(l=OPEN), "self.l.all(x, self.l.all(y, x != y))", "more than 100x"),
        (fields(l={**OPEN, "maxItems": 2000}), "self.l.all(x, self.l.all(y, x == y || x == 'a'))", "more than 100x"),
        (
            fields(l={**OPEN, "maxItems": 2000, "items": TEXT}),
            "self.l.all(x, self.l.all(y, x == y || x == 'a'))",
            "4.4x",
        ),
        (fields(l=OPEN), "self.l.all(x, x.contains('abc'))", "more than 100x"),
        (fields(l=OPEN), "self.l.join(',').size() < 3", "more than 100x"),
        (fields(s=LONG), "self.s.matches('^a+$')", ""),
        (fields(s=LONG), "self.s.matches(self.s)", "more than 100x"),
        (
            fields(m={"type": "object", "additionalProperties": {"type": "array", "maxItems": 10, "items": NUMBER}}),
            "self.m.all(k, self.m[k].all(v, v > 0))",
            "2.3x",
        ),
        (fields(s=LONG), "[1, 2, 3, 4].all(i, self.s.contains('x'.replace('x', self.s)))", "more than 100x"),
    ],
)
@pytest.mark.since("1.30", "rules in CEL")
async def test_rules_that_may_cost_too_much(client: Client, value: dict[str, Any], text: str, factor: str) -> None:
    """By what the schema allows, each rule for itself and all of them together."""
    told = {field: words for _, field, words in await refusal(client, held(value, rule(text)))}
    if not factor:
        assert told == {}
        return
    assert f"Forbidden: estimated rule cost exceeds budget by factor of {factor}" in told[f"{RULES}[0].rule"] or (
        told[f"{RULES}[0].rule"]
        == "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    )
    if factor == "more than 100x":
        total = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        assert told[""] == f"Forbidden: {total} exceeds budget by factor of more than 100x {ADVICE}"
