"""Acknowledged publishing at 25,000 a second and more: one inbox, an integer token per message, a dict of futures.

nats-py's own ``publish_async`` costs four times as much per message (docs/decisions/001-own-ack-layer.md). What a
caller can rely on:

* a future resolves to the stream sequence once JetStream has stored the message, or fails with a BusError;
* at most ``limit`` messages and ``limit_bytes`` are in flight, at most ``backlog_bytes`` wait behind them;
  ``await room()`` is the back-pressure, publishing past the bound raises BusOverflow;
* whatever was in flight when a connection broke is sent again after the reconnect, so a message may be stored twice
  and every consumer must be idempotent;
* a stream that has no leader at the moment, or does not answer, is tried with a few messages each tenth of a second
  (or each ``ack_timeout``) until a message's deadline; as soon as one of them is confirmed, the rest follow;
* messages marked ``latest`` never make a last-per-subject stream step back: of several on one subject only the newest
  is sent again, not even that one when a newer one was confirmed meanwhile, and if an old copy turns up all the same
  (from a server that hung and came back) the newest is published once more.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from koord.bus.client import HotClient, status_of
from koord.bus.errors import BusError, BusOverflow, BusTimeout, BusUnavailable, PublishRefused
from koord.bus.flights import Flight, PubAck, stream_key
from koord.bus.ghosts import Ghosts
from koord.bus.livecopies import LiveCopies
from koord.bus.resends import Resends
from koord.bus.unconfirmed import Unconfirmed
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

SWEEP_S = 0.25

_puback = msgspec.json.Decoder(PubAck)
# Codes of JetStream that mean "not now": system unavailable, insufficient resources, too many requests.
_NOT_NOW = frozenset((503, 429))
# JetStream as a whole is not available: nobody says that who leads the stream.
_NOT_AVAILABLE = 10008
# A reply's token is the message's order and, above it, which attempt it answers.
_SHIFT = 44
_MASK = (1 << _SHIFT) - 1


class Acks:
    """The acknowledgement layer of one connection.

    ``missing`` says whether there is no stream for a subject at all, ``prepare`` then makes the streams. ``live_name``
    gives the subject on which a late message is copied, where ``has_live`` (see :mod:`koord.bus.livecopies`).
    """

    def __init__(
        self,
        client: HotClient,
        *,
        limit: int = 4096,
        limit_bytes: int = 16 << 20,
        backlog_bytes: int = 128 << 20,
        ack_timeout: float = 2.0,
        missing: Callable[[str], Awaitable[bool]] | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
        live_name: Callable[[str], str] = str,
        has_live: Callable[[], bool] = bool,
    ) -> None:
        self._client = client
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._backlog_limit = backlog_bytes
        self._prefix = client.new_inbox() + "."
        self._skip = len(self._prefix)
        self._last = 0
        self._held = Unconfirmed()
        self._flight = self._held.flight
        self._waiters: deque[asyncio.Future[None]] = deque()
        # The order that is confirmed next if nothing overtakes.
        self._expected = 1
        self._ghosts = Ghosts()
        self._haunted = self._ghosts.newest
        self._resends = Resends(self._held, self._ghosts, self._send_held, ack_timeout, missing, prepare)
        self.copies = LiveCopies(client.send, live_name, has_live)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        # The highest sequence that each stream confirmed: one that comes back with less has lost its tail.
        self.highest: dict[str, int] = {}
        client.on_loss = self.pause
        client.subscribe_hot(self._prefix + "*", self._on_ack)

    @property
    def in_flight(self) -> int:
        """Messages sent or waiting that are not confirmed yet."""
        return len(self._held)

    @property
    def resent(self) -> int:
        """How often a message was sent again."""
        return self._resends.count

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
        live: bool = False,
    ) -> "asyncio.Future[int]":
        """Send one message; the future resolves to its sequence in the stream.

        ``timeout`` seconds (None: never) bound the whole, reconnects included. ``raw``: any reply will do (double
        acks); the future then resolves to 0. ``on_fail`` hears the subject of a message that fails. ``live``: in a NATS
        cluster it also goes out as a core message when the stream does not confirm it soon. BusOverflow beyond the
        bound of the backlog, TooLarge for more than the server takes, BusError for a bad subject; all three at once,
        whether there is a connection or not.
        """
        if self._closed:
            raise BusUnavailable(f"{subject}: the connection is closed")
        now = self._loop.time()
        deadline = float("inf") if timeout is None else now + timeout
        order = self._last = self._last + 1
        flight = Flight(
            self._loop.create_future(), subject, headers, payload, deadline, latest, raw, order, on_fail, live, now
        )
        if not self._goes_at_once():
            self._client.check(subject, len(headers) + len(payload))
            if self._held.backlog_bytes + flight.size > self._backlog_limit:
                raise BusOverflow(
                    f"{subject}: {self._held.backlog_bytes} bytes wait for the server already; wait for room() first"
                )
        self._put(flight)
        return flight.future

    async def room(self) -> None:
        """Wait until a message would be sent at once, or copied live; call it before each publish of a bulk loop."""
        while not (self._goes_at_once() or self._closed):
            if self._goes_live():
                await asyncio.sleep(0)
                return
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def flush(self) -> None:
        """Wait until everything published so far is confirmed or failed."""
        waiting = [flight.future for flight in self._held]
        if waiting:
            await asyncio.wait(waiting)

    def pause(self) -> None:
        """The connection is gone: keep what is in flight, send nothing."""
        self._resends.paused = True
        self.copies.lost()

    def reconnected(self) -> None:
        """The connection is back, the streams are not known to be: what waits goes live at least."""
        self.copies.reconnected(self._held, self._resends.overtook, self._loop.time())
        self._wake()

    def resume(self) -> None:
        """The connection is back and the streams exist: send again what was in flight, then go on."""
        self.copies.prepared()
        self._resends.resume()
        self._pump()

    def drop(self, prefix: str, error: Exception) -> int:
        """Fail whatever waits on subjects that begin with ``prefix``; says how many."""
        dropped = [f for f in self._held if f.subject.startswith(prefix)]
        for flight in dropped:
            flight.fail(error)
        self._ghosts.drop(prefix)
        self._forget_done()
        return len(dropped)

    def close(self) -> None:
        """Fail what is still waiting."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._resends.close()
        for flight in tuple(self._held):
            flight.fail(BusUnavailable(f"{flight.subject}: the connection was closed before the server confirmed"))
            flight.future.cancelled() or flight.future.exception()  # whoever still waits sees it; nobody must
        self._held.clear()
        self._wake()

    def _goes_at_once(self) -> bool:
        return not self._held.backlog and not self._resends.paused and self._has_room()

    def _goes_live(self) -> bool:
        return self.copies.has_room and self._held.backlog_bytes < self._backlog_limit // 2

    def _put(self, flight: Flight) -> None:
        if self._goes_at_once():
            self._send(flight)
            self._held.bytes += flight.size
        else:
            self._held.backlog.append(flight)
            self._held.backlog_bytes += flight.size
        if flight.latest and self._haunted:
            self._ghosts.published(flight)
        if self.copies.active:
            self.copies.published(flight)
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def _has_room(self) -> bool:
        return len(self._flight) + len(self._held.retry) < self._limit and self._held.bytes < self._limit_bytes

    def _send(self, flight: Flight) -> None:
        # The order is the token, also when it is sent again: whichever copy is confirmed first settles it.
        token = flight.order | flight.attempts << _SHIFT
        self._client.send(flight.subject, f"{self._prefix}{token}", flight.headers, flight.payload)
        flight.sent = self._loop.time()
        flight.attempts += 1
        self._flight[flight.order] = flight

    def _send_held(self, flight: Flight) -> None:
        """Send one that waited. Another server may take less: that must not hold up what waits behind it."""
        try:
            self._send(flight)
        except BusError as error:
            self._held.bytes -= flight.size
            flight.fail(error)

    def _on_ack(self, subject: bytes, reply: bytes, headers: bytes | None, data: bytes) -> None:
        token = int(subject[self._skip :])
        order = token & _MASK
        flight = self._flight.pop(order, None)
        if flight is None:
            if self._haunted and headers is None:
                self._turned_up(order, data)
            return  # confirmed twice: it had been sent again
        if headers is not None and status_of(headers)[0] == 503:
            self._resends.later(flight, "no stream takes it")
            return
        self._held.bytes -= flight.size
        if flight.raw:
            flight.done(0)
        else:
            try:
                ack = _puback.decode(data)
            except msgspec.MsgspecError as error:
                flight.fail(PublishRefused(flight.subject, 0, 0, f"unreadable acknowledgement: {error}"))
            else:
                if ack.error is None:
                    self._stored(flight, ack.stream, ack.seq)
                    if token != order and token >> _SHIFT == flight.attempts - 1:
                        self._resends.release(stream_key(flight.subject), flight.sent)
                elif ack.error.code in _NOT_NOW:
                    self._held.bytes += flight.size
                    if ack.error.err_code != _NOT_AVAILABLE:
                        self.copies.answered(flight.subject)
                    self._resends.later(flight, ack.error.description)
                else:
                    no = ack.error
                    flight.fail(PublishRefused(flight.subject, no.code, no.err_code, no.description))
        if self._held.backlog:
            self._pump()
        elif self._waiters:
            self._wake()

    def _stored(self, flight: Flight, stream: str, sequence: int) -> None:
        if sequence > self.highest.get(stream, 0):
            self.highest[stream] = sequence
        if flight.order == self._expected:
            self._expected += 1
        elif flight.latest:
            self._resends.overtook[flight.subject] = (flight.order, sequence)
        flight.done(sequence)
        if self._haunted and flight.latest and self._ghosts.confirmed(flight, sequence):
            self._republish(flight.subject, flight.headers, flight.payload)

    def _turned_up(self, order: int, data: bytes) -> None:
        """A copy that nobody waits for was stored: does it hide something newer?"""
        try:
            ack = _puback.decode(data)
        except msgspec.MsgspecError:
            return
        if ack.error is None and (again := self._ghosts.late(order, ack.seq)) is not None:
            self._republish(*again)

    def _republish(self, subject: str, headers: bytes, payload: bytes) -> None:
        if self._closed:
            return
        log.warning("an old copy came behind the newest version, which is published again", subject=subject)
        order = self._last = self._last + 1
        # Past the bound of the backlog, which nobody can wait for here: readers would keep the old state for good.
        self._put(Flight(self._loop.create_future(), subject, headers, payload, float("inf"), True, False, order, None))

    def _pump(self) -> None:
        while self._held.backlog and not self._resends.paused and self._has_room():
            flight = self._held.backlog.popleft()
            self._held.backlog_bytes -= flight.size
            if not flight.future.done():
                self._held.bytes += flight.size
                self._send_held(flight)
        if self._waiters and not self._held.backlog:
            self._wake()

    def _wake(self) -> None:
        # One waiter per free place; with nothing in flight nobody else would wake the rest, so then all of them.
        held = len(self._flight) + len(self._held.retry)
        free = self._limit - held if held and not (self._closed or self._goes_live()) else len(self._waiters)
        while self._waiters and free > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    def _sweep(self) -> None:
        """Four times a second: try again what is not confirmed in time, fail what is past its deadline."""
        self._timer = None
        now = self._loop.time()
        expired = 0
        lowest = self._last + 1
        everything = tuple(self._held)
        for flight in everything:
            if flight.order < lowest:
                lowest = flight.order
            if flight.future.done():
                expired += 1
            elif now >= flight.deadline:
                expired += 1
                flight.fail(BusTimeout(f"{flight.subject}: not confirmed by the server in time"))
        if expired:
            self._forget_done()
        self._expected = lowest
        self._resends.sweep(lowest, now)
        self.copies.look(everything, self._resends.overtook, now)
        if self._waiters and self._goes_live():
            self._wake()
        self._pump()
        if self.in_flight and not self._closed:
            self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def _forget_done(self) -> None:
        self._held.forget_done()
        if not self._held.backlog and self._has_room() and not self._resends.paused:
            self._wake()
