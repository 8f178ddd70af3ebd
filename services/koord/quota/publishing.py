"""Runtimes and sums to the schedulers and queues: a tree's in one message or in parts; a stream keeps the last of each.

Nobody waits for JetStream here: a message that is not confirmed yet is followed by a newer one, in seconds, of which
only the newest is sent again. A large tree is encoded in slices: the event loop runs in between.
"""

import asyncio
import time
from collections.abc import Callable

from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.contracts.quota import name_of_part
from koord.quota import metrics
from koord.quota.parts import Part
from koord.quota.showing import Showing
from koord.telemetry.logs import Logger

UNCONFIRMED_S = 1.0
"""For each message that is not confirmed so long is waited with the next ones: those of a large tree, sent each second
to a NATS that is away, would fill the connection's backlog, in which the decisions wait, too."""
REFRESH_S = 60.0
"""What did not change is published so often all the same: NATS may have lost its store, or a leader of before, that was
halted, may have sent an older message after ours."""
SLICE_S = 0.01
"""After so long others have the event loop."""


class Publishing:
    """``due()`` now and then; ``again`` is called when something has to be published once more."""

    def __init__(self, showing: Showing, bus: Bus, log: Logger, again: Callable[[], None]) -> None:
        self._showing, self._bus, self._log, self._again = showing, bus, log, again
        self._sent_s = 0.0
        self._refresh_s = 0.0
        self._unconfirmed: dict[tuple[str, int], int] = {}
        """By tree and part: the version of the newest message that is under way."""
        self._current_s: dict[str, float] = {}
        """By tree: since when nothing newer is known than what was confirmed."""

    async def due(self) -> None:
        """Publish what changed, now and then everything."""
        now = time.monotonic()
        if now - self._sent_s < UNCONFIRMED_S * len(self._unconfirmed):
            return
        every = now >= self._refresh_s
        self._showing.compute()
        if not (self._showing.news or every):
            return
        if every:
            self._refresh_s = now + REFRESH_S
        slice_s = now
        for part in self._showing.runtimes(every=every):
            if part is not None:
                self._send(part, now)
            elif time.monotonic() - slice_s > SLICE_S:
                await asyncio.sleep(0)
                slice_s = time.monotonic()

    def look(self, *, pending: bool) -> None:
        """Say how old what schedulers know is; ``pending``: something changed that is not computed yet."""
        now = time.monotonic()
        waited_for = {tree for tree, _ in self._unconfirmed}
        for tree in self._showing.trees:
            if not pending and tree not in waited_for and self._showing.told(tree):
                self._current_s[tree] = now
            metrics.RUNTIME_AGE.labels(tree).set(now - self._current_s.setdefault(tree, now))

    def rest(self) -> None:
        """Another leads."""
        self._refresh_s = 0.0
        self._unconfirmed.clear()
        self._current_s.clear()
        metrics.RUNTIME_AGE.clear()

    def _send(self, part: Part, now: float) -> None:
        key, version = (part.tree, part.part), part.version
        self._sent_s = now
        self._unconfirmed[key] = version
        subject = self._bus.subjects.quota_runtime(name_of_part(part.tree, part.part))

        def confirmed(stored: "asyncio.Future[int]") -> None:
            newest = self._unconfirmed.get(key) == version
            if newest:
                del self._unconfirmed[key]
            if stored.cancelled():
                return
            error = stored.exception()
            if error is None:
                self._confirmed(part, now)
            elif newest:
                self._unpublished(part, error)
            self._again()

        try:
            self._bus.publish_acked(subject, part.body, latest=True, live=True).add_done_callback(confirmed)
        except BusError as error:
            self._unconfirmed.pop(key, None)
            self._unpublished(part, error)

    def _unpublished(self, part: Part, error: BaseException) -> None:
        self._showing.unpublished(part)
        self._log.warning("runtimes were not published, they wait", tree=part.tree, part=part.part, error=str(error))

    def _confirmed(self, part: Part, sent_s: float) -> None:
        """It was current when it was sent, as far as nothing else of the tree is under way or waits."""
        tree = part.tree
        if not part.gone:
            if self._showing.sent(tree) and all(other != tree for other, _ in self._unconfirmed):
                self._current_s[tree] = max(sent_s, self._current_s.get(tree, sent_s))
        elif tree not in self._showing.trees and self._current_s.pop(tree, None) is not None:
            metrics.RUNTIME_AGE.remove(tree)
