"""Which resource has which column, and what a pod takes in those columns.

Anybody may write a pod that asks for names nobody has heard of, so asking gives no column: a name has one while some
node offers it (has it in its allocatable). What is asked of other names is kept by name, as *unlisted*, and comes into
the footprint when a node begins to offer it. When the last node that offers a name is gone its column is given to the
next name. There are at most :data:`MOST` columns; names that are offered besides are kept apart (see ``rare``).
"""

from collections.abc import Iterable, Mapping
from weakref import WeakSet

import numpy as np

from koord.columns.matrix import EXACT, Floats
from koord.columns.rows import RowIndex

FIRST = 2
PODS, CPU, MEMORY, NOWHERE = 0, 1, 2, 3
"""Columns that always are. ``NOWHERE`` is 0 on every node: the column of whatever no node offers."""
MOST = 256
LIMIT = EXACT // 2
_NATIVE = frozenset(("pods", "cpu", "memory"))
_ALWAYS = ("pods", "cpu", "memory", "\0nowhere")


class Footprint:
    """What one pod takes of a node: ``vector`` in the layout of the usage matrix, ``request`` by name.

    ``unlisted`` is what it asks of names without a column; the vector does not have it. ``version`` tells that names
    gained or lost their column, so that numbers learned before are void. Equal footprints are shared by all pods that
    have them.
    """

    __slots__ = ("__weakref__", "nonzero", "request", "unlisted", "vector", "version")

    def __init__(self, request: Mapping[str, int], nonzero: tuple[int, int], columns: RowIndex) -> None:
        self.request = dict(request)
        self.nonzero = nonzero
        self.version = 0
        self.unlisted: dict[str, int] = {}
        self.vector: Floats = np.zeros(FIRST + columns.high, dtype=np.float64)
        for name, amount in request.items():
            number = columns.find(name)
            if number is not None:
                self.vector[FIRST + number] = min(amount, LIMIT)
            elif amount:
                self.unlisted[name] = amount
        self.vector[0] = min(nonzero[0], LIMIT)
        self.vector[1] = min(nonzero[1], LIMIT)
        self.vector[FIRST + PODS] = 1.0
        self.vector[FIRST + NOWHERE] = 0.0

    def enlist(self, name: str, number: int, high: int) -> float:
        """``name`` has a column now: what the pod takes of it, 0 if nothing."""
        amount = self.unlisted.pop(name, 0)
        if not amount:
            return 0.0
        self.version += 1
        if len(self.vector) < FIRST + high:
            self.vector = np.concatenate((self.vector, np.zeros(FIRST + high - len(self.vector))))
        taken = self.vector[FIRST + number] = float(min(amount, LIMIT))
        return taken

    def delist(self, name: str, number: int) -> None:
        """``name`` has its column no longer."""
        field = FIRST + number
        if field < len(self.vector) and self.vector[field]:
            self.version += 1
            self.vector[field] = 0.0
            self.unlisted[name] = self.request[name]


class Resources:
    """The columns of the resources that nodes offer, and the footprints made for them."""

    def __init__(self, most: int = MOST) -> None:
        self._columns = RowIndex()
        for name in _ALWAYS:
            self._columns.add(name)
        self.version = 0
        """Another number whenever names got or lost a column: what is kept of vectors is void then."""
        self._most = most
        self._offered: dict[str, int] = {}
        self._footprints: WeakSet[Footprint] = WeakSet()

    @property
    def high(self) -> int:
        """One more than the highest number ever given."""
        return self._columns.high

    def find(self, name: str) -> int | None:
        """The column of a resource; None if no node offers it (or there were too many names)."""
        return self._columns.find(name)

    def number(self, name: str) -> int:
        """The column of a resource that has one."""
        return self._columns.add(name)

    def __getitem__(self, number: int) -> str:
        name = self._columns.name(number)
        assert name is not None, "only columns in use are asked for"
        return name

    def __len__(self) -> int:
        return len(self._columns)

    def footprint(self, request: Mapping[str, int], nonzero: tuple[int, int]) -> Footprint:
        """What a pod of this request takes."""
        made = Footprint(request, nonzero, self._columns)
        if not request.keys() <= _NATIVE:
            self._footprints.add(made)
        return made

    def offer(self, names: Iterable[str]) -> dict[str, int]:
        """One more node offers ``names``. Those that get a column by it, and how many nodes offered them already."""
        listed = {}
        for name in names:
            before = self._offered.get(name, 0)
            self._offered[name] = before + 1
            if name not in self._columns and len(self._columns) < self._most:
                self._columns.add(name)
                self.version += 1
                listed[name] = before
        return listed

    def enlist(self, names: Iterable[str]) -> dict[Footprint, list[tuple[int, float]]]:
        """Bring ``names``, which have a column now, into the footprints: field and amount that each gained."""
        numbers = [(name, self.number(name)) for name in names]
        gained: dict[Footprint, list[tuple[int, float]]] = {}
        for footprint in self._footprints:
            if footprint.unlisted:
                for name, number in numbers:
                    amount = footprint.enlist(name, number, self.high)
                    if amount:
                        gained.setdefault(footprint, []).append((FIRST + number, amount))
        return gained

    def withdraw(self, names: Iterable[str]) -> list[int]:
        """One node less offers ``names``. The columns that are free now; no footprint has anything in them any more."""
        freed = []
        for name in names:
            self._offered[name] -= 1
            if self._offered[name]:
                continue
            del self._offered[name]
            if name in _ALWAYS:
                continue
            number = self._columns.remove(name)
            self.version += 1
            if number is not None:
                freed.append(number)
                for footprint in self._footprints:
                    footprint.delist(name, number)
        return freed
