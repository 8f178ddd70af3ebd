"""Writes the state stream; the gateway is its only user.

Each object is the last message on its subject, with the one header ``Koord: <type> <resourceVersion> <epoch>``. A
tombstone carries the last object and a TTL (``Nats-TTL``), after which the subject is gone. ``held()`` reads
back what the stream holds without the bodies, so that a gateway which restarts publishes only differences;
``listed()`` then says that the picture of one resource is complete, which is what readers wait for.

The epoch belongs to the stream. After a reconnect it is read again; if the stream was made anew, or lost messages that
it had confirmed (a machine that crashed), what still waited fails with EpochChanged and ``on_epoch`` is told: list
again, publish what ``held()`` lacks, call ``listed()``.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from koord.bus.client import header_block, header_value
from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable, EpochChanged
from koord.bus.ordered import OrderedReader
from koord.bus.statecache import MARKER, key_of
from koord.bus.streams import ensure_streams, state_life
from koord.contracts.codec import ContractError
from koord.contracts.state import HEADER, ChangeType, format_header, parse_header
from koord.kube.resources import Resource
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

TOMBSTONE_TTL_S = 600
TTL_HEADER = "Nats-TTL"


class Held(NamedTuple):
    """What the stream says about one object."""

    type: ChangeType
    resource_version: str


class StatePublisher:
    """Publishes objects as the API server sent them. ``await start()`` first."""

    def __init__(
        self,
        bus: Bus,
        *,
        tombstone_ttl_s: int = TOMBSTONE_TTL_S,
        on_epoch: Callable[[str], None] | None = None,
    ) -> None:
        self._bus = bus
        self._ttl = f"{max(1, int(tombstone_ttl_s))}s"
        self._on_epoch = on_epoch
        self.epoch = ""
        # Resources of which the stream may lack something until they are read back with held().
        self._used: set[str] = set()
        self._lacking: dict[str, str] = {}

    async def start(self) -> None:
        """Make sure that the streams exist and learn the epoch."""
        await ensure_streams(self._bus)
        self.epoch, _ = await state_life(self._bus)
        self._bus.on_prepare("epoch", self._check_epoch)

    def publish(
        self,
        resource: Resource | str,
        type_: ChangeType,
        namespace: str,
        name: str,
        resource_version: str,
        body: bytes,
    ) -> "asyncio.Future[int]":
        """Publish one change; the future resolves to its sequence once stored. It never times out: see ``room()``.

        While several changes of one object wait, a reconnect sends only the newest. Raises BusOverflow when the caller
        did not wait for ``room()`` and far too much is waiting.
        """
        if not self.epoch:
            raise BusUnavailable("the state publisher was not started")
        value = format_header(type_, resource_version, self.epoch)
        if type_ == "DELETED":
            headers = header_block((HEADER, value), (TTL_HEADER, self._ttl))
        else:
            headers = header_block((HEADER, value))
        token = _token(resource)
        self._used.add(token)
        subject = self._bus.subjects.state(token, namespace, name)
        return self._bus.acks.publish(
            subject, body, headers, timeout=None, latest=True, on_fail=self._failed, live=name != MARKER
        )

    async def room(self) -> None:
        """Back-pressure: wait until a message would go out at once. Await it before each publish of a long loop."""
        await self._bus.acks.room()

    async def flush(self) -> None:
        """Wait until everything published so far is stored or failed."""
        await self._bus.acks.flush()

    async def listed(self, resource: Resource | str, resource_version: str, mark: str = "") -> int:
        """Say that the stream now holds the whole resource as of ``resource_version``; readers become synced.

        ``mark`` is a word that readers can wait for (:meth:`StateCache.marked`). Answers the marker's sequence.
        Call it after each full list, when its differences have been published. Waits until those are stored. BusError
        when that would not be true: a message of the resource failed, or the stream was made anew or lost messages,
        since the last ``held()``. Then begin again with ``held()``.
        """
        await self.flush()
        token = _token(resource)
        if token in self._lacking:
            raise EpochChanged(f"{token} is not listed: {self._lacking[token]}")
        body = msgspec.json.encode({"mark": mark}) if mark else b"{}"
        return await self.publish(resource, "ADDED", MARKER, MARKER, resource_version or "0", body)

    async def held(self, resource: Resource | str, *, timeout: float = 30.0) -> dict[str, Held]:
        """What the stream holds of one resource: key → (type, resourceVersion), tombstones included, bodies not read.

        Messages of another epoch count as not held. 50,000 objects take about half a second. BusUnavailable on timeout.
        """
        token = _token(resource)
        await self.flush()
        self._used.add(token)
        self._lacking.pop(token, None)
        reading = _Reading(len(self._bus.subjects.state(token, "", "x")) - 3, self.epoch)
        subjects = self._bus.subjects
        reader = OrderedReader(self._bus, subjects.state_stream, subjects.state_of(token), reading, headers_only=True)
        reader.start()
        try:
            await asyncio.wait_for(reading.done.wait(), timeout)
        except TimeoutError as error:
            raise BusUnavailable(f"stream {subjects.state_stream}: {token} not read back in {timeout:g} s") from error
        finally:
            await reader.close()
        return reading.held

    def _failed(self, subject: str) -> None:
        token = subject[len(self._bus.subjects.root) + len(".state.") :].partition(".")[0]
        self._lacking.setdefault(token, f"{subject} could not be published")

    async def _check_epoch(self) -> None:
        """After a reconnect: is it the stream we wrote to, with all that it confirmed?"""
        confirmed = self._bus.acks.highest.get(self._bus.subjects.state_stream, 0)
        epoch, last = await state_life(self._bus, confirmed, self.epoch)
        if epoch != self.epoch:
            reason = f"the state stream was made anew under epoch {epoch}"
        elif last < confirmed:
            reason = f"the state stream lost messages: it ends at {last}, {confirmed} were confirmed"
        else:
            return
        log.warning("everything must be listed again", reason=reason, was=self.epoch, now=epoch)
        self._bus.acks.highest.pop(self._bus.subjects.state_stream, None)
        prefix = self._bus.subjects.state_all.removesuffix(">")
        self._bus.acks.drop(prefix, EpochChanged(reason))
        self.epoch = epoch
        self._lacking = dict.fromkeys(self._used, reason)
        if self._on_epoch is not None:
            self._on_epoch(epoch)


class _Reading:
    """Collects headers until the end of the stream."""

    def __init__(self, skip: int, epoch: str) -> None:
        self.held: dict[str, Held] = {}
        self.done = asyncio.Event()
        self._skip = skip
        self._epoch = epoch

    async def starting(self) -> None:
        self.held.clear()

    def message(self, subject: bytes, headers: bytes | None, body: bytes, sequence: int) -> None:
        key = key_of(subject[self._skip :].decode())
        if key == MARKER or self.done.is_set():
            return
        try:
            type_, version, epoch = parse_header(header_value(headers, HEADER.encode()) or "")
        except ContractError as error:
            log.warning("a state message without a readable header counts as not held", key=key, error=str(error))
            return
        if epoch == self._epoch:
            self.held[key] = Held(type_, version)

    def caught_up(self) -> None:
        self.done.set()

    def pause(self) -> None:
        """Nothing to hand on."""


def _token(resource: Resource | str) -> str:
    return resource if isinstance(resource, str) else resource.token
