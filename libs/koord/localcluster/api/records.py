"""The records of the write-ahead file: what a byte sequence on disk says, and whether it says it in full.

    magic (4 bytes) | length of the rest (u32) | CRC-32 of the rest (u32) | kind (u8) | version (u64)
    | lengths of key, namespace, name (3 x u16) | key | namespace | name | object's JSON | (0 | the object's writers)

all little-endian. JSON has no byte 0; records of older servers have no writers. The magic starts with a byte that no
JSON text contains, so records can be found again after a damaged one, and nothing that a client stores can look like a
record.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

MAGIC = b"\xffkR1"
_HEAD = struct.Struct("<4sII")
_BODY = struct.Struct("<BQHHH")


class Kind(IntEnum):
    """What a record says. `FILE` begins a file, `END` ends a snapshot (its version is the number of objects)."""

    FILE = 1
    PUT = 2
    DELETE = 3
    VERSION = 4
    """A server started: versions between the last one and this one were never given out, or are lost."""
    SYNCED = 5
    """Everything before the offset in `version` is on the disk."""
    END = 6


class Record(NamedTuple):
    """One record; what it does not need is empty. `key` is the resource's (`jobs.batch`)."""

    kind: int
    version: int
    key: str
    namespace: str
    name: str
    raw: bytes
    writers: bytes = b""


class BadRecord(Exception):
    """Bytes that are not a whole record with the right checksum."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"at byte {offset}: {why}")
        self.offset = offset


def pack(
    kind: int, version: int, key: str = "", namespace: str = "", name: str = "", raw: bytes = b"", writers: bytes = b""
) -> bytes:
    """The bytes of one record."""
    where = (key.encode(), namespace.encode(), name.encode())
    body = b"".join((_BODY.pack(kind, version, len(where[0]), len(where[1]), len(where[2])), *where, raw))
    if writers:
        body = b"".join((body, b"\0", writers))
    return _HEAD.pack(MAGIC, len(body), crc32(body)) + body


def unpack(data: bytes | memoryview, offset: int) -> tuple[Record, int]:
    """The record at an offset and the offset after it; `BadRecord` says what is wrong with it."""
    left = len(data) - offset
    if left < _HEAD.size:
        raise BadRecord(offset, f"{left} bytes are too few for a record")
    magic, length, checksum = _HEAD.unpack_from(data, offset)
    if magic != MAGIC:
        raise BadRecord(offset, "no record begins here")
    start = offset + _HEAD.size
    end = start + length
    if end > len(data):
        raise BadRecord(offset, f"the record has {length} bytes, but only {len(data) - start} follow")
    body = bytes(data[start:end])
    if crc32(body) != checksum or length < _BODY.size:
        raise BadRecord(offset, "the checksum of the record is wrong")
    kind, version, key, space, name = _BODY.unpack_from(body)
    key_end = _BODY.size + key
    space_end = key_end + space
    name_end = space_end + name
    texts = (body[_BODY.size : key_end].decode(), body[key_end:space_end].decode(), body[space_end:name_end].decode())
    raw, _, writers = body[name_end:].partition(b"\0")
    return Record(kind, version, *texts, raw, writers), end


def read(data: bytes | memoryview) -> Iterator[tuple[Record, int]]:
    """The records from the start, each with the offset after it; `BadRecord` at the first that is not whole."""
    offset = 0
    while offset < len(data):
        record, offset = unpack(data, offset)
        yield record, offset


def synced_beyond(data: bytes, offset: int) -> bool:
    """Whether a whole record further on says that what is at the offset had reached the disk."""
    at = offset
    while (at := data.find(MAGIC, at + 1)) >= 0:
        try:
            record, _ = unpack(data, at)
        except (BadRecord, UnicodeDecodeError):
            continue
        if record.kind == Kind.SYNCED and record.version > offset:
            return True
    return False
