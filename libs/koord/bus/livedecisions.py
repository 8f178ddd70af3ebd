"""Past the consumer: decisions that the queue does not hold yet, or whose consumer has no leader.

In a NATS cluster both the stream and its consumer, each a raft group of its own, may be without a leader for 4 to 9 s.
What a publisher cannot get confirmed it also sends live (:mod:`koord.bus.livecopies`); what the stream holds any
replica answers (:mod:`koord.bus.directread`). Both are handed on as deliveries that nobody can acknowledge. The
consumer brings them again when it is back, and only that settles them: whoever executes a decision must know it again
by its id.

What the consumer delivered into a connection that died is read directly, too: it would come again only after its
``ack_wait``. What the stream holds goes first: it is older than what only its publisher has;
where no replica answers, what came live does not wait for it (nobody decides twice about one object before an answer).
"""

import asyncio
import contextlib
from collections import deque
from typing import Final

from nats.aio.subscription import Subscription

from koord.bus.connection import Bus
from koord.bus.directread import read_stored
from koord.bus.ending import cancelled
from koord.bus.errors import BusError
from koord.bus.pull import Pulled, PullLoop
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

KEEP_S: Final = 15.0
"""How long a standby remembers: longer than an election, and than its own taking over."""
MOST_BYTES: Final = 16 << 20
LOOK_S: Final = 0.25
READ_AGAIN_S: Final = 0.1
READ_S: Final = 0.5
PATIENCE_S: Final = 1.2
"""A consumer that is not made within this long is not waited for."""
PAGE: Final = 256
FULL: Final = 1024
"""Deliveries that wait before no more are read past the consumer."""


class LiveDecisions:
    """What was sent live lately. A gateway listens for its whole life: a standby takes over what came before."""

    def __init__(self, bus: Bus, *, keep_s: float = KEEP_S, most_bytes: int = MOST_BYTES) -> None:
        self._bus = bus
        self._keep_s = keep_s
        self._most_bytes = most_bytes
        self._came: deque[tuple[float, Pulled]] = deque()
        self._bytes = 0
        self._loop = asyncio.get_running_loop()
        self._subscription: Subscription | None = None
        self.news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._came)

    def start(self) -> None:
        """Begin to listen."""
        if self._subscription is None:
            self._subscription = self._bus.subscribe_raw(self._bus.subjects.live_decision_all, self._receive)

    def close(self) -> None:
        """Stop."""
        if self._subscription is not None:
            self._bus.unsubscribe_raw(self._subscription)
            self._subscription = None

    def take(self) -> list[Pulled]:
        """What came in the last ``keep_s`` seconds and was not taken, in the order in which it came."""
        self._trim()
        found = [pulled for _, pulled in self._came]
        self._came.clear()
        self._bytes = 0
        self.news.clear()
        return found

    def _receive(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        # As it is called in the stream: koord.<cluster>.live.decision.<service>.<kind> less one token.
        tokens = subject.split(b".", 3)
        self._came.append((self._loop.time(), Pulled(b".".join((*tokens[:2], tokens[3])), b"", headers, body, False)))
        self._bytes += len(body)
        self._trim()
        self.news.set()

    def _trim(self) -> None:
        until = self._loop.time() - self._keep_s
        while self._came and (self._came[0][0] < until or self._bytes > self._most_bytes):
            self._bytes -= len(self._came.popleft()[1].body)


class QueueBypass:
    """Puts into ``loop`` what does not come through its consumer; of a single server only what got lost on the way."""

    def __init__(self, bus: Bus, loop: PullLoop, live: LiveDecisions, stream: str, filter_subject: str) -> None:
        self._bus = bus
        self._pull = loop
        self._live = live
        self._stream = stream
        self._filter = filter_subject
        self._read_at = float("-inf")
        self.found = 0

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop()
        begun = clock.time()
        told = False
        while not cancelled():
            pull = self._pull
            if self._bus.connected and pull.waiting < FULL:
                # Before the streams are known to be there again nobody asks the consumer for anything.
                blind = self._bus.clustered and (
                    self._bus.recovering or (pull.blind if pull.ready else clock.time() - begun > PATIENCE_S)
                )
                if blind and not told:
                    log.warning("the consumer is silent, the queue is read directly", stream=self._stream)
                told = blind
                if (blind or pull.gap or len(self._live)) and await self._look():
                    continue
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._live.news.wait(), LOOK_S)
            else:
                await asyncio.sleep(LOOK_S)

    async def _look(self) -> bool:
        """Hand on what the stream holds and what was sent live; whether there may be more in the stream."""
        pull, clock = self._pull, asyncio.get_running_loop()
        stored: list[Pulled] = []
        full = False
        gaps = pull.gaps
        if pull.gap or clock.time() - self._read_at > READ_AGAIN_S:
            try:
                page = await read_stored(
                    self._bus, self._stream, self._filter, pull.position + 1, most=PAGE, timeout=READ_S
                )
            except BusError as error:
                log.debug("the queue cannot be read directly: %s", error)
            else:
                full = len(page) >= PAGE
                for message in page:
                    # The consumer may have brought some meanwhile.
                    if message.sequence > pull.position:
                        pull.position = message.sequence
                        stored.append(Pulled(message.subject, b"", message.headers, message.body))
                if not full:
                    pull.filled = gaps
            if not full:
                self._read_at = clock.time()
        found = stored if full else stored + self._live.take()
        self.found += len(found)
        pull.push(found)
        return full and pull.waiting < FULL
