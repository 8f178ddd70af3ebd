"""W3C trace context as a tuple: made and parsed on hot paths, where an SDK context would cost more than the work.

The text form is ``00-<trace id, 32 hex>-<span id, 16 hex>-<flags, 2 hex>``; it travels in the ``traceparent`` header of
bus messages and in the annotation ``koord.sh/traceparent`` of objects.
"""

import hashlib
import random
import re
from typing import NamedTuple

HEADER = "traceparent"

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
# Ids need no secrecy, only spread; the Mersenne generator seeded by the system is several times faster than urandom.
_random = random.Random(random.SystemRandom().getrandbits(128))


class TraceContext(NamedTuple):
    """Ids of one span, and whether its trace is recorded."""

    trace_id: int
    span_id: int
    sampled: bool = True

    @classmethod
    def new(cls, *, sampled: bool = True) -> "TraceContext":
        """The root of a new trace."""
        return cls(_random.getrandbits(128) or 1, _random.getrandbits(64) or 1, sampled)

    def child(self) -> "TraceContext":
        """Ids for a new span of the same trace."""
        return TraceContext(self.trace_id, _random.getrandbits(64) or 1, self.sampled)

    def named(self, name: str) -> "TraceContext":
        """Ids for the one span of this name below this one: the same whoever asks, so that a span that may have been
        lost with its process can be recorded again, and is the same span if it was not."""
        seed = f"{self.trace_id:032x}{self.span_id:016x}{name}".encode()
        span_id = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big") or 1
        return TraceContext(self.trace_id, span_id, self.sampled)

    @property
    def traceparent(self) -> str:
        """The W3C text form."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{'01' if self.sampled else '00'}"

    @classmethod
    def parse(cls, text: str | None) -> "TraceContext | None":
        """The context in ``text``; None if it is missing or not valid (a bad header never stops a flow)."""
        if not text:
            return None
        match = _FORM.fullmatch(text)
        if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
            return None
        trace_id, span_id = int(match[2], 16), int(match[3], 16)
        if not trace_id or not span_id:
            return None
        return cls(trace_id, span_id, bool(int(match[4], 16) & 1))
