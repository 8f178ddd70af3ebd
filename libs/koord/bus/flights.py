"""One message on its way to a stream, and what is known of older copies of it that may still turn up.

A message that was written to a server which then hung is sent again through another one. When the first server wakes
up it works off what lies in its socket: an old version of an object, stored behind the newer one. Nobody can take that
message back, but its acknowledgement tells; :class:`Ghosts` knows what must then be published once more.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from koord.bus.errors import BusTimeout

# How long, and with how many bytes of newest versions, an old copy is reckoned with.
DOUBT_S = 900.0
DOUBT_BYTES = 32 << 20


class ApiError(msgspec.Struct):
    """What JetStream refuses with."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class PubAck(msgspec.Struct):
    """JetStream's acknowledgement of a publish."""

    stream: str = ""
    seq: int = 0
    error: ApiError | None = None


class Flight:
    """One message on its way. ``order`` counts up over all messages of a connection and names it in replies."""

    __slots__ = (
        "attempts",
        "copied",
        "copies",
        "deadline",
        "first",
        "future",
        "headers",
        "latest",
        "live",
        "on_fail",
        "order",
        "payload",
        "raw",
        "sent",
        "size",
        "subject",
    )

    def __init__(
        self,
        future: "asyncio.Future[int]",
        subject: str,
        headers: bytes,
        payload: bytes,
        deadline: float,
        latest: bool,
        raw: bool,
        order: int,
        on_fail: Callable[[str], None] | None,
        live: bool = False,
        first: float = 0.0,
    ) -> None:
        self.future = future
        self.on_fail = on_fail
        self.order = order
        self.subject = subject
        self.headers = headers
        self.payload = payload
        self.size = len(payload) + len(headers) + len(subject)
        self.deadline = deadline
        self.latest = latest
        self.raw = raw
        self.sent = 0.0
        self.attempts = 0
        # Whether live copies are wanted when it waits for long, since when it waits, how many there were and when.
        self.live = live
        self.first = first
        self.copies = 0
        self.copied = float("-inf")

    def done(self, sequence: int) -> None:
        """Stored, as number ``sequence``."""
        if not self.future.done():
            self.future.set_result(sequence)

    def fail(self, error: Exception) -> None:
        """It will not be stored, or nobody knows."""
        if not self.future.done():
            self.future.set_exception(error)
            if self.on_fail is not None:
                self.on_fail(self.subject)

    def follow(self, newer: "Flight") -> None:
        """Resolve as ``newer`` is resolved, which supersedes this one."""
        newer.first = min(newer.first, self.first)  # the object has waited since then

        def copy(done: "asyncio.Future[int]") -> None:
            if done.cancelled():
                self.fail(BusTimeout(f"{self.subject}: the message that superseded it was cancelled"))
            elif (error := done.exception()) is not None:
                self.fail(error if isinstance(error, Exception) else BusTimeout(str(error)))
            else:
                self.done(done.result())

        newer.future.add_done_callback(copy)


def stream_key(subject: str) -> str:
    """What messages for one stream have in common: ``koord.<cluster>.<kind>``, or ``$JS.ACK.<stream>``."""
    return ".".join(subject.split(".", 3)[:3])


def first_of_each_stream(flights: Iterable[Flight], most: int) -> list[Flight]:
    """At most ``most`` for each stream, in order."""
    taken: dict[str, int] = {}
    chosen: list[Flight] = []
    for flight in flights:
        key = stream_key(flight.subject)
        count = taken[key] = taken.get(key, 0) + 1
        if count <= most:
            chosen.append(flight)
    return chosen


def newest_by_subject(flights: Iterable[Flight], others: Iterable[Flight]) -> dict[str, Flight]:
    """For each subject of the ``latest`` ones among ``flights`` the newest, in ``others`` too."""
    newest: dict[str, Flight] = {}
    for flight in flights:
        if flight.latest and ((known := newest.get(flight.subject)) is None or known.order < flight.order):
            newest[flight.subject] = flight
    if newest:
        for flight in others:
            if flight.latest and (known := newest.get(flight.subject)) is not None and known.order < flight.order:
                newest[flight.subject] = flight
    return newest


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
        self.newest[flight.subject] = _Newest(newest, now)
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
