"""The lines of those who wait, as columns: who of each line fits into what is left for it, found for all lines at once.

A line is an extent of slots; a slot has the *kind* of what stands there, a row of the table of distinct amounts: a
thousand jobs of one template are one kind. A change rewrites the extents of the lines that changed, nothing else.
"""

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from koord.quota.filling import Flags, Ints
from koord.quota.runtime import LARGEST, RuntimeTree
from koord.quota.waiting import Amounts, Lines, Waiting

DEPTH = 500
"""Of a line of more, only so many from the head are looked at."""
_KINDS = 4096
"""Up to so many kinds are kept although nobody waits for them any more."""


class Order(msgspec.Struct, frozen=True):
    """How a queue hands out its units: ``blocks`` behind the first that does not fit; at most ``depth`` of them."""

    blocks: bool = False
    depth: int = DEPTH


OrderOf = Callable[[str, str], Order]
"""Of (queue, quota): how its units are handed out."""


class Refused(msgspec.Struct, frozen=True):
    """Who was looked at and does not fit: rows of quotas, and ``slots``, those of each from one of ``starts`` on."""

    rows: Ints
    starts: Ints
    slots: Ints


class Standing:
    """Follows :class:`~koord.quota.waiting.Lines` for the rows of one tree after the other."""

    def __init__(self) -> None:
        self._reset(RuntimeTree(()))
        self._orders_new = False

    def _reset(self, tree: RuntimeTree) -> None:
        self._tree = tree
        rows, resources = len(tree.names), len(tree.resources)
        self._start = np.zeros(rows, np.int64)
        self._size = np.zeros(rows, np.int64)
        self._count = np.zeros(rows, np.int64)
        self._depth = np.zeros(rows, np.int64)
        self._blocks = np.zeros(rows, np.bool_)
        self._least = np.zeros((rows, resources), np.int64)
        self._turn = np.zeros(rows, np.int64)
        self._queue: dict[int, str] = {}
        self._kind = np.zeros(64, np.int64)
        self._end = 0
        self._table = np.zeros((64, resources), np.int64)
        self._kinds: dict[Amounts, int] = {}
        self.rank = np.empty(rows, np.int64)
        self.rank[sorted(range(rows), key=tree.names.__getitem__)] = np.arange(rows)

    # Following ------------------------------------------------------------------------------------------------------

    def reorder(self) -> None:
        """Some queue hands out its units in another way than before."""
        self._orders_new = True

    def refresh(self, tree: RuntimeTree, lines: Lines, order_of: OrderOf) -> None:
        """Take in what changed in ``lines`` since the last call; all of it when the tree is another one."""
        changed = lines.take_changed()
        if tree is not self._tree or self._wasteful():
            self._reset(tree)
            changed = set(lines)
        if self._orders_new:
            for at, queue in self._queue.items():
                self._set_order(at, order_of(queue, tree.names[at]))
            self._orders_new = False
        self._write([(tree.row[name], name) for name in changed if name in tree.row], lines, order_of)

    def _wasteful(self) -> bool:
        waiting = int(self._count.sum())
        return len(self._kinds) > _KINDS + 2 * waiting or self._end > 1024 + 8 * (waiting + len(self._count))

    def _write(self, rows: Iterable[tuple[int, str]], lines: Lines, order_of: OrderOf) -> None:
        kinds: list[int] = []
        heads: list[int] = []
        written: list[int] = []
        for at, name in rows:
            line = lines.of(name)[:DEPTH]
            self._count[at], self._turn[at] = len(line), lines.turn_of(name)
            if not line:
                self._queue.pop(at, None)
                continue
            self._queue[at] = line[0].queue
            self._set_order(at, order_of(line[0].queue, name))
            if len(line) > self._size[at]:
                self._size[at] = 1 << (len(line) - 1).bit_length()
                self._start[at], self._end = self._end, self._end + int(self._size[at])
            heads.append(len(kinds))
            written.append(at)
            kinds.extend([self._kind_of(one) for one in line])
        if not written:
            return
        if self._end > len(self._kind):
            self._kind = np.concatenate((self._kind, np.zeros(self._end, np.int64)))
        counts = self._count[written]
        flat = np.array(kinds, np.int64)
        self._kind[_extents(self._start[written], counts)] = flat
        self._least[written] = np.minimum.reduceat(self._table[flat], heads, axis=0)

    def _set_order(self, at: int, order: Order) -> None:
        self._blocks[at], self._depth[at] = order.blocks, min(order.depth, DEPTH)

    def _kind_of(self, one: Waiting) -> int:
        """Its row in the table; a resource that no quota names is not limited anywhere, so it has no column there."""
        kind = self._kinds.get(one.amounts)
        if kind is None:
            kind = self._kinds[one.amounts] = len(self._kinds)
            if kind == len(self._table):
                self._table = np.concatenate((self._table, np.zeros_like(self._table)))
            for name, amount in one.amounts:
                line = self._tree.lines.get(name)
                if line is not None:
                    self._table[kind, line] = min(amount, LARGEST)
        return kind

    # Answers --------------------------------------------------------------------------------------------------------

    def amounts(self, slots: Ints) -> Ints:
        """What each of ``slots`` asks for, a row each, by the lines of the tree."""
        found: Ints = self._table[self._kind[slots]]
        return found

    def kinds(self, slots: Ints) -> Ints:
        """Equal for those that ask for the same."""
        found: Ints = self._kind[slots]
        return found

    def asked(self, slot: int) -> list[tuple[int, int]]:
        """What stands at ``slot`` asks for, by line of the tree, zeros left out."""
        row = self._table[self._kind[slot]].tolist()
        return [(line, amount) for line, amount in enumerate(row) if amount]

    def turns(self, rows: Ints) -> Ints:
        """As of :meth:`Lines.turn_of <koord.quota.waiting.Lines.turn_of>`."""
        found: Ints = self._turn[rows]
        return found

    def blocks(self, rows: Ints) -> Flags:
        """Whether nobody behind the first that does not fit is looked at."""
        found: Flags = self._blocks[rows]
        return found

    def place(self, at: int, slot: int) -> int:
        """The place of ``slot`` in the line of row ``at``, from 0."""
        return slot - int(self._start[at])

    def walk(self, among: Flags, left: Ints) -> tuple[NDArray[np.int64], Ints, Refused]:
        """Promise each in line what it asks for if it is left for its row, in the order of the lines of rows ``among``.

        ``left`` is by resource and row. Answers the rows that were walked, what was promised to each of them (a row
        each), and who was refused. Where a line blocks, the walk ends with the first that is refused.
        """
        rows = np.flatnonzero(among & (self._count > 0) & (self._depth > 0))
        start, blocks, least = self._start[rows], self._blocks[rows], self._least[rows]
        seen = np.minimum(self._count[rows], self._depth[rows])
        before = np.maximum(left[:, rows].T, 0)  # so that nobody is refused for what it does not ask for
        rest = before.copy()
        taken = np.zeros(self._end, np.bool_)
        hopeless = (rest < least).any(axis=1)  # there is nobody in the line who would fit
        seen[hopeless & blocks] = 1
        active = np.flatnonzero(~hopeless)
        place = 0
        while len(active):
            at = start[active] + place
            asked = self._table[self._kind[at]]
            fits = (asked <= rest[active]).all(axis=1)
            taken[at[fits]] = True
            served = active[fits]
            rest[served] -= asked[fits]
            place += 1
            stopped = ~fits & blocks[active]
            seen[active[stopped]] = place
            hopeless = np.zeros(len(active), np.bool_)
            hopeless[fits] = (rest[served] < least[served]).any(axis=1)
            ended = active[hopeless & blocks[active]]
            seen[ended] = np.minimum(seen[ended], place + 1)
            active = active[~stopped & ~hopeless]
            active = active[seen[active] > place]
        slots = _extents(start, seen)
        of = np.repeat(np.arange(len(rows)), seen)
        refused = ~taken[slots]
        slots, of = slots[refused], of[refused]
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        return rows, before - rest, Refused(rows[of[starts]], starts, slots)


def _extents(starts: Ints, counts: Ints) -> Ints:
    """``starts[i]``, ``starts[i] + 1``, …, ``counts[i]`` of them, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: Ints = np.arange(total) + np.repeat(starts - ends + counts, counts)
    return found
