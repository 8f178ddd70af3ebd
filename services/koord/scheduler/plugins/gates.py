"""SchedulingGates and ScheduleAdmission: pods that somebody holds back. Spec 10 section 3.15, spec 70 section 2.6."""

from typing import ClassVar

from koord.kube.protocol.scheduler import admission_gates
from koord.scheduler.framework.contract import PodRef, PreEnqueuePlugin
from koord.scheduler.framework.events import ClusterEvent


class SchedulingGates(PreEnqueuePlugin):
    """Holds pods whose ``spec.schedulingGates`` is not empty."""

    name: ClassVar[str] = "SchedulingGates"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.POD_UPDATE,))

    def pre_enqueue(self, pod: PodRef) -> str | None:
        """``waiting for scheduling gates: [..]``, or None."""
        return f"waiting for scheduling gates: [{' '.join(pod.gates)}]" if pod.gates else None


class ScheduleAdmission(PreEnqueuePlugin):
    """Holds pods that carry an admission label; only taking the last one away lets them go."""

    name: ClassVar[str] = "ScheduleAdmission"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.POD_UPDATE,))

    def __init__(self, *, prefix: bool = False) -> None:
        self._prefix = prefix

    def pre_enqueue(self, pod: PodRef) -> str | None:
        """``pod has schedule-admission gates: [..]``, or None."""
        gates = admission_gates(dict(pod.labels), prefix=self._prefix)
        return f"pod has schedule-admission gates: [{' '.join(gates)}]" if gates else None
