"""How long the replicas of koord's streams are behind their leaders: for whoever runs the NATS servers.

A stream with three replicas of which one is behind works, and stops with the next loss. nats-server says nothing of it
to its clients, so one process, the gateway that leads, asks now and then, keeps a metric and warns. What to do stands
in docs/bus.md ("Several servers").
"""

import asyncio
import time
from collections.abc import Iterable

import msgspec
import nats.errors
import nats.js.errors

from koord.bus.connection import Bus
from koord.telemetry.logs import get_logger
from koord.telemetry.metrics import gauge

log = get_logger("koord.bus")

EVERY_S = 10.0
# More than an election, a restart or the filling of a small store takes.
LATE_S = 20.0
AGAIN_S = 300.0

_behind = gauge(
    "koord_bus_replica_behind_seconds",
    "For how long a server's copy of a stream has not been current (0: it is)",
    ("stream", "server"),
)


class Peer(msgspec.Struct, frozen=True):
    """A copy of a stream that does not lead. ``lag``: entries that it lacks, as far as the leader knows."""

    server: str
    current: bool
    offline: bool
    lag: int


class Lateness:
    """Since when each copy is not current, and whether to warn of it now. Time is passed in, in seconds."""

    def __init__(self, late_s: float = LATE_S) -> None:
        self._late_s = late_s
        self._since: dict[tuple[str, str], float] = {}
        self._warned: dict[tuple[str, str], float] = {}

    def look(self, now: float, stream: str, peers: Iterable[Peer]) -> list[tuple[Peer, float]]:
        """Take in what a stream's leader says of the others; whom to warn of, with the seconds that it is late."""
        found = {(stream, peer.server): peer for peer in peers}
        for key in [key for key in self._since if key[0] == stream and key not in found]:
            self._current(key)  # it has no copy any more
            _behind.remove(*key)
        late: list[tuple[Peer, float]] = []
        for key, peer in found.items():
            if peer.current and not peer.offline:
                self._current(key)
                _behind.labels(*key).set(0)
                continue
            seconds = now - self._since.setdefault(key, now)
            _behind.labels(*key).set(seconds)
            if seconds >= self._late_s and now - self._warned.get(key, now - AGAIN_S) >= AGAIN_S:
                self._warned[key] = now
                late.append((peer, seconds))
        return late

    def _current(self, key: tuple[str, str]) -> None:
        self._since.pop(key, None)
        self._warned.pop(key, None)


async def watch_replicas(bus: Bus, *, every_s: float = EVERY_S, late_s: float = LATE_S) -> None:
    """Until it is cancelled: one question per stream each ``every_s`` seconds. Nothing where a stream has one copy."""
    lateness = Lateness(late_s)
    subjects = bus.subjects
    streams = (
        subjects.state_stream,
        subjects.decisions_stream,
        subjects.quota_stream,
        f"KV_{subjects.leases_bucket}",
    )
    try:
        while True:
            await asyncio.sleep(every_s)
            for stream in streams:
                peers = await _peers(bus, stream)
                if peers is None:
                    continue  # no leader at the moment: nobody knows
                for peer, seconds in lateness.look(time.monotonic(), stream, peers):
                    log.warning(
                        "a NATS server stays behind in a stream; one more loss may stop it",
                        stream=stream,
                        server=peer.server,
                        state="does not answer" if peer.offline else f"lacks {peer.lag} entries",
                        for_s=round(seconds),
                        remedy="docs/bus.md, Several servers",
                    )
    finally:
        _behind.clear()  # whoever leads now tells


async def _peers(bus: Bus, stream: str) -> list[Peer] | None:
    try:
        cluster = (await bus.js_quick.stream_info(stream)).cluster
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError):
        return None
    if cluster is None or not cluster.leader:
        return None
    return [
        Peer(peer.name or "", bool(peer.current), bool(peer.offline), peer.lag or 0) for peer in cluster.replicas or []
    ]
