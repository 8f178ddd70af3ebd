"""Sending again what a stream refused for now, did not answer, or what a broken connection took with it.

A stream that has no leader at the moment, or does not answer, is tried with a few messages each tenth of a second (or
each ``ack_timeout``); as soon as one of them is confirmed, the rest follow. Of a subject's versions (``latest``) only
the newest is sent again, and not even that one when a newer one was confirmed meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable

from koord.bus.flights import Flight, first_of_each_stream, newest_by_subject, stream_key
from koord.bus.ghosts import Ghosts
from koord.bus.unconfirmed import Unconfirmed
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

RETRY_S = 0.1
LOOK_S = 1.0
COMPLAIN_S = 5.0
# How many messages for one stream find out whether it takes messages again.
PROBES = 8


class Resends:
    """Works on the messages in ``held``; ``send`` sends one and puts it in flight.

    ``missing`` says whether there is no stream for a subject at all, ``prepare`` then makes the streams.
    """

    def __init__(
        self,
        held: Unconfirmed,
        ghosts: Ghosts,
        send: Callable[[Flight], None],
        ack_timeout: float,
        missing: Callable[[str], Awaitable[bool]] | None,
        prepare: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._held = held
        self._ghosts = ghosts
        self._send = send
        self._ack_timeout = ack_timeout
        self._missing = missing
        self._prepare = prepare
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._look_task: asyncio.Task[None] | None = None
        self._look_at = 0.0
        self._making = False
        self._complain_at = 0.0
        self.paused = False
        self.count = 0
        # By subject the order and the sequence of what was confirmed before something older was.
        self.overtook: dict[str, tuple[int, int]] = {}

    def later(self, flight: Flight, reason: str) -> None:
        """JetStream is not ready for it: try again a little later."""
        self._held.retry.append(flight)
        now = self._loop.time()
        if now >= self._complain_at:
            self._complain_at = now + COMPLAIN_S
            log.warning("JetStream does not take messages yet", subject=flight.subject, reason=reason)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._try(), name="bus-acks-retry")

    def resume(self) -> None:
        """The connection is back and the streams exist: everything that was sent is sent again."""
        self.paused = False
        self._send_again(self._held.take_sent())

    def release(self, key: str, sent: float) -> None:
        """A message for the stream ``key`` that was sent again at ``sent`` got through: so will the others.

        What was sent before it and is not confirmed by now is lost, for a stream confirms in order. What was sent after
        it may still be on its way to a server that is only slow.
        """
        held = self._held
        ready = [flight for flight in held.retry if stream_key(flight.subject) == key]
        held.retry = [flight for flight in held.retry if stream_key(flight.subject) != key]
        for flight in self._late():
            if flight.sent < sent and stream_key(flight.subject) == key:
                del held.flight[flight.order]
                ready.append(flight)
        self._send_again(ready)

    def sweep(self, lowest: int, now: float) -> None:
        """What is not confirmed in time is tried again; ``lowest`` is the order of the oldest message that waits."""
        if self.overtook:
            self.overtook = {key: value for key, value in self.overtook.items() if value[0] > lowest}
        if self._ghosts:
            self._ghosts.forget(now)
        if self.paused or not (late := self._late()):
            return
        # Any of them may lie in a server that hangs, so each may turn up again.
        newest = newest_by_subject(late, self._held)
        for flight in late:
            if flight.latest:
                self._ghosts.suspect(flight, newest[flight.subject], now)
        probes = first_of_each_stream(late, PROBES)
        for flight in probes:
            del self._held.flight[flight.order]
        self._send_again(probes)

    def close(self) -> None:
        """Try nothing any more."""
        for task in (self._task, self._look_task):
            if task is not None:
                task.cancel()

    def _late(self) -> list[Flight]:
        return self._held.sent_before(self._loop.time() - self._ack_timeout)

    async def _try(self) -> None:
        held = self._held
        while held.retry:
            await asyncio.sleep(RETRY_S)
            if self.paused:
                return  # resume() sends them
            now = self._loop.time()
            if now >= self._look_at and held.retry and (self._look_task is None or self._look_task.done()):
                self._look_at = now + LOOK_S
                self._look_task = self._loop.create_task(self._look(held.retry[0].subject), name="bus-acks-look")
                await asyncio.sleep(0)
            if not self._making:
                probes = first_of_each_stream(held.retry, PROBES)
                chosen = {id(flight) for flight in probes}
                held.retry = [flight for flight in held.retry if id(flight) not in chosen]
                self._send_again(probes)

    async def _look(self, subject: str) -> None:
        """Is the stream gone, or only without a leader? A stream that is gone is made anew before anything is sent."""
        try:
            if self._missing is not None and self._prepare is not None and await self._missing(subject):
                self._making = True
                await self._prepare()
        except Exception as error:
            log.warning("the streams cannot be made ready yet: %s", error)
        finally:
            self._making = False

    def _send_again(self, flights: list[Flight]) -> None:
        """Those of ``flights`` (in no place now) that nothing newer replaces."""
        newest = newest_by_subject(flights, self._held)
        now = self._loop.time()
        for flight in flights:
            if flight.future.done():
                self._held.bytes -= flight.size
                continue
            if flight.latest:
                latest = newest[flight.subject]
                order, sequence = self.overtook.get(flight.subject, (0, 0))
                if order > flight.order or latest is not flight:
                    self._held.bytes -= flight.size
                    if order > flight.order:
                        flight.done(sequence)
                    else:
                        self._ghosts.suspect(flight, latest, now)
                        flight.follow(latest)
                    continue
                if flight.attempts:
                    self._ghosts.suspect(flight, flight, now)
            self.count += 1
            self._send(flight)
