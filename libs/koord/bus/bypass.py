"""What a blind reader does: it reads its stream directly, from where it stands, until it has a consumer again.

A consumer dies with its server, and without a leader of JetStream's bookkeeping no other can be made for 4 to 9 s. What
the stream takes meanwhile every replica can show (:mod:`koord.bus.directread`). It is handed to the same sink, in the
order of the stream. This is a short cut beside the consumer and never its replacement: the reader replays when it can,
and a sink must take what it has seen already.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from koord.bus.connection import Bus
from koord.bus.directread import read_stored
from koord.bus.errors import BusError
from koord.telemetry.logs import get_logger
from koord.telemetry.metrics import counter

log = get_logger("koord.bus")

EVERY_S = 0.25
TIMEOUT_S = 1.0
# One page is told in one go: about 10 ms.
PAGE = 200
PAGE_BYTES = 4 << 20


_reads = counter("koord_bus_direct_reads", "Messages of a stream that a reader without a consumer read directly")


class Told(Protocol):
    """The part of a reader's sink that a bypass needs."""

    def message(self, subject: bytes, headers: bytes | None, body: bytes, sequence: int) -> None:
        """One message of the stream."""

    def pause(self) -> None:
        """The end of a page."""


class Bypass:
    """Reads ``filter_subject`` of ``stream`` into ``sink`` while ``is_blind()``, from ``reached`` on (0: never)."""

    def __init__(self, bus: Bus, stream: str, filter_subject: str, sink: Told, is_blind: Callable[[], bool]) -> None:
        self._bus = bus
        self._stream = stream
        self._filter = filter_subject
        self._sink = sink
        self._is_blind = is_blind
        self._look = asyncio.Event()
        # The stream's number of the last message that was told, by whomever.
        self.reached = 0
        self.read = 0

    def look(self) -> None:
        """The reader may be blind."""
        self._look.set()

    async def run(self) -> None:
        """For as long as the reader lives."""
        while True:
            self._look.clear()
            await self._look.wait()
            before = self.read
            while self._is_blind():
                try:
                    while await self._page():
                        pass
                except (BusError, OSError) as error:
                    log.debug("reading %s of %s directly: %s", self._filter, self._stream, error)
                await asyncio.sleep(EVERY_S)
            if self.read > before:
                log.info("read %d messages of %s without a consumer", self.read - before, self._filter)

    async def _page(self) -> bool:
        """One page; whether there may be more."""
        first = self.reached + 1
        if first == 1 or not self._is_blind():
            return False
        page = await read_stored(
            self._bus, self._stream, self._filter, first, most=PAGE, most_bytes=PAGE_BYTES, timeout=TIMEOUT_S
        )
        # Meanwhile there may be a consumer again, or another stream.
        if not page or not self._is_blind() or self.reached + 1 < first:
            return False
        for stored in page:
            if stored.sequence > self.reached:
                self._sink.message(stored.subject, stored.headers, stored.body, stored.sequence)
                self.reached = stored.sequence
                self.read += 1
        _reads.inc(len(page))
        self._sink.pause()
        return True
