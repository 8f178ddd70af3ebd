"""Metrics of extenders; ``extender`` is the URL."""

from koord.telemetry.metrics import counter, gauge, histogram

seconds = histogram("koord_scheduler_extender_seconds", "How long a call of an extender took", ("extender", "verb"))
calls = counter("koord_scheduler_extender_calls", "Calls of extenders, by result", ("extender", "verb", "result"))
ignored = counter(
    "koord_scheduler_extender_ignored", "Failures of extenders that may be ignored, and were", ("extender", "verb")
)
waiting = gauge("koord_scheduler_extender_pods", "Pods of units that extenders are asked about, or are to be")
