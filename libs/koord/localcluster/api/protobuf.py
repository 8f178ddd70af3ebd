"""Reading protobuf bodies, which typed clients of Kubernetes prefer: kubectl sends most objects that it makes so.

Only decoding: answers are always JSON, which these clients accept. A body is the magic `k8s\\0` and an envelope with
apiVersion, kind and the object's own message. Which field has which number says `data/protobuf.json`
(`python -m tools.protobufs`); it is read when the first such body comes.
"""

import base64
import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from koord.cel.protofields import message_fields, varint
from koord.localcluster.api.errors import bad_request
from koord.localcluster.clusterapi import Object

MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Field(NamedTuple):
    """A field of a message.

    `name` is the JSON name, empty when JSON has the fields of the message in line. An `optional` field says something
    even when it is 0, false or empty; of the others Kubernetes writes every one. `shape` is "list", "map" (by strings)
    or "".
    """

    name: str
    type: str
    shape: str = ""
    optional: bool = False


_Message = dict[int, _Field]

_ENVELOPE: _Message = {1: _Field("type", "envelope type"), 2: _Field("raw", "span")}
_TYPE: _Message = {1: _Field("apiVersion", "string"), 2: _Field("kind", "string")}


class _Facts(msgspec.Struct):
    kinds: dict[str, str]
    messages: dict[str, dict[str, str]]


@cache
def _facts() -> _Facts:
    text = files("koord.localcluster.api").joinpath("data/protobuf.json").read_bytes()
    return msgspec.json.decode(text, type=_Facts)


@cache
def _described(name: str) -> _Message:
    """The fields of a message by number."""
    if name == "envelope type":
        return _TYPE
    return {int(number): _field(text) for number, text in _facts().messages[name].items()}


def _field(text: str) -> _Field:
    words = text.split(" ")
    shape, optional = "", False
    while words[0] in ("list", "map", "optional"):
        word = words.pop(0)
        if word == "optional":
            optional = True
        else:
            shape = word
    return _Field(words[1] if len(words) > 1 else "", words[0], shape, optional)


def decode_protobuf(body: bytes) -> Object:
    """The object in a protobuf body; 400 for a kind that is not read here and for bytes that are no such message."""
    if not body.startswith(MAGIC):
        raise bad_request("the body of the request does not start with the magic number of Kubernetes protobuf")
    try:
        envelope = _message(memoryview(body)[len(MAGIC) :], _ENVELOPE)
        names = envelope.get("type", {})
        api_version, kind = names.get("apiVersion", ""), names.get("kind", "")
        message = _facts().kinds.get(f"{api_version} {kind}") or _options(kind)
        if message is None:
            raise bad_request(_unknown(api_version, kind))
        decoded = _message(envelope.get("raw", memoryview(b"")), _described(message))
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise bad_request(f"the body of the request is not valid protobuf: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **decoded}


def _unknown(api_version: str, kind: str) -> str:
    if not kind:
        return "the object provided is unrecognized: Object 'Kind' is missing in the body of the request"
    if "." in api_version.partition("/")[0].removesuffix(".k8s.io"):
        return f"{kind} in {api_version} has no protobuf form that is known here: send JSON"
    return f'no kind "{kind}" is registered for version "{api_version}"'


def _options(kind: str) -> str | None:
    # Clients write DeleteOptions in the group of what they delete.
    return _facts().kinds["v1 DeleteOptions"] if kind == "DeleteOptions" else None


def _message(data: memoryview, message: _Message) -> Any:
    """A message as JSON has it: an object, or a list where the message is nothing but a name for one."""
    decoded: Object = {}
    items: list[Any] | None = None
    for number, value in message_fields(data):
        field = message.get(number)
        if field is None:
            continue
        if field.shape == "map":
            key, read = _pair(_span(value), field)
            decoded.setdefault(field.name, {})[key] = read
        elif field.shape == "list":
            read = _values(value, field.type)
            if field.name:
                decoded.setdefault(field.name, []).extend(read)
            else:
                items = [*(items or []), *read]
        else:
            read = _value(value, field.type)
            if not field.name:
                decoded.update(read)
            elif field.optional or read not in (None, "", 0, False, {}):
                decoded[field.name] = read
    return decoded if items is None else items


def _pair(data: memoryview, field: _Field) -> tuple[str, Any]:
    """A key of a map with its value."""
    entry = _message(data, {1: _Field("key", "string"), 2: _Field("value", field.type, optional=True)})
    empty = "" if field.type in ("string", "bytes", "quantity") else None
    return entry.get("key", ""), entry.get("value", empty)


def _values(value: int | memoryview, type_: str) -> list[Any]:
    """The values of one occurrence of a list; numbers may come packed."""
    if type_ in ("int", "bool") and not isinstance(value, int):
        numbers, at = [], 0
        while at < len(value):
            number, at = varint(value, at)
            numbers.append(_value(number, type_))
        return numbers
    return [_value(value, type_)]


def _value(value: int | memoryview, type_: str) -> Any:
    match type_:
        case "bool":
            return bool(value)
        case "int":
            return _signed(value)
        case "string":
            return str(_span(value), "utf-8")
        case "bytes":
            return base64.b64encode(_span(value)).decode()
        case "span":
            return _span(value)
        case "float":
            return struct.unpack("<d", _span(value))[0]
        case "quantity" | "duration" | "time" | "intorstring" | "raw" | "fields":
            return _special(_span(value), type_)
    return _message(_span(value), _described(type_))


def _special(data: memoryview, type_: str) -> Any:
    """What JSON writes in a way of its own; None where nothing was said."""
    found: dict[int, int | memoryview] = dict(message_fields(data))
    first = found.get(1)
    if type_ == "intorstring":
        return str(_span(found.get(3, memoryview(b""))), "utf-8") if first else _signed(found.get(2, 0))
    if type_ == "time":
        return _time(_signed(first or 0), _signed(found.get(2, 0))) if found else None
    if first is None:
        return None
    if type_ == "quantity":
        return str(_span(first), "utf-8")
    if type_ == "duration":
        return f"{_signed(first) / 1e9:g}s"
    span = _span(first)
    return msgspec.json.decode(span) if len(span) else None


def _time(seconds: int, nanoseconds: int) -> str:
    when = _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    return when.strftime("%Y-%m-%dT%H:%M:%S") + (f".{when.microsecond:06}" if nanoseconds else "") + "Z"


def _signed(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("a length where a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _span(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a length was expected")
    return value
