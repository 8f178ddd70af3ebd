"""Acknowledged publishing at 25,000 a second and more: one inbox, an integer token per message, a dict of futures.

nats-py's own ``publish_async`` costs four times as much per message (docs/decisions/001-own-ack-layer.md). What a
caller can rely on:

* a future resolves to the stream sequence once JetStream has stored the message, or fails with a BusError;
* at most ``limit`` messages and ``limit_bytes`` are in flight, at most ``backlog_bytes`` wait behind them;
  ``await room()`` is the back-pressure, publishing past the bound raises BusOverflow;
* whatever was in flight when a connection broke is sent again after the reconnect, so a message may be stored twice
  and every consumer must be idempotent. Messages marked ``latest`` are superseded by the newest one in flight on their
  subject, so a last-per-subject stream never steps back;
* a server that is not ready (no responders, 503, 429) is asked again until the message's deadline.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from koord.bus.client import HotClient, status_of
from koord.bus.errors import BusOverflow, BusTimeout, BusUnavailable, PublishRefused
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

SWEEP_S = 0.5
RETRY_S = 0.1
COMPLAIN_S = 5.0


class _ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    error: _ApiError | None = None


_puback = msgspec.json.Decoder(_PubAck)
# Codes of JetStream that mean "not now": system unavailable, insufficient resources, too many requests.
_NOT_NOW = frozenset((503, 429))


class _Flight:
    """One message on its way."""

    __slots__ = (
        "attempts",
        "deadline",
        "future",
        "headers",
        "latest",
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


class Acks:
    """The acknowledgement layer of one connection."""

    def __init__(
        self,
        client: HotClient,
        *,
        limit: int = 4096,
        limit_bytes: int = 16 << 20,
        backlog_bytes: int = 128 << 20,
        ack_timeout: float = 3.0,
        not_ready: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._backlog_limit = backlog_bytes
        self._ack_timeout = ack_timeout
        self._not_ready = not_ready
        self._prefix = client.new_inbox() + "."
        self._skip = len(self._prefix)
        self._order = itertools.count(1)
        self._flight: dict[int, _Flight] = {}
        self._flight_bytes = 0
        self._backlog: deque[_Flight] = deque()
        self._backlog_bytes = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._paused = False
        self._retry: list[_Flight] = []
        self._retry_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._complain_at = 0.0
        self._loop = asyncio.get_running_loop()
        self.resent = 0
        # The highest sequence that each stream confirmed: one that comes back with less has lost its tail.
        self.highest: dict[str, int] = {}
        client.subscribe_hot(self._prefix + "*", self._on_ack)

    @property
    def in_flight(self) -> int:
        """Messages sent or waiting that are not confirmed yet."""
        return len(self._flight) + len(self._backlog) + len(self._retry)

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: bytes = b"",
        *,
        timeout: float | None = 30.0,
        latest: bool = False,
        raw: bool = False,
        on_fail: Callable[[str], None] | None = None,
    ) -> "asyncio.Future[int]":
        """Send one message; the future resolves to its sequence in the stream.

        ``timeout`` seconds (None: never) bound the whole, reconnects included. ``raw``: any reply will do (double
        acks); the future then resolves to 0. ``on_fail`` hears the subject of a message that fails. BusOverflow beyond
        the bound of the backlog, BusError for a bad subject.
        """
        if self._closed:
            raise BusUnavailable(f"{subject}: the connection is closed")
        deadline = float("inf") if timeout is None else self._loop.time() + timeout
        order = next(self._order)
        flight = _Flight(self._loop.create_future(), subject, headers, payload, deadline, latest, raw, order, on_fail)
        if self._backlog or self._paused or not self._has_room():
            if self._backlog_bytes + flight.size > self._backlog_limit:
                raise BusOverflow(
                    f"{subject}: {self._backlog_bytes} bytes wait for the server already; wait for room() first"
                )
            self._backlog.append(flight)
            self._backlog_bytes += flight.size
        else:
            self._send(flight)
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_S, self._sweep)
        return flight.future

    async def room(self) -> None:
        """Wait until a message would be sent at once; call it before each publish of a bulk loop."""
        while (self._backlog or self._paused or not self._has_room()) and not self._closed:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def flush(self) -> None:
        """Wait until everything published so far is confirmed or failed."""
        waiting = [f.future for f in (*self._flight.values(), *self._retry, *self._backlog)]
        if waiting:
            await asyncio.wait(waiting)

    def pause(self) -> None:
        """The connection is gone: keep what is in flight, send nothing."""
        self._paused = True

    def resume(self) -> None:
        """The connection is back and the streams exist: send again what was in flight, then go on."""
        self._paused = False
        flights = sorted((*self._flight.values(), *self._retry), key=lambda flight: flight.order)
        self._flight.clear()
        self._retry.clear()
        self._flight_bytes = 0
        for flight in self._supersede(flights):
            if not flight.future.done():
                self.resent += 1
                self._send(flight)
        self._pump()

    def drop(self, prefix: str, error: Exception) -> int:
        """Fail whatever waits on subjects that begin with ``prefix``; says how many."""
        dropped = [f for f in (*self._flight.values(), *self._retry, *self._backlog) if f.subject.startswith(prefix)]
        for flight in dropped:
            _fail(flight, error)
        self._forget_done()
        return len(dropped)

    def close(self) -> None:
        """Fail what is still waiting."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._retry_task is not None:
            self._retry_task.cancel()
        for flight in (*self._flight.values(), *self._retry, *self._backlog):
            _fail(flight, BusUnavailable(f"{flight.subject}: the connection was closed before the server confirmed"))
            flight.future.cancelled() or flight.future.exception()  # whoever still waits sees it; nobody must
        self._flight.clear()
        self._retry.clear()
        self._backlog.clear()
        self._wake()

    def _has_room(self) -> bool:
        return len(self._flight) < self._limit and self._flight_bytes < self._limit_bytes

    def _send(self, flight: _Flight) -> None:
        # The order is the token, also when it is sent again: whichever copy is confirmed first settles it.
        token = flight.order
        self._client.send(flight.subject, f"{self._prefix}{token}", flight.headers, flight.payload)
        flight.sent = self._loop.time()
        flight.attempts += 1
        self._flight[token] = flight
        self._flight_bytes += flight.size

    def _on_ack(self, subject: bytes, reply: bytes, headers: bytes | None, data: bytes) -> None:
        flight = self._flight.pop(int(subject[self._skip :]), None)
        if flight is None:
            return  # confirmed twice: it had been sent again
        self._flight_bytes -= flight.size
        if headers is not None and status_of(headers)[0] == 503:
            self._again(flight, "no stream takes it")
        elif flight.raw:
            _done(flight, 0)
        else:
            try:
                ack = _puback.decode(data)
            except msgspec.MsgspecError as error:
                _fail(flight, PublishRefused(flight.subject, 0, 0, f"unreadable acknowledgement: {error}"))
            else:
                if ack.error is None:
                    self.highest[ack.stream] = ack.seq
                    _done(flight, ack.seq)
                elif ack.error.code in _NOT_NOW:
                    self._again(flight, ack.error.description)
                else:
                    refused = ack.error
                    _fail(flight, PublishRefused(flight.subject, refused.code, refused.err_code, refused.description))
        if self._backlog:
            self._pump()
        elif self._waiters:
            self._wake()

    def _pump(self) -> None:
        while self._backlog and not self._paused and self._has_room():
            flight = self._backlog.popleft()
            self._backlog_bytes -= flight.size
            if not flight.future.done():
                self._send(flight)
        if self._waiters and not self._backlog:
            self._wake()

    def _wake(self) -> None:
        # One waiter per free place; with nothing in flight nobody else would wake the rest, so then all of them.
        free = self._limit - len(self._flight) if self._flight and not self._closed else len(self._waiters)
        while self._waiters and free > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    def _again(self, flight: _Flight, reason: str) -> None:
        """JetStream is not ready for it: try again a little later, after giving the streams a chance to be made."""
        self._retry.append(flight)
        now = self._loop.time()
        if now >= self._complain_at:
            self._complain_at = now + COMPLAIN_S
            log.warning("JetStream does not take messages yet", subject=flight.subject, reason=reason)
        if self._retry_task is None or self._retry_task.done():
            self._retry_task = self._loop.create_task(self._retry_later(), name="bus-acks-retry")

    async def _retry_later(self) -> None:
        while self._retry and not self._closed:
            await asyncio.sleep(RETRY_S)
            if self._paused:
                return  # resume() sends them
            if self._not_ready is not None:
                try:
                    await self._not_ready()
                except Exception as error:
                    log.warning("the streams cannot be made ready yet: %s", error)
            flights, self._retry = self._retry, []
            for flight in self._supersede(flights):
                if not flight.future.done():
                    self.resent += 1
                    self._send(flight)

    def _supersede(self, flights: list[_Flight]) -> list[_Flight]:
        """Those of ``flights`` worth sending again: of the ``latest`` ones on a subject only the newest anywhere on its
        way, which then answers for the others too."""
        if not any(flight.latest for flight in flights):
            return flights
        newest: dict[str, _Flight] = {}
        for flight in (*flights, *self._flight.values(), *self._retry, *self._backlog):
            if flight.latest and ((other := newest.get(flight.subject)) is None or other.order < flight.order):
                newest[flight.subject] = flight
        result: list[_Flight] = []
        for flight in flights:
            if flight.latest and newest[flight.subject] is not flight:
                _follow(flight, newest[flight.subject])
            else:
                result.append(flight)
        return result

    def _sweep(self) -> None:
        """Every half second: send again what the server has not confirmed in time, fail what is past its deadline."""
        self._timer = None
        now = self._loop.time()
        late: list[_Flight] = []
        expired = 0
        for flight in (*self._flight.values(), *self._retry, *self._backlog):
            if flight.future.done():
                expired += 1
            elif now >= flight.deadline:
                expired += 1
                _fail(flight, BusTimeout(f"{flight.subject}: not confirmed by the server in time"))
        if expired:
            self._forget_done()
        if not self._paused:
            for token, flight in list(self._flight.items()):
                if now - flight.sent < self._ack_timeout:
                    break  # the dict is in order of sending
                # A server that is slow is not helped by more of the same: wait twice as long each time.
                if now - flight.sent < self._ack_timeout * 2 ** min(flight.attempts - 1, 4):
                    continue
                del self._flight[token]
                self._flight_bytes -= flight.size
                late.append(flight)
            for flight in self._supersede(late):
                self.resent += 1
                self._send(flight)
            self._pump()
        if self.in_flight and not self._closed:
            self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def _forget_done(self) -> None:
        for token in [token for token, flight in self._flight.items() if flight.future.done()]:
            self._flight_bytes -= self._flight.pop(token).size
        self._retry = [flight for flight in self._retry if not flight.future.done()]
        self._backlog = deque(flight for flight in self._backlog if not flight.future.done())
        self._backlog_bytes = sum(flight.size for flight in self._backlog)
        if not self._backlog and self._has_room() and not self._paused:
            self._wake()


def _done(flight: _Flight, sequence: int) -> None:
    if not flight.future.done():
        flight.future.set_result(sequence)


def _fail(flight: _Flight, error: Exception) -> None:
    if not flight.future.done():
        flight.future.set_exception(error)
        if flight.on_fail is not None:
            flight.on_fail(flight.subject)


def _follow(flight: _Flight, newer: _Flight) -> None:
    """Resolve ``flight`` as ``newer`` is resolved."""

    def copy(done: "asyncio.Future[int]") -> None:
        if done.cancelled():
            _fail(flight, BusTimeout(f"{flight.subject}: the message that superseded it was cancelled"))
        elif (error := done.exception()) is not None:
            _fail(flight, error if isinstance(error, Exception) else BusTimeout(str(error)))
        else:
            _done(flight, done.result())

    newer.future.add_done_callback(copy)
