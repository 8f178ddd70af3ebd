"""Metrics of inline batches and of the NextPod hook, under the original's names (spec 10 section 5)."""

from koord.telemetry.metrics import counter, histogram

schedule_seconds = histogram(
    "scheduler_inline_batch_schedule_duration_seconds", "Time to place the pods of a plan, by how it ended", ("result",)
)
by_node_seconds = histogram(
    "scheduler_batch_algorithm_by_node_duration_seconds", "Time to place a plan's pods of one node"
)
by_pod_seconds = histogram("scheduler_batch_algorithm_by_pod_duration_seconds", "Time to place one pod of a plan")
partial_jobs = counter("scheduler_batch_partial_bind_jobs", "Plans of which some pods were bound and some were not")
partial_pods = counter("scheduler_batch_partial_bind_pods", "Pods of such plans, by what became of them", ("status",))
bind_failures = counter(
    "scheduler_batch_bind_failures", "Pods of plans that were claimed and not bound", ("reason", "phase")
)
cleanups = counter(
    "scheduler_batch_assumed_pods_cleanup", "Placed pods of plans that were taken back before a bind", ("reason",)
)
next_pod_seconds = histogram(
    "scheduler_next_pod_delete_from_queue_latency", "Time to take a pod that the NextPod plugin named off the queue"
)


def bound(done: int, refused: int, reason: str) -> None:
    """The gateway answered for a plan: so many pods were bound, so many were not, the last because of ``reason``."""
    if not refused:
        return
    bind_failures.labels(reason, "Bind").inc(refused)
    if done:
        partial_jobs.inc()
        partial_pods.labels("bound").inc(done)
        partial_pods.labels("failed").inc(refused)
