"""Trees of quotas as columns: requests up, runtime down (spec 20 sections 3.7 and 3.8), all or only what changed.

One row per quota, as :mod:`koord.quota.shape` orders them; one line per resource. A level is filled in one pass. When a
few quotas change, only their paths are summed up again, and only the groups are filled again whose children or whose
total came out different.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from koord.quota.filling import Flags, Ints, Segments, fill
from koord.quota.shape import QuotaRow, Shape

NO_LIMIT = 2**62
LARGEST = 2**53
"""Amounts of quotas are counted up to here; weights and totals up to :data:`NO_LIMIT`."""
FEW = 256
"""Up to so many changed quotas are summed up path by path; more of them, level by level."""


class RuntimeTree:
    """Runtime of every row. ``guarantee``: what is used is kept, nothing is lent; ``scale``: mins may be scaled."""

    def __init__(
        self, rows: Iterable[QuotaRow], resources: Iterable[str] = (), *, guarantee: bool = False, scale: bool = True
    ) -> None:
        self._guarantee, self._scale = guarantee, scale
        shape = Shape(rows)
        ordered, trees = shape.rows, shape.trees
        self.names, self.row, self.parent = shape.names, shape.row, shape.parent
        self._spans, self._first, self._last, self._owner = shape.spans, shape.first, shape.last, shape.owner
        self._group, self._group_of = shape.group, shape.group_of
        self.resources = sorted(
            set(resources).union(*(amounts for row in ordered for amounts in (row.min, row.max, row.weight)))
        )
        self._line = {name: at for at, name in enumerate(self.resources)}
        self._trees = {tree: at for at, tree in enumerate(trees)}
        self._least = self._column([row.min for row in ordered], LARGEST)
        self._most = self._column([row.max for row in ordered], LARGEST, missing=NO_LIMIT)
        self._weight = self._column([row.weight for row in ordered], NO_LIMIT)
        self._lends = np.array([row.lends for row in ordered], dtype=np.bool_)
        size = self._least.shape
        self._own = np.zeros(size, np.int64)
        self._own_used = np.zeros(size, np.int64)
        self.occupied = np.zeros(size, np.int64)
        self._request = np.zeros(size, np.int64)
        self._limited = np.zeros(size, np.int64)
        self._guaranteed = np.zeros(size, np.int64)
        self._runtime = np.zeros(size, np.int64)
        self._total = np.zeros((len(self.resources), len(trees)), np.int64)
        self._known = np.zeros(self._total.shape, np.bool_)
        self._dirty: set[int] = set()
        self._everything = True

    # Inputs ---------------------------------------------------------------------------------------------------------

    def set_total(self, tree: str, amounts: Mapping[str, int]) -> None:
        """What a tree has to share; a resource that it does not name counts 0, and its mins are not scaled."""
        at = self._trees.get(tree)
        if at is None:
            return
        total, known = np.zeros(len(self.resources), np.int64), np.zeros(len(self.resources), np.bool_)
        for name, amount in amounts.items():
            line = self._line.get(name)
            if line is not None:
                total[line], known[line] = max(-NO_LIMIT, min(amount, NO_LIMIT)), True
        if not (np.array_equal(total, self._total[:, at]) and np.array_equal(known, self._known[:, at])):
            self._total[:, at], self._known[:, at] = total, known
            self._dirty.add(-1 - at)

    def set_own(self, name: str, request: Mapping[str, int], used: Mapping[str, int]) -> None:
        """What a quota's own pods and units ask for, and what its own pods use. Resources without a line are ignored.

        KeyError when there is no such row.
        """
        at = self.row[name]
        asked, held = self._cells(request, LARGEST), self._cells(used, LARGEST)
        if asked != self._own[:, at].tolist() or held != self._own_used[:, at].tolist():
            self._own[:, at], self._own_used[:, at] = asked, held
            self._dirty.add(at)

    def set_all_own(self, request: Mapping[str, Mapping[str, int]], used: Mapping[str, Mapping[str, int]]) -> None:
        """:meth:`set_own` for every row at once; a quota that is missing has nothing of its own."""
        nothing: dict[str, int] = {}
        asked = self._column([request.get(name, nothing) for name in self.names], LARGEST)
        held = self._column([used.get(name, nothing) for name in self.names], LARGEST)
        changed = ((asked != self._own) | (held != self._own_used)).any(axis=0)
        self._own, self._own_used = asked, held
        self._dirty.update(np.flatnonzero(changed).tolist())

    def set_occupied(self, name: str, amounts: Mapping[str, int]) -> None:
        """What a quota's own pods and admitted units occupy, for :mod:`koord.quota.idle`. KeyError: no such row."""
        self.occupied[:, self.row[name]] = self._cells(amounts, LARGEST)

    def set_all_occupied(self, amounts: Mapping[str, Mapping[str, int]]) -> None:
        """:meth:`set_occupied` for every row at once."""
        self.occupied = self._column([amounts.get(name, {}) for name in self.names], LARGEST)

    # Answers --------------------------------------------------------------------------------------------------------

    def compute(self) -> list[int]:
        """Bring everything up to date; answers the rows whose request or runtime changed."""
        if not self.names or not (self._dirty or self._everything):
            return []
        rows = [at for at in self._dirty if at >= 0]
        tops = {-1 - at for at in self._dirty if at < 0}
        every = self._everything
        changed = np.zeros(len(self.names), np.bool_)
        stale = np.zeros(len(self._first), np.bool_)
        if every or len(rows) > FEW:
            self._sum_levels(changed, stale)
        else:
            self._sum_paths(rows, changed, stale)
        groups = self._spans[0][3]
        for group in range(groups):
            stale[group] |= every or -1 - int(self._owner[group]) in tops
        self._fill_levels(changed, stale, every=every)
        self._dirty.clear()
        self._everything = False
        found: list[int] = np.flatnonzero(changed).tolist()
        return found

    def runtime(self, at: int, of: Ints | None = None) -> dict[str, int]:
        """What row ``at`` may use, by resource; masked to the keys of its max. ``of``: another matrix of runtimes."""
        limits = self._most[:, at].tolist()
        values = (self._runtime if of is None else of)[:, at].tolist()
        return {
            name: value for name, value, limit in zip(self.resources, values, limits, strict=True) if limit != NO_LIMIT
        }

    def request(self, at: int) -> dict[str, int]:
        """What row ``at`` asks for, before its max; masked like :meth:`runtime`."""
        limits = self._most[:, at].tolist()
        values = self._request[:, at].tolist()
        return {
            name: value for name, value, limit in zip(self.resources, values, limits, strict=True) if limit != NO_LIMIT
        }

    def allocated(self, at: int) -> dict[str, int]:
        """With the guarantee: what row ``at`` has given away, its children's guarantees or what its own pods use."""
        group = int(self._group_of[at])
        held = self._own_used[:, at]
        if group >= 0:
            held = held + self._guaranteed[:, int(self._first[group]) : int(self._last[group])].sum(axis=1)
        return dict(zip(self.resources, held.tolist(), strict=True))

    def guaranteed(self, at: int) -> dict[str, int]:
        """With the guarantee: what row ``at`` keeps, whatever others ask for."""
        return dict(zip(self.resources, self._guaranteed[:, at].tolist(), strict=True))

    # For the room that lies idle (koord.quota.idle) -----------------------------------------------------------------

    @property
    def runtimes(self) -> Ints:
        """The runtime of every row, a line per resource. Not to be written to."""
        return self._runtime

    @property
    def most(self) -> Ints:
        """The max of every row; :data:`NO_LIMIT` where it has none."""
        return self._most

    @property
    def weights(self) -> Ints:
        """What every row shares its parent's rest by."""
        return self._weight

    @property
    def totals(self) -> Ints:
        """What every tree has to share, a column per tree; the parent of a top of tree t is -1 - t."""
        return self._total

    @property
    def lines(self) -> Mapping[str, int]:
        """The line of each resource."""
        return self._line

    def levels(self) -> Iterator[tuple[int, int, Ints, Ints]]:
        """Level by level from the top: first row, row after, and of its groups of siblings the parents (-1 - t at the
        top: the total of tree t) and where each begins, from the first row on.
        """
        for begin, end, groups, last in self._spans:
            yield begin, end, self._owner[groups:last], self._first[groups:last] - begin

    def satisfied(self) -> Flags:
        """The rows that may use all they ask for."""
        return np.asarray((self._runtime >= self._request).all(axis=0))

    def request_beyond(self, held: Ints) -> Ints:
        """What every row itself, without its children, asks for beyond ``held``."""
        beyond: Ints = np.maximum(self._own - held, 0)
        return beyond

    def kept_at_home(self) -> Ints:
        """What of its min every row does not lend."""
        if self._guarantee:
            return self._least
        return np.where(self._lends, 0, self._least)

    def assured(self) -> Ints:
        """The min of every row that gets it as soon as it asks: where no min of its siblings is scaled down."""
        assured = np.zeros_like(self._least)
        for begin, end, groups, last in self._spans:
            owner, starts = self._owner[groups:last], self._first[groups:last] - begin
            total = self._total[:, -1 - owner] if not begin else assured[:, owner]
            enough = _added(np.zeros_like(total), self._least[:, begin:end], starts) <= total
            group = self._group[begin:end] - groups
            assured[:, begin:end] = np.where(enough[:, group], self._least[:, begin:end], 0)
        return assured

    def up(self, own: Ints, least: Ints) -> tuple[Ints, Ints]:
        """``own`` summed up the tree: every row's sum, and the same lifted to ``least``, which is what goes up."""
        below = own.copy()
        lifted = own.copy()
        for begin, end, groups, last in reversed(self._spans):
            rows = slice(begin, end)
            lifted[:, rows] = np.maximum(below[:, rows], least[:, rows])
            if groups:
                starts, owner = self._first[groups:last] - begin, self._owner[groups:last]
                below[:, owner] = _added(below[:, owner], lifted[:, rows], starts)
        return below, lifted

    # Up -------------------------------------------------------------------------------------------------------------

    def _sum_levels(self, changed: Flags, stale: Flags) -> None:
        request, held = self._own.copy(), self._own_used.copy()
        for begin, end, groups, last in reversed(self._spans):
            rows = slice(begin, end)
            level = request[:, rows]
            np.maximum(level, self._least[:, rows], out=level, where=~self._lends[rows])
            limited = np.minimum(level, self._most[:, rows])
            differs = (limited != self._limited[:, rows]).any(axis=0)
            changed[rows] |= differs | (level != self._request[:, rows]).any(axis=0)
            self._limited[:, rows] = limited
            if self._guarantee:
                kept = np.maximum(held[:, rows], self._least[:, rows])
                differs |= (kept != self._guaranteed[:, rows]).any(axis=0)
                self._guaranteed[:, rows] = kept
            stale[self._group[begin:end][differs]] = True
            if groups:
                starts, owner = self._first[groups:last] - begin, self._owner[groups:last]
                request[:, owner] = _added(request[:, owner], limited, starts)
                if self._guarantee:
                    held[:, owner] = _added(held[:, owner], kept, starts)
        self._request = request

    def _sum_paths(self, rows: Sequence[int], changed: Flags, stale: Flags) -> None:
        todo = set(rows)
        while todo:
            at = max(todo)  # rows are in level order: children before their parents
            todo.remove(at)
            group = int(self._group_of[at])
            request, held = self._own[:, at].copy(), self._own_used[:, at].copy()
            if group >= 0:
                children = slice(int(self._first[group]), int(self._last[group]))
                start = np.zeros(1, np.int64)
                request = _added(request[:, None], self._limited[:, children], start)[:, 0]
                if self._guarantee:
                    held = _added(held[:, None], self._guaranteed[:, children], start)[:, 0]
            if not self._lends[at]:
                request = np.maximum(request, self._least[:, at])
            limited = np.minimum(request, self._most[:, at])
            differs = bool((limited != self._limited[:, at]).any())
            changed[at] = differs or bool((request != self._request[:, at]).any())
            self._request[:, at], self._limited[:, at] = request, limited
            if self._guarantee:
                kept = np.maximum(held, self._least[:, at])
                differs = differs or bool((kept != self._guaranteed[:, at]).any())
                self._guaranteed[:, at] = kept
            if differs:
                own = int(self._group[at])
                stale[own] = True
                if self._owner[own] >= 0:
                    todo.add(int(self._owner[own]))

    # Down -----------------------------------------------------------------------------------------------------------

    def _fill_levels(self, changed: Flags, stale: Flags, *, every: bool) -> None:
        for depth, (begin, end, first, last) in enumerate(self._spans):
            groups = np.arange(first, last) if every else first + np.flatnonzero(stale[first:last])
            if not len(groups):
                continue
            counts = self._last[groups] - self._first[groups]
            starts = np.cumsum(counts) - counts
            if len(groups) == last - first:
                rows: slice | Ints = slice(begin, end)
                at = np.arange(begin, end)
            else:
                rows = at = np.arange(int(counts.sum())) + np.repeat(self._first[groups] - starts, counts)
            owner = self._owner[groups]
            total = self._runtime[:, owner] if depth else self._total[:, -1 - owner]
            known = np.ones(total.shape, np.bool_) if depth else self._known[:, -1 - owner]
            runtime = self._filled(rows, starts, total, known, len(at))
            differs = (runtime != self._runtime[:, rows]).any(axis=0)
            self._runtime[:, rows] = runtime
            moved = at[differs]
            changed[moved] = True
            below = self._group_of[moved]
            stale[below[below >= 0]] = True

    def _filled(self, rows: slice | Ints, starts: Ints, total: Ints, known: Flags, size: int) -> Ints:
        lines = len(self.resources)
        lends = np.zeros(size, np.bool_) if self._guarantee else self._lends[rows]
        flat = fill(
            Segments(
                starts=(starts[None, :] + size * np.arange(lines)[:, None]).ravel(),
                total=total.ravel(),
                known=known.ravel(),
                least=self._least[:, rows].ravel(),
                guaranteed=self._guaranteed[:, rows].ravel(),
                request=self._limited[:, rows].ravel(),
                weight=self._weight[:, rows].ravel(),
                lends=np.tile(lends, lines),
                scales=np.full(lines * size, self._scale),
            )
        )
        return flat.reshape(lines, size)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _cells(self, amounts: Mapping[str, int], most: int) -> list[int]:
        return [min(amounts.get(name, 0), most) for name in self.resources]

    def _column(self, rows: Sequence[Mapping[str, int]], most: int, missing: int = 0) -> NDArray[np.int64]:
        column = np.full((len(self.resources), len(rows)), missing, np.int64)
        for line, name in enumerate(self.resources):
            column[line] = [min(amounts[name], most) if name in amounts else missing for amounts in rows]
        return column


def _added(to: Ints, amounts: Ints, starts: Ints) -> Ints:
    """``to`` plus the sums of ``amounts`` from each of ``starts`` on, along the rows; cut at :data:`LARGEST`."""
    about = np.add.reduceat(amounts.astype(np.float64), starts, axis=1)
    exact = to + np.add.reduceat(amounts, starts, axis=1)
    return np.where(about > LARGEST, LARGEST, np.minimum(exact, LARGEST))
