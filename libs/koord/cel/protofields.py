"""The fields of protobuf messages, without knowing what these are."""

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def message_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message in order: numbers as int, everything with a length as bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            number, at = varint(data, at)
            yield tag >> 3, number
            continue
        if wire == _LENGTH:
            size, at = varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("the message ends too early")
        if wire != _FIXED32:
            yield tag >> 3, data[at : at + size]
        at += size


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and where what follows it begins; ValueError if it has more than 64 bits."""
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
