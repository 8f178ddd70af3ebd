"""Older copies of an object that may still turn up in the stream behind the newest one.

A message that was written to a server which then hung is sent again through another one. When the first server wakes
up it works off what lies in its socket: an old version of an object, stored behind the newer one. Nobody can take that
message back, but its acknowledgement tells; :class:`Ghosts` knows what must then be published once more.
"""

from koord.bus.flights import Flight

# How long, and with how many bytes of newest versions, an old copy is reckoned with.
DOUBT_S = 900.0
DOUBT_BYTES = 32 << 20


class _Newest:
    """The newest version of one object that was published, and where the stream holds it (0: not confirmed)."""

    __slots__ = ("headers", "late", "order", "payload", "sequence", "since")

    def __init__(self, flight: Flight, since: float) -> None:
        self.order = flight.order
        self.headers = flight.headers
        self.payload = flight.payload
        self.sequence = 0
        self.late = 0
        self.since = since


class Ghosts:
    """Objects of which an older copy may turn up in the stream after the newest one. Time is passed in."""

    def __init__(self) -> None:
        # By subject; the same mapping for ever, so that a hot path can look at it without a call.
        self.newest: dict[str, _Newest] = {}
        self._subjects: dict[int, str] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self.newest)

    def __len__(self) -> int:
        return len(self.newest)

    def suspect(self, flight: Flight, newest: Flight, now: float) -> None:
        """``flight`` was written to a server and not confirmed; ``newest`` (or itself) is sent instead."""
        self._subjects[flight.order] = flight.subject
        known = self.newest.get(flight.subject)
        if known is not None and known.order >= newest.order:
            return
        self._forget(flight.subject)
        made = self.newest[flight.subject] = _Newest(newest, now)
        if known is not None:
            made.late = known.late  # what turned up behind the one before may hide this one too
        self._bytes += len(newest.payload)
        while self._bytes > DOUBT_BYTES:
            self._forget(next(iter(self.newest)))

    def published(self, flight: Flight) -> None:
        """A newer version, if the object is one of ours."""
        known = self.newest.get(flight.subject)
        if known is not None and flight.order > known.order:
            self._bytes += len(flight.payload) - len(known.payload)
            known.order, known.headers, known.payload, known.sequence = flight.order, flight.headers, flight.payload, 0

    def confirmed(self, flight: Flight, sequence: int) -> bool:
        """The stream holds ``flight``; whether it must be published again, for an older copy came behind it."""
        known = self.newest.get(flight.subject)
        if known is None or known.order != flight.order:
            return False
        known.sequence = max(known.sequence, sequence)
        return known.late > known.sequence

    def late(self, order: int, sequence: int) -> tuple[str, bytes, bytes] | None:
        """A copy nobody waited for was stored: subject, headers and payload to publish again, or None.

        None also while the newest version is on its way; :meth:`confirmed` then says whether it came too early.
        """
        subject = self._subjects.get(order)
        known = self.newest.get(subject) if subject is not None else None
        if subject is None or known is None:
            return None
        if order == known.order:
            known.sequence = max(known.sequence, sequence)  # the newest itself, twice
            return None
        known.late = max(known.late, sequence)
        if known.sequence == 0 or known.late < known.sequence:
            return None
        return subject, known.headers, known.payload

    def forget(self, now: float) -> None:
        """What is so old that no copy of it can turn up."""
        for subject in [subject for subject, known in self.newest.items() if now - known.since > DOUBT_S]:
            self._forget(subject)
        if not self.newest:
            self._subjects.clear()
        elif len(self._subjects) > 4 * len(self.newest) + 1000:
            self._subjects = {order: subject for order, subject in self._subjects.items() if subject in self.newest}

    def drop(self, prefix: str) -> None:
        """The stream behind ``prefix`` is another one."""
        for subject in [subject for subject in self.newest if subject.startswith(prefix)]:
            self._forget(subject)

    def _forget(self, subject: str) -> None:
        known = self.newest.pop(subject, None)
        if known is not None:
            self._bytes -= len(known.payload)
