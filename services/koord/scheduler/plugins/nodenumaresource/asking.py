"""How a question about rows is answered: from columns, or node by node.

Columns answer for all nodes at a few microseconds a hundred, but have to be laid out for each node that changed, and
know nothing of pods that are not there yet. Node by node costs a microsecond or two each where a node in that state was
asked about before.
"""

from collections.abc import Iterable

import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.window import Window
from koord.scheduler.plugins.nodenumaresource.books import Books
from koord.scheduler.plugins.nodenumaresource.onerow import Known, answers
from koord.scheduler.plugins.nodenumaresource.rows import Rows
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.nodenumaresource.terms import NUMATerms
from koord.scheduler.plugins.nodenumaresource.working import Answer, Working

FEW = 32
"""Rows up to which node by node is always faster."""
CHANGED = 4
"""A node that changed costs its columns as much as so many nodes cost one by one."""


class Asking:
    """Filter and Score of one plugin. What was asked last is kept, for Filter, Score and Reserve ask about the same."""

    def __init__(self, books: Books, working: Working, settings: NUMASettings) -> None:
        self._books = books
        self._working = working
        self._settings = settings
        self._asked: tuple[Window, NUMATerms, int, list[Answer]] | None = None
        self._rows: tuple[Window, NUMATerms, int, Rows] | None = None

    def fits(self, terms: NUMATerms, window: Window) -> Bools:
        """Rows that take a pod of the class."""
        if self._one_by_one(terms, window):
            return np.array([one[0] for one in self.few(terms, window)])
        return self.many(terms, window).fits()

    def scores(self, terms: NUMATerms, window: Window) -> Floats:
        """How the rows are rated."""
        if self._one_by_one(terms, window):
            return np.array([one[1] for one in self.few(terms, window)])
        scores = self.many(terms, window).score()
        self._rows = None  # nothing is asked after the score; the window may be large
        return scores

    def _one_by_one(self, terms: NUMATerms, window: Window) -> bool:
        """Whether rows are asked about node by node: few, or a good part of them changed, and must where columns do not
        say what a pod gets, or what those before it would get."""
        if window.size <= FEW or terms.designated is not None:
            return True
        if window.counts is not None:
            return terms.special or self._books.giving
        return not isinstance(window.rows, slice) and window.size <= CHANGED * self._books.changed

    def few(self, terms: NUMATerms, window: Window) -> list[Answer]:
        """As :meth:`many`, node by node; what is worked out for Filter is kept for Score and Reserve."""
        kept, version = self._asked, self._books.version
        if kept is not None and kept[0] is window and kept[1] is terms and kept[2] == version:
            return kept[3]
        rows = np.arange(window.cluster.high)[window.rows] if isinstance(window.rows, slice) else window.rows
        if window.counts is not None and (terms.special or self._books.giving):
            known = self._ahead(terms, rows.tolist(), window.counts.tolist())
        else:
            known = self._now(terms, rows.tolist())
        found = answers(known, terms, window, self._settings)
        self._asked = window, terms, version, found
        return found

    def _now(self, terms: NUMATerms, rows: Iterable[int]) -> list[Known | None]:
        """What a pod of the class gets on each row."""
        books, out, name_of = self._books, self._working.out, self._books.cluster.index.name
        known: list[Known | None] = []
        for row in rows:
            name = name_of(row)
            if name is None:
                known.append(None)
            else:
                state = books.state(name)
                known.append((state, out(state, terms)))
        return known

    def _ahead(self, terms: NUMATerms, rows: Iterable[int], counts: Iterable[float]) -> list[Known | None]:
        """The same after so many more pods of the class were given theirs on it."""
        books, working, name_of = self._books, self._working, self._books.cluster.index.name
        known: list[Known | None] = []
        last, done = -1, 0
        there: Known | None = None
        for row, count in zip(rows, counts, strict=True):
            if row != last or count < done:
                name = name_of(row)
                there = None
                if name is not None:
                    state = books.state(name)
                    there = state, working.out(state, terms)
                last, done = row, 0
            while there is not None and done < count:
                there = working.following(*there)
                done += 1
            known.append(there)
        return known

    def many(self, terms: NUMATerms, window: Window) -> Rows:
        """Filter and Score ask about the same rows, one after the other: what both need is read once."""
        kept, version = self._rows, self._books.version
        if kept is not None and kept[0] is window and kept[1] is terms and kept[2] == version:
            return kept[3]
        rows = Rows(self._books, terms, window, self._settings)
        self._rows = window, terms, version, rows
        return rows
