"""Which devices each node reaches. Nodes that reach the same ones share a *view*, so claims are tried once for all.

A row of the cluster has the number of its view; what is found out about a view is kept until one of its pools changed.
View 0 reaches nothing. Most devices are local to a node, which then has a view of its own; devices that a selector or
all nodes reach are few slices.
"""

from collections.abc import Iterable

import numpy as np

from koord.columns.matrix import Bools, Ints
from koord.scheduler.dra.pools import Group, Pool, PoolId
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.nodeterms import terms_mask
from koord.scheduler.engine.window import Window

View = tuple[Group, ...]
NOTHING: View = ()


class Views:
    """``stamps``: by view, the clock when something of it changed last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.views: list[View] = [NOTHING]
        self.stamps: Ints = np.zeros(1, dtype=np.int64)
        self._of_row: Ints = np.zeros(0, dtype=np.int64)
        self._rows: list[int] = [0]
        """By view: how many rows have it."""
        self._numbers: dict[View, int] = {NOTHING: 0}
        self._free: list[int] = []
        self._of_pool: dict[PoolId, set[int]] = {}
        self._local: dict[str, list[Group]] = {}
        self._wide: dict[Group, None] = {}
        self._dirty: set[int] = set()
        self._all_dirty = False

    # Told -----------------------------------------------------------------------------------------------------------

    def regroup(self, pool: Pool, before: Iterable[Group], clock: int) -> None:
        """The pool has other groups than ``before``, or is complete or not now."""
        for group in before:
            self._drop(group)
        for group in pool.groups:
            self._add(group)
        self.touch(pool.id, clock)

    def touch(self, pool: PoolId, clock: int) -> None:
        """Some device of the pool was given away, or came back."""
        for number in self._of_pool.get(pool, ()):
            self.stamps[number] = clock

    def node_changed(self, row: int) -> None:
        """A node is on the row, or has other labels."""
        self._dirty.add(row)

    def node_gone(self, row: int) -> None:
        """The row is free."""
        self._dirty.discard(row)
        if row < len(self._of_row):
            self._set(row, 0)

    # Asked ----------------------------------------------------------------------------------------------------------

    def numbers(self, rows: slice | Ints, clock: int) -> Ints:
        """The view of each row."""
        self.settle(clock)
        return self._of_row[rows]

    def of(self, row: int, clock: int) -> tuple[int, View]:
        """The view of one row: its number, and what it reaches."""
        self.settle(clock)
        number = int(self._of_row[row])
        return number, self.views[number]

    def settle(self, clock: int) -> None:
        """Find the views of rows that may have another one now."""
        cluster = self._cluster
        high = cluster.high
        if len(self._of_row) < high:
            grown = np.zeros(max(high, 2 * len(self._of_row)), dtype=np.int64)
            grown[: len(self._of_row)] = self._of_row
            self._of_row = grown
        if not self._dirty and not self._all_dirty:
            return
        window = Window.full(cluster)
        masks: list[tuple[Group, Bools | None]] = [
            (group, terms_mask(group.reach.terms, window) if group.reach.terms or group.reach.selector else None)
            for group in self._wide
        ]
        for row in range(high) if self._all_dirty else self._dirty:
            name = cluster.index.name(row)
            if name is None:
                continue
            found = list(self._local.get(name, ()))
            found += [group for group, mask in masks if mask is None or mask[row]]
            if len(found) > 1:
                found.sort(key=_order)
            self._set(row, self._number(tuple(found), clock))
        self._dirty.clear()
        self._all_dirty = False

    # Within ---------------------------------------------------------------------------------------------------------

    def _add(self, group: Group) -> None:
        if group.reach.node:
            self._local.setdefault(group.reach.node, []).append(group)
            self._mark(group.reach.node)
        else:
            self._wide[group] = None
            self._all_dirty = True

    def _drop(self, group: Group) -> None:
        if group.reach.node:
            left = [each for each in self._local.get(group.reach.node, ()) if each is not group]
            if left:
                self._local[group.reach.node] = left
            else:
                self._local.pop(group.reach.node, None)
            self._mark(group.reach.node)
        else:
            self._wide.pop(group, None)
            self._all_dirty = True

    def _mark(self, node: str) -> None:
        row = self._cluster.index.find(node)
        if row is not None:
            self._dirty.add(row)

    def _number(self, view: View, clock: int) -> int:
        number = self._numbers.get(view)
        if number is not None:
            return number
        if self._free:
            number = self._free.pop()
            self.views[number] = view
        else:
            number = len(self.views)
            self.views.append(view)
            self._rows.append(0)
            if number >= len(self.stamps):
                grown = np.zeros(2 * len(self.stamps), dtype=np.int64)
                grown[: len(self.stamps)] = self.stamps
                self.stamps = grown
        self.stamps[number] = clock
        self._numbers[view] = number
        for group in view:
            self._of_pool.setdefault(group.pool.id, set()).add(number)
        return number

    def _set(self, row: int, number: int) -> None:
        before = int(self._of_row[row])
        if before == number:
            return
        self._of_row[row] = number
        self._rows[number] += 1
        if not before:
            return
        self._rows[before] -= 1
        if not self._rows[before]:
            view = self.views[before]
            self.views[before] = NOTHING
            del self._numbers[view]
            for group in view:
                numbers = self._of_pool.get(group.pool.id)
                if numbers is not None:
                    numbers.discard(before)
                    if not numbers:
                        del self._of_pool[group.pool.id]
            self._free.append(before)


def _order(group: Group) -> PoolId:
    return group.pool.id
