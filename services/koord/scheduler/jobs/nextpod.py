"""Which pod is tried next, where a plugin says so (NextPod, spec 10 section 3.4).

There is one such plugin in a process. It is asked whenever the loop would take a batch off the queue; the pods that it
names are the batch then, in its order, and the queue has its turn once it names nobody. A pod keeps its attempts and
the time it entered the queue; what is nominated stays so. A pod that backs off is not tried before its time.
"""

from collections.abc import Iterable, Mapping
from time import monotonic, perf_counter

from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.framework.contract import NextPodPlugin, Plugin, PluginError
from koord.scheduler.jobs import metrics
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.world import World
from koord.telemetry.logs import Logger

_READY = ("active", "backoff", "unschedulable")
SECONDS_BETWEEN_WORDS = 30.0


class NextPods:
    """``units`` is asked before each batch, of ``most`` pods."""

    def __init__(
        self, plugins: Iterable[Plugin], queue: SchedulingQueue, world: World, log: Logger, *, most: int
    ) -> None:
        able = [plugin for plugin in plugins if isinstance(plugin, NextPodPlugin)]
        self.plugin = able[0] if able else None
        self._queue = queue
        self._world = world
        self._log = log
        self._most = most
        self._said = float("-inf")
        for other in able[1:]:
            log.warning(
                "there is a NextPod plugin already, this one is not asked", plugin=other.name, asked=able[0].name
            )

    def units(self, now: float) -> list[Unit]:
        """The units of the pods that the plugin names, in flight; none: the queue has its turn. ``now``: monotonic."""
        plugin = self.plugin
        if plugin is None:
            return []
        taken: list[Unit] = []
        pods = 0
        waiting: Mapping[str, PodInfo] = self._world.pending
        while waiting and pods < self._most:
            try:
                uid = plugin.next_pod(waiting)
            except Exception as error:
                self._failed(plugin, error)
                break
            unit = None if uid is None else self._ready(uid, now)
            if unit is None:
                break
            begun = perf_counter()
            self._queue.seize(unit, now)
            metrics.next_pod_seconds.observe(perf_counter() - begun)
            taken.append(unit)
            pods += len(unit.pods)
        return taken

    def _ready(self, uid: str, now: float) -> Unit | None:
        """The unit of a pod that can be tried now: it waits here, nobody holds it back, and it does not back off; or a
        plugin that names a hopeless pod again and again would stop all others."""
        unit = self._world.unit_of(uid)
        if unit is None or unit.state not in _READY or not unit.pods or unit.ready_at > now:
            return None
        return unit

    def _failed(self, plugin: Plugin, error: Exception) -> None:
        self._world.engine.errors.append(PluginError(plugin.name, "NextPod", error))
        now = monotonic()
        if now - self._said >= SECONDS_BETWEEN_WORDS:
            self._said = now
            self._log.error("a plugin that says which pod is next failed, the queue's order counts", plugin=plugin.name)
