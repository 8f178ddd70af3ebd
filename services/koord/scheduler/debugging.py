"""What the log is told of single attempts while somebody wants to know: scores, refusals, diagnoses (spec 10, 3.7).

All of it is off by default and costs one comparison per batch then. While it is on, pods are looked at right before
they are placed, so what is logged is what placing saw; so many a second at most, the rest is counted and placed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from koord.kube.meta import micro_rfc3339
from koord.kube.protocol.scheduler import TOPOLOGY_KEY_TO_EXPLAIN
from koord.scheduler import metrics
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.inspecting import Refused, best, refusals
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.framework.contract import PluginError
from koord.telemetry.logs import Logger

MOST_NAMES = 100
"""Names of nodes for each reason; how many there are is told besides."""
PER_SECOND = 100
"""Pods that are looked at in a second."""
_encode = msgspec.json.Encoder().encode


class DebugSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``scores``: log that many of the best nodes of each pod; ``filters``: log who refuses which nodes; ``diagnosis``:
    log the diagnosis of pods that failed, ``blocking`` at once or by a task with a queue of ``queue_size``.
    ``flags``: whether all this may be changed over HTTP while the service runs.
    """

    scores: int = 0
    filters: bool = False
    diagnosis: bool = False
    blocking: bool = False
    queue_size: int = 1000
    flags: bool = True


class Debugging:
    """The flags as they are now, and what they make of an attempt."""

    def __init__(self, engine: Engine, log: Logger, settings: DebugSettings | None = None) -> None:
        settings = settings or DebugSettings()
        self._engine = engine
        self._log = log
        self.scores = settings.scores
        self.filters = settings.filters
        self.diagnosis = settings.diagnosis
        self.blocking = settings.blocking
        self._size = settings.queue_size
        self._waiting: deque[dict[str, Any]] = deque()
        self._wake = asyncio.Event()
        self._second = 0
        self._looked = 0
        self._kept: tuple[object, int, tuple[Refused, ...]] | None = None

    @property
    def watches(self) -> bool:
        """Whether pods are to be looked at before they are placed."""
        return self.scores > 0 or self.filters

    def before(self, pod: PodInfo) -> None:
        """A pod is about to be placed."""
        if not self._may("attempt"):
            return
        name = f"{pod.ref.namespace}/{pod.ref.name}"
        try:
            if self.scores > 0:
                table = best(self._engine, pod.class_, self.scores)
                rows = [{"node": row.node, "score": row.total, **row.plugins} for row in table]
                self._log.info("scores of the best nodes", pod=name, nodes=rows)
            if self.filters:
                for refused in self._refusals(pod):
                    self._log.info(
                        "nodes were filtered out",
                        pod=name,
                        plugin=refused.plugin,
                        reason=refused.reason,
                        nodes=refused.nodes,
                        names=list(refused.names),
                    )
        except PluginError as error:
            self._log.info("a pod could not be looked at", pod=name, error=str(error))

    def failed(self, pods: Sequence[tuple[PodInfo, Diagnosis]]) -> None:
        """Pods found no place."""
        for pod, diagnosis in pods:
            if not self._may("diagnosis"):
                continue
            try:
                details = self._refusals(pod)
            except PluginError:
                details = ()
            report = diagnosis_report(pod, diagnosis, details, self._engine.nominated.node_of(pod.uid), time.time())
            if self.blocking:
                self._dump(report)
            elif len(self._waiting) >= self._size:
                metrics.debug_dropped.labels("queue").inc()
            else:
                self._waiting.append(report)
                self._wake.set()

    async def dump(self) -> None:
        """Until cancelled: write what waits, one after the other, leaving the loop to others in between."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                self._dump(self._waiting.popleft())
                await asyncio.sleep(0)

    def _dump(self, report: dict[str, Any]) -> None:
        self._log.info("diagnosis", pod=report["questionedKey"], diagnosis=_encode(report).decode())

    def _may(self, what: str) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._looked = second, 0
        self._looked += 1
        if self._looked > PER_SECOND:
            metrics.debug_dropped.labels(what).inc()
            return False
        return True

    def _refusals(self, pod: PodInfo) -> tuple[Refused, ...]:
        """Equal pods that fail one after the other are looked at once."""
        end = self._engine.cluster.journal.end
        kept = self._kept
        if kept is None or kept[0] is not pod.class_ or kept[1] != end:
            kept = self._kept = pod.class_, end, tuple(refusals(self._engine, pod.class_, MOST_NAMES))
        return kept[2]


def diagnosis_report(
    pod: PodInfo, diagnosis: Diagnosis, details: Sequence[Refused], nominated: str, now: float
) -> dict[str, Any]:
    """The original's diagnosis of one attempt. ``details`` are sorted by plugin and reason; where PreFilter rejected
    the pod no node was looked at, and its message says it all."""
    key = f"{pod.ref.namespace}/{pod.ref.name}"
    message, _, preemption = diagnosis.message.partition(" preemption: ")
    counted = {(reason.plugin, reason.reason) for reason in diagnosis.reasons}
    by_nodes = not diagnosis.whole and bool(counted & {(each.plugin, each.reason) for each in details})
    scheduling: dict[str, Any] = {"failedMessage": message}
    if by_nodes:
        scheduling["nodeFailedDetails"] = [
            {
                "failedPlugin": each.plugin,
                "reason": each.reason,
                "preemptMightHelp": each.resolvable,
                "nodes": each.nodes,
                "failedNodes": list(each.names),
            }
            for each in details
        ]
    prefilter = "" if by_nodes or not diagnosis.reasons else diagnosis.reasons[0].reason
    report: dict[str, Any] = {
        "timestamp": micro_rfc3339(now),
        "questionedKey": key,
        "isRootCausePod": True,
        "scheduleDiagnosis": scheduling,
    }
    topology_key = pod.ref.labels.get(TOPOLOGY_KEY_TO_EXPLAIN)
    if topology_key:
        report["topologyKeyToExplain"] = topology_key
    if nominated:
        report["nominatedNode"] = nominated
    if prefilter:
        report["preFilterMessage"] = prefilter
    if preemption:
        report["preemptionDiagnosis"] = {"failedMessage": preemption}
    return report
