"""What live copies have told a state cache and the stream has not shown yet, and what was deleted a moment ago.

A live copy runs ahead of the stream. Until the stream shows the same version, or a newer one, a *note* keeps the object
from stepping back: older versions that the stream yields meanwhile are passed over, and an object that a live copy has
deleted does not rise again. Whether a version is older is decided by resourceVersions as integers; a deletion comes
after everything that has the same one. Live copies whose versions are no integers are not believed.

A note that the stream does not bear out is void after CONFIRM_S: a gateway that was deposed without knowing may have
sent it. The cache then reads the stream again and believes that. Time is passed in, monotonic seconds.
"""

from typing import NamedTuple

CONFIRM_S = 30.0
# Deletions are remembered for at least this long, so that no straggler brings the object back, but not endlessly many.
GRAVES_S = 60.0
MOST_GRAVES = 10_000


class Rank(NamedTuple):
    """A version's place in the order of one object's versions."""

    version: int
    gone: bool


def rank_of(type_: str, version: str) -> Rank | None:
    """None when the version is no integer and so cannot be compared."""
    return Rank(int(version), type_ == "DELETED") if version.isdecimal() else None


class LiveNotes:
    """The notes and graves of one cache, by key."""

    def __init__(self) -> None:
        self._notes: dict[str, tuple[Rank, float]] = {}
        self._graves: dict[str, Rank] = {}
        self._older_graves: dict[str, Rank] = {}
        self._turned = 0.0

    def __len__(self) -> int:
        return len(self._notes)

    def __contains__(self, key: object) -> bool:
        return key in self._notes

    def takes(self, key: str, type_: str, version: str, held: str | None) -> bool:
        """Whether a live copy says something newer than what is known; ``held`` is the version that the cache has."""
        rank = rank_of(type_, version)
        if rank is None:
            return False
        if (note := self._notes.get(key)) is not None:
            return rank > note[0]
        return not self._is_past(key, rank, held)

    def add(self, key: str, type_: str, version: str, now: float) -> None:
        """A live copy was told."""
        if (rank := rank_of(type_, version)) is not None:
            self._notes[key] = (rank, now)

    def passes_over(self, key: str, type_: str, version: str) -> bool:
        """Whether what the stream shows is no news after a live copy; the note ends when the stream has caught up."""
        note = self._notes.get(key)
        if note is None:
            return False
        rank = rank_of(type_, version)
        if rank is not None and rank < note[0]:
            return True
        del self._notes[key]
        if rank == note[0] and rank.gone:
            self._graves[key] = rank
        return rank == note[0]

    def is_past(self, key: str, type_: str, version: str, held: str | None) -> bool:
        """Whether a message that the stream shows once more is older than what is held, or of an object deleted since.

        A replica that lags shows such, and a consumer that works off what a direct read has shown already.
        """
        rank = rank_of(type_, version)
        return rank is not None and self._is_past(key, rank, held)

    def bury(self, key: str, type_: str, version: str, now: float) -> None:
        """The stream has shown a deletion."""
        if now - self._turned > GRAVES_S or len(self._graves) >= MOST_GRAVES:
            self._older_graves, self._graves, self._turned = self._graves, {}, now
        if (rank := rank_of(type_, version)) is not None:
            self._graves[key] = rank

    def wait_on(self, now: float) -> None:
        """The stream could not be followed: what it did not show says nothing yet."""
        self._notes = {key: (rank, now) for key, (rank, _) in self._notes.items()}

    def has_void(self, now: float) -> bool:
        """Whether a note waits for longer than the stream can need."""
        return any(now - since >= CONFIRM_S for _, since in self._notes.values())

    def end_void(self, now: float) -> list[str]:
        """End those notes; answers their keys."""
        void = [key for key, (_, since) in self._notes.items() if now - since >= CONFIRM_S]
        for key in void:
            del self._notes[key]
        return void

    def clear(self) -> None:
        """The stream is another one."""
        self._notes.clear()
        self._graves.clear()
        self._older_graves.clear()

    def _is_past(self, key: str, rank: Rank, held: str | None) -> bool:
        if held is not None:
            mine = rank_of("", held)
            return mine is not None and rank <= mine
        grave = self._graves.get(key) or self._older_graves.get(key)
        return grave is not None and rank <= grave
