"""What a schema is to CEL: the type that expressions are checked by, and how large its values can get.

Properties that no schema says anything of are not there for CEL. Sizes are those of Kubernetes' estimates (its
cel/common/schemas.go says how), from which costs are estimated.
"""

from functools import cache

from msgspec import UNSET

from koord.cel.declared import Declared, escape
from koord.cel.limits import REQUEST_BYTES
from koord.localcluster.api.schemas.model import Schema

_LONGEST = {"duration": 32, "date": 12, "date-time": 32}
_SHORTEST = {"duration": 3, "date": 12, "date-time": 21}
_TEXT = Schema("string")


@cache
def _whole() -> dict[str, Schema]:
    metadata = Schema("object")
    metadata.properties = {"name": _TEXT, "generateName": _TEXT}
    return {"apiVersion": _TEXT, "kind": _TEXT, "metadata": metadata}


Known = dict[tuple[int, bool], Declared | None]
"""The types of schemas that were asked for before, by identity: each level of a schema asks for all that is below."""


def declare(schema: Schema, *, whole: bool = False, known: Known | None = None) -> Declared | None:
    """The type of a schema; None when expressions cannot know it. `whole`: of a whole object with its metadata."""
    if known is None:
        known = {}
    key = (id(schema), whole)
    if key not in known:
        known[key] = _declare(schema, known, whole=whole)
    return known[key]


def _declare(schema: Schema, known: Known, *, whole: bool) -> Declared | None:
    if schema.int_or_string:
        return Declared("dyn", schema.max_length * 4 if schema.max_length is not None else REQUEST_BYTES - 2, 1)
    match schema.type:
        case "array":
            return _declare_list(schema, known)
        case "object":
            if schema.additional is not None and not (whole or schema.properties):
                return _declare_map(schema, known)
            return _declare_object(schema, known, whole=whole)
        case "string":
            return _declare_text(schema)
        case "boolean":
            return Declared("bool", 0, 4)
        case "number":
            return Declared("double")
        case "integer":
            return Declared("int")
    return None


def _declare_list(schema: Schema, known: Known) -> Declared | None:
    if schema.items is None:
        return None
    inner = declare(schema.items, whole=schema.items.embedded_resource, known=known)
    if inner is None:
        return None
    most = max(schema.max_items, 0) if schema.max_items is not None else (REQUEST_BYTES - 2) // (inner.least + 1)
    found = Declared("list", most, 2)
    found.inner = inner
    return found


def _declare_map(schema: Schema, known: Known) -> Declared | None:
    assert schema.additional is not None
    inner = declare(schema.additional, whole=schema.additional.embedded_resource, known=known)
    if inner is None:
        return None
    bound = schema.max_properties
    found = Declared("map", max(bound, 0) if bound is not None else (REQUEST_BYTES - 2) // (inner.least + 6), 2)
    found.inner = inner
    return found


def _declare_object(schema: Schema, known: Known, *, whole: bool) -> Declared:
    found = Declared("object", 0, 2)
    properties = {**schema.properties, **_whole()} if whole else schema.properties
    for name, inner in properties.items():
        field = declare(inner, whole=inner.embedded_resource, known=known)
        if field is None:
            continue
        if (escaped := escape(name)) is not None:
            found.fields[escaped] = field
        if name in schema.required and inner.default is UNSET:
            found.least += len(name) + field.least + 4
    return found


def _declare_text(schema: Schema) -> Declared:
    most = _LONGEST.get(schema.format, REQUEST_BYTES - 2)
    if schema.format in _LONGEST:
        kind = "duration" if schema.format == "duration" else "timestamp"
        return Declared(kind, most, _SHORTEST[schema.format])
    if schema.format == "byte":
        return Declared("bytes", max(schema.max_length, 0) if schema.max_length is not None else most, 2)
    if schema.max_length is not None:
        most = max(schema.max_length, 0) * 4
    elif schema.enum:
        most = max((len(value.encode()) for value in schema.enum if isinstance(value, str)), default=0)
    return Declared("string", most, 2)
