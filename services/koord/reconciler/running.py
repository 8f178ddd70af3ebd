"""Spans ``pod.running``: from the moment a pod has a node until its containers run.

This is the end of a job's trace as koord sees it; it belongs to whoever sees every pod anyway. Pure but for the span
record. A reconciler that is killed may not have exported the last ones, and sees none until it is back: its successor
records those of the last minute as it first sees the pods run. The span's ids follow from the pod, so it is there once.
"""

import time

from koord.kube.meta import parse_time
from koord.kube.pods import RUNNING
from koord.kube.protocol.trace import TRACEPARENT
from koord.reconciler.sights import PodSight
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans

RECOVERED_NS = 60 * 10**9
"""Pods that were scheduled this long before this process began are taken for told."""


class RunningSpans:
    """Told of every live change of a pod."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._since_ns = time.time_ns() - RECOVERED_NS
        self._bound_ns: dict[str, int] = {}

    def rest(self) -> None:
        """Another reconciler tells: what waits to run is its to see."""
        self._bound_ns.clear()

    def change(self, old: PodSight | None, new: PodSight | None, now_ns: int) -> None:
        """Record a span when the pod is seen to run for the first time."""
        if new is None:
            if old is not None:
                self._bound_ns.pop(old.metadata.uid, None)
            return
        annotations = new.metadata.annotations
        if annotations is None or not new.spec.node_name:
            return
        uid = new.metadata.uid
        if new.status.phase != RUNNING and not new.terminal:
            self._bound_ns.setdefault(uid, now_ns)
            return
        same = old is not None and old.metadata.uid == uid
        if same and old is not None and (old.status.phase == RUNNING or old.terminal):
            return
        if old is None and scheduled_ns(new) < self._since_ns:
            return
        parent = TraceContext.parse(annotations.get(TRACEPARENT))
        start_ns = self._bound_ns.pop(uid, 0) or scheduled_ns(new) or now_ns
        if parent is None:
            return
        meta = new.metadata
        failed = new.status.phase == "Failed"
        self._spans.record(
            "pod.running",
            parent=parent,
            context=parent.named(f"pod.running {uid}"),
            start_ns=min(start_ns, now_ns),
            end_ns=now_ns,
            attributes={"pod": f"{meta.namespace}/{meta.name}", "node": new.spec.node_name},
            error="the pod failed" if failed else None,
            pod=True,
        )


def scheduled_ns(pod: PodSight) -> int:
    """When the API says that the pod was scheduled, 0 if it does not."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            try:
                return int(parse_time(condition.last_transition_time) * 1e9)
            except ValueError:
                return 0
    return 0
