"""Says that a nats-server's disk is full, and starts the server again once there is room.

A JetStream store that could not write once refuses every message from then on, also when there is room again, and
answers nothing (seen with nats-server 2.15.1): its clients only see time pass. Nothing but its log tells, and nothing
but a restart helps; what was confirmed is still there then.
"""

import asyncio
import re
import shutil
import time
from collections.abc import Sequence

from koord.localcluster.process import LineSink
from koord.localcluster.servers import NatsServer
from koord.localcluster.supervisor import Backoff

EVERY_S = 5.0
COMPLAIN_S = 60.0
# Less than that is gone again with the first block of messages.
ROOM_BYTES = 16 << 20
_FULL = re.compile(rb"no space left on device|disk quota exceeded", re.IGNORECASE)
_READ_BYTES = 1 << 20


class StoreWatch:
    """Looks into the logs of servers whom somebody starts again when they end (a Supervisor)."""

    def __init__(
        self, servers: Sequence[NatsServer], sink: LineSink, *, every_s: float = EVERY_S, room_bytes: int = ROOM_BYTES
    ) -> None:
        self.restarted = 0
        self._servers = servers
        self._sink = sink
        self._every_s = every_s
        self._room = room_bytes
        self._read: dict[str, int] = {server.name: _size(server) for server in servers}
        self._full: dict[str, float] = {}
        self._backoff = Backoff(first_s=2 * every_s, limit_s=300.0, healthy_s=300.0)
        self._not_before = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            for server in self._servers:
                if await asyncio.to_thread(self._says_full, server):
                    self._full.setdefault(server.name, -COMPLAIN_S)
            if all(server.pid is not None for server in self._servers):  # else one is being started, wait for it
                await self._help(time.monotonic())

    async def _help(self, now: float) -> None:
        for server in self._servers:
            if server.name not in self._full:
                continue
            free = shutil.disk_usage(server.directory).free
            if free < self._room:
                if now - self._full[server.name] >= COMPLAIN_S:
                    self._full[server.name] = now
                    self._sink(
                        f"[{server.name}] its disk is full, nothing can be stored: {free >> 20} MiB are free at"
                        f" {server.directory}; it starts again once there are {self._room >> 20} MiB"
                    )
            elif now >= self._not_before:
                self._sink(f"[{server.name}] there is room on its disk again; it is started again to take messages")
                self._not_before = now + self._backoff.after(now - self._not_before)
                del self._full[server.name]
                self.restarted += 1
                await server.end()
                self._read[server.name] = _size(server)  # what it said before it ended is history
                return  # one at a time

    def _says_full(self, server: NatsServer) -> bool:
        """Whether it has said so since the last look."""
        size, start = _size(server), self._read[server.name]
        if size <= start:
            self._read[server.name] = size
            return False
        with server.log_file.open("rb") as log:
            log.seek(max(start, size - _READ_BYTES))
            self._read[server.name] = size
            return _FULL.search(log.read(_READ_BYTES)) is not None


def _size(server: NatsServer) -> int:
    try:
        return server.log_file.stat().st_size
    except OSError:
        return 0
