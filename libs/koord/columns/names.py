"""Interned names: a name becomes a small dense integer once and keeps it, so that columns are indexed and not hashed.

Names are never forgotten: meant for vocabularies that stay small (resource names, label keys), not for pods.
"""

from collections.abc import Iterable, Iterator


class Names:
    """A growing vocabulary: ``intern`` gives a name its number, counting from 0 in the order of first sight."""

    __slots__ = ("_ids", "_names")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._ids: dict[str, int] = {}
        self._names: list[str] = []
        for name in names:
            self.intern(name)

    def intern(self, name: str) -> int:
        """The number of ``name``, given now if it is new."""
        number = self._ids.get(name)
        if number is None:
            number = self._ids[name] = len(self._names)
            self._names.append(name)
        return number

    def find(self, name: str) -> int | None:
        """The number of ``name``, or None if it was never interned."""
        return self._ids.get(name)

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._ids
