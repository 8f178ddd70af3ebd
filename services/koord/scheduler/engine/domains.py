"""Pods per domain: the values of a node label divide the nodes, and pods on them are summed up.

A sum is built by one pass over the rows and then follows the logs of its tallies, so a pod that comes costs the same
with three zones as with five thousand hosts.
"""

import numpy as np
from numpy.typing import NDArray

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.labels import ABSENT
from koord.scheduler.engine.podindex import PodIndex
from koord.scheduler.engine.tally import Tally
from koord.scheduler.engine.verdict import FilterStep, NodeMask

RowCodes = NDArray[np.intp]


class Eligible:
    """Rows that count: nodes that have all of ``keys`` and pass ``steps`` (filters of locality ``node``)."""

    __slots__ = ("__weakref__", "_index", "_keys", "_mask", "_position", "rows", "version")

    def __init__(self, index: PodIndex, keys: tuple[str, ...], steps: tuple[FilterStep, ...] = ()) -> None:
        self._index = index
        self._keys = keys
        self._mask = NodeMask(steps)
        self._position = -1
        self.rows: Bools = np.zeros(0, dtype=np.bool_)
        self.version = 0

    def sync(self) -> None:
        """Bring ``rows`` (0..high-1) up to date; ``version`` moves if they are others."""
        cluster = self._index.cluster
        if self._position == cluster.node_journal.end:
            return
        self._position = cluster.node_journal.end
        rows = self._mask.refresh(cluster)[: cluster.high].copy()
        for key in self._keys:
            rows &= np.not_equal(cluster.labels.column(key).codes[: cluster.high], ABSENT)
        if not np.array_equal(rows, self.rows):
            self.rows = rows
            self.version += 1


class Domains:
    """The domain of each row under one label: ``codes[row]``, 0 without a node or without the label; fewer than
    ``size``."""

    __slots__ = ("_index", "_position", "codes", "key", "size", "version")

    def __init__(self, index: PodIndex, key: str) -> None:
        self._index = index
        self._position = -1
        self.key = key
        self.codes: RowCodes = np.zeros(0, dtype=np.intp)
        self.size = 1
        self.version = 0

    def sync(self) -> None:
        """Bring ``codes`` up to date; ``version`` moves if they are others."""
        cluster = self._index.cluster
        if self._position == cluster.node_journal.end:
            return
        self._position = cluster.node_journal.end
        column = cluster.labels.column(self.key)
        codes = column.codes[: cluster.high].astype(np.intp)
        if not np.array_equal(codes, self.codes) or len(column.values) != self.size:
            self.codes = codes
            self.size = len(column.values)
            self.version += 1


class DomainSum:
    """``values[code]``: the weighted pods of some tallies in each domain, over ``eligible`` rows only if given."""

    __slots__ = ("_counted", "_ends", "_index", "_parts", "_seen", "domains", "eligible", "values")

    def __init__(
        self,
        index: PodIndex,
        domains: Domains,
        parts: tuple[tuple[Tally, float], ...],
        eligible: Eligible | None = None,
    ) -> None:
        self._index = index
        self.domains = domains
        self.eligible = eligible
        self.values: Floats = np.zeros(1)
        self._parts = parts
        self._ends = [-1] * len(parts)
        self._seen: tuple[int, ...] | None = None
        self._counted: RowCodes = domains.codes

    @property
    def parts(self) -> tuple[tuple[Tally, float], ...]:
        """What is summed, with its weights."""
        return self._parts

    @property
    def counted(self) -> RowCodes:
        """The domain of each row that counts, 0 of the others."""
        return self._counted

    def changes(self) -> list[int] | None:
        """Bring ``values`` up to date: the domains whose value changed since the last call (a domain may be named
        twice); None: all was counted anew."""
        domains, eligible = self.domains, self.eligible
        domains.sync()
        version = 0
        if eligible is not None:
            eligible.sync()
            version = eligible.version
        seen = (domains.version, version, self._index.node_epoch)
        if seen != self._seen:
            self._seen = seen
            self._count()
            return None
        changed: list[int] = []
        for number, (tally, weight) in enumerate(self._parts):
            position = self._ends[number]
            if tally.end == position:
                continue
            entries = tally.since(position)
            if entries is None:
                self._count()
                return None
            self._ends[number] = tally.end
            for entry in entries:
                code = int(self._counted[entry if entry >= 0 else ~entry])
                if code:
                    self.values[code] += weight if entry >= 0 else -weight
                    changed.append(code)
        return changed

    def _count(self) -> None:
        codes, size = self.domains.codes, self.domains.size
        counted = codes if self.eligible is None else np.where(self.eligible.rows, codes, 0)
        values: Floats = np.zeros(size)
        for number, (tally, weight) in enumerate(self._parts):
            values += weight * tally.by_code(counted, size)
            self._ends[number] = tally.end
        values[0] = 0.0
        self.values = values
        self._counted = counted


class RowCounts:
    """``values[row]``: the pods of one tally on each row (0..high-1)."""

    __slots__ = ("_end", "_index", "_seen", "_tally", "values")

    def __init__(self, index: PodIndex, tally: Tally) -> None:
        self._index = index
        self._tally = tally
        self._end = -1
        self._seen: tuple[int, int] | None = None
        self.values: Floats = np.zeros(0)

    def changes(self) -> list[int] | None:
        """Bring ``values`` up to date: the rows whose value changed since the last call (a row may be named twice);
        None: all was counted anew."""
        tally, seen = self._tally, (self._index.node_epoch, self._index.cluster.high)
        entries = tally.since(self._end) if seen == self._seen else None
        self._seen = seen
        self._end = tally.end
        if entries is None:
            self.values = tally.counts(seen[1]).astype(np.float64)
            return None
        changed: list[int] = []
        for entry in entries:
            row = entry if entry >= 0 else ~entry
            self.values[row] += 1.0 if entry >= 0 else -1.0
            changed.append(row)
        return changed
