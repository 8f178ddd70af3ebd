"""What a schema is to CEL: the type that expressions are checked by, and how large its values can get.

Properties that no schema says anything of are not there for CEL. Types are messages of a descriptor pool; where these
cannot say what a schema does (a list of lists inside of an object) the inner part is dynamic. Sizes are those of
Kubernetes' estimates (its cel/common/schemas.go says how), from which costs are estimated.
"""

import re
from functools import cache
from typing import Any

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool
from msgspec import UNSET

from koord.localcluster.api.cel.limits import REQUEST_BYTES
from koord.localcluster.api.cel.opaque import KNOWN_FILES, new_pool
from koord.localcluster.api.schemas.model import Schema

_RESERVED = re.compile(
    "true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return|var|void|"
    "while"
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = re.compile(r"__|[-./]")
_ESCAPED = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_FIELD = descriptor_pb2.FieldDescriptorProto
_VALUE, _LIST, _STRUCT = ".google.protobuf.Value", ".google.protobuf.ListValue", ".google.protobuf.Struct"
# A message of protobuf has 64 KiB at most, 16 bytes for a text; larger objects have no type.
_MOST_FIELDS = 2_000
_LONGEST = {"duration": 32, "date": 12, "date-time": 32}
_SHORTEST = {"duration": 3, "date": 12, "date-time": 21}


@cache
def escape(name: str) -> str | None:
    """A property's name in expressions; None when it cannot be written there."""
    if _RESERVED.fullmatch(name):
        return f"__{name}__"
    found = _SPECIAL.sub(lambda match: _ESCAPED[match[0]], name)
    return found if _PLAIN.fullmatch(found) else None


class Declared:
    """A type. `kind`: `object`, `list`, `map`, `int`, `double`, `bool`, `string`, `bytes`, `duration`, `timestamp` or
    `dyn`.

    fields: of an object, by their escaped names. inner: of a list, or the values of a map. most: how many elements or
    bytes a value has at most. least: how many bytes it has in JSON at least.
    """

    __slots__ = ("fields", "inner", "kind", "least", "most")

    def __init__(self, kind: str, most: int = 0, least: int = 1) -> None:
        self.kind = kind
        self.most = most
        self.least = least
        self.fields: dict[str, Declared] = {}
        self.inner: Declared | None = None

    def at(self, path: tuple[str, ...]) -> "Declared | None":
        """The type of what a path leads to: names of fields, `@items`, `@values`, `@keys`."""
        found: Declared | None = self
        for step in path:
            if found is None:
                return None
            match step:
                case "@items" | "@values":
                    found = found.inner
                case "@keys":
                    found = _KEY if found.kind == "map" else None
                case _:
                    found = found.inner if found.kind == "map" else found.fields.get(step)
        return found


# Kubernetes takes keys for nothing.
_KEY = Declared("string", 0, 2)
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


_SIMPLE = {
    "int": (_FIELD.TYPE_INT64, ""),
    "double": (_FIELD.TYPE_DOUBLE, ""),
    "bool": (_FIELD.TYPE_BOOL, ""),
    "string": (_FIELD.TYPE_STRING, ""),
    "bytes": (_FIELD.TYPE_BYTES, ""),
    "duration": (_FIELD.TYPE_MESSAGE, ".google.protobuf.Duration"),
    "timestamp": (_FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
    "dyn": (_FIELD.TYPE_MESSAGE, _VALUE),
    # In another list or map, where a message cannot say more of it.
    "list": (_FIELD.TYPE_MESSAGE, _LIST),
    "map": (_FIELD.TYPE_MESSAGE, _STRUCT),
}
_NAMES = {
    "int": cel.Type.INT,
    "double": cel.Type.DOUBLE,
    "bool": cel.Type.BOOL,
    "string": cel.Type.STRING,
    "bytes": cel.Type.BYTES,
    "duration": cel.Type.DURATION,
    "timestamp": cel.Type.TIMESTAMP,
    "dyn": cel.Type.DYN,
}


class Types:
    """The messages of declared types, in a pool of their own; `types` are what variables are declared with."""

    def __init__(self, roots: dict[str, Declared]) -> None:
        self.pool: descriptor_pool.DescriptorPool = new_pool()
        self._file = descriptor_pb2.FileDescriptorProto(name="declared.proto", package="object", syntax="proto2")
        self._file.dependency.extend(KNOWN_FILES)
        self._messages: dict[int, str] = {}
        types = {name: self._type(root) for name, root in roots.items()}
        self.pool.Add(self._file)
        self.types: dict[str, Any] = {name: make() for name, make in types.items()}

    def _type(self, declared: Declared) -> Any:
        """A function that makes the type, once the pool is complete."""
        if declared.kind == "object" and len(declared.fields) > _MOST_FIELDS:
            return lambda: cel.Type.DYN
        if declared.kind == "object":
            name = f"object.{self._message(declared)}"
            return lambda: cel.Type(name)
        if declared.inner is not None:
            inner = self._type(declared.inner)
            if declared.kind == "list":
                return lambda: cel.Type.List(inner())
            return lambda: cel.Type.Map(cel.Type.STRING, inner())
        known = _NAMES[declared.kind]
        return lambda: known

    def _message(self, declared: Declared) -> str:
        if (known := self._messages.get(id(declared))) is not None:
            return known
        called = self._messages[id(declared)] = f"Type{len(self._file.message_type)}"
        message = self._file.message_type.add(name=called)
        # `fooBar` and `foo_bar` may stand beside each other.
        message.options.deprecated_legacy_json_field_conflicts = True
        for number, (name, field) in enumerate(declared.fields.items(), 1):
            made = message.field.add(name=name, number=number, label=1)
            if field.kind == "map":
                self._map(message, made, field)
                continue
            if field.kind == "list":
                made.label = _FIELD.LABEL_REPEATED
                assert field.inner is not None
                field = field.inner
            self._fill(made, field)
        return called

    def _map(self, message: Any, made: Any, field: Declared) -> None:
        assert field.inner is not None
        # The name that protobuf wants: that of the field in camel case.
        name = "".join(part[:1].upper() + part[1:] for part in made.name.split("_")) + "Entry"
        if any(entry.name == name for entry in message.nested_type):
            self._fill(made, Declared("map"))  # `fooBar` and `foo_bar` have the same
            return
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=1)
        self._fill(entry.field.add(name="value", number=2, label=1), field.inner)
        made.label = _FIELD.LABEL_REPEATED
        made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".object.{message.name}.{name}"

    def _fill(self, made: Any, field: Declared) -> None:
        if field.kind == "object" and len(field.fields) > _MOST_FIELDS:
            field = Declared("dyn")
        if field.kind == "object":
            made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".object.{self._message(field)}"
            return
        made.type, name = _SIMPLE[field.kind]
        if name:
            made.type_name = name
