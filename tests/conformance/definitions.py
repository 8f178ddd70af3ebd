"""A CustomResourceDefinition that has everything a schema can say, under a group of the test alone."""

from typing import Any

from tests.conformance.rig import unique

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _text(**rules: Any) -> dict[str, Any]:
    return {"type": "string", **rules}


def _number(**rules: Any) -> dict[str, Any]:
    return {"type": "integer", **rules}


def _object(properties: dict[str, Any], **rules: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **rules}


_PAIR = {"a": _text(), "b": _text()}
SPEC = _object(
    {
        "size": _number(minimum=1, maximum=10),
        "half": {"type": "number", "multipleOf": 0.5, "minimum": 0, "exclusiveMinimum": True},
        "i32": _number(format="int32"),
        "i64": _number(format="int64"),
        "name": _text(minLength=2, maxLength=5, pattern="^[a-z]+$"),
        "color": _text(enum=["red", "green"], default="red"),
        "level": _number(enum=[1, 2]),
        "on": {"type": "boolean", "default": True},
        "list": {"type": "array", "minItems": 1, "maxItems": 3, "items": _text()},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": _text()},
        "map": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "port"],
            "items": _object({"name": _text(), "port": _number(default=80), "value": _text()}, required=["name"]),
        },
        "labels": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": _text()},
        "nullable": _text(nullable=True),
        "defaulted": _text(nullable=True, default="dd"),
        "either": {"x-kubernetes-int-or-string": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "open": _object({"known": _object({"a": _number()})}, **{"x-kubernetes-preserve-unknown-fields": True}),
        "embedded": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "when": _text(format="date-time"),
        "took": _text(format="duration"),
        "bytes": _text(format="byte"),
        "uuid": _text(format="uuid"),
        "address": _text(format="ipv4"),
        "day": _text(format="date"),
        "one": _object(_PAIR, oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
        "some": _object(_PAIR, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
        "never": _text(**{"not": {"pattern": "^x"}}),
        "all": _text(allOf=[{"pattern": "a"}, {"minLength": 2}]),
        "nested": _object({"a": _number(), "b": _number(default=2)}, default={"a": 1}),
    },
    required=["size"],
)
STATUS = _object({"n": _number(), "d": _number(default=3)})
COLUMNS: list[dict[str, Any]] = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big"},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
    {"name": "When", "type": "date", "jsonPath": ".spec.when"},
    {"name": "List", "type": "string", "jsonPath": ".spec.list"},
    {"name": "First", "type": "string", "jsonPath": ".spec.list[0]"},
    {"name": "Labels", "type": "string", "jsonPath": ".spec.labels"},
    {"name": "Value", "type": "string", "jsonPath": '.spec.map[?(@.name=="a")].value'},
    {"name": "Number", "type": "number", "jsonPath": ".spec.half"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def definition(schema: dict[str, Any] | None = None, *, group: str = "", **version: Any) -> dict[str, Any]:
    """A definition of Things in a group of its own, with one version `v1`."""
    group = group or f"{unique('g')}.koord.test"
    whole = schema or _object({"spec": SPEC, "status": STATUS}, required=["spec"])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["koordtest"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": whole},
                    "subresources": {"status": {}},
                    **version,
                }
            ],
        },
    }
