"""Kubernetes Events: aggregated, limited in rate, and never in the way.

Equal notes on one object become one Event whose count goes up. They are written from a bounded backlog, and only while
the API server keeps up with binds and status writes; what does not fit is dropped and counted. Nobody may rely on an
Event.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from koord.contracts.decisions import EventNote
from koord.gateway import metrics
from koord.gateway.allow import safe_name
from koord.gateway.api import PATCH_TYPES, Api, ApiUnavailable
from koord.gateway.lanes import EVENT
from koord.kube.meta import now_rfc3339
from koord.kube.resources import EVENTS
from koord.telemetry.logs import get_logger

WINDOW_S = 600.0
"""Equal notes within this time are one Event."""
BURST = 25
REFILL_S = 12.0
"""One object may have 25 Events at once, then one each 12 s."""
QUIET_S = 0.05
STARVED_S = 5.0
WRITERS = 4
_REMEMBERED = 20_000
_MAX_NOTE = 1024

log = get_logger("koord.gateway.events")
_encode = msgspec.json.encode

Key = tuple[str, str, str, str, str, str, str, str]


class _Series:
    """One Event, written or about to be."""

    __slots__ = ("count", "first_s", "last_s", "name", "note", "since_s")

    def __init__(self, note: EventNote, now: float) -> None:
        self.note = note
        self.name = ""
        self.count = 0
        self.first_s = now
        self.last_s = now
        self.since_s = time.monotonic()


class EventRecorder:
    """Writes Events from a backlog of at most ``backlog`` different ones. ``busy`` says whether others need the API."""

    def __init__(self, api: Api, busy: Callable[[], bool], *, backlog: int = 20_000, per_s: float = 300.0) -> None:
        self._api = api
        self._busy = busy
        self._backlog = backlog
        self._pause_s = 1.0 / per_s
        self._pending: OrderedDict[Key, _Series] = OrderedDict()
        self._known: OrderedDict[Key, _Series] = OrderedDict()
        self._budget: OrderedDict[tuple[str, str, str], tuple[float, float]] = OrderedDict()
        self._writing: dict[Key, _Series] = {}
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._quiet_since = 0.0

    @property
    def depth(self) -> int:
        """Events that wait to be written."""
        return len(self._pending)

    def add(self, note: EventNote, now: float) -> None:
        """Take one note; ``now`` in seconds since the epoch."""
        target = note.target
        key = (
            target.resource,
            target.namespace,
            target.name,
            target.uid,
            note.type,
            note.reason,
            note.note,
            note.controller,
        )
        series = self._pending.get(key)
        if series is None:
            if not safe_name(target.name) or (target.namespace and not safe_name(target.namespace)):
                metrics.EVENTS_DROPPED.labels("invalid").inc()
                return
            if len(self._pending) >= self._backlog:
                metrics.EVENTS_DROPPED.labels("backlog").inc()
                return
            series = self._writing.get(key) or self._known.pop(key, None)
            if series is None or now - series.last_s > WINDOW_S:
                series = _Series(note, now)
            if not self._take_budget((target.resource, target.namespace, target.name)):
                metrics.EVENTS_DROPPED.labels("rate").inc()
                if series.count:
                    series.count += 1  # it is counted with the next one that is written
                    self._remember(key, series)
                return
            series.since_s = time.monotonic()
            self._pending[key] = series
            self._wake.set()
        series.count += 1
        series.last_s = now

    async def run(self) -> None:
        """Write until cancelled; a few at a time: one that a throttled server puts off does not hold up the rest."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._writer())

    async def _writer(self) -> None:
        while True:
            async with self._turn:
                key, series = await self._next()
                self._writing[key] = series
                await asyncio.sleep(self._pause_s)
            try:
                await self._write(series)
            except ApiUnavailable as error:
                metrics.EVENTS_DROPPED.labels("unavailable").inc()
                log.warning("event dropped", reason=series.note.reason, error=str(error))
            else:
                self._remember(key, series)
            finally:
                del self._writing[key]

    async def _next(self) -> tuple[Key, _Series]:
        """What waits longest and is not being written, when its turn has come."""
        while True:
            if not self._pending:
                self._wake.clear()
                await self._wake.wait()
                self._quiet_since = time.monotonic()  # nobody looked meanwhile
            await self._yield()
            key = next((key for key in self._pending if key not in self._writing), None)
            if key is not None:
                return key, self._pending.pop(key)
            await asyncio.sleep(QUIET_S)

    async def _yield(self) -> None:
        """Wait until the API server has kept up with the rest for a moment; an Event that waited long goes anyway.

        The moment is waited for once, not before each Event: a long backlog goes at its own rate while it stays quiet.
        """
        while True:
            now = time.monotonic()
            if self._busy():
                self._quiet_since = now
            elif now - self._quiet_since >= QUIET_S:
                return
            oldest = next(iter(self._pending.values()))
            if now - oldest.since_s > STARVED_S:
                await asyncio.sleep(QUIET_S)
                return
            await asyncio.sleep(QUIET_S / 2)

    def _remember(self, key: Key, series: _Series) -> None:
        self._known[key] = series
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _take_budget(self, target: tuple[str, str, str]) -> bool:
        now = time.monotonic()
        left, at = self._budget.pop(target, (float(BURST), now))
        left = min(float(BURST), left + (now - at) / REFILL_S)
        allowed = left >= 1.0
        self._budget[target] = (left - 1.0 if allowed else left, now)
        if len(self._budget) > _REMEMBERED:
            self._budget.popitem(last=False)
        return allowed

    async def _write(self, series: _Series) -> None:
        namespace = series.note.target.namespace or "default"
        if series.name:
            body = {"count": series.count, "lastTimestamp": now_rfc3339(series.last_s)}
            path = EVENTS.path(namespace, series.name)
            answer = await self._api.call("patch", path, _encode(body), PATCH_TYPES["merge"], lane=EVENT)
            if answer.status == 200:
                metrics.EVENTS_WRITTEN.labels("patch").inc()
                return
            series.count, series.first_s = 1, series.last_s  # it has expired: begin anew
        series.name = f"{series.note.target.name[:230]}.{secrets.token_hex(8)}"
        answer = await self._api.call("create", EVENTS.path(namespace), _encode(_event(series, namespace)), lane=EVENT)
        if answer.status in (200, 201):
            metrics.EVENTS_WRITTEN.labels("create").inc()
        else:
            series.name = ""
            metrics.EVENTS_DROPPED.labels("refused").inc()
            log.debug("event refused", code=answer.status, answer=answer.body[:200].decode("utf-8", "replace"))


def _event(series: _Series, namespace: str) -> dict[str, object]:
    note = series.note
    target = note.target
    involved = {
        "apiVersion": note.api_version,
        "kind": note.kind,
        "name": target.name,
        "namespace": target.namespace,
        "uid": target.uid,
        "resourceVersion": target.resource_version,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": namespace},
        "involvedObject": {field: value for field, value in involved.items() if value},
        "type": note.type,
        "reason": note.reason,
        "message": note.note if len(note.note) <= _MAX_NOTE else note.note[: _MAX_NOTE - 1] + "…",
        "action": note.action,
        "count": series.count,
        "firstTimestamp": now_rfc3339(series.first_s),
        "lastTimestamp": now_rfc3339(series.last_s),
        "source": {"component": note.controller},
        "reportingComponent": note.controller,
        "reportingInstance": "",
    }
