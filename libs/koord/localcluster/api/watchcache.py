"""The recent changes of one collection, so that a watch can start at a version and every watcher reads the same bytes.

A watcher holds a position in this ring, not a queue of its own: publishing costs nothing per watcher but a wake-up, and
a watcher that is too slow falls off the end and is told to start again (410). Memory is bounded by the ring alone, and
what is older than five minutes goes, as etcd's compaction has it, so that a server under steady load has its full size
after that time and not after an hour.
"""

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from koord.localcluster.api.apply.writers import Writers
from koord.localcluster.api.errors import expired, too_old
from koord.localcluster.clusterapi import EventType

MAX_CHANGES = 100_000
MAX_BYTES = 96 * 1024 * 1024
MAX_SECONDS = 300.0
_MARK_SECONDS = 10.0
COALESCE_SECONDS = 0.004


class Owner(NamedTuple):
    """One owner reference of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    blocking: bool


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One state of one object: its JSON as stored and what selectors need. Never changed, only replaced.

    `fields` are the values of the resource's field selectors, in the resource's order. `owners` are its owner
    references, one tuple for all objects that have the same ones; None when there are none. `writers` say whose the
    object is when it has no managedFields.
    """

    namespace: str
    name: str
    uid: str
    version: int
    raw: bytes
    labels: dict[str, str] | None
    fields: tuple[str, ...]
    deleting: bool
    owners: tuple[Owner, ...] | None = None
    writers: Writers | None = None


class Change(msgspec.Struct, frozen=True, gc=False):
    """One step of a collection; `old` is the state before it (None when the object is new).

    With it a selector's watcher is told the last state that it saw, and what a collection was before is known.
    """

    type: EventType
    entry: Entry
    old: Entry | None


Current = Callable[[str, str], Entry | None]
"""namespace, name -> the object's state now."""

Match = Callable[[str, str, dict[str, str] | None, tuple[str, ...]], bool]
"""namespace, name, labels, fields -> whether a selector takes the object."""


class WatchCache:
    """A ring of changes with absolute positions, bounded by count, bytes and age (to about ten seconds)."""

    def __init__(
        self,
        version: int,
        max_changes: int = MAX_CHANGES,
        max_bytes: int = MAX_BYTES,
        max_seconds: float = MAX_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        current: Current | None = None,
    ) -> None:
        self._changes: list[Change] = []
        self._versions: list[int] = []
        self._base = 0
        self._bytes = 0
        self._floor = version
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._clock = clock
        self._current = current
        # Where the ring ended, now and then: what lies before such a position is at least as old.
        self._marks: deque[tuple[float, int]] = deque()
        self._mark_due = 0.0
        self._waiters: set[asyncio.Future[None]] = set()
        self.closed = False

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self._base + len(self._changes)

    def append(self, change: Change) -> None:
        """Add the newest change and wake who waits."""
        now = self._clock()
        if now >= self._mark_due:
            self._age(now)
        self._changes.append(change)
        self._versions.append(change.entry.version)
        self._bytes += len(change.entry.raw)
        if change.old is not None and change.old.version <= self._floor:
            # Of a state that is in the ring too, as its own change, only one copy is held.
            self._bytes += len(change.old.raw)
        if len(self._changes) > self._max_changes or self._bytes > self._max_bytes:
            # An eighth at a time: deleting the head of a list moves the rest, so do it rarely.
            self._drop(max(1, len(self._changes) // 8))
        if self._waiters:
            self._wake()

    def _age(self, now: float) -> None:
        self._mark_due = now + _MARK_SECONDS
        self._marks.append((now, self.end))
        old = self._base
        while self._marks[0][0] < now - self._max_seconds:
            old = self._marks.popleft()[1]
        if old > self._base:
            self._drop(old - self._base)

    def _drop(self, drop: int) -> None:
        current = self._current
        for change in self._changes[:drop]:
            entry, old = change.entry, change.old
            # A state that has a successor stays, as what that one holds of before.
            stays = (
                current is not None and change.type != "DELETED" and current(entry.namespace, entry.name) is not entry
            )
            if not stays:
                self._bytes -= len(entry.raw)
            if old is not None:
                self._bytes -= len(old.raw)
        self._floor = self._versions[drop - 1]
        del self._changes[:drop]
        del self._versions[:drop]
        self._base += drop

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """End all watches: the resource is served no longer, or the server stops."""
        self.closed = True
        self._wake()

    def position(self, version: int) -> int:
        """The position of the first change after a version; 410 if the ring no longer reaches back to it."""
        if version < self._floor:
            raise too_old(version, self._floor)
        return self._base + bisect_right(self._versions, version)

    def read(self, position: int, limit: int) -> list[Change]:
        """Up to `limit` changes from a position on; 410 if they are gone."""
        start = position - self._base
        if start < 0:
            raise expired("too old resource version: the watcher fell behind the changes held in memory")
        return self._changes[start : start + limit]

    def since(self, version: int) -> Sequence[Change]:
        """All changes after a version, in order; 410 as `position`."""
        return self._changes[self.position(version) - self._base :]

    async def wait(self, position: int, seconds: float) -> bool:
        """Wait for a change at a position; False after `seconds` without one."""
        if position < self.end or self.closed:
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True


class Subscription:
    """One watcher: a position in a ring, a filter, and batches of what passes it."""

    def __init__(self, cache: WatchCache, position: int, namespace: str | None, match: Match | None) -> None:
        self._cache = cache
        self._position = position
        self._namespace = namespace
        self._match = match
        self._last = 0.0
        self.version = 0

    async def next(self, seconds: float, limit: int = 2_000) -> list[tuple[EventType, Entry]]:
        """The next batch, in order; empty after `seconds` or when nothing in the range matched.

        Raises `ApiError` 410 when the watcher fell behind. `closed` says that there will be no more.
        """
        loop = asyncio.get_running_loop()
        if not await self._cache.wait(self._position, seconds):
            return []
        # Under load many small writes to the client cost more than the changes: gather a few milliseconds of them.
        pause = self._last + COALESCE_SECONDS - loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        self._last = loop.time()
        changes = self._cache.read(self._position, limit)
        self._position += len(changes)
        if changes:
            self.version = changes[-1].entry.version
        return self._filter(changes)

    @property
    def at_end(self) -> bool:
        """Whether everything so far was read."""
        return self._position >= self._cache.end

    @property
    def closed(self) -> bool:
        """Whether the collection is gone and everything before that was read."""
        return self._cache.closed and self._position >= self._cache.end

    def _filter(self, changes: list[Change]) -> list[tuple[EventType, Entry]]:
        namespace, match = self._namespace, self._match
        if match is None:
            if namespace is None:
                return [(change.type, change.entry) for change in changes]
            return [(change.type, change.entry) for change in changes if change.entry.namespace == namespace]
        passed: list[tuple[EventType, Entry]] = []
        for change in changes:
            entry = change.entry
            if namespace is not None and entry.namespace != namespace:
                continue
            old = change.old
            before = old is not None and match(entry.namespace, entry.name, old.labels, old.fields)
            now = change.type != "DELETED" and match(entry.namespace, entry.name, entry.labels, entry.fields)
            if now:
                passed.append(("MODIFIED" if before else "ADDED", entry))
            elif before and old is not None:
                # Who selects must not see what it did not select: it gets the last state it saw, as of now.
                passed.append(("DELETED", entry if change.type == "DELETED" else restamped(old, entry.version)))
        return passed


def restamped(entry: Entry, version: int) -> Entry:
    """The same state under another version."""
    raw = entry.raw.replace(b'"resourceVersion":"%d"' % entry.version, b'"resourceVersion":"%d"' % version)
    if raw.count(b'"resourceVersion":"%d"' % version) != 1:
        # The text occurs elsewhere too, perhaps as a reference to another object: look where it stands.
        obj = msgspec.json.decode(entry.raw)
        obj["metadata"]["resourceVersion"] = str(version)
        raw = msgspec.json.encode(obj)
    return msgspec.structs.replace(entry, version=version, raw=raw)
