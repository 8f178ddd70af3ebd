"""Spans in memory, by trace, the oldest traces leaving first when the ring is full."""

from collections import OrderedDict

import msgspec

MAX_BYTES = 256 * 1024 * 1024
# What a stored span costs beside its encoded bytes: the bytes object and its place in the list.
_OVERHEAD = 64


class StoredSpan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One span as it is kept and shown. Ids are hex; times are ns since the epoch; ``links`` are trace ids."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    instance: str
    start_ns: int
    end_ns: int
    attributes: dict[str, str | int | float | bool] = {}
    links: list[str] = []
    error: str | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredSpan)


class _Trace:
    __slots__ = ("size", "spans")

    def __init__(self) -> None:
        self.spans: list[bytes] = []
        self.size = 0


class TraceStore:
    """A ring of traces, bounded in bytes. A span that comes again (exporters retry) is kept once."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._traces: OrderedDict[str, _Trace] = OrderedDict()
        self.size = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._traces)

    def add(self, span: StoredSpan) -> None:
        """Keep one span; a trace is as young as its newest span."""
        trace = self._traces.get(span.trace_id)
        if trace is None:
            trace = self._traces[span.trace_id] = _Trace()
        else:
            self._traces.move_to_end(span.trace_id)
        body = _encoder.encode(span)
        trace.spans.append(body)
        trace.size += len(body) + _OVERHEAD
        self.size += len(body) + _OVERHEAD
        while self.size > self._max and self._traces:
            _, oldest = self._traces.popitem(last=False)
            self.size -= oldest.size
            self.evicted += 1

    def trace(self, trace_id: str) -> list[StoredSpan]:
        """The spans of one trace by start time; empty if it is unknown or gone."""
        trace = self._traces.get(trace_id)
        if trace is None:
            return []
        # The first one is the exact one: what comes again is a retry, or recorded from the API's times by a successor.
        spans = {span.span_id: span for span in map(_decoder.decode, reversed(trace.spans))}
        return sorted(spans.values(), key=lambda span: (span.start_ns, span.span_id))
