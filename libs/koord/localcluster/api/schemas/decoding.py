"""Built-in objects as the real server's typed decoder reads them: types must fit, unknown fields and nulls go.

The quick way is one msgspec pass per section (metadata, spec, status, ...) that has changed; only what does not pass it
is walked here, for the words of the refusal, the paths of unknown fields, and to drop what has to go.
"""

import base64
import binascii
import re
from typing import Any

import msgspec

from koord.kube.quantity import QuantityError, parse
from koord.localcluster.api.errors import bad_request, invalid_patch
from koord.localcluster.api.schemas.fasttypes import fast_types, whole_type
from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.schemas.strict import IGNORE, Report
from koord.localcluster.clusterapi import Object

_convert = msgspec.convert
_NOTHING: Object = {}
_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
)
_QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
# Go structs that are embedded in others: their fields lie beside the others', but are named by them in refusals.
_EMBEDDED = {
    "core.v1.Probe": ("ProbeHandler", frozenset({"exec", "grpc", "httpGet", "tcpSocket"})),
}


class TypeMismatchError(Exception):
    """A value that cannot be read into its field; the text is what Go's decoder says."""


class Decoder:
    """Reads the objects of one built-in kind."""

    def __init__(self, schema: Schema, kind: str, version: str) -> None:
        self.schema = schema
        self.kind = kind
        self.version = version
        self._sections = fast_types(schema.properties, typed=True)
        self._whole = whole_type(self._sections)

    def read(self, obj: Object, before: Object = _NOTHING, report: Report | None = None) -> bool:
        """Bring an object into the kind's form, in place, or raise 400 (422 for the result of a patch).

        What it shares with the object `before`, which was read earlier, is passed over. Always True: built-in kinds
        have rules of their own instead of a schema's.
        """
        try:
            if not before:
                _convert(obj, self._whole)
            else:
                get, sections = before.get, self._sections
                for name, value in obj.items():
                    if value is None or value is not get(name):
                        _convert(value, sections[name])
        except (msgspec.ValidationError, KeyError, TypeError):
            self._walk(obj, before, report)
        if report is not None and (refused := report.refused):
            raise self._refusal(obj, before, refused)
        return True

    def _walk(self, obj: Object, before: Object, report: Report | None) -> None:
        unknown: list[str] | None = None if report is None or report.mode == IGNORE else []
        try:
            _object(obj, self.schema, "", self.kind, "", unknown)
        except TypeMismatchError as error:
            raise self._refusal(obj, before, str(error)) from error
        if report is not None and unknown:
            report.note(unknown)

    def _refusal(self, obj: Object, before: Object, why: str) -> Exception:
        if before:
            return invalid_patch(obj, why)
        kind = obj.get("kind") if isinstance(obj.get("kind"), str) else self.kind
        return bad_request(f'{kind} in version "{self.version}" cannot be handled as a {self.kind}: {why}')


def read_object(obj: Object, schema: Schema, shown: str, unknown: list[str] | None) -> None:
    """Read one built-in object that is part of another; `shown` is where it lies, for unknown fields."""
    _object(obj, schema, "", _name(schema), shown, unknown)


def _name(schema: Schema) -> str:
    return schema.definition.rpartition(".")[2]


def go_type(schema: Schema) -> str:
    """A schema's Go type, as far as the OpenAPI document tells it (named strings are strings)."""
    if schema.format == "quantity":
        return "resource.Quantity"
    if schema.int_or_string:
        return "intstr.IntOrString"
    if schema.definition and schema.type == "object":
        package, _, name = schema.definition.rpartition(".")
        return f"{package.rpartition('.')[2]}.{name}"
    match schema.type:
        case "integer":
            return schema.format or "int64"
        case "number":
            return "float64"
        case "boolean":
            return "bool"
        case "array":
            return "[]" + (go_type(schema.items) if schema.items is not None else "interface {}")
        case "object":
            return "map[string]" + (go_type(schema.additional) if schema.additional is not None else "interface {}")
    return "[]uint8" if schema.format == "byte" else "string"


def json_kind(value: Any) -> str:
    """What Go's decoder calls a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _mismatch(value: Any, schema: Schema, struct: str, path: str, kind: str = "") -> TypeMismatchError:
    where = f"Go struct field {struct}.{path}" if path else "Go value"
    return TypeMismatchError(
        f"json: cannot unmarshal {kind or json_kind(value)} into {where} of type {go_type(schema)}"
    )


def _object(obj: Object, schema: Schema, path: str, struct: str, shown: str, unknown: list[str] | None) -> None:
    """Read an object's fields; `path` as Go names it (no indices), `shown` as strict errors do."""
    own = _name(schema) or struct
    embedded, inside = _EMBEDDED.get(schema.definition, ("", frozenset()))
    dead: list[str] = []
    for name, value in obj.items():
        inner = schema.properties.get(name)
        if inner is None:
            if not schema.preserve_unknown:
                dead.append(name)
                if unknown is not None:
                    unknown.append(f'unknown field "{shown}.{name}"' if shown else f'unknown field "{name}"')
        elif value is None:
            dead.append(name)
        else:
            step = f"{embedded}.{name}" if name in inside else name
            below = f"{path}.{step}" if path else step
            obj[name] = _value(value, inner, below, own, f"{shown}.{name}" if shown else name, unknown)
    for name in dead:
        del obj[name]


def _value(value: Any, schema: Schema, path: str, struct: str, shown: str, unknown: list[str] | None) -> Any:
    match schema.type:
        case "object":
            if not isinstance(value, dict):
                raise _mismatch(value, schema, struct, path)
            if schema.additional is not None:
                # A null among a map's values is Go's empty value.
                for name, inner in value.items():
                    value[name] = (
                        _empty(schema.additional)
                        if inner is None
                        else _value(inner, schema.additional, path, struct, f"{shown}.{name}", unknown)
                    )
            elif schema.properties or not schema.preserve_unknown:
                _object(value, schema, path, struct, shown, unknown)
        case "array":
            if not isinstance(value, list):
                raise _mismatch(value, schema, struct, path)
            items = schema.items
            if items is not None:
                for i, inner in enumerate(value):
                    value[i] = (
                        _empty(items) if inner is None else _value(inner, items, path, struct, f"{shown}[{i}]", unknown)
                    )
        case _:
            _scalar(value, schema, struct, path)
    return value


def _empty(schema: Schema) -> Any:
    return {"object": {}, "array": [], "integer": 0, "number": 0, "boolean": False}.get(schema.type, "")


def _scalar(value: Any, schema: Schema, struct: str, path: str) -> None:
    if schema.format == "quantity":
        _quantity(value)
    elif schema.int_or_string:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _mismatch(value, Schema("integer") if not schema.format else _INT32, struct, path)
        if isinstance(value, int) and not -(2**31) <= value < 2**31:
            raise _mismatch(value, _INT32, struct, path, f"number {value}")
    elif schema.type == "string":
        if not isinstance(value, str):
            raise _mismatch(value, schema, struct, path)
        if schema.format in ("date-time", "micro-time") and not _TIME.fullmatch(value):
            raise TypeMismatchError(_time_problem(value, micro=schema.format == "micro-time"))
        if schema.format == "byte":
            _bytes(value)
    elif schema.type == "boolean":
        if not isinstance(value, bool):
            raise _mismatch(value, schema, struct, path)
    elif schema.type == "integer":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _mismatch(value, schema, struct, path)
        bound = 2**31 if schema.format == "int32" else 2**63
        if not isinstance(value, int) or not -bound <= value < bound:
            raise _mismatch(value, schema, struct, path, f"number {go_number(value)}")
    elif schema.type == "number" and json_kind(value) != "number":
        raise _mismatch(value, schema, struct, path)


_INT32 = Schema("integer")
_INT32.format = "int32"


def go_number(value: float) -> str:
    """A number as Go prints it."""
    if isinstance(value, int):
        return str(value)
    if abs(value) < 1e21 and value.is_integer():
        return str(int(value))
    return repr(value)


def _quantity(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeMismatchError(_QUANTITY_RULE)
    try:
        parse(value)
    except QuantityError as error:
        raise TypeMismatchError(_QUANTITY_RULE) from error


def _time_problem(value: str, *, micro: bool) -> str:
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
    return f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'


def _bytes(value: str) -> None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        at = next((i for i, char in enumerate(value) if not re.match(r"[A-Za-z0-9+/=]", char)), len(value) // 4 * 4)
        raise TypeMismatchError(f"illegal base64 data at input byte {at}") from error
