"""Row allocation: each live name owns one row; the row of a name that left is given to the next one.

Reuse keeps tables as long as the most names that ever lived at once. Who keeps anything by row must clear it when the
row changes hands.
"""

from collections.abc import Iterator


class RowIndex:
    """Names to rows and back. ``high`` is one more than the highest row ever given: the length of a full pass."""

    __slots__ = ("_free", "_names", "_rows")

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._names: list[str | None] = []
        self._free: list[int] = []

    @property
    def high(self) -> int:
        """Rows 0..high-1 have been given at some time; some of them may be free again."""
        return len(self._names)

    def add(self, name: str) -> int:
        """The row of ``name``, allocated now (a freed one first) if it has none."""
        row = self._rows.get(name)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self._names[row] = name
        else:
            row = len(self._names)
            self._names.append(name)
        self._rows[name] = row
        return row

    def remove(self, name: str) -> int | None:
        """Give the row of ``name`` back and return it; None if it had none."""
        row = self._rows.pop(name, None)
        if row is not None:
            self._names[row] = None
            self._free.append(row)
        return row

    def find(self, name: str) -> int | None:
        """The row of ``name``, or None."""
        return self._rows.get(name)

    def name(self, row: int) -> str | None:
        """Who owns ``row`` now; None if it is free."""
        return self._names[row]

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def items(self) -> Iterator[tuple[str, int]]:
        """Every live name with its row."""
        return iter(self._rows.items())
