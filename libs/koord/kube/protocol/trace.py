"""Where a trace persists on API objects, so that a flow can be followed through restarts and foreign controllers."""

from typing import Final

TRACEPARENT: Final = "koord.sh/traceparent"
"""Annotation: a W3C traceparent. On a QueueUnit the job attempt's; on pod templates the same; on pods the pod's own."""
