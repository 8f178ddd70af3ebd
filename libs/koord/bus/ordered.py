"""An ordered reader of a last-per-subject stream: replays what the stream holds, then follows, and heals itself.

It reads with an ephemeral push consumer without acknowledgements, flow control by the server's own protocol. After a
reconnect, a gap in the consumer's sequence, missing heartbeats or a vanished stream it starts over with a new consumer
and says so to its sink; what a start over means is the sink's business (:mod:`koord.bus.statecache`).

A replay is complete when nothing is pending at the consumer: then the last message of each subject has come. To count
messages would be wrong, for objects that change during a replay move to its end. In a cluster the consumer may sit at a
replica that lags, or is still being filled; so the stream's leader is asked first what the last message is, and that
one, or a later one, must have come too.

While there is no consumer in a cluster, a reader with ``direct`` reads on past it (:mod:`koord.bus.bypass`); its sink
must take messages that it has seen before.

Nothing is unbounded: received messages wait in a backlog; when it is full the read loop of the connection pauses, TCP
and flow control pass that on to the server. Work is done in slices of about 10 ms, the event loop runs in between.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import nats.errors
import nats.js.errors
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from koord.bus.bypass import Bypass
from koord.bus.client import header_value, status_of
from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.bus.errors import BusError, BusUnavailable
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

SLICE_S = 0.010
HEARTBEAT_S = 0.5
# Beats without a sign of life before the consumer is given up; counted, not timed: our own loop may have stood still.
SILENT_BEATS = 5
# Beats before the stream is read past the consumer, which does no harm.
BLIND_BEATS = 2
# How long a replica may lag behind the leader before another consumer is tried.
LAG_S = 5.0
# Attempts at a consumer that are given up early.
IMPATIENT = 5
# The server's error code for a stream that does not exist.
NO_STREAM = 10059
BACKLOG_MESSAGES = 20_000
BACKLOG_BYTES = 32 << 20

_numbers = itertools.count(1)


class Sink(Protocol):
    """Whom an :class:`OrderedReader` tells. All calls come from its one task, in order, and must not block."""

    async def starting(self) -> None:
        """A replay is about to begin; may ask the server things. What it raises makes the reader try again later."""

    def message(self, subject: bytes, headers: bytes | None, body: bytes, sequence: int) -> None:
        """One message; ``sequence`` is its number in the stream."""

    def caught_up(self) -> None:
        """Everything that the stream held at the start has been told."""

    def pause(self) -> None:
        """The end of a slice: a good moment to hand on a batch."""


class OrderedReader:
    """Reads ``filter_subject`` of ``stream`` into ``sink`` until closed."""

    def __init__(
        self,
        bus: Bus,
        stream: str,
        filter_subject: str,
        sink: Sink,
        *,
        headers_only: bool = False,
        direct: bool = False,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._filter = filter_subject
        self._sink = sink
        self._headers_only = headers_only
        self._backlog: deque[tuple[bytes, bytes, bytes | None, bytes]] = deque()
        self._backlog_bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._full = False
        self._closed = False
        self._restart: str = ""
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._sequence = 0
        self._confirmed = False
        self._caught_up = False
        self._alive = False
        self._opening = False
        self._impatient = False
        self._silent = 0
        self._bypass = Bypass(bus, stream, filter_subject, sink, self._is_blind)
        self._direct = direct
        self._opened = 0.0
        # The stream's numbers of the last message that came, and of the last one there was at the start.
        self._position = 0
        self._last = 0
        self._task: asyncio.Task[None] | None = None
        self._off: Callable[[], None] = lambda: None
        self.starts = 0

    def start(self) -> None:
        """Begin in the background."""
        self._off = self._bus.on_reconnect(self._reconnected)
        self._task = asyncio.create_task(self._run(), name=f"bus-read-{self._filter}")

    async def close(self) -> None:
        """Stop reading and let the server forget the consumer."""
        self._off()
        self._closed = True
        try:
            await end(self._task)
        finally:  # also when whoever closes is cancelled: nobody may be subscribed whom no task reads for
            self._leave()
        self._task = None

    @property
    def position(self) -> int:
        """The stream's number of the last message that was told; 0 right after a start."""
        return max(self._position, self._bypass.reached) if self._caught_up else self._position

    async def last(self) -> int:
        """The number of the last message of ours that the stream has now, by its leader; BusUnavailable."""
        try:
            return await self._last_sequence()
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
            raise BusUnavailable(f"stream {self._stream}: {error or type(error).__name__}") from error

    def restart(self, why: str) -> None:
        """Begin again with a replay."""
        self._restart = why
        self._wake.set()
        self._room.set()

    def forget(self) -> None:
        """The stream is another one: positions in the old one mean nothing."""
        self._bypass.reached = 0

    @property
    def is_following(self) -> bool:
        """Whether there is a consumer which has shown what the stream held and gives signs of life."""
        return self._caught_up and not self._opening and self._silent < BLIND_BEATS and self._bus.connected

    def _is_blind(self) -> bool:
        if not (self._direct and self._bus.clustered and self._bus.connected):
            return False
        return self._opening or self._bus.recovering or (self._silent >= BLIND_BEATS and not self._alive)

    async def _reconnected(self) -> None:
        self.restart("the connection was lost")

    async def _run(self) -> None:
        delay = 0.1
        failed = 0
        helpers = [asyncio.create_task(self._watch(), name=f"bus-watch-{self._filter}")]
        if self._direct:
            helpers.append(asyncio.create_task(self._bypass.run(), name=f"bus-bypass-{self._filter}"))
        try:
            while not self._closed:
                self._restart = ""
                self._opening = True
                # In a cluster a leader that died takes questions with it: those that cost nothing are asked again soon.
                self._impatient = self._bus.clustered and failed < IMPATIENT
                self._bypass.look()
                try:
                    await self._open()
                    self._opening = False
                    failed = 0
                except (BusError, nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                    log.warning("cannot read %s of %s yet: %s", self._filter, self._stream, error or type(error))
                    self._leave()
                    failed += 1
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, 2.0)
                    continue
                delay = 0.1
                await self._follow()
                log.info("reading %s anew: %s", self._filter, self._restart)
                self._leave()
        finally:
            for helper in helpers:
                helper.cancel()
            self._leave()  # a full backlog that nobody works off would stop the connection for all

    async def _open(self) -> None:
        if self._bus.clustered:
            # Only the leader of JetStream's bookkeeping answers; without it no consumer can be made, and what the sink
            # has stays its picture until then.
            await self._bus.js_quick.account_info()
        self.starts += 1
        await self._sink.starting()
        inbox = self._bus.nc.new_inbox()
        self._sequence = 0
        self._confirmed = False
        self._caught_up = False
        self._alive = True
        self._position = 0
        reached = self._bypass.reached  # the bypass may get further while the leader is asked
        self._last = await self._last_sequence()
        if self._last < reached:
            self._bypass.reached = 0  # it lost its end, or is another one: that is the replay's business
        self._opened = time.monotonic()
        self._subscription = self._bus.subscribe_raw(inbox, self._receive)
        # The name must be new each time: the server may still know the one before.
        self._consumer = f"{self._bus.nc.client_id or 0}-{next(_numbers)}-{time.monotonic_ns():x}"
        js = self._bus.js_quick if self._impatient else self._bus.js
        info = await js.add_consumer(
            self._stream,
            ConsumerConfig(
                name=self._consumer,
                deliver_subject=inbox,
                deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
                ack_policy=AckPolicy.NONE,
                filter_subject=self._filter,
                flow_control=True,
                idle_heartbeat=HEARTBEAT_S,
                headers_only=self._headers_only or None,
                inactive_threshold=15.0,
                max_deliver=1,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        self._confirmed = True
        if not info.num_pending and (info.delivered is None or not info.delivered.consumer_seq):
            self._complete()
            self._sink.pause()

    async def _last_sequence(self) -> int:
        """The number of the last message of ours that the stream's leader has; 0 if there is none."""
        try:
            message = await self._bus.js_quick.get_last_msg(self._stream, self._filter, direct=False)
        except nats.js.errors.NotFoundError as error:
            if error.err_code == NO_STREAM:
                raise
            return 0
        return message.seq or 0

    def _leave(self) -> None:
        if self._subscription is not None:
            self._bus.unsubscribe_raw(self._subscription)
            self._subscription = None
            if self._bus.connected and self._consumer:
                self._bus.nc.send(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._consumer}", "", b"", b"")
        self._backlog.clear()
        self._backlog_bytes = 0
        self._full = False
        self._room.set()

    def _receive(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> Awaitable[None] | None:
        backlog = self._backlog
        if not backlog:
            self._wake.set()
        backlog.append((subject, reply, headers, body))
        self._backlog_bytes += len(body)
        self._alive = True
        # Before the consumer is confirmed the read loop must go on: the confirmation comes through it.
        if self._confirmed and (len(backlog) > BACKLOG_MESSAGES or self._backlog_bytes > BACKLOG_BYTES):
            self._full = True
            self._room.clear()
            return self._wait_for_room()
        return None

    async def _wait_for_room(self) -> None:
        await self._room.wait()

    async def _follow(self) -> None:
        """Work off the backlog until something demands a start over."""
        backlog = self._backlog
        while not self._restart:
            if not backlog:
                self._sink.pause()
                self._wake.clear()
                await self._wake.wait()
                continue
            until = time.perf_counter() + SLICE_S
            count = 0
            while backlog and not self._restart:
                subject, reply, headers, body = backlog.popleft()
                self._backlog_bytes -= len(body)
                self._one(subject, reply, headers, body)
                count += 1
                if not count & 15 and time.perf_counter() > until:
                    break
            if self._full and len(backlog) < BACKLOG_MESSAGES // 2 and self._backlog_bytes < BACKLOG_BYTES // 2:
                self._full = False
                self._room.set()
            if backlog:
                self._sink.pause()
                await asyncio.sleep(0)

    def _one(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        if headers is not None and headers.startswith(b"NATS/1.0 1"):
            self._control(reply, headers)
            return
        tokens = reply.split(b".")
        # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>; the newer form has a
        # domain and an account hash in front of the stream.
        shift = 0 if len(tokens) == 9 else 2
        sequence = int(tokens[6 + shift])
        if sequence != self._sequence + 1:
            self.restart(f"a gap: message {sequence} follows {self._sequence}")
            return
        self._sequence = sequence
        self._position = int(tokens[5 + shift])
        if self._position > self._bypass.reached:
            self._bypass.reached = self._position
        self._sink.message(subject, headers, body, self._position)
        if not self._caught_up and tokens[8 + shift] == b"0":
            self._complete()

    def _control(self, reply: bytes, headers: bytes) -> None:
        if reply:  # flow control: answering here, behind what came before it, says that this was worked off
            self._bus.nc.send(reply.decode(), "", b"", b"")
            return
        stalled = header_value(headers, b"Nats-Consumer-Stalled")
        if stalled:
            self._bus.nc.send(stalled, "", b"", b"")
        last = header_value(headers, b"Nats-Last-Consumer")
        if last is not None and last.isdigit() and int(last) != self._sequence:
            self.restart(f"a gap: the server sent {last} messages, {self._sequence} arrived")
        elif not stalled and not self._caught_up:
            self._complete()  # what was pending at the start has been deleted meanwhile
            if not self._caught_up and time.monotonic() - self._opened > LAG_S:
                # A replica that is being filled; or the last message was a tombstone whose time was over.
                self.restart(f"the replica is behind: {self._position} of {self._last}")
        if status_of(headers)[0] != 100:
            self.restart(f"the server ended the consumer: {status_of(headers)[1]}")

    def _complete(self) -> None:
        """Nothing is pending at the consumer; that is all there is unless its replica lags."""
        if self._position >= self._last:
            self._caught_up = True
            self._sink.caught_up()

    async def _watch(self) -> None:
        """Without heartbeats the consumer is gone, whatever else the connection says."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            # What came and is not worked off is no silence: reading may be paused.
            idle = self._backlog or self._subscription is None or not self._bus.connected or self._bus.nc.is_held
            self._silent = 0 if self._alive or idle else self._silent + 1
            self._alive = False
            if self._is_blind():
                self._bypass.look()
            if self._silent >= SILENT_BEATS:
                self._silent = 0
                self.restart(f"no heartbeat for {SILENT_BEATS * HEARTBEAT_S:g} s")
