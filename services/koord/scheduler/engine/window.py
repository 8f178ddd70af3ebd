"""A window on the cluster: all rows or a few, as they are or as they would be. The only way a plugin sees amounts.

One code path serves the full pass (``rows`` is a slice, amounts are views), the incremental pass (``rows`` is an array,
amounts are gathered) and looking ahead (amounts as they would be after some more pods of the same class).
"""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from koord.columns.matrix import Floats, Ints
from koord.scheduler.engine.cluster import Cluster, RowColumn
from koord.scheduler.engine.resources import CPU, FIRST, Footprint


class Window:
    """``rows`` of ``cluster`` with their amounts. Index any per-row column of the cluster with ``rows``.

    Plugins must not write to anything they get from a window.
    """

    __slots__ = ("_allocatable", "_per_pod", "_unlisted", "_usage", "cluster", "counts", "rows", "size")

    def __init__(
        self,
        cluster: Cluster,
        rows: slice | Ints,
        size: int,
        usage: Floats,
        allocatable: Floats,
        per_pod: Mapping[RowColumn, float] | None = None,
        counts: Floats | None = None,
        unlisted: Mapping[str, int] | None = None,
    ) -> None:
        self.cluster = cluster
        self.rows = rows
        self.size = size
        self._usage = usage
        self._allocatable = allocatable
        self._per_pod = per_pod
        self.counts = counts
        """Looking ahead: how many more pods of the class each row has; None: rows as they are."""
        self._unlisted = unlisted

    @classmethod
    def full(cls, cluster: Cluster) -> "Window":
        """Every row, nothing copied."""
        high = cluster.high
        return cls(cluster, slice(0, high), high, cluster.usage[:, :high], cluster.allocatable[:, :high])

    @classmethod
    def some(cls, cluster: Cluster, rows: Ints) -> "Window":
        """A few rows, gathered; repeats are allowed."""
        usage = cluster.usage.take(rows, axis=1)
        return cls(cluster, rows, len(rows), usage, cluster.allocatable.take(rows, axis=1))

    @classmethod
    def ahead(
        cls, cluster: Cluster, rows: Ints, footprint: Footprint, counts: Floats, per_pod: Mapping[RowColumn, float]
    ) -> "Window":
        """``rows[i]`` as it would be with ``counts[i]`` more pods that each take ``footprint`` and add ``per_pod``."""
        usage = cluster.usage.take(rows, axis=1)
        vector = footprint.vector
        usage[: len(vector)] -= vector[:, None] * counts
        allocatable = cluster.allocatable.take(rows, axis=1)
        return cls(cluster, rows, len(rows), usage, allocatable, per_pod, counts, footprint.unlisted)

    def column(self, column: RowColumn) -> NDArray[Any]:
        """A plugin's own column on each row; looking ahead, with what the further pods add to it."""
        values = column.data[self.rows]
        if self._per_pod is not None and column in self._per_pod:
            assert self.counts is not None, "a window ahead has counts"
            values = values + (self.counts * self._per_pod[column]).astype(column.data.dtype)
        return values

    def natives(self, *, nonzero: bool) -> tuple[Floats, Floats] | None:
        """Free and allocatable cpu and memory, each as [cpu, memory][row]; None if some node of the cluster offers none
        of one. ``nonzero``: free as :meth:`nonzero_free` has it."""
        if not self.cluster.complete(0, 1):
            return None
        first = 0 if nonzero else FIRST + CPU
        return self._usage[first : first + 2], self._allocatable[0:2]

    def free(self, resource: int) -> Floats:
        """Free amount of a resource on each row: allocatable less what assigned pods request (may be negative)."""
        free: Floats = self._usage[FIRST + resource]
        return free

    def allocated(self, resource: int) -> Floats:
        """Allocatable amount of a resource on each row."""
        allocated: Floats = self._allocatable[FIRST + resource]
        return allocated

    def unlisted(self, name: str) -> tuple[Floats, Floats]:
        """Free and allocatable amounts of a resource that has no column: zeros if no node offers it."""
        free, allocated = self.cluster.rare.columns(name, self.rows, self.size)
        if self._unlisted and self.counts is not None:
            free -= self._unlisted.get(name, 0) * self.counts
        return free, allocated

    def nonzero_free(self, which: int) -> Floats:
        """Free cpu (0) or memory (1), every container without a request counted with the floor of spec 10 3.15."""
        free: Floats = self._usage[which]
        return free
