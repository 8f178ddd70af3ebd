"""How often the ledger refused a unit's claims in a row, over all its cycles: who loses again and again may insist."""

from collections.abc import Hashable

INSIST_AFTER = 3
FORGET_S = 600.0
_MOST = 4096


class Refusals:
    """Refused claims in a row by unit; one that was accepted, or silent for ten minutes, starts anew."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, tuple[int, float]] = {}

    def refused(self, key: Hashable, now: float) -> int:
        """A claim met a conflict; how many that makes in a row."""
        count, last = self._rows.pop(key, (0, now))
        if now - last >= FORGET_S:
            count = 0
        self._rows[key] = (count + 1, now)  # the longest silent one comes first
        while len(self._rows) > _MOST or now - next(iter(self._rows.values()))[1] >= FORGET_S:
            del self._rows[next(iter(self._rows))]
        return count + 1

    def accepted(self, key: Hashable) -> None:
        """A claim was accepted, or the unit is no more."""
        self._rows.pop(key, None)

    def insists(self, key: Hashable) -> bool:
        """Whether it was refused so often that claims of lower rank have to make room."""
        count, _ = self._rows.get(key, (0, 0.0))
        return count >= INSIST_AFTER
