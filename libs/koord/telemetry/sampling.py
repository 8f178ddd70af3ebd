"""Which spans of a job's pods are kept: the first 32, the slowest 8 and every failed one (design section 7).

A job of 10,000 pods must not fill the trace store, yet its stragglers and failures are what people look for. The
slowest are only known at the end, so they wait here until the trace has been quiet for a while.
"""

import heapq
from collections import OrderedDict
from itertools import count

from koord.telemetry.records import SpanRecord

FIRST = 32
SLOWEST = 8
QUIET_NS = 5_000_000_000
MAX_TRACES = 4096


class _Group:
    __slots__ = ("last_ns", "seen", "slowest")

    def __init__(self) -> None:
        self.seen = 0
        self.last_ns = 0
        self.slowest: list[tuple[int, int, SpanRecord]] = []


class PodSampling:
    """Keeps, per trace and span name, the first, the slowest and the failed records."""

    def __init__(self, first: int = FIRST, slowest: int = SLOWEST, max_traces: int = MAX_TRACES) -> None:
        self._first = first
        self._slowest = slowest
        self._max = max_traces
        self._groups: OrderedDict[tuple[int, str], _Group] = OrderedDict()
        self._order = count()

    def offer(self, record: SpanRecord) -> list[SpanRecord]:
        """Take one record; the records that are certain now (this one, or the slow ones of a group pushed out)."""
        key = (record.context.trace_id, record.name)
        group = self._groups.get(key)
        kept: list[SpanRecord] = []
        if group is None:
            group = self._groups[key] = _Group()
            if len(self._groups) > self._max:
                kept.extend(held for _, _, held in self._groups.popitem(last=False)[1].slowest)
        else:
            self._groups.move_to_end(key)
        group.seen += 1
        group.last_ns = record.end_ns
        if record.error is not None or group.seen <= self._first:
            kept.append(record)
            return kept
        entry = (record.end_ns - record.start_ns, next(self._order), record)
        if len(group.slowest) < self._slowest:
            heapq.heappush(group.slowest, entry)
        else:
            heapq.heappushpop(group.slowest, entry)
        return kept

    def quiet(self, now_ns: int, after_ns: int = QUIET_NS) -> list[SpanRecord]:
        """The slow records of traces that have been quiet; their groups go on counting."""
        kept: list[SpanRecord] = []
        for group in self._groups.values():
            if group.slowest and now_ns - group.last_ns >= after_ns:
                kept.extend(record for _, _, record in group.slowest)
                group.slowest.clear()
        return kept

    def drain(self) -> list[SpanRecord]:
        """Every record still waiting, at shutdown."""
        return self.quiet(2**63, 0)
