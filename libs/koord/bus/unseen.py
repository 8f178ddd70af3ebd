"""Objects that a replay did not show: in a cluster they are gone only when a second one does not show them either.

A replica that is being filled, asked for by a leader that was parted, may have shown less than there is. Time is passed
in, seconds.
"""

from collections.abc import Sequence

# Longer than a leader that was parted from the others goes on answering once it hears from them again.
SWEEP_AFTER_S = 12.0


class Unseen:
    """Since when each is missing."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def gone(self, keys: Sequence[str], now: float) -> list[str]:
        """Those of ``keys`` (all that the replay did not show) which were missing SWEEP_AFTER_S ago, too."""
        self._since = {key: self._since.get(key, now) for key in keys}
        gone = [key for key, since in self._since.items() if now - since >= SWEEP_AFTER_S]
        for key in gone:
            del self._since[key]
        return gone

    def next_look(self, now: float) -> float | None:
        """Seconds until the next replay decides; None if nothing is missing."""
        return max(min(self._since.values()) + SWEEP_AFTER_S - now, 0.0) if self._since else None
