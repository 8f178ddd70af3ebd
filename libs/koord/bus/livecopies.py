"""Live copies: what a stream without a leader does not confirm also goes out as a core message.

A NATS cluster elects a stream's new leader 4 to 9 s after the old one died; core messages travel again within
milliseconds. So a message that is marked ``live`` and not confirmed within LATE_S is copied to its live subject, and as
long as the stream confirms nothing, whatever follows for that stream is copied at once. Whoever was reconnecting just
then missed it (to leave a server that hangs takes 3 s): it is copied again, MOST_COPIES times in all, behind what was
not copied yet. The message itself stays unconfirmed and is sent again until the stream holds it: a copy is a short cut,
never the record (docs/decisions/006).

Of one subject's versions (``latest``) no older one is ever copied after a newer one: copies go out in the order of
publishing, and of several that wait only the newest.
"""

from collections.abc import Callable, Iterable, Mapping

from koord.bus.errors import BusError
from koord.bus.flights import Flight, newest_by_subject, stream_key
from koord.telemetry.metrics import counter

LATE_S = 0.7
# The oldest message must have been the oldest for two looks: a stream that is only slow confirms some in between.
NOTED_S = 0.2
AGAIN_S = 1.5
MOST_COPIES = 3
# Copies between two looks (0.25 s), in bytes: readers have no flow control here.
MOST_BYTES = 4 << 20

Stored = Mapping[str, tuple[int, int]]
_NONE = (0, 0)


_copies = counter("koord_bus_live_copies", "Messages copied past a stream that confirms nothing")


class LiveCopies:
    """The live copies of one connection: ``name_of`` gives a subject's live one, ``wanted`` says if there are any."""

    def __init__(
        self,
        send: Callable[[str, str, bytes, bytes], None],
        name_of: Callable[[str], str],
        wanted: Callable[[], bool],
    ) -> None:
        self._emit = send
        self._name_of = name_of
        self._wanted = wanted
        # Streams that confirm nothing, and since when the oldest message of each stream waits.
        self._dark: set[str] = set()
        self._oldest: dict[str, float] = {}
        self._answered: set[str] = set()
        self._unprepared = False
        self._left = MOST_BYTES
        self.active = False
        self.copied = 0

    @property
    def has_room(self) -> bool:
        """Whether a new message would be copied at once."""
        return self.active and self._left > 0

    def look(self, flights: Iterable[Flight], stored: Stored, now: float) -> None:
        """Four times a second: which streams confirm nothing, and what of ``flights`` (all unconfirmed) must be copied?

        ``stored`` has by subject the order and sequence of what was confirmed before something older was.
        """
        if not self._wanted():
            return
        oldest: dict[str, float] = {}
        for flight in flights:
            if flight.live and flight.first <= now - NOTED_S:
                key = stream_key(flight.subject)
                if flight.first < oldest.get(key, now):
                    oldest[key] = flight.first
        self._dark = {
            key
            for key, since in oldest.items()
            if now - since >= LATE_S and self._oldest.get(key) == since and key not in self._answered
        }
        self._oldest = oldest
        self._answered.clear()
        self._left = MOST_BYTES
        self.active = bool(self._dark) or self._unprepared
        if self.active:
            self._copy(flights, stored, now)

    def answered(self, subject: str) -> None:
        """The leader of the stream said "not now": it is full, say, and must not be gone round."""
        self._answered.add(stream_key(subject))

    def published(self, flight: Flight) -> None:
        """A new message, while ``active``: it goes out at once if its stream confirms nothing."""
        # What does not fit now goes with the next look, and then what came after it must not have gone before.
        if flight.live and self._left > 0 and self._is_dark(flight):
            self._send(flight, flight.first)

    def reconnected(self, flights: Iterable[Flight], stored: Stored, now: float) -> None:
        """Connected again, the streams not looked at yet: nothing is sent to them, so everything goes live."""
        if not self._wanted():
            return
        self._unprepared = self.active = True
        self._left = MOST_BYTES
        self._copy(flights, stored, now)

    def prepared(self) -> None:
        """The streams are there again: what was sent to them now has its time to be confirmed."""
        self._unprepared = False
        self.active = bool(self._dark)

    def lost(self) -> None:
        """The connection is gone, nothing can be copied."""
        self._dark = set()
        self._oldest = {}
        self._unprepared = self.active = False

    def _is_dark(self, flight: Flight) -> bool:
        return self._unprepared or stream_key(flight.subject) in self._dark

    def _copy(self, flights: Iterable[Flight], stored: Stored, now: float) -> None:
        flights = tuple(flights)
        waiting = sorted(
            (
                flight
                for flight in flights
                if flight.live
                and flight.copies < MOST_COPIES
                and now >= flight.copied + AGAIN_S
                and not flight.future.done()
                and self._is_dark(flight)
            ),
            key=lambda flight: (flight.copies, flight.order),
        )
        newest = newest_by_subject(waiting, flights)
        for flight in waiting:
            if self._left <= 0:
                return
            if flight.latest and (
                newest[flight.subject] is not flight or stored.get(flight.subject, _NONE)[0] > flight.order
            ):
                flight.copies = MOST_COPIES  # the newest of its subject goes instead, or is stored
            else:
                self._send(flight, now)

    def _send(self, flight: Flight, now: float) -> None:
        flight.copied = now
        flight.copies += 1
        try:
            self._emit(self._name_of(flight.subject), "", flight.headers, flight.payload)
        except BusError:  # another server than the one it was meant for, which takes less: sent again, it fails
            flight.copies = MOST_COPIES
            return
        self._left -= flight.size
        self.copied += 1
        _copies.inc()
