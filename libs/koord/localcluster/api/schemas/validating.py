"""Checks of a value against a schema, in the words of the real server's validator.

This is the slow walk: the compiled types (`fasttypes`) have already said no, or cannot express the schema. Paths grow
as the validator's do (`spec.list[1]`); a cause without a path of its own has the field `<nil>`.
"""

import json
from typing import Any

from koord.localcluster.api.errors import Cause, duplicate, invalid_value
from koord.localcluster.api.schemas.decoding import go_number
from koord.localcluster.api.schemas.formats import CHECKS
from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.schemas.patterns import compiled

_NOWHERE = "<nil>"


def show(value: Any) -> str:
    """A value as causes show it: texts in quotes, the rest as JSON."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return go_number(value)
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def validate(value: Any, schema: Schema, path: str = "", prefix: str = "") -> list[Cause]:
    """Every broken rule. `prefix` is put before fields, not into sentences: a status is checked on its own."""
    found = _check(value, schema, path)
    if prefix:
        found = [
            cause if cause.field == _NOWHERE else cause._replace(field=_under(prefix, cause.field)) for cause in found
        ]
    return found


def _under(prefix: str, field: str) -> str:
    return f"{prefix}.{field}" if field else prefix


def kind_of(value: Any) -> str:
    """The JSON type of a value, as the validator names it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _invalid(path: str, shown: str, words: str) -> Cause:
    return Cause(
        "FieldValueInvalid", path.removeprefix("."), f"Invalid value: {shown}: {path.removeprefix('.')} {words}"
    )


def _general(words: str) -> Cause:
    return Cause("FieldValueInvalid", _NOWHERE, f'Invalid value: "": {words}')


def _wrong_type(path: str, wanted: str, given: str) -> Cause:
    path = path.removeprefix(".")
    words = f'Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'
    return Cause("FieldValueTypeInvalid", path, words)


def _check(value: Any, schema: Schema, path: str) -> list[Cause]:
    found = _check_type(value, schema, path)
    if value is None:
        return found
    found += _check_combined(value, schema, path)
    if isinstance(value, str):
        found += _check_string(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found += _check_number(value, schema, path)
    elif isinstance(value, list):
        found += _check_list(value, schema, path)
    if schema.enum and not any(_same(value, allowed) for allowed in schema.enum):
        known = ", ".join(f'"{item if isinstance(item, str) else show(item)}"' for item in schema.enum)
        words = f"Unsupported value: {show(value)}: supported values: {known}"
        found.append(Cause("FieldValueNotSupported", path.removeprefix("."), words))
    if isinstance(value, dict):
        found += _check_object(value, schema, path)
    return found


def _same(left: Any, right: Any) -> bool:
    return kind_of(left) == kind_of(right) and bool(left == right) if isinstance(left, bool) else bool(left == right)


def _check_type(value: Any, schema: Schema, path: str) -> list[Cause]:
    wanted = "integer,string" if schema.int_or_string else schema.type
    if not wanted:
        return []
    given = kind_of(value)
    if value is None:
        return [] if schema.nullable else [_wrong_type(path, wanted, "null")]
    if given in wanted.split(",") or (given == "integer" and wanted == "number"):
        return []
    if given == "number" and "integer" in wanted and value.is_integer() and abs(value) < 2**53:
        return []
    if given == "string" and schema.format and wanted not in ("number", "integer", "integer,string"):
        return []  # a text with a format is the format's business, whatever the type
    if given not in ("string", "array") and schema.format and wanted in ("integer", "number"):
        shown = {"number": "float64", "integer": "int64"}.get(given, "")
        return [_wrong_type(path, schema.format, shown)]
    return [_wrong_type(path, wanted, given)]


def _check_string(value: str, schema: Schema, path: str) -> list[Cause]:
    found: list[Cause] = []
    # Of these three only the first that fails is told.
    if schema.max_length is not None and len(value) > schema.max_length:
        words = f"Too long: may not be more than {schema.max_length} bytes"
        found.append(Cause("FieldValueTooLong", path.removeprefix("."), words))
    elif schema.min_length is not None and len(value) < schema.min_length:
        found.append(_invalid(path, show(value), f"in body should be at least {schema.min_length} chars long"))
    elif schema.pattern and not compiled(schema.pattern).search(value):
        found.append(_invalid(path, show(value), f"in body should match '{schema.pattern}'"))
    check = CHECKS.get(schema.format)
    if check is not None and not check(value):
        field = path.removeprefix(".")
        words = f"Invalid value: {show(value)}: {field} in body must be of type {schema.format}: {show(value)}"
        found.append(Cause("FieldValueTypeInvalid", field, words))
    return found


def _check_number(value: float, schema: Schema, path: str) -> list[Cause]:
    found: list[Cause] = []
    field = path.removeprefix(".")
    if schema.type == "integer":
        bound = 2**31 if schema.format == "int32" else 2**63
        whole = isinstance(value, int) or (value.is_integer() and abs(value) < 2**53)
        if not whole or not -bound <= value < bound:
            form = f"with format {schema.format}" if schema.format else "(default format)"
            found.append(_general(f"Checked value must be of type integer {form} in {field}"))
    if schema.multiple_of:
        times = value / schema.multiple_of
        if abs(times - round(times)) > 1e-9 * max(1.0, abs(times)):
            found.append(
                _invalid(path, show(value), f"in body should be a multiple of {go_number(schema.multiple_of)}")
            )
    if schema.minimum is not None and (
        value < schema.minimum or (schema.exclusive_minimum and value == schema.minimum)
    ):
        than = "greater than" if schema.exclusive_minimum else "greater than or equal to"
        found.append(_invalid(path, show(value), f"in body should be {than} {go_number(schema.minimum)}"))
    if schema.maximum is not None and (
        value > schema.maximum or (schema.exclusive_maximum and value == schema.maximum)
    ):
        than = "less than" if schema.exclusive_maximum else "less than or equal to"
        found.append(_invalid(path, show(value), f"in body should be {than} {go_number(schema.maximum)}"))
    return found


def _too_many(path: str, count: int, most: int) -> Cause:
    words = f"Too many: {count}: must have at most {most} items"
    return Cause("FieldValueTooMany", path.removeprefix("."), words)


def _check_list(value: list[Any], schema: Schema, path: str) -> list[Cause]:
    found: list[Cause] = []
    if schema.items is not None:
        for i, item in enumerate(value):
            found += _check(item, schema.items, f"{path}[{i}]")
    if schema.min_items is not None and len(value) < schema.min_items:
        found.append(_invalid(path, str(len(value)), f"in body should have at least {schema.min_items} items"))
    if schema.max_items is not None and len(value) > schema.max_items:
        found.append(_too_many(path, len(value), schema.max_items))
    return found


def _check_object(value: dict[str, Any], schema: Schema, path: str) -> list[Cause]:
    found: list[Cause] = []
    if schema.min_properties is not None and len(value) < schema.min_properties:
        words = f"in body should have at least {schema.min_properties} properties"
        found.append(_invalid(path, str(len(value)), words))
    if schema.max_properties is not None and len(value) > schema.max_properties:
        found.append(_too_many(path, len(value), schema.max_properties))
    for name, inner in value.items():
        below = schema.properties.get(name)
        if below is None:
            below = schema.additional
            if schema.forbids_others:
                where = f"{path}.{name}" if path else name
                found.append(invalid_value(path or "<nil>", name, f"{where} in body is a forbidden property"))
        elif below.definition:
            below = schema.metadata_rules if name == "metadata" else None
        if below is not None:
            found += _check(inner, below, f"{path}.{name}" if path else name)
    needed = (*schema.required, "apiVersion", "kind") if schema.embedded_resource else schema.required
    found += [
        Cause("FieldValueRequired", f"{path}.{name}".removeprefix("."), "Required value")
        for name in needed
        if name not in value
    ]
    return found


def _fewest(results: list[list[Cause]]) -> list[Cause]:
    """What came closest, the first of several."""
    return sorted(results, key=len)[0]


def _check_combined(value: Any, schema: Schema, path: str) -> list[Cause]:
    found: list[Cause] = []
    shown = path.removeprefix(".")
    if schema.any_of:
        results = [_check(value, inner, path) for inner in schema.any_of]
        if all(results):
            found.append(_general(f'"{shown}" must validate at least one schema (anyOf)'))
            found += _fewest(results)
    if schema.one_of:
        results = [_check(value, inner, path) for inner in schema.one_of]
        passed = sum(1 for result in results if not result)
        if passed != 1:
            how = "Found none valid" if not passed else f"Found {passed} valid alternatives"
            found.append(_general(f'"{shown}" must validate one and only one schema (oneOf). {how}'))
            if not passed:
                found += _fewest(results)
    if schema.all_of:
        results = [_check(value, inner, path) for inner in schema.all_of]
        for result in results:
            found += result
        if any(results):
            none = ". None validated" if all(results) else ""
            found.append(_general(f'"{shown}" must validate all the schemas (allOf){none}'))
    if schema.not_ is not None and not _check(value, schema.not_, path):
        found.append(_general(f'"{shown}" must not validate the schema (not)'))
    return found


# --- lists that are sets or maps


def check_lists(value: Any, schema: Schema, path: str = "") -> list[Cause]:
    """Elements that occur twice in sets, keys that occur twice in maps."""
    found: list[Cause] = []
    if not schema.keyed_below:
        return found
    if isinstance(value, dict):
        for name, inner in value.items():
            below = schema.properties.get(name)
            if below is not None:
                if below.keyed_below:
                    found += check_lists(inner, below, f"{path}.{name}" if path else name)
            elif schema.additional is not None and isinstance(inner, dict | list):
                found += check_lists(inner, schema.additional, f"{path}[{name}]")
    elif isinstance(value, list):
        if schema.list_type == "set":
            found += _twice(value, value, path)
        elif schema.list_type == "map":
            wrong = next((i for i, item in enumerate(value) if item is not None and not isinstance(item, dict)), None)
            if wrong is not None:
                words = f"Invalid value: {show(value[wrong])}: must be an object for an array of list-type map"
                return [Cause("FieldValueInvalid", f"{path}[{wrong}]", words)]
            keys = [
                {key: item[key] for key in schema.list_map_keys if key in item} for item in value if item is not None
            ]
            found += _twice(keys, keys, path)
        if schema.items is not None:
            for i, inner in enumerate(value):
                if isinstance(inner, dict | list):
                    found += check_lists(inner, schema.items, f"{path}[{i}]")
    return found


def _twice(values: list[Any], shown: list[Any], path: str) -> list[Cause]:
    seen: dict[str, int] = {}
    found: list[Cause] = []
    for i, value in enumerate(values):
        key = show(value)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            cause = duplicate(f"{path}[{i}]", "")
            found.append(cause._replace(message=f"Duplicate value: {show(shown[i])}"))
    return found
