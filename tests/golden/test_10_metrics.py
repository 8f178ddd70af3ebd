"""Spec 10 section 5: metrics of kube-scheduler and Koordinator's scheduler, under their names and with their labels.

Not there: ``goroutines`` (nothing in koord is one), and those of reservations and devices, which are other parts'.
"""

import re
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram

from koord.scheduler import metrics
from koord.scheduler.auditor import measures
from koord.scheduler.jobs import metrics as jobs

Metric = Counter | Gauge | Histogram

NAMED: dict[str, tuple[Metric, tuple[str, ...]]] = {
    "schedule_attempts_total": (metrics.attempts, ("result", "profile")),
    "scheduling_attempt_duration_seconds": (metrics.attempt_seconds, ()),
    "scheduling_algorithm_duration_seconds": (metrics.algorithm_seconds, ()),
    "pod_scheduling_attempts": (metrics.pod_attempts, ()),
    "pod_scheduling_sli_duration_seconds": (metrics.sli_seconds, ("attempts",)),
    "pending_pods": (metrics.pending, ("queue",)),
    "queue_incoming_pods_total": (metrics.incoming, ("queue", "event")),
    "unschedulable_pods": (metrics.unschedulable, ("plugin", "profile")),
    "framework_extension_point_duration_seconds": (metrics.point_seconds, ("extension_point", "status", "profile")),
    "plugin_execution_duration_seconds": (metrics.plugin_seconds, ("plugin", "extension_point", "status")),
    "preemption_attempts_total": (metrics.preemption_attempts, ()),
    "preemption_victims": (metrics.preemption_victims, ()),
    "permit_wait_duration_seconds": (metrics.permit_wait_seconds, ("result",)),
    "cache_size": (metrics.cache_size, ("type",)),
    "scheduling_timeout": (metrics.timeouts, ("profile",)),
    "pod_scheduling_evaluated_nodes": (metrics.evaluated_nodes, ()),
    "pod_scheduling_feasible_nodes": (metrics.feasible_nodes, ()),
    "next_pod_delete_from_queue_latency": (jobs.next_pod_seconds, ()),
    "inline_batch_schedule_duration_seconds": (jobs.schedule_seconds, ("result",)),
    "batch_algorithm_by_node_duration_seconds": (jobs.by_node_seconds, ()),
    "batch_algorithm_by_pod_duration_seconds": (jobs.by_pod_seconds, ()),
    "batch_partial_bind_jobs_total": (jobs.partial_jobs, ()),
    "batch_partial_bind_pods_total": (jobs.partial_pods, ("status",)),
    "batch_bind_failures_total": (jobs.bind_failures, ("reason", "phase")),
    "batch_assumed_pods_cleanup_total": (jobs.cleanups, ("reason",)),
    "waiting_gang_group_number": (metrics.waiting_groups, ()),
}
AUDITOR = (
    "repeated_preemptions_total",
    "preemption_invalidations_total",
    "victim_reschedule_duration_seconds",
    "preemption_victim_deleting_retries",
    "preemption_to_victim_deleted_seconds",
    "preemption_cycle_interrupted_seconds",
    "scheduling_events_before_outcome",
    "scheduling_event_interval_seconds",
    "record_method_duration_seconds",
)


def shape(metric: Metric) -> tuple[str, tuple[str, ...]]:
    """The name that a scrape shows, and the labels."""
    [family] = metric.describe()
    return family.name + ("_total" if family.type == "counter" else ""), tuple(metric._labelnames)


@pytest.mark.parametrize("name", NAMED)
def test_names_and_labels(name: str) -> None:
    metric, labels = NAMED[name]
    assert shape(metric) == (f"scheduler_{name}", labels)


def test_names_of_the_auditor() -> None:
    """Its labels depend on the settings, so they are made with the service; here only the names are looked at."""
    source = Path(measures.__file__).read_text(encoding="utf-8")
    kinds = dict.fromkeys(re.findall(r'histogram\(\s*PREFIX \+ "(\w+)"', source), "")
    kinds |= dict.fromkeys(re.findall(r'counter\(\s*PREFIX \+ "(\w+)"', source), "_total")
    assert {name + suffix for name, suffix in kinds.items()} == set(AUDITOR)
