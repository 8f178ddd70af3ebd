"""What happened since the queue was last told: events with what they are about, in bounded room.

Thousands of pods may end in one moment. Beyond :data:`SUBJECTS` of one event nobody asks which they were: the event
counts for every pod whose plugins wait for it, which is never wrong and sometimes in vain.
"""

from collections.abc import Iterator

from koord.scheduler.framework.events import ClusterEvent

SUBJECTS = 64
UNKNOWN: tuple[object, ...] = (None,)
"""The subjects of an event of which too many came, or that is about nothing."""


class Happenings:
    """Events and their subjects. True while there are any."""

    __slots__ = ("_subjects",)

    def __init__(self) -> None:
        self._subjects: dict[ClusterEvent, list[object] | None] = {}

    def add(self, event: ClusterEvent, subject: object = None) -> None:
        """Something happened, to ``subject`` if that is known."""
        known = self._subjects.get(event)
        if known is None:
            if event not in self._subjects:
                self._subjects[event] = None if subject is None else [subject]
        elif subject is None or len(known) >= SUBJECTS:
            self._subjects[event] = None
        else:
            known.append(subject)

    def take(self) -> dict[ClusterEvent, tuple[object, ...]]:
        """All that happened, with at least one subject each (None: unknown); nothing is left."""
        taken = {event: UNKNOWN if known is None else tuple(known) for event, known in self._subjects.items()}
        self._subjects.clear()
        return taken

    def __bool__(self) -> bool:
        return bool(self._subjects)

    def __contains__(self, event: ClusterEvent) -> bool:
        return event in self._subjects

    def __iter__(self) -> Iterator[ClusterEvent]:
        return iter(self._subjects)
