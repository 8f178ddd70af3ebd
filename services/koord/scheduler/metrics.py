"""Metrics, with upstream's names where upstream has them (spec 10 section 5; spec 20 section 5)."""

from koord.telemetry.metrics import counter, gauge, histogram

attempts = counter("scheduler_schedule_attempts", "Attempts to place a pod, by result", ("result", "profile"))
_CALLS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)
_NODES = (0, 1, 10, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
plugin_seconds = histogram(
    "scheduler_plugin_execution_duration_seconds",
    "One call of a plugin, for as many nodes as it was asked about; in one batch of ten",
    ("plugin", "extension_point", "status"),
    _CALLS,
)
point_seconds = histogram(
    "scheduler_framework_extension_point_duration_seconds",
    "All plugins of a point, per pod: the mean of a batch; of one batch in ten",
    ("extension_point", "status", "profile"),
    _CALLS,
)
evaluated_nodes = histogram(
    "scheduler_pod_scheduling_evaluated_nodes", "Nodes that were ranked for a pod; in one batch of ten", buckets=_NODES
)
feasible_nodes = histogram("scheduler_pod_scheduling_feasible_nodes", "Those of them that can take it", buckets=_NODES)
algorithm_seconds = histogram(
    "scheduler_scheduling_algorithm_duration_seconds", "Time to plan one batch of units, per batch"
)
attempt_seconds = histogram(
    "scheduler_scheduling_attempt_duration_seconds", "From taking a batch off the queue to its claims' answers"
)
sli_seconds = histogram(
    "scheduler_pod_scheduling_sli_duration_seconds", "From entering the queue to seen bound", ("attempts",)
)
replicas = gauge("koord_scheduler_replicas", "Live schedulers that share the pods, this one included")
pending = gauge("scheduler_pending_pods", "Units that wait, by queue", ("queue",))
incoming = counter("scheduler_queue_incoming_pods", "Units that entered a queue", ("queue", "event"))
unschedulable = gauge(
    "scheduler_unschedulable_pods", "Parked units, by plugin that rejected them", ("plugin", "profile")
)
cache_size = gauge("scheduler_cache_size", "Objects held", ("type",))
waiting_groups = gauge("scheduler_waiting_gang_group_number", "Gang groups that hold room and wait for members")
claims = counter("koord_ledger_claim", "Claims by their answer", ("result", "kind"))
nominations = counter("koord_ledger_nomination", "Nominations asked for, by their answer", ("result", "kind"))
preemption_attempts = counter("scheduler_preemption_attempts", "Preemptions that were asked for")
preemption_victims = histogram("scheduler_preemption_victims", "Pods that went for one preemption")
claim_seconds = histogram("koord_ledger_claim_seconds", "Round trip of a batch of claims")
conflicts = counter("koord_ledger_conflict", "What claims were short of", ("item",))
rivals = gauge("koord_scheduler_rivals", "Pods that other schedulers placed and the API does not show yet")
withdrawn = counter("koord_ledger_claim_withdrawn", "Accepted claims taken back beside pods of others")
open_claims = gauge("koord_ledger_open_claims", "Claims of this scheduler that are not settled", ("state",))
plugin_errors = counter("koord_scheduler_plugin_errors", "Exceptions of plugins", ("plugin",))
gang_wait_seconds = histogram("koord_gang_wait_seconds", "From a gang's first try to its claim")
dropped = counter("koord_scheduler_notices_dropped", "Events and conditions dropped because the bus took nothing")
pod_group_writes = counter("koord_pod_group_writes", "Writes of PodGroup status that were decided")
# A counter's name would end in _total, which the original's does not.
timeouts = gauge("scheduler_scheduling_timeout", "Looks at which an attempt was longer than it may be", ("profile",))
pod_attempts = histogram(
    "scheduler_pod_scheduling_attempts", "Attempts until a unit was claimed", buckets=(1, 2, 4, 8, 16)
)
permit_wait_seconds = histogram(
    "scheduler_permit_wait_duration_seconds", "How long placed members of a NonStrict group waited", ("result",)
)
debug_dropped = counter("koord_scheduler_debug_dropped", "What debug flags asked to log and was too much", ("what",))
