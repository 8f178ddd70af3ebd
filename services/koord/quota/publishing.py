"""Runtimes and sums to the schedulers and queues: one message per tree, in a stream that keeps the last of each.

Nobody waits for JetStream here: a message that is not confirmed yet is followed by a newer one once a second, of which
only the newest is sent again.
"""

import asyncio
import time
from collections.abc import Callable

from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.contracts.codec import encode
from koord.contracts.quota import QuotaRuntime
from koord.quota import metrics
from koord.quota.showing import Showing
from koord.telemetry.logs import Logger

UNCONFIRMED_S = 1.0
"""While a tree's message is not confirmed, so long is waited with the next one of the tree."""
REFRESH_S = 60.0
"""What did not change is published so often all the same: NATS may have lost its store, or a leader of before, that was
halted, may have sent an older message after ours."""


class Publishing:
    """``due()`` now and then; ``again`` is called when something has to be published once more."""

    def __init__(self, showing: Showing, bus: Bus, log: Logger, again: Callable[[], None]) -> None:
        self._showing, self._bus, self._log, self._again = showing, bus, log, again
        self._sent_s = 0.0
        self._refresh_s = 0.0
        self._unconfirmed: dict[str, int] = {}
        """By tree: the version of the newest message that is under way."""
        self._current_s: dict[str, float] = {}
        """By tree: since when nothing newer is known than what was confirmed."""

    def due(self) -> None:
        """Publish what changed, now and then everything."""
        now = time.monotonic()
        if self._unconfirmed and now - self._sent_s < UNCONFIRMED_S:
            return
        every = now >= self._refresh_s
        if self._showing.compute() or every:
            if every:
                self._refresh_s = now + REFRESH_S
            for message in self._showing.runtimes(every=every):
                self._send(message, now)

    def look(self, *, pending: bool) -> None:
        """Say how old what schedulers know is; ``pending``: something changed that is not computed yet."""
        now = time.monotonic()
        for tree in self._showing.trees:
            if not pending and tree not in self._unconfirmed and self._showing.told(tree):
                self._current_s[tree] = now
            metrics.RUNTIME_AGE.labels(tree).set(now - self._current_s.setdefault(tree, now))

    def rest(self) -> None:
        """Another leads."""
        self._refresh_s = 0.0
        self._unconfirmed.clear()
        self._current_s.clear()
        metrics.RUNTIME_AGE.clear()

    def _send(self, message: QuotaRuntime, now: float) -> None:
        tree, version = message.tree, message.version
        self._sent_s = now
        self._unconfirmed[tree] = version
        subject = self._bus.subjects.quota_runtime(tree)

        def confirmed(stored: "asyncio.Future[int]") -> None:
            newest = self._unconfirmed.get(tree) == version
            if newest:
                del self._unconfirmed[tree]
            if stored.cancelled():
                return
            error = stored.exception()
            if error is None:
                self._confirmed(message, now)
            elif newest:
                self._showing.unpublished(message)
                self._log.warning("runtimes were not published, they wait", error=str(error))
            self._again()

        try:
            self._bus.publish_acked(subject, encode(message), latest=True, live=True).add_done_callback(confirmed)
        except BusError as error:
            self._unconfirmed.pop(tree, None)
            self._showing.unpublished(message)
            self._log.warning("runtimes were not published, they wait", error=str(error))

    def _confirmed(self, message: QuotaRuntime, sent_s: float) -> None:
        """It was current when it was sent."""
        tree = message.tree
        if message.quotas:
            self._current_s[tree] = max(sent_s, self._current_s.get(tree, sent_s))
        elif self._current_s.pop(tree, None) is not None and tree not in self._showing.trees:
            metrics.RUNTIME_AGE.remove(tree)
