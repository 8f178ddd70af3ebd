"""Schemas as msgspec types: one pass in C answers whether a value is entirely in order.

Yes means: no unknown field, no null that has to go, every rule kept. No means only that the slow walk has to look, and
what it says counts. A schema, or a part of one, that msgspec cannot express has no type (`None`), which is a no.
"""

import re
from typing import Annotated, Any, Literal, Union, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.schemas.patterns import is_harmless

_INT32 = Meta(ge=-(2**31), le=2**31 - 1)
_INT64 = Meta(ge=-(2**63), le=2**63 - 1)
# UTC, whole seconds or fractions, every day but 29 February: what nearly all times are; others are walked.
_DAY = r"((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
_TIME = rf"^\d{{4}}-{_DAY}T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?Z\Z"
_QUANTITY = r"^[+-]?[0-9]{1,12}(\.[0-9]{1,3})?(m|k|M|G|Ki|Mi|Gi)?\Z"
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\Z"
_FORMATS = {"date-time": _TIME, "micro-time": _TIME, "quantity": _QUANTITY, "byte": _BASE64}
# Types that are put together at run time: to a type checker they are values.
_META, _LIST, _DICT = cast(Any, Meta), cast(Any, list), cast(Any, dict)
# Formats that mean nothing to a check of strings.
_NO_CHECK = ("", "int-or-string", "password")


def fast_types(fields: dict[str, Schema], *, typed: bool) -> dict[str, Any]:
    """The types of those fields that have one: what is not there must be walked."""
    found = {name: fast_type(inner, typed=typed) for name, inner in fields.items()}
    return {name: made for name, made in found.items() if made is not None}


def whole_type(parts: dict[str, Any]) -> Any:
    """The type of an object that has these fields, or some of them, and no others."""
    fields: list[Any] = [(f"f{i}", _optional(kind), UNSET) for i, kind in enumerate(parts.values())]
    names = {f"f{i}": name for i, name in enumerate(parts)}
    return msgspec.defstruct("Whole", fields, rename=names, forbid_unknown_fields=True, kw_only=True, gc=False)


def fast_type(schema: Schema, *, typed: bool) -> Any:
    """The type of a schema, None when msgspec cannot express it.

    typed: it is a built-in kind, where nothing is required and enumerations are not the decoder's business.
    """
    try:
        return _type(schema, typed, ())
    except (_InexpressibleError, ValueError, TypeError, OverflowError):
        # A minLength of -1 is allowed, and more than msgspec takes.
        return None


class _InexpressibleError(Exception):
    pass


def _type(schema: Schema, typed: bool, within: tuple[str, ...]) -> Any:
    if schema.definition in within:
        raise _InexpressibleError
    if schema.definition:
        within = (*within, schema.definition)
    made = _bare(schema, typed, within)
    return made | None if schema.nullable and not typed and made is not Any else made


def _bare(schema: Schema, typed: bool, within: tuple[str, ...]) -> Any:
    if not typed:
        _check_expressible(schema)
    if schema.int_or_string:
        number = Annotated[int, _INT32] if typed else Annotated[int, _INT64]
        return Union[number, _string(schema, typed)]  # noqa: UP007
    if schema.format == "quantity":
        return Union[Annotated[str, Meta(pattern=_QUANTITY)], int]  # noqa: UP007
    match schema.type:
        case "object":
            return _object(schema, typed, within)
        case "array":
            items = _type(schema.items, typed, within) if schema.items is not None else Any
            return _bounded(_LIST[items], schema.min_items, schema.max_items)
        case "string":
            return _string(schema, typed)
        case "integer":
            return _integer(schema, typed)
        case "number":
            return Annotated[float, _META(**_bounds(schema))] if _bounds(schema) and not typed else float
        case "boolean":
            return bool
    return Any


def _check_expressible(schema: Schema) -> None:
    combined = schema.all_of or schema.one_of or schema.not_ or (schema.any_of and not schema.int_or_string)
    if combined or schema.multiple_of or schema.unique_items or schema.embedded_resource:
        raise _InexpressibleError
    if schema.enum and not (schema.type == "string" and all(isinstance(value, str) for value in schema.enum)):
        raise _InexpressibleError
    if schema.type == "string" and schema.format not in _NO_CHECK and schema.format != "date-time":
        raise _InexpressibleError
    if schema.type == "number" and schema.format not in ("", "double", "float"):
        raise _InexpressibleError
    if schema.properties and (schema.min_properties is not None or schema.max_properties is not None):
        raise _InexpressibleError
    if schema.properties and schema.additional is not None:
        raise _InexpressibleError


def _object(schema: Schema, typed: bool, within: tuple[str, ...]) -> Any:
    if schema.properties:
        fields: list[Any] = []
        names = {}
        for i, (name, inner) in enumerate(schema.properties.items()):
            names[f"f{i}"] = name
            kind = _type(inner, typed, within)
            if name in schema.required and not typed:
                fields.append((f"f{i}", kind))
            else:
                fields.append((f"f{i}", _optional(kind), UNSET))
        closed = not schema.preserve_unknown
        return msgspec.defstruct(
            "Fields",
            fields,
            rename=names,
            forbid_unknown_fields=closed,
            kw_only=True,
            gc=False,
        )
    if schema.required and not typed:
        raise _InexpressibleError
    if schema.additional is not None:
        values = _type(schema.additional, typed, within)
        return _bounded(_DICT[str, values], schema.min_properties, schema.max_properties)
    if schema.preserve_unknown:
        return _bounded(dict[str, Any], schema.min_properties, schema.max_properties)
    return msgspec.defstruct("Nothing", [], forbid_unknown_fields=True)


def _optional(kind: Any) -> Any:
    return kind if kind is Any else Union[kind, UnsetType]  # noqa: UP007


def _bounded(made: Any, least: int | None, most: int | None) -> Any:
    bounds = {name: value for name, value in (("min_length", least), ("max_length", most)) if value is not None}
    return Annotated[made, _META(**bounds)] if bounds else made


def _string(schema: Schema, typed: bool) -> Any:
    pattern = _FORMATS.get(schema.format, "")
    if typed:
        return Annotated[str, Meta(pattern=pattern)] if pattern else str
    if schema.enum:
        if schema.pattern or schema.min_length is not None or schema.max_length is not None:
            raise _InexpressibleError
        return Literal[schema.enum]
    if schema.pattern:
        if pattern or not is_harmless(schema.pattern):
            raise _InexpressibleError
        # msgspec compiles patterns itself; ASCII classes are asked for in the text, and `$` is the very end.
        pattern = "(?a)" + re.sub(r"\$\Z", r"\\Z", schema.pattern)
    bounds = {"pattern": pattern, "min_length": schema.min_length, "max_length": schema.max_length}
    given = {name: value for name, value in bounds.items() if value}
    return Annotated[str, _META(**given)] if given else str


def _bounds(schema: Schema) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    if schema.minimum is not None:
        bounds["gt" if schema.exclusive_minimum else "ge"] = schema.minimum
    if schema.maximum is not None:
        bounds["lt" if schema.exclusive_maximum else "le"] = schema.maximum
    return bounds


def _integer(schema: Schema, typed: bool) -> Any:
    widest = {"ge": -(2**31), "le": 2**31 - 1} if schema.format == "int32" else {"ge": -(2**63), "le": 2**63 - 1}
    if typed:
        return Annotated[int, _META(**widest)]
    own = _bounds(schema)
    if any(not isinstance(value, int) or abs(value) > widest["le"] for value in own.values()):
        raise _InexpressibleError
    if "ge" in own or "gt" in own:
        widest.pop("ge")
    if "le" in own or "lt" in own:
        widest.pop("le")
    return Annotated[int, _META(**widest, **own)]
