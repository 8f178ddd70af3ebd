"""The pods of a benchmark as the API's watch shows them: when each was created, when it got its node, what is left.

Times are monotonic seconds of this process. A pod that the benchmark creates itself is told of before the request is
sent (:meth:`Population.expect`); one that an operator makes counts from the moment its ADDED was seen. Everything that
is seen also goes to the checker.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from koord.cli.demo.checker import Checker, Violation
from koord.cli.demo.history import Change, History, decode
from koord.localcluster.clusterapi import ClusterApi

_POLL_S = 0.02
_OVER = frozenset(("Succeeded", "Failed"))
_ADMITTED = "Dequeued"

MISFIT = "bench-misfit"
"""Label of pods that are meant to fit nowhere: nobody waits for them."""


class Population:
    """Follows pods, quotas and QueueUnits; an async context manager."""

    def __init__(self, api: ClusterApi) -> None:
        self.checker = Checker()
        self.waiting: dict[str, float] = {}
        """Pods without a node, by ``ns/name``: when they were created; the oldest first."""
        self.waits: dict[str, tuple[float, float]] = {}
        """(created, bound) of the pods of this chapter."""
        self.bound_at: list[float] = []
        """Every binding of this chapter, in order."""
        self.admissions: Counter[str] = Counter()
        """How often each unit was admitted, by ``ns/name``."""
        self.made: Counter[str] = Counter()
        """Pods made for each unit, by the unit's ``ns/name``."""
        self.units_over: set[str] = set()
        self.live: set[str] = set()
        self._phases: dict[str, str] = {}
        self._history = History(api, keep=False)
        self._history.listener = self._see

    async def __aenter__(self) -> "Population":
        await self._history.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._history.stop()

    def expect(self, key: str) -> None:
        """A pod of that ``ns/name`` is about to be created."""
        self.waiting[key] = time.monotonic()

    def chapter(self) -> None:
        """Begin anew to collect waits."""
        self.waits.clear()
        self.bound_at.clear()

    @property
    def gaps(self) -> int:
        """Watches that missed changes: then the history judges nothing."""
        return self._history.gaps

    def violations(self) -> list[Violation]:
        """What must not happen and did, a broken history included."""
        missed = [Violation("history incomplete", "watch", f"{self.gaps} gaps")] if self.gaps else []
        return [*self.checker.finish(), *missed]

    def oldest_s(self) -> float:
        """Age of the pod that waits longest; 0 if none waits."""
        created = next(iter(self.waiting.values()), None)
        return 0.0 if created is None else time.monotonic() - created

    async def level(self, since: float, *, calm_s: float, timeout_s: float) -> float | None:
        """When binding had caught up: nobody waited longer than ``calm_s``, and that lasted as long; None: it did not.

        Looked for from ``since`` on, a monotonic time that may lie ahead.
        """
        await asyncio.sleep(max(0.0, since - time.monotonic()))
        deadline = time.monotonic() + timeout_s
        calm_from: float | None = None
        while time.monotonic() < deadline:
            now = time.monotonic()
            if self.oldest_s() > calm_s:
                calm_from = None
            elif calm_from is None:
                calm_from = now
            elif now - calm_from >= calm_s:
                return calm_from
            await asyncio.sleep(_POLL_S)
        return None

    async def all_bound(self, stall_s: float) -> bool:
        """Wait until nobody waits; False when nothing was bound for ``stall_s`` while somebody did."""
        seen, since = -1, time.monotonic()
        while self.waiting:
            if len(self.waiting) != seen:
                seen, since = len(self.waiting), time.monotonic()
            elif time.monotonic() - since > stall_s:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _see(self, change: Change) -> None:
        item = decode(change.raw)
        if change.resource == "pods":
            self._pod(item, change)
        elif change.resource.startswith("queueunits."):
            self._unit(item, change)
        self.checker.see(change, item)

    def _pod(self, pod: Any, change: Change) -> None:
        meta = pod["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        if MISFIT in (meta.get("labels") or {}):
            return
        if change.type == "ADDED":
            self.live.add(key)
            self.waiting.setdefault(key, change.seen_s)
            unit = (meta.get("annotations") or {}).get("koord-queue/related-queueunit")
            if unit:
                self.made[unit] += 1
        if change.type == "DELETED":
            self.live.discard(key)
            self.waiting.pop(key, None)
        elif pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in _OVER:
            created = self.waiting.pop(key, None)
            if created is not None:
                self.waits[key] = (created, change.seen_s)
                self.bound_at.append(change.seen_s)

    def _unit(self, unit: Any, change: Change) -> None:
        meta = unit["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        phase = unit.get("status", {}).get("phase", "")
        if phase == _ADMITTED and self._phases.get(meta["uid"]) != _ADMITTED:
            self.admissions[key] += 1
        if change.type == "DELETED":
            self._phases.pop(meta["uid"], None)
            return
        self._phases[meta["uid"]] = phase
        if phase in ("Succeed", "Failed"):
            self.units_over.add(key)


async def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until ``condition`` holds; False if it did not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True
