"""Whether a view of devices can serve a pod's claims: tried once for each view, kept until the view changed.

What is found is one column by view, so that an answer for all nodes is one look-up.
"""

from collections import OrderedDict

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.dra.allocator import AllocationError, Given, allocate, preference
from koord.scheduler.dra.book import DeviceBook
from koord.scheduler.dra.demand import Demand

CANNOT = "cannot allocate all claims"
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
        self._at: Ints = np.full(1, -1, dtype=np.int64)
        self._classes_at = -1
        self._problem: Ints = np.zeros(1, dtype=np.int64)
        self._score: Floats = np.zeros(1)
        self._problems: list[Problem] = [("", None), (CANNOT, None)]
        self._numbers: dict[Problem, int] = {problem: number for number, problem in enumerate(self._problems)}

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

    def _refresh(self, numbers: Ints) -> None:
        """Try the views that changed, of those that somebody asks about."""
        book, views = self._book, self._book.views
        count = len(views.views)
        if len(self._at) < count:
            size = max(count, 2 * len(self._at))
            self._at = _grown(self._at, size, -1)
            self._problem = _grown(self._problem, size, 0)
            self._score = np.concatenate([self._score, np.zeros(size - len(self._score))])
        if self._classes_at < book.classes_at:
            self._at[:] = -1
            self._classes_at = book.classes_at
        stale = self._at[numbers] < views.stamps[numbers]
        if not stale.any():
            return
        for number in np.unique(numbers[stale]).tolist():
            self._at[number] = book.clock
            try:
                given = allocate(self._demands, views.views[number], book.matcher)
            except AllocationError as error:
                self._problem[number] = self._number((str(error), error.claim))
                continue
            if given is None:
                self._problem[number] = 1
                continue
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
