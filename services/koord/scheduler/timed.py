"""One batch of ten is timed: what its plugins took goes into upstream's metrics (spec 10 section 5)."""

from collections.abc import Sequence

from koord.scheduler import metrics
from koord.scheduler.engine.timing import Timing
from koord.scheduler.queueing.queue import Unit

EVERY = 10
"""As upstream, which times one cycle of ten. The first batch is timed."""


class TimedBatches:
    """``begin`` before a batch is planned, ``end`` after it."""

    def __init__(self, timing: Timing, profile: str) -> None:
        self._timing = timing
        self._profile = profile
        self._batches = 0

    def begin(self) -> None:
        """A batch is about to be planned."""
        if self._batches % EVERY == 0:
            self._timing.begin()
        self._batches += 1

    def end(self, units: Sequence[Unit]) -> None:
        """The batch of ``units`` is planned. Points count under the profile of its first pod."""
        timing = self._timing
        if not timing.on:
            return
        timing.end()
        for (plugin, point, status), calls in timing.calls.items():
            observe = metrics.plugin_seconds.labels(plugin, point, status).observe
            for seconds in calls:
                observe(seconds)
        pods = [pod for unit in units for pod in unit.pods.values()]
        if pods:
            profile = pods[0].class_.profile.scheduler_name or self._profile
            for (point, status), seconds in timing.totals.items():
                metrics.point_seconds.labels(point, status, profile).observe(seconds / len(pods))
        for evaluated, feasible in timing.nodes:
            metrics.evaluated_nodes.observe(evaluated)
            metrics.feasible_nodes.observe(feasible)
