"""Metrics of the workload auditor, with the labels that the settings add (spec 10 section 5)."""

from collections.abc import Sequence

from koord.scheduler.auditor.record import Event, Finding, Record
from koord.telemetry.metrics import counter, histogram

PREFIX = "scheduler_workload_auditor_"
MINUTES = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
NUMBERS = (0, 1, 2, 3, 5, 8, 13, 21, 50, 100)
MICRO = (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 1e-3, 1e-2)


class Measures:
    """``labels`` are the names of the added labels, in the order of their values in records."""

    def __init__(self, labels: Sequence[str] = ()) -> None:
        each = ("priority", *labels)
        self._counters = {
            "repeated_preemptions": counter(
                PREFIX + "repeated_preemptions", "Workloads for which pods were preempted again", each
            ),
            "preemption_invalidations": counter(
                PREFIX + "preemption_invalidations",
                "Preemptions after which the workload failed, or preempted again",
                each,
            ),
        }
        self._histograms = {
            "victim_reschedule": histogram(
                PREFIX + "victim_reschedule_duration_seconds",
                "From when the victims were gone to the next result of the workload",
                each,
                MINUTES,
            ),
            "victim_deleting_retries": histogram(
                PREFIX + "preemption_victim_deleting_retries",
                "Attempts at which the victims of a preemption were still going",
                each,
                NUMBERS,
            ),
            "to_victim_deleted": histogram(
                PREFIX + "preemption_to_victim_deleted_seconds",
                "From a preemption to when its victims were gone",
                each,
                MINUTES,
            ),
            "cycle_interrupted": histogram(
                PREFIX + "preemption_cycle_interrupted_seconds",
                "From a preemption to another result, before its victims were gone",
                each,
                MINUTES,
            ),
            "event_interval": histogram(
                PREFIX + "scheduling_event_interval_seconds",
                "Between events of a workload while it can be scheduled",
                each,
                MINUTES,
            ),
        }
        self._before = histogram(
            PREFIX + "scheduling_events_before_outcome",
            "Events of a workload until it was scheduled, or deleted",
            ("priority", "event_type", "outcome", *labels),
            NUMBERS,
        )
        self._method = histogram(
            PREFIX + "record_method_duration_seconds",
            "Time that recording an event takes",
            ("priority", "method", *labels),
            MICRO,
        )

    def found(self, record: Record, finding: Finding) -> None:
        """Count or observe."""
        labels = (str(record.priority), *record.labels)
        if finding.kind in self._counters:
            self._counters[finding.kind].labels(*labels).inc(finding.value)
        elif not (finding.kind == "victim_deleting_retries" and finding.alert):  # told in time, measured at the end
            self._histograms[finding.kind].labels(*labels).observe(finding.value)

    def ended(self, record: Record, outcome: str) -> None:
        """The workload was scheduled, or deleted."""
        for event in Event:
            if record.counts[event]:
                labels = (str(record.priority), event.value, outcome, *record.labels)
                self._before.labels(*labels).observe(record.counts[event])

    def took(self, record: Record, event: Event, seconds: float) -> None:
        """Recording an event took that long."""
        self._method.labels(str(record.priority), event.value, *record.labels).observe(seconds)
