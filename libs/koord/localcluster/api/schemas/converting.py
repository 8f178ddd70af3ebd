"""From the values of an object to those of CEL, by the object's schema.

Names are escaped, what the schema does not know is left out, numbers are of the type that the schema says, times and
durations are what they are to CEL. A field that is null is not there.
"""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from koord.cel.declared import Declared, escape
from koord.localcluster.api.schemas.declaring import Known, declare
from koord.localcluster.api.schemas.model import Schema

_GO = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|0")
Convert = Callable[[Any], Any]
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_LONG = {"d": 24 * 3600 * 10**9, "w": 7 * 24 * 3600 * 10**9}
_WORDS = re.compile(r"(?i)\s*(\d+)(?:\.\d+)?\s*(ns|nano|us|micro|ms|milli|s|m|h|d|w)")
_PART = re.compile(r"(\d+)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)|\.(\d+)(ns|us|µs|μs|ms|s|m|h)")


class Converters:
    """The converters of one definition's schemas, each made once."""

    def __init__(self, types: Known | None = None) -> None:
        self.types: Known = {} if types is None else types
        self._made: dict[tuple[int, bool], Convert] = {}

    def of(self, schema: Schema, *, whole: bool = False) -> Convert:
        """A function that converts the values of a schema. `whole`: of a whole object with its metadata."""
        key = (id(schema), whole)
        if key not in self._made:
            self._made[key] = _converter(schema, self, whole=whole)
        return self._made[key]


def converter(schema: Schema, *, whole: bool = False) -> Convert:
    """A function that converts the values of a schema. `whole`: of a whole object with its metadata."""
    return Converters().of(schema, whole=whole)


def _converter(schema: Schema, made: Converters, *, whole: bool) -> Convert:
    if schema.int_or_string:
        return _same
    match schema.type:
        case "array" if schema.items is not None:
            return _list(made.of(schema.items, whole=schema.items.embedded_resource))
        case "object":
            if schema.additional is not None and not (whole or schema.properties):
                inner = made.of(schema.additional, whole=schema.additional.embedded_resource)
                return lambda value: {name: inner(given) for name, given in value.items()}
            return _object(schema, made, whole=whole)
        case "string":
            return _TEXTS.get(schema.format, _same)
        case "number":
            return _double
        case "integer":
            return _int
    return _same


def _list(inner: Convert) -> Convert:
    return lambda value: [inner(given) for given in value]


def _object(schema: Schema, made: Converters, *, whole: bool) -> Convert:
    declared = declare(schema, whole=whole, known=made.types) or Declared("object")
    fields: dict[str, tuple[str, Convert]] = {}
    for name, inner in schema.properties.items():
        escaped = escape(name)
        if escaped is not None and escaped in declared.fields and not inner.definition:
            fields[name] = (escaped, made.of(inner, whole=inner.embedded_resource))
    if whole:
        fields |= {name: (name, _same) for name in ("apiVersion", "kind")}
        fields["metadata"] = ("metadata", _metadata)
    get = fields.get

    def convert(value: Any) -> Any:
        found = {}
        for name, given in value.items():
            if given is not None and (field := get(name)) is not None:
                found[field[0]] = field[1](given)
        return found

    return convert


def _same(value: Any) -> Any:
    return value


def _double(value: Any) -> Any:
    return float(value) if isinstance(value, int) else value


def _int(value: Any) -> Any:
    return int(value) if isinstance(value, float) else value


def _metadata(value: Any) -> Any:
    return {name: value[name] for name in ("name", "generateName") if value.get(name)}


def _bytes(value: Any) -> Any:
    return base64.b64decode(value) if isinstance(value, str) else value


def _timestamp(value: Any) -> Any:
    """A moment with all of its nanoseconds."""
    whole, dot, rest = value.upper().replace(" ", "T").partition(".")
    digits = re.match(r"\d*", rest)
    fraction = digits[0] if digits is not None and dot else ""
    # A leap second is the last one that there is otherwise.
    moment = datetime.fromisoformat(whole.replace(":60", ":59") + rest[len(fraction) :])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return timestamp_pb2.Timestamp(seconds=int(moment.timestamp()), nanos=int(fraction[:9].ljust(9, "0")))


def nanoseconds(text: str) -> int:
    """A duration in Go's form, such as `1h2.5s`, or in words, such as `2 days`."""
    if _GO.fullmatch(text) is None and (words := _WORDS.match(text)) is not None:
        unit = words[2].lower()
        return int(words[1]) * (_UNITS | _LONG)[{"nano": "ns", "micro": "us", "milli": "ms"}.get(unit, unit)]
    total = 0
    for whole, fraction, unit, only, its_unit in _PART.findall(text):
        unit = unit or its_unit
        fraction = fraction or only
        total += int(whole or 0) * _UNITS[unit]
        if fraction:
            total += int(fraction) * _UNITS[unit] // 10 ** len(fraction)
    return -total if text.startswith("-") else total


def _duration(value: Any) -> Any:
    total = nanoseconds(value)
    sign = -1 if total < 0 else 1
    seconds, nanos = divmod(abs(total), 10**9)
    return duration_pb2.Duration(seconds=sign * seconds, nanos=sign * nanos)


_TEXTS: dict[str, Convert] = {
    "byte": _bytes,
    "duration": _duration,
    "date": _timestamp,
    "date-time": _timestamp,
}
