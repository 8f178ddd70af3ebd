"""The trace that what is done for a pod belongs to."""

from koord.kube.protocol.trace import TRACEPARENT
from koord.scheduler.framework.contract import PodRef
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans


def trace_of(pod: PodRef, spans: Spans) -> TraceContext:
    """The parent of a pod's spans: its own trace, or a new one."""
    text = pod.annotations.get(TRACEPARENT) if pod.annotations else None
    return TraceContext.parse(text) or spans.pod_root()
