"""A node's generation: one number of everything about a node, besides its room, that a placement may depend on.

The ledger keeps it as the version of the node's guard (spec 20 section 3.12): a claim that was planned with another
generation is refused. It is a function of the object alone, so whoever has read the same node has the same number,
whatever versions in between were never seen, and a node that is as it was before is at its earlier number again.
"""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def node_generation(
    labels: Mapping[str, str], taints: Iterable[tuple[str, str, str]], *, unschedulable: bool, deleting: bool
) -> int:
    """From 1 to 2^53 - 1. ``taints`` are (key, value, effect) in any order: when one was added is nobody's concern."""
    body = _encode((dict(labels), sorted(taints), unschedulable, deleting))
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest()) % (2**53 - 1) + 1
