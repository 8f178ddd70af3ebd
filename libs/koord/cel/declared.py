"""Types that expressions are checked by, and how large their values can get.

Types are messages of a descriptor pool; where these cannot say what is declared (a list of lists inside of an object)
the inner part is dynamic.
"""

import re
from functools import cache
from typing import Any

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool

from koord.cel.opaque import KNOWN_FILES, new_pool

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
