"""When to believe that a stream of a NATS cluster lost its last messages.

A leader that was parted from the others goes on answering from what it has until it finds out. So an answer that ends
before what was confirmed is believed only when it has stood for longer than that can last. Several ask through one
connection, each with what it knows: whoever knows less, or nothing, must not end the doubt of another.
"""

# Longer than a leader without followers believes to be one (10 s).
STALE_S = 20.0


class TailDoubt:
    """The doubt about one stream. Times are monotonic seconds, passed in."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._known = 0
        self._epoch = ""

    def believes(self, epoch: str, last: int, known: int, known_epoch: str, now: float) -> bool:
        """Whether the answer that the stream ends at ``last`` in ``epoch`` counts, for one who knows of ``known``."""
        if self._since is not None and (epoch != self._epoch or last >= self._known):
            self._since, self._known = None, 0
        if last >= known or epoch != known_epoch:
            return True
        if self._since is None:
            self._since = now
        self._known, self._epoch = max(self._known, known), epoch
        return now - self._since >= STALE_S

    def clear(self) -> None:
        """There is nobody whose answer could be an old one."""
        self._since, self._known = None, 0
