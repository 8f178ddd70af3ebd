"""The shape of trees of quotas as columns: one row per quota, level by level from the top.

The children of a parent stand side by side and in the order of their names: they are a *group*, and so are the tops of
a tree. So what is summed up or shared out among siblings is one segment of a column.
"""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np


class QuotaRow(msgspec.Struct, frozen=True):
    """A quota as the filling needs it. ``parent`` names another row; where there is none, the row is a top of ``tree``.

    A resource missing in ``max`` is not limited; ``weight`` is what it shares its parent's rest by, usually max.
    """

    name: str
    parent: str
    min: Mapping[str, int]
    max: Mapping[str, int]
    weight: Mapping[str, int]
    lends: bool = True
    tree: str = ""


class Shape:
    """Rows in order, and where their groups are.

    ``parent`` of a row is another row, or ``-1 - t`` for a top of tree ``t`` (of ``trees``). Group ``g`` is rows
    ``first[g]`` up to ``last[g]``, the children of ``owner[g]``; ``group`` is the one that a row is in, ``group_of``
    that of its children (-1: none). ``spans``: per level the rows from and up to, and the groups from and up to.
    """

    def __init__(self, rows: Iterable[QuotaRow]) -> None:
        levels, parents, self.trees = _levels(rows)
        self.rows = [row for level in levels for row in level]
        self.names = [row.name for row in self.rows]
        self.row = {name: at for at, name in enumerate(self.names)}
        self.group = np.zeros(len(self.names), np.int64)
        self.group_of = np.full(len(self.names), -1, np.int64)
        self.spans: list[tuple[int, int, int, int]] = []
        first: list[int] = []
        owner: list[int] = []
        at = 0
        for depth, level in enumerate(levels):
            begin, groups = at, len(first)
            for i in range(len(level)):
                if not i or parents[depth][i] != parents[depth][i - 1]:
                    first.append(at)
                    owner.append(parents[depth][i])
                    if depth:
                        self.group_of[parents[depth][i]] = len(first) - 1
                self.group[at] = len(first) - 1
                at += 1
            self.spans.append((begin, at, groups, len(first)))
        self.first = np.array(first, np.int64)
        self.last = np.array([*first[1:], at], np.int64) if first else self.first
        self.owner = np.array(owner, np.int64)
        self.parent = self.owner[self.group] if first else np.zeros(0, np.int64)


def _levels(rows: Iterable[QuotaRow]) -> tuple[list[list[QuotaRow]], list[list[int]], list[str]]:
    """Rows by depth, siblings together and by name; the position of each one's parent, or ``-1 - tree`` at the top.

    Rows in a cycle of parents are not reached from any top, and left out.
    """
    children: dict[str, list[QuotaRow]] = {}
    every = {row.name: row for row in rows}
    tops: dict[str, list[QuotaRow]] = {}
    for row in sorted(every.values(), key=lambda row: row.name):
        if row.parent in every:
            children.setdefault(row.parent, []).append(row)
        else:
            tops.setdefault(row.tree, []).append(row)
    trees = sorted(tops)
    level = [row for tree in trees for row in tops[tree]]
    parents = [-1 - at for at, tree in enumerate(trees) for _ in tops[tree]]
    levels, above = [], []
    position = 0
    while level:
        levels.append(level)
        above.append(parents)
        below: list[QuotaRow] = []
        parents = []
        for at, row in enumerate(level):
            mine = children.get(row.name, ())
            below.extend(mine)
            parents.extend([position + at] * len(mine))
        position += len(level)
        level = below
    return levels, above, trees
