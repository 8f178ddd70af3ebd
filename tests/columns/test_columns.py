"""Names, rows, matrix and journal, against plain models."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from koord.columns.journal import Journal
from koord.columns.matrix import Matrix, grown
from koord.columns.names import Names
from koord.columns.rows import RowIndex


def test_names_keep_their_number() -> None:
    names = Names(("pods", "cpu"))
    assert names.intern("memory") == 2
    assert names.intern("pods") == 0
    assert names.find("gpu") is None
    assert list(names) == ["pods", "cpu", "memory"]
    assert names[1] == "cpu"
    assert "memory" in names
    assert len(names) == 3


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_rows_are_unique_and_reused(steps: list[tuple[bool, int]]) -> None:
    index = RowIndex()
    model: dict[str, int] = {}
    most = 0
    for add, number in steps:
        name = f"n{number}"
        if add:
            row = index.add(name)
            assert model.setdefault(name, row) == row
            assert row not in {other for key, other in model.items() if key != name}
        else:
            assert index.remove(name) == model.pop(name, None)
        most = max(most, len(model))
        assert index.high <= most
        assert dict(index.items()) == model
        assert all(index.name(row) == key for key, row in model.items())


def test_matrix_grows_and_keeps_what_it_holds() -> None:
    matrix = Matrix(2, 3)
    matrix.data[1, 2] = 7.0
    assert not matrix.reserve(2, 3)
    assert matrix.reserve(3, 20)
    assert matrix.data[1, 2] == 7.0
    assert matrix.data.sum() == 7.0
    assert matrix.data.shape == (grown(2, 3), grown(3, 20))
    matrix.clear_row(2)
    assert matrix.data.sum() == 0.0


@given(st.lists(st.one_of(st.integers(0, 50), st.lists(st.integers(0, 50), max_size=20), st.none()), max_size=60))
def test_journal_tells_everything_or_that_it_does_not_know(steps: list[int | list[int] | None]) -> None:
    journal = Journal(16)
    log: list[int] = []
    positions = {0: 0}
    for step in steps:
        if step is None:
            journal.reset()
            log.append(-1)
        elif isinstance(step, int):
            journal.add(step)
            log.append(step)
        elif step:
            before = journal.end
            journal.extend(np.array(step, dtype=np.int64))
            log.extend(step if journal.end == before + len(step) else [-1])
        positions[journal.end] = len(log)
        for position, seen in positions.items():
            told = journal.since(position)
            missed = log[seen:]
            if told is None:
                assert missed
            else:
                assert told.tolist() == missed
