"""Definitions whose schemas are not structural, or that break other rules: refused in the real server's words."""

from typing import Any

import pytest

from tests.conformance.client import Client
from tests.conformance.definitions import DEFINITIONS, definition

PREFIX = "spec.validation.openAPIV3Schema"
A = {"type": "array", "items": {"type": "string"}}
N = {"type": "object", "properties": {"n": {"type": "string"}}}
MAP = {"type": "array", "x-kubernetes-list-type": "map"}
STRUCTURAL: list[tuple[dict[str, Any], str, str]] = [
    ({"properties": {}}, "type", "Required value: must not be empty at the root"),
    (A, "type", 'Invalid value: "array": must be object at the root'),
    ({"a": {}}, "properties[a].type", "Required value: must not be empty for specified object fields"),
    ({"a": {"$ref": "#/x"}}, "properties[a].$ref", "Forbidden: $ref is not supported"),
    (
        {"a": {"type": "foo"}},
        "properties[a].type",
        'Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string"',
    ),
    ({"a": {"type": "array"}}, "properties[a].items", "Required value: must be specified"),
    (
        {"a": {**N, "additionalProperties": {"type": "string"}}},
        "properties[a].additionalProperties",
        "Forbidden: additionalProperties and properties are mutual exclusive",
    ),
    (
        {"a": {**A, "uniqueItems": True}},
        "properties[a].uniqueItems",
        "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
    ),
    (
        {"a": {**MAP, "items": N}},
        "properties[a].x-kubernetes-list-map-keys",
        "Required value: must not be empty if x-kubernetes-list-type is map",
    ),
    (
        {"a": {**MAP, "x-kubernetes-list-map-keys": ["m"], "items": N}},
        "properties[a].x-kubernetes-list-map-keys",
        'Invalid value: ["m"]: entries must all be names of item properties',
    ),
    (
        {"a": {**MAP, "x-kubernetes-list-map-keys": ["n"], "items": N}},
        "properties[a].items.properties[n].default",
        "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
        "property",
    ),
    (
        {"a": {"type": "object", "anyOf": [{"type": "object"}]}},
        "properties[a].anyOf[0].type",
        "Forbidden: must be empty to be structural",
    ),
    (
        {"a": {"type": "integer", "default": "x"}},
        "properties[a].default",
        'Invalid value: "string":  in body must be of type integer: "string"',
    ),
    (
        {"a": {**N, "default": {"b": 1}}},
        "properties[a].default",
        'Invalid value: {"b":1}: must not have unknown fields',
    ),
    (
        {"a": {"type": "string", "enum": ["x"], "default": "y"}},
        "properties[a].default",
        'Unsupported value: "y": supported values: "x"',
    ),
    (
        {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
        "properties[metadata]",
        "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
    ),
    (
        {"a": {"type": "object", "x-kubernetes-embedded-resource": True}},
        "properties[a].properties",
        "Required value: must not be empty if x-kubernetes-embedded-resource is true without "
        "x-kubernetes-preserve-unknown-fields",
    ),
    (
        {"a": {"type": "string", "x-kubernetes-list-type": "set"}},
        "properties[a].type",
        'Invalid value: "string": must be array if x-kubernetes-list-type is specified',
    ),
    (
        {"a": {**A, "x-kubernetes-list-type": "bag"}},
        "properties[a].x-kubernetes-list-type",
        'Unsupported value: "bag": supported values: "atomic", "set", "map"',
    ),
    ({"apiVersion": {"type": "integer"}}, "properties[apiVersion].type", 'Invalid value: "integer": must be string'),
    (
        {"a": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}},
        "properties[a].items.x-kubernetes-map-type",
        "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
    ),
]


@pytest.mark.since("1.34", "words: values as JSON")
async def test_schemas_must_be_structural(client: Client) -> None:
    for properties, field, message in STRUCTURAL:
        whole = properties if field == "type" else {"type": "object", "properties": properties}
        answer = await client.post(DEFINITIONS, definition(whole, subresources={}))
        assert answer.status == 422, (properties, answer.body)
        found = {(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]}
        assert found == {(f"{PREFIX}.{field}", message)}, properties


@pytest.mark.since("1.34", "words")
async def test_definitions_have_rules(client: Client) -> None:
    def changed(**spec: Any) -> dict[str, Any]:
        body = definition({"type": "object"})
        body["spec"] |= spec
        return body

    version = definition({"type": "object"})["spec"]["versions"][0]
    columns = [{"name": "A", "type": "foo", "jsonPath": ".a"}, {"name": "", "type": "string", "jsonPath": "a"}]
    for body, expected in (
        (changed(scope="X"), {("spec.scope", 'Unsupported value: "X": supported values: "Cluster", "Namespaced"')}),
        (
            changed(conversion={"strategy": "Foo"}),
            {("spec.conversion.strategy", 'Unsupported value: "Foo": supported values: "None", "Webhook"')},
        ),
        (
            changed(preserveUnknownFields=True),
            {
                (
                    "spec.preserveUnknownFields",
                    "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
                    "spec.versions[*].schema instead",
                )
            },
        ),
        (
            changed(versions=[{**version, "schema": {}}]),
            {("spec.versions[0].schema.openAPIV3Schema", "Required value")},
        ),
        (
            changed(versions=[{**version, "additionalPrinterColumns": columns}]),
            {
                (
                    "spec.additionalPrinterColumns[0].type",
                    'Invalid value: "foo": must be one of boolean,date,integer,number,string',
                ),
                ("spec.additionalPrinterColumns[1].name", "Required value"),
                (
                    "spec.additionalPrinterColumns[1].JSONPath",
                    'Invalid value: "a": must be a simple json path starting with .',
                ),
            },
        ),
        (
            changed(versions=[{**version, "subresources": {"scale": {"specReplicasPath": "spec.x"}}}]),
            {
                (
                    "spec.subresources.scale.specReplicasPath",
                    'Invalid value: "spec.x": must be a simple json path starting with .',
                ),
                ("spec.subresources.scale.statusReplicasPath", "Required value"),
            },
        ),
    ):
        answer = await client.post(DEFINITIONS, body)
        assert answer.status == 422, (body, answer.body)
        found = {(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]}
        assert found == expected
    misnamed = definition({"type": "object"})
    misnamed["metadata"]["name"] = "foo"
    answer = await client.post(DEFINITIONS, misnamed)
    assert answer.message.endswith('metadata.name: Invalid value: "foo": must be spec.names.plural+"."+spec.group')
