"""Whether a view of devices can serve a pod's claims: tried once for each view, kept until the view changed.

What is found is one column by view, so that an answer for all nodes is one look-up. What has to be tried first may take
long (thousands of nodes, expressions that are dear, claims that hardly any choice of devices serves), so it is done in
slices (:meth:`AllTries.look`) with a rest between them in which others have their turn.
"""

from collections import OrderedDict
from time import perf_counter

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.dra.allocator import AllocationError, Given, allocate, preference
from koord.scheduler.dra.book import DeviceBook
from koord.scheduler.dra.demand import Demand

CANNOT = "cannot allocate all claims"
SLICE_S = 0.05
"""How long views are tried at a time, and how long the rest is at least, whosever views it is the turn of next."""
FEW = 4
KEEP = 64
"""Demands; each keeps some 25 bytes a view."""

Demands = tuple[Demand, ...]
Problem = tuple[str, int | None]
"""A text, and the index of the claim at fault (None: it stands for itself)."""


class Tries:
    """What became of the demands of one kind of pods, by view."""

    def __init__(self, book: DeviceBook, demands: Demands) -> None:
        self._book = book
        self._demands = demands
        self._rated = any(wish.listed for demand in demands for wish in demand.wishes)
        self._complete_at = 0
        self._at: Ints = np.full(1, -1, dtype=np.int64)
        self._classes_at = -1
        self._problem: Ints = np.zeros(1, dtype=np.int64)
        self._score: Floats = np.zeros(1)
        self._problems: list[Problem] = [("", None), (CANNOT, None)]
        self._numbers: dict[Problem, int] = {problem: number for number, problem in enumerate(self._problems)}

    def look(self, until: float) -> bool:
        """Try views, one at least, to the end or until ``perf_counter()`` passes ``until``; whether all were tried."""
        clock = self._book.clock
        if self._complete_at != clock and self._refresh(self._everywhere(), until):
            self._complete_at = clock
        return self._complete_at == clock

    @property
    def nearly_complete(self) -> bool:
        """Whether a few views at most changed since all were tried: as many as pods change that are placed."""
        return self._complete_at == self._book.clock or len(self._stale(self._everywhere())) <= FEW

    def _everywhere(self) -> Ints:
        return self._book.views.numbers(slice(None), self._book.clock)

    def passes(self, rows: slice | Ints) -> Bools:
        """Which rows can serve."""
        return np.equal(self._found(rows), 0)

    def scores(self, rows: slice | Ints) -> Floats:
        """How far up in lists of alternatives what rows would give stands."""
        numbers = self._book.views.numbers(rows, self._book.clock)
        self._refresh(numbers)
        scores: Floats = self._score[numbers]
        return scores

    def problems(self, rows: slice | Ints) -> list[tuple[Problem, Bools]]:
        """Why rows cannot serve."""
        found = self._found(rows)
        numbers = [int(number) for number in np.unique(found) if number]
        return [(self._problems[number], np.equal(found, number)) for number in numbers]

    def give(self, row: int) -> tuple[Given, ...] | Problem:
        """What the row gives."""
        book = self._book
        _, view = book.views.of(row, book.clock)
        try:
            given = allocate(self._demands, view, book.matcher)
        except AllocationError as error:
            return str(error), error.claim
        return given if given is not None else (CANNOT, None)

    def _found(self, rows: slice | Ints) -> Ints:
        numbers = self._book.views.numbers(rows, self._book.clock)
        self._refresh(numbers)
        found: Ints = self._problem[numbers]
        return found

    def _stale(self, numbers: Ints) -> Ints:
        """Those of the views that changed since they were tried, each once."""
        book, count = self._book, len(self._book.views.views)
        if len(self._at) < count:
            size = max(count, 2 * len(self._at))
            self._at = _grown(self._at, size, -1)
            self._problem = _grown(self._problem, size, 0)
            self._score = np.concatenate([self._score, np.zeros(size - len(self._score))])
        if self._classes_at < book.classes_at:
            self._at[:] = -1
            self._classes_at = book.classes_at
        stale = self._at[numbers] < book.views.stamps[numbers]
        found: Ints = np.unique(numbers[stale]) if stale.any() else numbers[:0]
        return found

    def _refresh(self, numbers: Ints, until: float = float("inf")) -> bool:
        """Try the views that changed, of those that somebody asks about; False: it was ``until`` before the end."""
        stale = self._stale(numbers).tolist()
        for number in stale:
            self._try(number)
            if perf_counter() >= until:
                return bool(number == stale[-1])
        return True

    def _try(self, number: int) -> None:
        book = self._book
        self._at[number] = book.clock
        try:
            given = allocate(self._demands, book.views.views[number], book.matcher)
        except AllocationError as error:
            self._problem[number] = self._number((str(error), error.claim))
            return
        if given is None:
            self._problem[number] = 1
            return
        self._problem[number] = 0
        if self._rated:
            self._score[number] = preference(self._demands, given)

    def _number(self, problem: Problem) -> int:
        number = self._numbers.get(problem)
        if number is None:
            if len(self._problems) > 10_000:  # a text for every device of a large cluster, over and over
                return self._numbers[CANNOT, None]
            number = self._numbers[problem] = len(self._problems)
            self._problems.append(problem)
        return number


class AllTries:
    """Those of the demands asked about last."""

    def __init__(self, book: DeviceBook) -> None:
        self._book = book
        self._known: OrderedDict[Demands, Tries] = OrderedDict()
        self._rest_until = 0.0

    def look(self, demands: Demands) -> bool:
        """Try views for a slice of time, unless it is the time to rest; whether all were tried but for a few."""
        tries, begun = self.of(demands), perf_counter()
        if begun < self._rest_until:
            return tries.nearly_complete
        if tries.look(begun + SLICE_S):
            return True
        self._rest_until = perf_counter() + SLICE_S
        return False

    def of(self, demands: Demands) -> Tries:
        """Those of some demands."""
        found = self._known.get(demands)
        if found is None:
            found = self._known[demands] = Tries(self._book, demands)
            if len(self._known) > KEEP:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(demands)
        return found


def _grown(column: Ints, size: int, fill: int) -> Ints:
    return np.concatenate([column, np.full(size - len(column), fill, dtype=np.int64)])
