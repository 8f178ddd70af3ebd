"""Events do not live for ever: an hour, as in Kubernetes, and never more than a fixed number of them."""

import asyncio
import contextlib
import time
from collections import deque

from koord.localcluster.api.builtin import EVENTS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.store import decode
from koord.localcluster.clusterapi import ApiError

EVENT_SECONDS = 3_600.0
MAX_EVENTS = 10_000
_EVERY_SECONDS = 30.0
_YIELD_EVERY = 500


class EventExpiry:
    """Decides which events are over. Their age is read from the version counter, sampled over time."""

    def __init__(self, cluster: Cluster, seconds: float = EVENT_SECONDS, limit: int = MAX_EVENTS) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._limit = limit
        self._samples: deque[tuple[float, int]] = deque()

    async def sweep(self, now: float) -> int:
        """Remove events last written more than the lifetime ago, and the oldest ones over the limit; how many."""
        self._samples.append((now, self._cluster.store.version))
        over = 0
        while self._samples and self._samples[0][0] <= now - self._seconds:
            over = self._samples.popleft()[1]
        collection = self._cluster.collection(EVENTS)
        if not over and collection.count <= self._limit:
            return 0
        entries = sorted(collection.entries(), key=lambda entry: entry.version)
        surplus = max(0, len(entries) - self._limit)
        removed = 0
        for i, entry in enumerate(entries):
            if i >= surplus and entry.version > over:
                break
            if collection.get(entry.namespace, entry.name) is entry:
                self._cluster.remove(EVENTS, entry, decode(entry))
                removed += 1
                if removed % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        return removed


async def expire_forever(cluster: Cluster) -> None:
    """Sweep now and then."""
    expiry = EventExpiry(cluster)
    while True:
        # A full disk refuses deletions too; the next sweep tries again.
        with contextlib.suppress(ApiError):
            await expiry.sweep(time.monotonic())
        await asyncio.sleep(_EVERY_SECONDS)
