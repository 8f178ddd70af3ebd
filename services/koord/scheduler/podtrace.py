"""The trace that what is done for a pod belongs to."""

from koord.kube.protocol.trace import TRACEPARENT
from koord.scheduler.framework.contract import PodRef
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans


def trace_of(pod: PodRef, spans: Spans) -> TraceContext:
    """The parent of a pod's spans: its own trace, or a new one."""
    context = TraceContext.parse(pod.annotations.get(TRACEPARENT)) if pod.annotations else None
    return context if context is not None else spans.pod_root()
