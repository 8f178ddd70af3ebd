"""What is told of pods that are not placed: each kind of refusal as the Event, condition and log line it gets."""

import time

from koord.contracts.decisions import ObjectRef
from koord.kube.resources import PODS
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.notices import Notices
from koord.scheduler.podview import PodView
from koord.telemetry.logs import Logger


class Telling:
    """Puts refusals into ``notices``."""

    def __init__(self, notices: Notices, log: Logger) -> None:
        self._notices = notices
        self._log = log

    def failed(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        """A pod found no place."""
        ref = pod.ref
        self._notices.failed(
            ref.uid, ref.namespace, ref.name, diagnosis.message, time.monotonic(), error=diagnosis.error
        )

    def invalid(self, view: PodView, message: str) -> None:
        """A pod cannot be placed as it is written."""
        meta = view.metadata
        self._log.warning("a pod cannot be scheduled as written", pod=view.key, error=message)
        self._notices.failed(meta.uid, meta.namespace, meta.name, message, time.monotonic(), error=True)

    def deleting(self, view: PodView) -> None:
        """A pod is not placed since it is being deleted."""
        self._notices.warn(_target(view), "Pod", "FailedScheduling", f"skip schedule deleting pod: {view.key}")

    def gang_problem(self, view: PodView, message: str) -> None:
        """What a pod says of its gang is not valid."""
        self._notices.warn(_target(view), "Pod", "InvalidGang", message)

    def remark(self, view: PodView, message: str) -> None:
        """Something that a pod says means nothing."""
        self._notices.warn(_target(view), "Pod", "InvalidField", message)


def _target(view: PodView) -> ObjectRef:
    meta = view.metadata
    return ObjectRef(PODS.token, meta.namespace, meta.name, meta.uid)
