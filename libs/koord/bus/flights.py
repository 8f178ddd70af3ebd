"""One message on its way to a stream, and how messages belong together: by stream, by object."""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from koord.bus.errors import BusTimeout


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
