"""Whether the schema of a definition is structural, in the words of the real server.

A schema that fails here is refused with its definition; what passes can be compiled, pruned and defaulted by.
"""

import copy
import re
from collections.abc import Iterator
from typing import Any

from koord.localcluster.api.errors import Cause, forbidden_value, invalid_value, not_supported, required
from koord.localcluster.api.schemas.formats import KNOWN
from koord.localcluster.api.schemas.patterns import compiled
from koord.localcluster.api.schemas.pruning import prune
from koord.localcluster.api.schemas.reading import read
from koord.localcluster.api.schemas.ruledefinitions import check_rules
from koord.localcluster.api.schemas.validating import show, validate

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_COMBINED = ("allOf", "anyOf", "oneOf")
_FORBIDDEN = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems")
# What only the structure may say, not what is under allOf, anyOf, oneOf and not.
_STRUCTURE = (
    "type",
    "default",
    "description",
    "title",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)
Source = dict[str, Any]


def check_structure(source: Source, path: str) -> list[Cause]:
    """Every rule that a schema breaks; `path` is where it lies in the definition."""
    causes = list(_check(source, path, root=True))
    if not causes:
        causes = [*_check_defaults(source, path), *check_rules(source, path)]
    return causes


def warnings_of(source: Source, path: str = "") -> list[str]:
    """What the server warns of: formats that it does not know."""
    found: list[str] = []
    for inner, _ in _nodes(source, path):
        form = inner.get("format", "")
        if form not in KNOWN and f'unrecognized format "{form}"' not in found:
            found.append(f'unrecognized format "{form}"')
    return found


def _nodes(source: Source, path: str) -> Iterator[tuple[Source, str]]:
    yield source, path
    for name, inner in (source.get("properties") or {}).items():
        yield from _nodes(inner, f"{path}.properties[{name}]")
    for key in ("items", "additionalProperties"):
        if isinstance(source.get(key), dict):
            yield from _nodes(source[key], f"{path}.{key}")


def _check(source: Source, path: str, *, root: bool = False, needs_type: bool = True) -> Iterator[Cause]:
    for key in _FORBIDDEN:
        if source.get(key):
            yield forbidden_value(f"{path}.{key}", f"{key} is not supported")
    kind = source.get("type", "")
    open_ = source.get("x-kubernetes-preserve-unknown-fields")
    either = source.get("x-kubernetes-int-or-string")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    elif root and not kind:
        yield required(f"{path}.type", "must not be empty at the root")
    elif root and kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object at the root")
    elif needs_type and not kind and not open_ and not either and not source.get("$ref"):
        what = "object fields" if path.endswith("]") else "array items" if path.endswith(".items") else "map values"
        yield required(f"{path}.type", f"must not be empty for specified {what}")
    if open_ is False:
        yield invalid_value(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    if source.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_value(f"{path}.uniqueItems", why)
    if source.get("pattern"):
        yield from _check_pattern(source["pattern"], f"{path}.pattern")
    yield from _check_embedded(source, path, root=root)
    yield from _check_list(source, path)
    yield from _check_fields(source, path)
    for key in _COMBINED:
        for i, inner in enumerate(source.get(key) or ()):
            yield from _check_junctor(inner, f"{path}.{key}[{i}]", source)
    if isinstance(source.get("not"), dict):
        yield from _check_junctor(source["not"], f"{path}.not", source)


def _check_pattern(pattern: Any, path: str) -> Iterator[Cause]:
    try:
        compiled(str(pattern))
    except re.error as error:
        yield invalid_value(path, pattern, f"must be a valid regular expression, but isn't: {error}")


def _check_embedded(source: Source, path: str, *, root: bool) -> Iterator[Cause]:
    embedded = source.get("x-kubernetes-embedded-resource")
    if embedded:
        if source.get("type") != "object":
            yield invalid_value(f"{path}.type", source.get("type", ""), "must be object if embedded")
        if not source.get("properties") and not source.get("x-kubernetes-preserve-unknown-fields"):
            why = (
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            )
            yield required(f"{path}.properties", why)
    if not embedded and not root:
        return
    properties = source.get("properties") or {}
    for name in ("apiVersion", "kind"):
        if name in properties and properties[name].get("type") != "string":
            yield invalid_value(f"{path}.properties[{name}].type", properties[name].get("type", ""), "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    if metadata.get("type") != "object":
        yield invalid_value(f"{path}.properties[metadata].type", metadata.get("type", ""), "must be object")
    beside = {"type", "description", "properties", "title"}
    if set(metadata.get("properties") or {}) - {"name", "generateName"} or set(metadata) - beside:
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden_value(f"{path}.properties[metadata]", why)


def _check_list(source: Source, path: str) -> Iterator[Cause]:
    items = source.get("items")
    if isinstance(items, list):
        yield forbidden_value(f"{path}.items", "items must be a schema object and not an array")
        return
    if source.get("type") == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    kind = source.get("x-kubernetes-list-type")
    keys = source.get("x-kubernetes-list-map-keys") or []
    if kind is None:
        if keys:
            yield invalid_value(f"{path}.x-kubernetes-list-type", "", "must be map if list map keys are specified")
        return
    if kind not in ("atomic", "set", "map"):
        yield not_supported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map"))
    if source.get("type") != "array":
        why = "must be array if x-kubernetes-list-type is specified"
        yield invalid_value(f"{path}.type", source.get("type", ""), why)
    if not isinstance(items, dict):
        return
    if kind == "map":
        yield from _check_keys(keys, items, path)
    elif kind == "set" and items.get("type") in ("object", "array"):
        what, slot = (
            ("map", "x-kubernetes-map-type") if items["type"] == "object" else ("list", "x-kubernetes-list-type")
        )
        if items.get(f"x-kubernetes-{what}-type") != "atomic":
            words = "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"
            yield Cause("FieldValueInvalid", f"{path}.items.{slot}", words)


def _check_keys(keys: list[str], items: Source, path: str) -> Iterator[Cause]:
    field = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(field, "must not be empty if x-kubernetes-list-type is map")
    properties = items.get("properties") or {}
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid_value(f"{path}.items.type", items.get("type", ""), why)
    if any(key not in properties for key in keys):
        words = f"Invalid value: {show(keys)}: entries must all be names of item properties"
        yield Cause("FieldValueInvalid", field, words)
        return
    for key in keys:
        if properties[key].get("type") in ("object", "array"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid_value(f"{path}.items.properties[{key}].type", properties[key]["type"], why)
        if "default" not in properties[key] and key not in (items.get("required") or ()):
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", why)


def _check_fields(source: Source, path: str) -> Iterator[Cause]:
    properties = source.get("properties") or {}
    additional = source.get("additionalProperties")
    if properties and additional is not None:
        why = "additionalProperties and properties are mutual exclusive"
        yield forbidden_value(f"{path}.additionalProperties", why)
    for name, inner in properties.items():
        yield from _check(inner, f"{path}.properties[{name}]")
    if isinstance(additional, dict):
        yield from _check(additional, f"{path}.additionalProperties")
    if isinstance(source.get("items"), dict):
        yield from _check(source["items"], f"{path}.items")


def _check_junctor(source: Source, path: str, structure: Source) -> Iterator[Cause]:
    """Below allOf, anyOf, oneOf and not there are only rules, of fields that the structure has."""
    either = structure.get("x-kubernetes-int-or-string")
    for name, inner in (source.get("properties") or {}).items():
        own = (structure.get("properties") or {}).get(name)
        if own is None:
            yield required(f"{path.rsplit('.', 1)[0]}.properties[{name}]", "must not be empty to be structural")
        yield from _check_junctor(inner, f"{path}.properties[{name}]", own or {})
    if isinstance(source.get("items"), dict):
        yield from _check_junctor(source["items"], f"{path}.items", structure.get("items") or {})
    for key in _STRUCTURE:
        if source.get(key) is not None and not (key == "type" and either and source[key] in ("integer", "string")):
            yield forbidden_value(f"{path}.{key}", "must be empty to be structural")
    if source.get("pattern"):
        yield from _check_pattern(source["pattern"], f"{path}.pattern")
    for key in _COMBINED:
        for i, inner in enumerate(source.get(key) or ()):
            yield from _check_junctor(inner, f"{path}.{key}[{i}]", structure)


def _check_defaults(source: Source, path: str) -> Iterator[Cause]:
    """Every default must be what its own schema allows."""
    for inner, where in _nodes(source, path):
        if inner.get("default") is None:
            continue
        node = read(inner)
        pruned = copy.deepcopy(inner["default"])
        unknown: list[str] = []
        prune({"value": pruned}, read({"type": "object", "properties": {"value": inner}}), "", unknown)
        if unknown:
            words = f"Invalid value: {show(inner['default'])}: must not have unknown fields"
            yield Cause("FieldValueInvalid", f"{where}.default", words)
        for cause in validate(inner["default"], node):
            field = f"{where}.default" + (f".{cause.field}" if cause.field not in ("", "<nil>") else "")
            yield cause._replace(field=field)
