"""Cheap spans: a record appended to a list on the hot path (2-3 µs), turned into SDK spans and exported behind it.

A span of the SDK costs 126-169 µs in the loop (foundations section 7), more than placing and claiming a pod.
"""

from collections.abc import Sequence

from koord.telemetry.context import TraceContext
from koord.telemetry.records import Attributes, SpanRecord
from koord.telemetry.sampling import PodSampling

MAX_PENDING = 100_000
# A span of an unsampled trace is kept when it took this long, at most so many of them per export.
SLOW_NS = 1_000_000_000
MAX_SLOW = 64


class Spans:
    """Where a service leaves its finished spans. Not thread-safe: for the event loop's thread."""

    def __init__(self, *, enabled: bool = True, ratio: float = 1.0, pod_ratio: float | None = None) -> None:
        """``ratio`` of new traces is sampled, of those of single pods ``pod_ratio`` (default: ``ratio``).

        Without ``enabled`` nothing is kept.
        """
        self._enabled = enabled
        self._bound = int(ratio * 2**64)
        self._pod_bound = self._bound if pod_ratio is None else int(pod_ratio * 2**64)
        self._pending: list[SpanRecord] = []
        self._pods = PodSampling()
        self._slow = 0
        self.dropped = 0

    def root(self) -> TraceContext:
        """The root of a new trace of a job; whether it is sampled is decided here, once, for all services."""
        return _sample(TraceContext.new(), self._bound)

    def pod_root(self) -> TraceContext:
        """The root of a new trace of a pod that belongs to no job."""
        return _sample(TraceContext.new(), self._pod_bound)

    def reserve(self, parent: TraceContext | None) -> TraceContext:
        """Ids for a span that others refer to before it ends; hand them to :meth:`record` as ``context``."""
        return parent.child() if parent is not None else self.root()

    def keeps(self, context: TraceContext, start_ns: int, end_ns: int) -> bool:
        """Whether a span without an error would be kept: ask before making up the attributes of one of thousands."""
        return self._enabled and (context.sampled or end_ns - start_ns >= SLOW_NS)

    def record(
        self,
        name: str,
        *,
        parent: TraceContext | None,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        context: TraceContext | None = None,
        links: Sequence[TraceContext] = (),
        error: str | None = None,
        pod: bool = False,
    ) -> TraceContext:
        """Leave one finished span and answer its ids.

        ``pod`` marks one of many spans of a job's pods: of those the first 32, the slowest 8 and the failed are kept.
        A failed or slow span is kept even where its trace is not sampled.
        """
        if context is None:
            context = self.reserve(parent)
        if not self._enabled:
            return context
        if not context.sampled and error is None:
            if end_ns - start_ns < SLOW_NS or self._slow >= MAX_SLOW:
                return context
            self._slow += 1
        record = SpanRecord(name, context, parent, start_ns, end_ns, attributes, links, error)
        if len(self._pending) >= MAX_PENDING:
            self.dropped += 1
        elif pod and parent is not None:
            self._pending.extend(self._pods.offer(record))
        else:
            self._pending.append(record)
        return context

    def take(self, now_ns: int, *, final: bool = False) -> list[SpanRecord]:
        """The records to export now; with ``final`` also those that wait for slower ones."""
        self._pending.extend(self._pods.drain() if final else self._pods.quiet(now_ns))
        taken, self._pending = self._pending, []
        self._slow = 0
        return taken


def _sample(context: TraceContext, bound: int) -> TraceContext:
    sampled = (context.trace_id & 0xFFFF_FFFF_FFFF_FFFF) < bound
    return context if sampled else context._replace(sampled=False)
