"""The write-ahead file: every change is handed to the kernel before it happens, so a killed server loses nothing.

A change is appended with one write(2) before it is applied and answered: what was acknowledged survives the end of the
process. A task syncs what was appended to the disk, many changes at a time, `sync_s` after the first of them: a power
failure loses at most that interval and the time of the sync itself. When the log has grown far beyond the state, a new
log is begun and the state as of that moment is written beside it as a snapshot; then the older files go.

The folder holds `log-N` and `snapshot-N`, the state before the first record of `log-N`.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from koord.localcluster.api.apply.writers import packed
from koord.localcluster.api.errors import insufficient_storage
from koord.localcluster.api.records import BadRecord, Kind, Record, pack, read, synced_beyond
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ApiError

SYNC_SECONDS = 0.1
MIN_LOG_BYTES = 64 * 1024 * 1024
GROWTH = 3
_RETRY_SECONDS = 1.0
_CHUNK = 1 << 20
_log = logging.getLogger(__name__)

State = Iterable[tuple[str, Iterable[Entry]]]
"""Resource keys with their objects."""


class JournalError(Exception):
    """The files cannot be used; names the file, the place and the rule."""


class Journal:
    """The log of one folder, for one process (see `datadir`). Opening it reads only where it begins."""

    def __init__(
        self,
        folder: Path,
        *,
        sync_s: float = SYNC_SECONDS,
        min_log_bytes: int = MIN_LOG_BYTES,
        growth: float = GROWTH,
    ) -> None:
        self._folder = folder
        self._sync_s = sync_s
        self._min_log_bytes = min_log_bytes
        self._growth = growth
        self._descriptor = -1
        self._size = 0
        self._older_bytes = 0
        self._snapshot_bytes = 0
        self._work = asyncio.Event()
        self._stopping = False
        self._broken = ""
        self._refusing = False
        self._compact_from_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self.refusals = 0
        self.snapshots = 0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in folder.glob("*.part"):
            left.unlink()
        self._first, self._generation = self._find()
        if self._generation == 0:
            # Versions start at the clock, so that those of another cluster on this address are no longer held.
            self.first_version = int(time.time() * 1_000_000)
            try:
                self._begin(1, self.first_version)
            except OSError as error:
                raise JournalError(f"{folder}: {error.strerror}") from error
            self._first = 1
        else:
            self.first_version = self._read_first_version()

    # --- reading

    def _find(self) -> tuple[int, int]:
        """The first and the last generation that count; (0, 0) when there is nothing."""
        logs = sorted(_numbers(self._folder, "log"))
        snapshots = sorted(_numbers(self._folder, "snapshot"))
        if not logs and not snapshots:
            return 0, 0
        first = snapshots[-1] if snapshots else 1
        wanted = list(range(first, max(logs, default=0) + 1))
        missing = [number for number in wanted or [first] if number not in logs]
        if missing:
            raise JournalError(f"{self._folder}: log-{missing[0]} is missing; the objects in it cannot be restored")
        return first, logs[-1]

    def _path(self, kind: str, generation: int) -> Path:
        return self._folder / f"{kind}-{generation}"

    def _read_first_version(self) -> int:
        snapshot = self._path("snapshot", self._first)
        path = snapshot if snapshot.exists() else self._path("log", self._first)
        with path.open("rb") as file:
            head = file.read(256)
        try:
            record, _ = next(read(head))
        except (BadRecord, StopIteration) as error:
            if path is not snapshot and self._first == self._generation:
                # Power failed while the very first file was begun: nothing was ever stored.
                self.first_version = int(time.time() * 1_000_000)
                path.unlink()
                self._begin(self._first, self.first_version)
                return self.first_version
            raise JournalError(f"{path}: damaged {error}") from error
        if record.kind != Kind.FILE:
            raise JournalError(f"{path}: does not begin as a file of a data directory")
        return record.version

    def snapshot_records(self) -> Iterator[Record]:
        """The objects of the snapshot, if there is one; `JournalError` when it is damaged or cut off."""
        path = self._path("snapshot", self._first)
        if not path.exists():
            return
        data = path.read_bytes()
        self._snapshot_bytes = len(data)
        count = 0
        ended = False
        try:
            for record, _ in read(data):
                if record.kind == Kind.PUT:
                    count += 1
                    yield record
                elif record.kind == Kind.END:
                    ended = record.version == count
        except BadRecord as error:
            raise JournalError(f"{path}: object {count + 1} is damaged {error}") from error
        if not ended:
            raise JournalError(f"{path}: ends after {count} objects, before its end")

    def log_records(self) -> Iterator[Record]:
        """The changes since the snapshot; afterwards the journal can be appended to.

        A tail that was being written when the power failed is cut off, with a warning. Damage before what is known to
        have been synced is a `JournalError`.
        """
        paths = [self._path("log", number) for number in range(self._first, self._generation + 1)]
        last = len(paths) - 1
        while last > 0 and _is_empty(paths[last]):
            last -= 1
        for number, path in enumerate(paths):
            data = path.read_bytes()
            good = count = 0
            try:
                for record, end in read(data):
                    good = end
                    if record.kind in (Kind.PUT, Kind.DELETE, Kind.VERSION):
                        count += 1
                        yield record
            except BadRecord as error:
                if number < last or synced_beyond(data, error.offset):
                    raise JournalError(
                        f"{path}: record {count + 1} is damaged {error}; {len(data) - error.offset} bytes from there"
                        " on cannot be trusted. Restore the file from a copy, or start with an empty data directory"
                    ) from error
                _log.warning("%s: cut off %d bytes of an unfinished write at its end", path, len(data) - good)
                _cut(path, good)
            self._older_bytes += good
        current = self._path("log", self._generation)
        self._descriptor = os.open(current, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = current.stat().st_size
        if self._size == 0:
            os.write(self._descriptor, pack(Kind.FILE, self.first_version))
            self._size = current.stat().st_size
        self._older_bytes -= self._size

    # --- writing

    def append(self, kind: int, version: int, key: str = "", entry: Entry | None = None) -> None:
        """Write one record, whole or not at all; `ApiError` 507 when it cannot be written, and nothing has changed."""
        if self._broken:
            raise self._refuse(self._broken)
        if entry is None:
            record = pack(kind, version)
        else:
            record = pack(kind, version, key, entry.namespace, entry.name, entry.raw, packed(entry.writers))
        try:
            written = os.write(self._descriptor, record)
            # The second write says why the first was cut short.
            while written < len(record):
                written += os.write(self._descriptor, record[written:])
        except OSError as error:
            self._take_back()
            raise self._refuse(error.strerror or str(error)) from error
        self._size += len(record)
        if self._refusing:
            self._refusing = False
            _log.warning("%s: writes go on", self._folder)
        self._work.set()

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            self._break(f"a half-written record could not be removed: {error.strerror}")

    def _refuse(self, why: str) -> ApiError:
        self.refusals += 1
        if not self._refusing:
            self._refusing = True
            _log.warning("%s: writes are refused: %s", self._folder, why)
        return insufficient_storage(why)

    def _break(self, why: str) -> None:
        """After this only a new log with a snapshot before it can be trusted."""
        self._broken = why
        self._compact_from_s = 0.0
        self._work.set()

    # --- syncing and compacting

    def start(self, state: Callable[[], State], version: Callable[[], int]) -> None:
        """Begin to sync and compact; `state` is called between two changes, and what it answers never changes."""
        self._task = asyncio.create_task(self._keep(state, version), name="write-ahead file")

    async def stop(self) -> None:
        """Sync what there is and close."""
        if self._task is not None:
            self._stopping = True
            self._work.set()
            await self._task
            self._task = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _keep(self, state: Callable[[], State], version: Callable[[], int]) -> None:
        while not self._stopping:
            # Not only when there is work: a compaction that failed for want of space is due again later.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS):
                    await self._work.wait()
            if self._work.is_set():
                if not self._stopping:
                    await asyncio.sleep(self._sync_s)
                self._work.clear()
                await self._sync()
            if self._is_due() and not self._stopping:
                await self._compact(state, version)
        if self._work.is_set():
            await self._sync()

    async def _sync(self) -> None:
        if self._broken:
            return
        size = self._size
        try:
            await asyncio.to_thread(os.fdatasync, self._descriptor)
        except OSError as error:
            # What the kernel could not write it may have forgotten: asking again would answer a success.
            self._break(f"the log could not be synced: {error.strerror}")
            return
        mark = pack(Kind.SYNCED, size)
        try:
            written = os.write(self._descriptor, mark)
        except OSError:
            return
        if written == len(mark):
            self._size += written
        else:
            self._take_back()

    def _is_due(self) -> bool:
        if time.monotonic() < self._compact_from_s:
            return False
        limit = max(self._min_log_bytes, self._growth * self._snapshot_bytes)
        return bool(self._broken) or self._older_bytes + self._size > limit

    async def _compact(self, state: Callable[[], State], version: Callable[[], int]) -> None:
        try:
            if not self._broken:
                # All but the last moments are synced beside the event loop; those last ones hold it up for an instant.
                await asyncio.to_thread(os.fdatasync, self._descriptor)
                os.fdatasync(self._descriptor)
            generation = self._generation
            if not _is_empty(self._path("log", generation)):
                generation += 1
                self._begin(generation, version())
            first_version, objects = version(), state()
            size = await asyncio.to_thread(self._write_snapshot, generation, first_version, objects)
        except OSError as error:
            _log.warning("%s: no snapshot could be written: %s", self._folder, error.strerror)
            with contextlib.suppress(OSError):
                self._path("snapshot", self._generation).with_suffix(".part").unlink(missing_ok=True)
            self._compact_from_s = time.monotonic() + (_RETRY_SECONDS if self._broken else 10 * _RETRY_SECONDS)
            return
        if size == 0:
            return
        self.snapshots += 1
        self._broken = ""
        self._snapshot_bytes, self._older_bytes, self._first = size, 0, generation
        for kind in ("snapshot", "log"):
            for number in _numbers(self._folder, kind):
                if number < generation:
                    with contextlib.suppress(OSError):  # what is left over does no harm, the newest snapshot counts
                        self._path(kind, number).unlink()

    def _begin(self, generation: int, version: int) -> None:
        """Begin a log and write to it from now on; `OSError` leaves everything as it was."""
        path = self._path("log", generation)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        head = pack(Kind.FILE, version)
        try:
            if os.write(descriptor, head) != len(head):
                raise OSError(28, os.strerror(28))
            os.fsync(descriptor)
            _sync_folder(self._folder)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._older_bytes += self._size
        self._descriptor, self._size, self._generation = descriptor, len(head), generation

    def _write_snapshot(self, generation: int, version: int, objects: State) -> int:
        """Runs in a thread; the snapshot's size, 0 when the server is stopping."""
        path = self._path("snapshot", generation)
        part = path.with_suffix(".part")
        count = 0
        buffer = bytearray(pack(Kind.FILE, version))
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb", 0) as file:
            for key, entries in objects:
                for entry in entries:
                    where = (key, entry.namespace, entry.name)
                    buffer += pack(Kind.PUT, entry.version, *where, entry.raw, packed(entry.writers))
                    count += 1
                    if len(buffer) > _CHUNK:
                        if self._stopping:
                            return 0
                        _write_all(file.fileno(), buffer)
                        buffer.clear()
                        time.sleep(0)  # lets the event loop in
            buffer += pack(Kind.END, count)
            _write_all(file.fileno(), buffer)
            os.fsync(file.fileno())
            size = file.tell()
        part.rename(path)
        _sync_folder(self._folder)
        return size


def _write_all(descriptor: int, data: bytearray) -> None:
    view = memoryview(data)
    try:
        while view:
            rest = view[os.write(descriptor, view) :]
            view.release()
            view = rest
    finally:
        view.release()


def _numbers(folder: Path, kind: str) -> list[int]:
    return [int(path.name.partition("-")[2]) for path in folder.glob(f"{kind}-*") if path.name.split("-")[1].isdigit()]


def _is_empty(path: Path) -> bool:
    """Whether a log holds nothing but its beginning."""
    return path.stat().st_size <= len(pack(Kind.FILE, 0))


def _cut(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
