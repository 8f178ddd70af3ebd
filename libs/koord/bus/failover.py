"""Which server to go to after a loss, and when to leave one that is connected but useless.

A server that is parted from the others keeps its clients' connections and answers their pings, yet nothing can be
stored through it and what it shows is old. So where there are several servers, each connection asks now and then a
question that only the cluster's leader answers, and moves on when it stays unanswered for longer than any election of a
leader takes (nats-server's election timeout is 4 to 9 s).
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio.client import Server

from koord.bus.client import HotClient
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

FIRST_WAIT_S = 0.05
# A server that is restarted is back in about a second: what is waited for then is mostly our own next attempt.
SOON_WAIT_S = 0.2
SOON_TURNS = 30
MOST_WAIT_S = 1.0
PROBE_EVERY_S = 3.0
# More silence than an election can cause: 9 s and the time of its votes.
PROBES = 4


class Rotation:
    """Answers nats-py's question where to reconnect: whom we tried longest ago; rounds wait longer each, with jitter.

    The jitter keeps a thousand clients of one dead server from arriving at the next one in the same millisecond.
    """

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._tried: dict[str, int] = {}
        self._number = 0
        self._attempts = 0

    def lost(self, server: str) -> None:
        """The connection to ``server`` (host:port) ended: it is the last to be tried again."""
        self._number += 1
        self._tried[server] = self._number
        self._attempts = 0

    def choose(self, servers: list[Server], _information: dict[str, Any]) -> tuple[Server | None, float]:
        """The next server and the seconds to wait before it is tried."""
        if not servers:
            return None, MOST_WAIT_S
        chosen = min(servers, key=lambda server: self._tried.get(server.uri.netloc, 0))
        turn = self._attempts // len(servers)
        self._attempts += 1
        self._number += 1
        self._tried[chosen.uri.netloc] = self._number
        return chosen, self.wait(turn)

    def wait(self, turn: int) -> float:
        """Seconds before an attempt of the ``turn``-th round over all servers."""
        most = SOON_WAIT_S if turn < SOON_TURNS else MOST_WAIT_S
        return float(min(FIRST_WAIT_S * 2 ** min(turn, 10), most) * (0.5 + self._draw()))


class Probe:
    """Leaves a server that is cut off from the cluster's leader."""

    def __init__(self, client: HotClient, url: str) -> None:
        self._client = client
        self._url = url

    async def run(self) -> None:
        """For as long as the connection is wanted; does nothing where there is nowhere else to go."""
        failed = 0
        while True:
            await asyncio.sleep(PROBE_EVERY_S * random.uniform(0.9, 1.1))
            if not self._client.is_connected or len(self._client.server_pool) < 2:
                failed = 0
                continue
            failed = 0 if await self._answered() else failed + 1
            if failed >= PROBES and self._client.is_connected:
                log.warning("the NATS server is cut off from its cluster, moving on", url=self._url)
                failed = 0
                await self._client.move_on()

    async def _answered(self) -> bool:
        try:
            answer = await self._client.request("$JS.API.INFO", b"", timeout=PROBE_EVERY_S)
            # A server without a leader says so itself, in time.
            return b'"error"' not in answer.data
        except (nats.errors.Error, OSError):
            return False
