"""Attempts that take too long are counted and logged, so that a scheduler that hangs is seen (spec 10 section 3.8).

An attempt begins when its unit is taken off the queue and ends when its pods are seen bound or go back; the wait of a
gang's placed members for the others is part of it. Nothing is kept for this: what is in flight is looked at every few
seconds, and what ends is compared with its beginning.
"""

from collections.abc import Iterator

import msgspec

from koord.scheduler import metrics
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.flights import Flights, open_members
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.telemetry.logs import Logger

MOST_LINES = 20
"""Pods that are named at one look; how many more there are is told besides."""


class MonitorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every ``period_s`` seconds attempts that last longer than ``timeout_s`` are told."""

    period_s: float = 10.0
    timeout_s: float = 30.0


class Monitor:
    """``profile`` is the scheduler's name where a pod's profile has none. Times are monotonic seconds."""

    def __init__(self, log: Logger, profile: str, settings: MonitorSettings | None = None) -> None:
        self.settings = settings or MonitorSettings()
        self._log = log
        self._profile = profile
        self._next = 0.0

    def tick(self, now: float, queue: SchedulingQueue, flights: Flights) -> int:
        """Look at all that is in flight, if it is time; answers how many pods are late."""
        if now < self._next:
            return 0
        self._next = now + self.settings.period_s
        late = 0
        for pod, began in _under_way(queue, flights):
            if now - began > self.settings.timeout_s:
                late += 1
                self._told(pod, now - began, named=late <= MOST_LINES)
        if late > MOST_LINES:
            self._log.warning("more attempts take longer", pods=late - MOST_LINES)
        return late

    def ended(self, pod: PodInfo, began: float, now: float) -> None:
        """An attempt ended, one way or the other."""
        if began and now - began > self.settings.timeout_s:
            self._told(pod, now - began, named=True)

    def _told(self, pod: PodInfo, took_s: float, *, named: bool) -> None:
        ref = pod.ref
        metrics.timeouts.labels(pod.class_.profile.scheduler_name or self._profile).inc()
        if named:
            self._log.warning(
                f"!!!CRITICAL TIMEOUT!!! scheduling pod {ref.namespace}/{ref.name}({ref.uid}) took longer "
                f"than the timeout {self.settings.timeout_s:g} s",
                seconds=round(took_s, 1),
            )


def _under_way(queue: SchedulingQueue, flights: Flights) -> Iterator[tuple[PodInfo, float]]:
    """Pods that are being planned, claimed or bound, and since when."""
    if queue.counts["inflight"]:
        for unit in queue.units.values():
            if unit.state == "inflight":
                for pod in unit.pods.values():
                    yield pod, unit.popped_at
    for flight in flights:
        if flight.began:
            for pod, _ in open_members(flight):
                yield pod, flight.began
