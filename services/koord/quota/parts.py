"""A tree's quotas in parts of bounded size: one message of a tree of 10,000 quotas would be more than NATS takes.

A quota's part follows from its name alone while the number of parts stays: what comes and goes changes its own part.
"""

import zlib
from collections.abc import Mapping

import msgspec

PART_BYTES = 768 << 10
"""A part has at most so many bytes of quotas, and one quota more."""
MOST_PARTS = 1024
"""So many parts suffice for a million quotas; names that were made to fall into one part cannot ask for more."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """One message to be published: ``body`` of part ``part`` of ``tree``; ``gone``: the tree has no quotas any more."""

    tree: str
    part: int
    version: int
    body: bytes
    gone: bool = False


class Told(msgspec.Struct):
    """What was published last of a tree: in how many parts, and the quotas of each; None: it did not go out."""

    count: int = 1
    parts: dict[int, list[bytes] | None] = {}


def split(states: Mapping[str, bytes], count: int) -> list[list[bytes]]:
    """The encoded quotas by name, in parts: ``count`` of them, or twice as many … if they do not fit.

    Fewer only where less than a quarter of the room is used: else a tree that grows and shrinks a little would be
    sent as a whole each time.
    """
    total = sum(map(len, states.values()))
    if total <= PART_BYTES and (count == 1 or total * 4 < PART_BYTES * count):
        return [list(states.values())]
    if total * 4 < PART_BYTES * count:
        count = 1
    while count < MOST_PARTS and count * PART_BYTES < total:
        count *= 2
    room = PART_BYTES + max(map(len, states.values()))
    while True:
        parts: list[list[bytes]] = [[] for _ in range(count)]
        for name, state in states.items():
            parts[zlib.crc32(name.encode()) % count].append(state)
        if count >= MOST_PARTS or max(sum(map(len, part)) for part in parts) <= room:
            return parts
        count *= 2
