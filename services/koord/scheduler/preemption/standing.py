"""Pods on nodes by priority, kept for the search: what each row would gain without those below a priority.

Filled when somebody searches and brought up to date by the cluster's journal, so that it costs nothing while everybody
finds a place. Amounts are summed per level of priority; with more than :data:`MOST_LEVELS` priorities in the cluster
neighbours share a level, and :meth:`gain` is then an upper bound: a first screen, never the last word.
"""

from bisect import bisect_right

import numpy as np

from koord.columns.matrix import Floats, Ints
from koord.scheduler.engine.books import Books
from koord.scheduler.engine.resources import FIRST, PODS, Footprint
from koord.scheduler.framework.contract import AssignedPod
from koord.scheduler.preemption.candidates import importance, started

MOST_LEVELS = 32
_FEW = 64


class RowPods:
    """The pods of one row that may be victims, most important first, with their priorities, starts (infinite: not yet)
    and what they take; the last of it as ``vectors[i]``."""

    __slots__ = ("_falling", "pods", "priorities", "starts", "vectors")

    def __init__(self, pods: list[AssignedPod], fields: int) -> None:
        self.pods = sorted(pods, key=importance)
        self.vectors: Floats = np.zeros((len(pods), fields))
        for index, pod in enumerate(self.pods):
            vector = pod.footprint.vector
            self.vectors[index, : len(vector)] = vector
        self.priorities: Ints = np.array([pod.priority for pod in self.pods], dtype=np.int64)
        self.starts: Floats = np.array([started(pod) for pod in self.pods])
        self._falling = [-pod.priority for pod in self.pods]

    def below(self, priority: int) -> int:
        """Index of the first pod of less than ``priority``; all after it are, too."""
        return bisect_right(self._falling, -priority)


class Standing:
    """Follows ``books``. Planned pods are nobody's victims: there is nothing to delete yet but a plan."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._position = self._retold = -1
        self._fields = self._columns = 0
        self._capacity = 0
        self._shift = 0
        self._levels: dict[int, Floats] = {}
        self._rows: dict[int, RowPods] = {}

    def refresh(self) -> None:
        """Bring everything up to the cluster as it is now."""
        cluster = self._books.cluster
        shape = (len(cluster.alive), len(cluster.usage), cluster.resources.version)
        same = (self._capacity, self._fields, self._columns) == shape
        rows = cluster.journal.since(self._position) if same else None
        retold = self._books.retold.since(self._retold)
        if rows is None or retold is None or len(rows) + len(retold) > 4 * cluster.high:
            self._fill()
        else:
            for row in {*rows.tolist(), *retold.tolist()}:
                self._rows.pop(row, None)
                for amounts in self._levels.values():
                    amounts[:, row] = 0.0
                self._add(row)
            if len(self._levels) > MOST_LEVELS:
                self._fill()
        self._position = cluster.journal.end
        self._retold = self._books.retold.end

    def gain(self, priority: int, rows: Ints) -> Floats:
        """What ``rows`` gain without pods of less than ``priority``, in the layout of the usage; or a little more."""
        found: Floats = np.zeros((self._fields, len(rows)))
        for level, amounts in self._levels.items():
            if level << self._shift < priority:
                found += amounts.take(rows, axis=1)
        return found

    def counts(self, priority: int, rows: Ints, gain: Floats) -> Floats:
        """How many pods of less than ``priority`` there are on each row, of which ``gain`` is what rows gain."""
        if not self._shift:
            exact: Floats = gain[FIRST + PODS]
            return exact
        return np.array([len(self.on(row).pods) - self.on(row).below(priority) for row in rows.tolist()], dtype=float)

    def on(self, row: int) -> RowPods:
        """The pods of a row."""
        found = self._rows.get(row)
        if found is None:
            found = self._rows[row] = RowPods(self._victims(row), self._fields)
        return found

    def _victims(self, row: int) -> list[AssignedPod]:
        node = self._books.cluster.index.name(row)
        return [] if node is None else [pod for pod in self._books.pods_on(node) if not pod.planned]

    def _fill(self) -> None:
        """From nothing, footprint by footprint: there are few, and many pods of each."""
        cluster = self._books.cluster
        self._capacity, self._fields = len(cluster.alive), len(cluster.usage)
        self._columns = cluster.resources.version
        self._rows.clear()
        self._levels.clear()
        slots = cluster.pods
        groups: dict[tuple[int, Footprint], list[int]] = {}
        for pod in self._books.pods():
            row = slots[pod.ref.uid].row
            if row >= 0 and not pod.planned:
                group = groups.get(key := (pod.priority, pod.footprint))
                if group is None:
                    groups[key] = [row]
                else:
                    group.append(row)
        priorities = {priority for priority, _ in groups}
        self._shift = 0
        while len({priority >> self._shift for priority in priorities}) > MOST_LEVELS:
            self._shift += 1
        for (priority, footprint), rows in groups.items():
            vector = footprint.vector
            if len(rows) < _FEW:
                amounts = self._level(priority)
                for row in rows:
                    amounts[: len(vector), row] += vector
                continue
            on_row = np.bincount(rows, minlength=self._capacity).astype(np.float64)
            self._level(priority)[: len(vector)] += vector[:, None] * on_row

    def _level(self, priority: int) -> Floats:
        level = priority >> self._shift
        amounts = self._levels.get(level)
        if amounts is None:
            amounts = self._levels[level] = np.zeros((self._fields, self._capacity))
        return amounts

    def _add(self, row: int) -> None:
        for pod in self._victims(row):
            vector = pod.footprint.vector
            self._level(pod.priority)[: len(vector), row] += vector
