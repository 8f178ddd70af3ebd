"""The API's watch history, recorded: every change of pods, nodes, quotas and queue units, in the server's order.

A version of one API server orders the changes of all resources, so the history can be judged afterwards in the order in
which things happened, whatever order the watches delivered them in.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from koord.localcluster.clusterapi import ApiError, ClusterApi

RESOURCES = (
    "nodes",
    "pods",
    "elasticquotas.scheduling.sigs.k8s.io",
    "queueunits.scheduling.x-k8s.io",
)


class Change(NamedTuple):
    """One change: when it was made (``version``), when it was seen (monotonic seconds), what and how."""

    version: int
    seen_s: float
    resource: str
    type: str
    raw: bytes


class History:
    """Follows the resources until it is stopped; what it missed (a broken watch) is counted, never guessed.

    ``keep=False`` only tells the listener: hours of changes would not fit into memory. The listener gets the changes
    of one resource in the server's order, those of different resources as they come.
    """

    def __init__(self, api: ClusterApi, *, keep: bool = True) -> None:
        self._api = api
        self._keep = keep
        self._changes: list[Change] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.listener: Callable[[Change], None] | None = None
        self._gaps = 0

    @property
    def gaps(self) -> int:
        """Watches that missed changes; one that a listener's error ended misses all that come after."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled() and task.exception() is not None]
        return self._gaps + len(ended)

    async def start(self) -> None:
        """Follow every resource; returns when each has shown what exists."""
        synced = [asyncio.Event() for _ in RESOURCES]
        self._tasks = [
            asyncio.create_task(self._follow(resource, event), name=f"history of {resource}")
            for resource, event in zip(RESOURCES, synced, strict=True)
        ]
        for event in synced:
            await event.wait()

    async def stop(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def changes(self) -> Iterator[Change]:
        """All changes in the server's order."""
        return iter(sorted(self._changes, key=lambda change: change.version))

    async def _follow(self, resource: str, synced: asyncio.Event) -> None:
        version: str | None = None
        while True:
            try:
                async for events in self._api.watch(resource, resource_version=version):
                    now = time.monotonic()
                    for event in events:
                        if event.type == "BOOKMARK":
                            synced.set()
                        else:
                            change = Change(event.resource_version, now, resource, event.type, event.raw)
                            if self._keep:
                                self._changes.append(change)
                            if self.listener is not None:
                                self.listener(change)
                        version = str(event.resource_version)
            except ApiError as error:
                if error.code == 410:
                    self._gaps += 1
                    version = None
            await asyncio.sleep(0.1)


def decode(raw: bytes) -> Any:
    """An object of the history."""
    return msgspec.json.decode(raw)
