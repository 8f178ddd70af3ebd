"""The cluster as columns: what each node has, what pods took of it, and what plugins ask about a node.

Usage is one matrix laid out [field][row], kept incrementally: assigning a pod subtracts one vector from one column.
Fields 0 and 1 are free cpu (milli) and memory (bytes) counted with the non-zero floor of spec 10 section 3.15; field
``FIRST + r`` is the free amount of resource ``r`` (see ``resources``), of which 0 is the number of pods.
``allocatable`` has the same layout. Every change of a row is written to a journal, from which each scheduling class
learns what to recompute.
"""

import hashlib
from collections.abc import Collection, Mapping

import msgspec
import numpy as np
from numpy.typing import DTypeLike

from koord.columns.journal import Journal
from koord.columns.matrix import Bools, Floats, Ints, Matrix
from koord.columns.names import Names
from koord.columns.rows import RowIndex
from koord.scheduler.engine.labels import Codes, LabelColumns
from koord.scheduler.engine.nodeinfo import NodeChange, NodeInfo, Taint
from koord.scheduler.engine.podlabels import PodLabels
from koord.scheduler.engine.rare import Rare
from koord.scheduler.engine.resources import CPU, FIRST, LIMIT, MEMORY, NOWHERE, Footprint, Resources
from koord.scheduler.engine.rowcolumn import RowColumn
from koord.scheduler.engine.timing import Timing

__all__ = ["TIE_BITS", "Cluster", "NodeChange", "NodeInfo", "RowColumn", "Slot", "Taint"]

TIE_BITS = 32


class Slot(msgspec.Struct, gc=False):
    """Where a pod is counted: on ``row``, or -1 while its node is not known."""

    node: str
    row: int
    footprint: Footprint


class Cluster:
    """All nodes and what is taken of them. ``seed`` fixes how ties break, so runs are reproducible."""

    def __init__(self, seed: str = "") -> None:
        self.resources = Resources()
        self.rare = Rare()
        self.index = RowIndex()
        self.nodes: list[NodeInfo | None] = []
        self.journal = Journal()
        self.node_journal = Journal(1 << 12)
        self.taint_sets = Names(("",))
        self.taints: list[tuple[Taint, ...]] = [()]
        self.pods: dict[str, Slot] = {}
        self._seed = seed.encode()
        self._usage = Matrix(FIRST + 8, 64)
        self._allocatable = Matrix(FIRST + 8, 64)
        self._capacity = 64
        self.alive: Bools = np.zeros(64, dtype=np.bool_)
        self.unschedulable: Bools = np.zeros(64, dtype=np.bool_)
        self.taint_codes: Codes = np.zeros(64, dtype=np.int32)
        self.tie: Ints = np.zeros(64, dtype=np.int64)
        self.labels = LabelColumns(lambda: [None if node is None else node.labels for node in self.nodes], 64)
        self.pod_labels = PodLabels()
        self.shared: dict[type, object] = {}
        """What plugins, of several profiles too, keep in common, by its type."""
        self.timing = Timing()
        self._on: dict[str, set[str]] = {}
        self._corrections: dict[int, dict[int, float]] = {}
        self._columns: list[RowColumn] = []
        self._complete: dict[tuple[int, int], tuple[int, bool]] = {}

    # Shape ----------------------------------------------------------------------------------------------------------

    @property
    def high(self) -> int:
        """Length of a full pass (rows without a node included; ``alive`` tells)."""
        return self.index.high

    @property
    def usage(self) -> Floats:
        """Free amounts [FIRST + resource][row]; see the module's docstring. Do not write, do not keep."""
        return self._usage.data

    @property
    def allocatable(self) -> Floats:
        """Allocatable amounts in the layout of ``usage``. Do not write, do not keep."""
        return self._allocatable.data

    def __len__(self) -> int:
        return len(self.index)

    def footprint(self, request: Mapping[str, int], nonzero: tuple[int, int]) -> Footprint:
        """What a pod of this request takes. Asking for a name gives it no column."""
        return self.resources.footprint(request, nonzero)

    # Plugins' own ---------------------------------------------------------------------------------------------------

    def column(self, dtype: DTypeLike = np.float64, default: float = 0) -> RowColumn:
        """A new column with ``default`` on every row, kept as long as the cluster is."""
        column = RowColumn(self._capacity, dtype, default)
        self._columns.append(column)
        return column

    def touch(self, row: int, *, node: bool = False) -> None:
        """Answers about ``row`` changed by something the cluster cannot see: every class asks for the row again.

        ``node``: answers of locality ``node``, too. A row without a node may be touched.
        """
        self.journal.add(row)
        if node:
            self.node_journal.add(row)

    def complete(self, first: int, last: int) -> bool:
        """Whether every row has something allocatable in each field from ``first`` to ``last``; rows without a node
        have not."""
        key, now = (first, last), self.node_journal.end
        known = self._complete.get(key)
        if known is None or known[0] != now:
            amounts = self._allocatable.data[first : last + 1, : self.high]
            known = self._complete[key] = (now, bool(amounts.size and amounts.min() > 0.0))
        return known[1]

    def touch_all(self, *, node: bool = False) -> None:
        """As :meth:`touch`, for every row."""
        self.journal.reset()
        if node:
            self.node_journal.reset()

    # Nodes ----------------------------------------------------------------------------------------------------------

    def set_node(self, node: NodeInfo) -> NodeChange:
        """Add or update a node. Pods already seen on it are counted at once."""
        row = self.index.add(node.name)
        old = self.nodes[row] if row < len(self.nodes) else None
        if row == len(self.nodes):
            self.nodes.append(None)
        self._fit()
        change = NodeChange(
            row,
            added=old is None,
            allocatable=old is None or old.allocatable != node.allocatable,
            labels=old is None or old.labels != node.labels,
            taints=old is None or old.taints != node.taints or old.unschedulable != node.unschedulable,
            annotations=old is None or old.annotations != node.annotations,
            images=old is None or old.images != node.images,
        )
        self.nodes[row] = node
        if not change.any:
            return change
        if change.allocatable:
            self._set_allocatable(row, {} if old is None else old.allocatable, node.allocatable)
        if change.labels:
            self.labels.set_row(row, node.labels)
        if change.taints:
            self.unschedulable[row] = node.unschedulable
            self.taint_codes[row] = self._taint_code(node.taints)
        if change.added:
            self.alive[row] = True
            digest = hashlib.blake2b(node.name.encode(), digest_size=8, key=self._seed).digest()
            self.tie[row] = int.from_bytes(digest, "big") >> (64 - TIE_BITS)
            for uid in self._on.get(node.name, ()):
                slot = self.pods[uid]
                slot.row = row
                self._take(row, slot.footprint)
        self.journal.add(row)
        self.node_journal.add(row)
        return change

    def remove_node(self, name: str) -> int | None:
        """Forget a node and return its row; its pods wait in case it comes back."""
        row = self.index.remove(name)
        if row is None:
            return None
        for uid in self._on.get(name, ()):
            self.pods[uid].row = -1
        self._corrections.pop(row, None)
        old, self.nodes[row] = self.nodes[row], None
        assert old is not None, "a live row has a node"
        self.alive[row] = False
        self.unschedulable[row] = False
        self.taint_codes[row] = 0
        self._usage.clear_row(row)
        self._allocatable.clear_row(row)
        self.rare.clear_row(row)
        self._free(self.resources.withdraw(old.allocatable))
        self.labels.set_row(row, {})
        for column in self._columns:
            column.data[row] = column.default
        self.journal.add(row)
        self.node_journal.add(row)
        return row

    # Pods -----------------------------------------------------------------------------------------------------------

    def assign(self, uid: str, footprint: Footprint, node: str) -> Slot:
        """Count a pod on a node; what it took elsewhere, or with another footprint, is given back first."""
        slot = self.pods.get(uid)
        if slot is not None:
            if slot.node == node and slot.footprint is footprint:
                return slot
            self.unassign(uid)
        row = self.index.find(node)
        slot = self.pods[uid] = Slot(node, -1 if row is None else row, footprint)
        on = self._on.get(node)
        if on is None:
            self._on[node] = {uid}
        else:
            on.add(uid)
        if row is not None:
            self._take(row, footprint)
            self.journal.add(row)
        return slot

    def unassign(self, uid: str) -> Slot | None:
        """Give back what a pod took; None if it was not counted."""
        slot = self.pods.pop(uid, None)
        if slot is None:
            return None
        on = self._on[slot.node]
        on.discard(uid)
        if not on:
            del self._on[slot.node]
        if slot.row >= 0:
            footprint = slot.footprint
            self._usage.data[: len(footprint.vector), slot.row] += footprint.vector
            if footprint.unlisted:
                self.rare.take(slot.row, footprint.unlisted, -1)
            self.journal.add(slot.row)
        return slot

    def uids_on(self, node: str) -> Collection[str]:
        """Pods that are counted on a node, known or not. Do not keep."""
        return self._on.get(node, ())

    def assign_run(self, uids: list[str], footprint: Footprint, nodes: list[str], rows: list[int]) -> None:
        """Count many pods of one footprint, the i-th on the i-th of ``nodes``, which are on ``rows``, with one change
        of the columns."""
        pods, on = self.pods, self._on
        for uid, node, row in zip(uids, nodes, rows, strict=True):
            pods[uid] = Slot(node, row, footprint)
            of_node = on.get(node)
            if of_node is None:
                on[node] = {uid}
            else:
                of_node.add(uid)
        touched, counts = np.unique(np.array(rows, dtype=np.int64), return_counts=True)
        vector = footprint.vector
        self._usage.data[: len(vector), touched] -= vector[:, None] * counts
        if footprint.unlisted:
            for row, times in zip(touched.tolist(), counts.tolist(), strict=True):
                self.rare.take(row, footprint.unlisted, times)
        self.journal.extend(touched)

    def _take(self, row: int, footprint: Footprint) -> None:
        vector = footprint.vector
        self._usage.data[: len(vector), row] -= vector
        if footprint.unlisted:
            self.rare.take(row, footprint.unlisted)

    # Corrections by the ledger --------------------------------------------------------------------------------------

    def correct(self, node: str, resource: str, available: int) -> bool:
        """The ledger says that at most ``available`` can be taken: believe it until :meth:`uncorrect`.

        What others hold in flight is not in the API yet. False if the columns already say so, or know no such node or
        no node that offers the resource.
        """
        row, number = self.index.find(node), self.resources.find(resource)
        if row is None or number is None:
            return False
        field = FIRST + number
        excess = self._usage.data[field, row] - min(available, LIMIT)
        if excess <= 0:
            return False
        of_row = self._corrections.setdefault(row, {})
        of_row[field] = of_row.get(field, 0.0) + excess
        self._usage.data[field, row] -= excess
        self.journal.add(row)
        return True

    def uncorrect(self, node: str) -> bool:
        """Forget what the ledger said of a node; True if there was anything."""
        row = self.index.find(node)
        fields = None if row is None else self._corrections.pop(row, None)
        if row is None or fields is None:
            return False
        for field, excess in fields.items():
            self._usage.data[field, row] += excess
        self.journal.add(row)
        return True

    @property
    def corrected(self) -> list[str]:
        """Nodes under a correction."""
        return [name for row in self._corrections if (name := self.index.name(row)) is not None]

    def masked(self) -> tuple[Ints, Floats]:
        """Rows under a correction, and what it took off their free amounts, in the layout of ``usage``."""
        rows = np.array(list(self._corrections), dtype=np.int64)
        excess: Floats = np.zeros((len(self._usage.data), len(rows)))
        for index, fields in enumerate(self._corrections.values()):
            for field, amount in fields.items():
                excess[field, index] = amount
        return rows, excess

    # Inside ---------------------------------------------------------------------------------------------------------

    def _set_allocatable(self, row: int, old: Mapping[str, int], new: Mapping[str, int]) -> None:
        same = old.keys() == new.keys()
        if not same:
            self._free(self.resources.withdraw(old.keys() - new.keys()))
            self._list(self.resources.offer(new.keys() - old.keys()))
        vector = np.zeros(self._allocatable.data.shape[0], dtype=np.float64)
        without: dict[str, int] = {}
        for name, amount in new.items():
            number = self.resources.find(name)
            if number is not None:
                vector[FIRST + number] = min(amount, LIMIT)
            else:
                without[name] = amount
        self.rare.set_row(row, without, self._taken(row, without) if without else {})
        vector[FIRST + NOWHERE] = 0.0
        vector[0] = vector[FIRST + CPU]
        vector[1] = vector[FIRST + MEMORY]
        self._usage.data[:, row] += vector - self._allocatable.data[:, row]
        self._allocatable.data[:, row] = vector

    def _taken(self, row: int, names: Collection[str]) -> dict[str, int]:
        """What pods that are counted on the row take of names without a column."""
        taken: dict[str, int] = {}
        for uid in self._on.get(self.index.name(row) or "", ()):
            slot = self.pods[uid]
            if slot.row == row:
                for name in names:
                    taken[name] = taken.get(name, 0) + min(slot.footprint.unlisted.get(name, 0), LIMIT)
        return taken

    def _list(self, listed: Mapping[str, int]) -> None:
        """Names got their columns: what pods on nodes take of them counts from now on."""
        if not listed:
            return
        self._fit()
        usage = self._usage.data
        for name, offered in listed.items():
            if not offered:
                continue
            self.rare.forget(name)
            # Nodes that offered it while there were too many names.
            field = FIRST + self.resources.number(name)
            for row, node in enumerate(self.nodes):
                if node is not None:
                    amount = min(node.allocatable.get(name, 0), LIMIT)
                    usage[field, row] = self._allocatable.data[field, row] = amount
        gained = self.resources.enlist(listed)
        if not gained:
            return
        for slot in self.pods.values():
            if slot.row >= 0 and slot.footprint in gained:
                for field, taken in gained[slot.footprint]:
                    usage[field, slot.row] -= taken
        self.journal.reset()

    def _free(self, numbers: list[int]) -> None:
        """Clear the columns of names that no node offers any more: the next name gets them."""
        for number in numbers:
            field = FIRST + number
            self._usage.data[field] = 0.0
            self._allocatable.data[field] = 0.0
            for of_row in self._corrections.values():
                of_row.pop(field, None)

    def _taint_code(self, taints: tuple[Taint, ...]) -> int:
        if not taints:
            return 0
        code = self.taint_sets.intern("\n".join("\t".join(taint) for taint in taints))
        if code == len(self.taints):
            self.taints.append(taints)
        return code

    def _fit(self) -> None:
        rows, fields = self.index.high, FIRST + self.resources.high
        self._usage.reserve(fields, rows)
        self._allocatable.reserve(fields, rows)
        capacity = self._usage.data.shape[1]
        if capacity > self._capacity:
            self.alive = _widened(self.alive, capacity)
            self.unschedulable = _widened(self.unschedulable, capacity)
            self.taint_codes = _widened(self.taint_codes, capacity)
            self.tie = _widened(self.tie, capacity)
            self.labels.reserve(capacity)
            for column in self._columns:
                column.widen(capacity)
            self._capacity = capacity


def _widened(old: np.ndarray, rows: int) -> np.ndarray:
    new = np.zeros(rows, dtype=old.dtype)
    new[: len(old)] = old
    return new
