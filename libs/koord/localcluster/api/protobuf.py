"""Reading the protobuf bodies of everyday `kubectl create` commands, which have no JSON fallback.

Only decoding, and only the kinds below: answers are always JSON, which kubectl accepts. A body is the magic `k8s\\0`
and an envelope with apiVersion, kind and the object's own message.
"""

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

from koord.localcluster.api.errors import bad_request, unsupported_media_type
from koord.localcluster.clusterapi import Object

MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class _Field(NamedTuple):
    """A field of a message: its JSON name, the type of its value, whether it repeats or is a map of strings to it."""

    name: str
    type: Any
    repeated: bool = False
    map: bool = False


_Message = dict[int, _Field]

_OWNER: _Message = {
    1: _Field("kind", str),
    3: _Field("name", str),
    4: _Field("uid", str),
    5: _Field("apiVersion", str),
    6: _Field("controller", bool),
    7: _Field("blockOwnerDeletion", bool),
}
_METADATA: _Message = {
    1: _Field("name", str),
    2: _Field("generateName", str),
    3: _Field("namespace", str),
    5: _Field("uid", str),
    6: _Field("resourceVersion", str),
    11: _Field("labels", str, map=True),
    12: _Field("annotations", str, map=True),
    13: _Field("ownerReferences", _OWNER, repeated=True),
    14: _Field("finalizers", str, repeated=True),
}
_KINDS: dict[tuple[str, str], _Message] = {
    ("v1", "Namespace"): {
        1: _Field("metadata", _METADATA),
        2: _Field("spec", {1: _Field("finalizers", str, repeated=True)}),
    },
    ("v1", "ConfigMap"): {
        1: _Field("metadata", _METADATA),
        2: _Field("data", str, map=True),
        3: _Field("binaryData", bytes, map=True),
        4: _Field("immutable", bool),
    },
    ("v1", "Secret"): {
        1: _Field("metadata", _METADATA),
        2: _Field("data", bytes, map=True),
        3: _Field("type", str),
        4: _Field("stringData", str, map=True),
        5: _Field("immutable", bool),
    },
    ("v1", "ServiceAccount"): {1: _Field("metadata", _METADATA), 4: _Field("automountServiceAccountToken", bool)},
    ("scheduling.k8s.io/v1", "PriorityClass"): {
        1: _Field("metadata", _METADATA),
        2: _Field("value", int),
        3: _Field("globalDefault", bool),
        4: _Field("description", str),
        5: _Field("preemptionPolicy", str),
    },
}
_ENVELOPE: _Message = {
    1: _Field("type", {1: _Field("apiVersion", str), 2: _Field("kind", str)}),
    2: _Field("raw", memoryview),
}


def decode_protobuf(body: bytes) -> Object:
    """The object in a protobuf body; 415 for a kind that is not read here, 400 for bytes that are no such message."""
    if not body.startswith(MAGIC):
        raise bad_request("the body of the request does not start with the magic number of Kubernetes protobuf")
    try:
        envelope = _message(memoryview(body)[len(MAGIC) :], _ENVELOPE)
        names = envelope.get("type", {})
        api_version, kind = names.get("apiVersion", ""), names.get("kind", "")
        message = _KINDS.get((api_version, kind))
        if message is None:
            given = f"application/vnd.kubernetes.protobuf with {kind or 'no kind'}"
            raise unsupported_media_type("application/json, application/yaml", given)
        decoded = _message(envelope.get("raw", memoryview(b"")), message)
    except (ValueError, IndexError) as error:
        raise bad_request(f"the body of the request is not valid protobuf: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **decoded}


def _message(data: memoryview, message: _Message) -> Object:
    decoded: Object = {}
    for number, value in _fields(data):
        field = message.get(number)
        if field is None:
            continue
        if field.map:
            entry = _message(_span(value), {1: _Field("key", str), 2: _Field("value", field.type)})
            empty = "" if field.type in (str, bytes) else None
            decoded.setdefault(field.name, {})[entry.get("key", "")] = entry.get("value", empty)
        elif field.repeated:
            decoded.setdefault(field.name, []).append(_value(value, field.type))
        elif (read := _value(value, field.type)) != "":
            # Kubernetes writes every string; an empty one says that the field is not set.
            decoded[field.name] = read
    return decoded


def _value(value: int | memoryview, type_: Any) -> Any:
    if type_ is bool:
        return bool(value)
    if type_ is int:
        return _signed(value)
    span = _span(value)
    if type_ is str:
        return str(span, "utf-8")
    if type_ is bytes:
        return base64.b64encode(span).decode()
    return span if type_ is memoryview else _message(span, type_)


def _signed(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("a length where a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _span(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a length was expected")
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message in order: numbers as int, everything with a length as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, number
            continue
        if wire == _LENGTH:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("the message ends too early")
        if wire == _LENGTH:
            yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
