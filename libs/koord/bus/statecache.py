"""An informer over JetStream: the objects of one resource, kept current from the state stream.

What a reader can rely on:

* ``items`` holds the last version of every object that decoded; ``on_change`` tells each difference exactly once, in
  the order of the stream, from the event loop, in slices of about 10 ms.
* ``synced()`` returns when the gateway has listed the resource (its marker is in the stream) *and* everything the
  stream held at the start has been told. An empty stream is not an empty cluster.
* After a gap, a reconnect or lost heartbeats the cache replays: unchanged objects cost no decoding and tell nothing;
  changes carry ``replay=True``; what is not seen again is swept as DELETED at the end. Intermediate versions may be
  missing (an object deleted and made again may show as one MODIFIED with another uid).
* In a NATS cluster an object that is not seen again is looked for a second time, 12 s later: a replica that is
  being filled, asked for by a leader that was parted, may have shown less than there is.
* If the stream itself was lost and made anew (another *epoch*) nothing is swept until the gateway has listed again.
* A body that does not decode changes nothing: ``on_bad`` names it, the last good version stays.
* While the stream of a NATS cluster has no leader, the gateway's live copies (:mod:`koord.bus.livecopies`) are told at
  once, by resourceVersion, and not again when the stream shows them; what the stream does not bear out is taken back.

Not promised: that every intermediate version is seen, or that DELETED comes only for objects seen before (a tombstone
of an object that was never cached is told with the tombstone's object as ``old``).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec
from nats.aio.subscription import Subscription

from koord.bus.changes import LIVE, MARKER, Change, key_of, mark_of
from koord.bus.client import header_value
from koord.bus.connection import Bus
from koord.bus.livenotes import LiveNotes
from koord.bus.ordered import OrderedReader
from koord.bus.streams import state_life
from koord.bus.telling import Telling
from koord.bus.unseen import Unseen
from koord.contracts.codec import ContractError
from koord.contracts.state import HEADER, parse_header
from koord.kube.resources import Resource
from koord.telemetry.logs import get_logger
from koord.telemetry.metrics import counter, gauge

T = TypeVar("T")

__all__ = ["LIVE", "MARKER", "Change", "StateCache", "key_of"]

log = get_logger("koord.bus")
_HEADER = HEADER.encode()
# How often it is looked whether the stream bears out what live copies told.
NOTES_S = 5.0

_objects = gauge("koord_bus_state_objects", "Objects held by a state cache", ("resource",))
_replays = counter("koord_bus_state_replays", "Replays of a state cache", ("resource",))


class StateCache(Generic[T]):
    """The objects of ``resource`` (a :class:`Resource` or its token), each decoded as ``type_`` from JSON.

    ``type_`` declares the fields the reader wants; ``msgspec.Raw`` keeps the whole body. ``key_filter`` says which keys
    to hold at all. ``on_change`` is called for each difference, ``on_batch`` with those of a slice; both must be quick.
    ``keep_raw`` keeps the bodies' bytes in ``raw``.
    """

    def __init__(
        self,
        bus: Bus,
        resource: Resource | str,
        type_: type[T],
        on_change: Callable[[Change[T]], None] | None = None,
        *,
        key_filter: Callable[[str], bool] | None = None,
        on_batch: Callable[[Sequence[Change[T]]], None] | None = None,
        on_bad: Callable[[str, ContractError], None] | None = None,
        on_epoch: Callable[[str], None] | None = None,
        keep_raw: bool = False,
    ) -> None:
        self._bus = bus
        self.token = resource if isinstance(resource, str) else resource.token
        self.items: dict[str, T] = {}
        self.raw: dict[str, bytes] = {}
        self.epoch = ""
        self._versions: dict[str, str] = {}
        self._bad: dict[str, str] = {}
        self._decode = msgspec.json.Decoder(type_).decode
        self._type_name = getattr(type_, "__name__", str(type_))
        self._telling = Telling(self.token, on_change, on_batch, on_bad)
        self._on_epoch = on_epoch
        self._filter = key_filter
        self._keep_raw = keep_raw
        self._listed_epoch = ""
        self._seen: set[str] | None = set()
        self._replaying = True
        self._caught_up = False
        # Everything is told anew in a new epoch, what did not change included.
        self._anew = False
        self._processed = 0
        self._synced = asyncio.Event()
        self._mark = ""
        self._progress = asyncio.Event()
        self._reminder: asyncio.TimerHandle | None = None
        # What was not seen again, and the replay that decides about it.
        self._unseen = Unseen()
        self._second_look: asyncio.TimerHandle | None = None
        self._notes = LiveNotes()
        self._notes_look: asyncio.TimerHandle | None = None
        self._live: Subscription | None = None
        subjects = bus.subjects
        self._skip = len(subjects.state(self.token, "", "x")) - 3
        self._live_skip = len(subjects.live_of(subjects.state(self.token, "", "x"))) - 3
        self._reader = OrderedReader(bus, subjects.state_stream, subjects.state_of(self.token), self, direct=True)

    async def start(self) -> None:
        """Begin to read; ``await synced()`` says when the cache is complete."""
        # Nobody publishes there in normal times.
        self._live = self._bus.subscribe_raw(self._bus.subjects.live_state_of(self.token), self._on_live)
        self._reader.start()
        self._remind_later()

    async def synced(self) -> None:
        """Wait for the first complete picture."""
        await self._synced.wait()

    async def marked(self, mark: str) -> None:
        """Wait until the picture is complete and holds all that was published before the marker with ``mark``.

        A marker that another one replaced before it was read is never seen: wait with a time-out, for one reader.
        """
        while self._mark != mark or not self.is_synced:
            self._progress.clear()
            await self._progress.wait()

    async def level(self) -> None:
        """Wait until the picture is complete and holds all that the stream holds now. BusUnavailable: nobody says."""
        last = await self._reader.last()
        while not self.is_synced or self._reader.position < last:
            self._progress.clear()
            await self._progress.wait()

    @property
    def position(self) -> int:
        """The stream's number up to which the resource was read; 0 while a replay begins."""
        return self._reader.position

    @property
    def is_synced(self) -> bool:
        """Whether the picture is complete right now (False again while a replay runs)."""
        return self._synced.is_set() and not self._replaying

    @property
    def is_following(self) -> bool:
        """Whether the picture is complete and the stream is being followed: that nothing came means nothing happened.

        Without a consumer, as while JetStream has no leader, the picture is complete as of then; what is known beyond
        that came by ways that may leave something out.
        """
        return self.is_synced and self._reader.is_following

    @property
    def replays(self) -> int:
        """How often the cache began from the start, the first time included."""
        return self._reader.starts

    def get(self, key: str) -> T | None:
        """The last good version of one object."""
        return self.items.get(key)

    def replay(self, why: str) -> None:
        """Read everything again and tell the differences."""
        self._replaying = True
        self._reader.restart(why)

    async def close(self) -> None:
        """Stop; ``items`` stays as it is."""
        for timer in (self._reminder, self._second_look, self._notes_look):
            if timer is not None:
                timer.cancel()
        if self._live is not None:
            self._bus.unsubscribe_raw(self._live)
        await self._reader.close()

    # What the reader tells ----------------------------------------------------------------------------------------

    async def starting(self) -> None:
        """A replay begins: which life of the stream is it?"""
        epoch, _ = await state_life(self._bus, self._processed, self.epoch)
        if epoch != self.epoch:
            if self.epoch:
                log.warning("the state stream was made anew", resource=self.token, was=self.epoch, now=epoch)
            self.epoch = epoch
            self._listed_epoch = ""
            self._processed = 0
            self._anew = True
            self._bad.clear()
            self._notes.clear()
            self._reader.forget()
            if self._on_epoch is not None:
                self._on_epoch(epoch)
        for key in self._notes.end_void(asyncio.get_running_loop().time()):
            if key in self._versions:
                self._versions[key] = ""  # whatever the stream says counts
        self._replaying = True
        self._caught_up = False
        self._seen = set()
        _replays.labels(self.token).inc()

    def message(self, subject: bytes, headers: bytes | None, body: bytes, sequence: int) -> None:
        """One object, tombstone or marker."""
        key = key_of(subject[self._skip :].decode())
        try:
            type_, version, epoch = parse_header(header_value(headers, _HEADER) or "")
        except ContractError as error:
            self._telling.report(key, error)
            return
        if key == MARKER:
            self._mark = mark_of(body)
            self._progress.set()
            self._listed_epoch = epoch
            self._processed = max(self._processed, sequence)
            if self._caught_up and epoch == self.epoch:
                self._finish()
            return
        if self._filter is not None and not self._filter(key):
            return
        if self._seen is not None and type_ != "DELETED":
            self._seen.add(key)
        again = sequence <= self._processed
        self._processed = max(self._processed, sequence)
        if self._notes and self._notes.passes_over(key, type_, version):
            return
        if (
            self._told(type_, key, version)
            if again
            else self._bus.clustered and self._stored_twice(type_, key, version)
        ):
            return
        if type_ == "DELETED":
            self._deleted(key, version, epoch, body, sequence)
            return
        try:
            new = self._decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._bad[key] = version
            self._telling.report(key, ContractError(f"{self.token} {key}: {self._type_name}: {error}"))
            return
        self._changed(key, new, version, epoch, body, sequence)

    def live(self, subject: bytes, headers: bytes | None, body: bytes) -> None:
        """A live copy. What is wrong with it the stream's message will show."""
        key = key_of(subject[self._live_skip :].decode())
        try:
            type_, version, epoch = parse_header(header_value(headers, _HEADER) or "")
        except ContractError:
            return
        # A first picture comes from the stream alone.
        if not self._synced.is_set() or epoch != self.epoch or key == MARKER:
            return
        if self._filter is not None and not self._filter(key):
            return
        if not self._notes.takes(key, type_, version, self._bad.get(key) or self._versions.get(key) or None):
            return
        try:
            new = self._decode(body) if type_ != "DELETED" or key not in self.items else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        loop = asyncio.get_running_loop()
        self._notes.add(key, type_, version, loop.time())
        if self._notes_look is None:
            self._notes_look = loop.call_later(NOTES_S, self._look_at_notes)
        if type_ == "DELETED":
            self._deleted(key, version, epoch, body, LIVE)
        else:
            assert new is not None
            self._changed(key, new, version, epoch, body, LIVE)
        if self._telling.begun:
            loop.call_soon(self.pause)

    def caught_up(self) -> None:
        """All that the stream held has been told."""
        self._caught_up = True
        if self._listed_epoch == self.epoch:
            self._finish()

    def pause(self) -> None:
        """The end of a slice."""
        self._progress.set()
        self._telling.flush()
        _objects.labels(self.token).set(len(self.items))

    # Inside -------------------------------------------------------------------------------------------------------

    def _on_live(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        self.live(subject, headers, body)

    def _look_at_notes(self) -> None:
        """Does the stream bear out what live copies told?"""
        self._notes_look = None
        loop = asyncio.get_running_loop()
        if not self._notes:
            return
        if self._replaying or not self._reader.is_following:
            self._notes.wait_on(loop.time())
        elif self._notes.has_void(loop.time()):
            self.replay("the stream does not show what a live copy told")
        self._notes_look = loop.call_later(NOTES_S, self._look_at_notes)

    def _told(self, type_: str, key: str, version: str) -> bool:
        """Whether a message at or below the highest sequence seen says nothing new.

        The sequence alone is no proof: a server that crashed may have lost its last messages and counts on from before.
        """
        if type_ == "DELETED" and key not in self.items:
            return True
        held = self._versions.get(key)
        if type_ != "DELETED" and (held == version or self._bad.get(key) == version):
            return True
        return self._bus.clustered and self._notes.is_past(key, type_, version, held)

    def _stored_twice(self, type_: str, key: str, version: str) -> bool:
        """Whether it was sent again although it had been stored."""
        if self._anew:
            return False
        if type_ == "DELETED":
            return key not in self.items and self._notes.is_past(key, type_, version, None)
        return self._versions.get(key) == version

    def _changed(self, key: str, new: T, version: str, epoch: str, body: bytes, sequence: int) -> None:
        old = self.items.get(key)
        self.items[key] = new
        self._versions[key] = version
        if self._bad:
            self._bad.pop(key, None)
        if self._keep_raw:
            self.raw[key] = body
        replay = self._replaying and sequence != LIVE
        self._telling.tell(
            Change("ADDED" if old is None else "MODIFIED", key, old, new, version, sequence, epoch, replay)
        )

    def _deleted(self, key: str, version: str, epoch: str, body: bytes, sequence: int) -> None:
        if self._bus.clustered and sequence != LIVE:
            self._notes.bury(key, "DELETED", version, asyncio.get_running_loop().time())
        old = self.items.pop(key, None)
        self._versions.pop(key, None)
        self._bad.pop(key, None)
        self.raw.pop(key, None)
        if old is None:
            try:
                old = self._decode(body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self._telling.report(key, ContractError(f"{self.token} {key} (tombstone): {self._type_name}: {error}"))
                return
        replay = self._replaying and sequence != LIVE
        self._telling.tell(Change("DELETED", key, old, None, version, sequence, epoch, replay))

    def _finish(self) -> None:
        """The picture is complete: sweep what the stream does not hold any more."""
        if self._seen is not None:
            for key in self._gone(self._seen):
                old = self.items.pop(key)
                self.raw.pop(key, None)
                version = self._versions.pop(key, "")
                self._telling.tell(Change("DELETED", key, old, None, version, 0, self.epoch, True, swept=True))
        self._seen = None
        self._replaying = self._anew = False
        self._progress.set()
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None
        if not self._synced.is_set():
            # Batches come before the waiters of synced() run.
            self.pause()
            self._synced.set()

    def _gone(self, seen: set[str]) -> list[str]:
        """The keys to sweep: not seen, and in a cluster not seen twice; not what only live copies showed."""
        unseen = [key for key in self.items if key not in seen and key not in self._notes]
        if not self._bus.clustered:
            return unseen
        loop = asyncio.get_running_loop()
        gone = self._unseen.gone(unseen, loop.time())
        if self._second_look is not None:
            self._second_look.cancel()
        wait = self._unseen.next_look(loop.time())
        self._second_look = None if wait is None else loop.call_later(wait, self.replay, "objects were not seen again")
        return gone

    def _remind_later(self) -> None:
        self._reminder = asyncio.get_running_loop().call_later(10.0, self._remind)

    def _remind(self) -> None:
        if not self._synced.is_set():
            reason = "the gateway has not listed it yet" if self._caught_up else "the replay is not finished"
            log.warning("still waiting for the state of a resource", resource=self.token, reason=reason)
            self._remind_later()
