"""A note in the API: until when this gateway may have executed decisions that only their publishers knew.

While the queue has no leader, a decision may be executed before any stream holds it (:mod:`koord.bus.livedecisions`).
If the gateway dies then, and the ledger is lost too, the next gateway finds that decision nowhere, yet its request may
still be under way; a barrier that does not know of it would be wrong. So before the first such decision with a claim is
executed, the Lease of the ledger says how long that may go on, and a barrier outlives it.
"""

import time
from typing import Final

from koord.gateway.ledgerlease import LedgerLease, notes_of
from koord.kube.meta import micro_rfc3339, parse_time

LIVE: Final = "koord.sh/live-decisions"
"""Annotation of the Lease ``koord-ledger``: the time until which decisions may be taken that no queue holds."""
COVER_S: Final = 30.0
"""Longer than an election: mostly one note for each is enough. A barrier never waits longer for it than the time-out of
a request after the begin of its own term."""
SPARE_S: Final = 5.0
LINGER_S: Final = 180.0
"""How long after it was taken a decision that only a dead publisher knew may still send requests: its claim's lease
(30 s) bounds the wait in the lanes, six rounds of a request (15 s) and a pause (10 s) all that follows."""
SKEW_S: Final = 2.0
"""How far the clocks of two gateways may be apart."""


class LiveMark:
    """The note of one term of leadership."""

    def __init__(self, lease: LedgerLease) -> None:
        self._lease = lease
        self._until = 0.0
        self._earlier: str | None = None

    async def cover(self) -> None:
        """Return once the Lease says that such decisions may be executed for some seconds. ApiUnavailable."""
        now = time.time()
        if now < self._until - SPARE_S:
            return
        until = now + COVER_S
        while True:
            lease = await self._lease.read()
            if self._earlier is None:
                self._earlier = notes_of(lease).get(LIVE, "")
            if await self._lease.write(lease, {LIVE: micro_rfc3339(until)}):
                self._until = until
                return

    def earlier(self, noted: str) -> float:
        """Until when a gateway before this term may have sent requests for such decisions; wall clock, 0: never.

        ``noted`` is what the Lease says now.
        """
        text = noted if self._earlier is None else self._earlier
        if not text:
            return 0.0
        try:
            return parse_time(text) + LINGER_S + SKEW_S
        except ValueError:
            return time.time()  # somebody wrote nonsense: the cautious reading
