"""Which labels of pods somebody selects by: only those tell scheduling classes apart.

Most pods carry labels that no selector names (an index, a hash, their own name). Were all labels part of a class, such
pods would each be a class of its own. So the keys that selectors in use name are collected here: selectors of pods to
place, of pods that have a node, and of services.
"""

from collections.abc import Iterable, Mapping


class PodLabels:
    """Keys in use; never forgotten, for they are few. ``version`` moves when there is a new one: classes made before
    lack its label."""

    __slots__ = ("keys", "version")

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.version = 0

    def add(self, keys: Iterable[str]) -> None:
        """Somebody selects by these keys."""
        before = len(self.keys)
        self.keys.update(keys)
        if len(self.keys) != before:
            self.version += 1

    def of(self, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The labels that matter, in the order of ``labels``: pods of one template have one order."""
        keys = self.keys
        return tuple([item for item in labels.items() if item[0] in keys]) if keys else ()
