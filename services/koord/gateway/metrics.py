"""What the gateway counts."""

from koord.telemetry.metrics import counter, gauge, histogram

REQUESTS = counter("koord_gateway_requests", "Writes and reads of decisions sent to the API.", ("verb", "code", "lane"))
LANE_DEPTH = gauge("koord_gateway_lane_depth", "Decisions that wait, by lane.", ("lane",))
RUNNING = gauge("koord_gateway_decisions_running", "Decisions being executed.")
DECISIONS = counter("koord_gateway_decisions", "Decisions answered.", ("service", "kind", "outcome"))
REJECTED = counter("koord_gateway_rejected", "Decisions refused before any API call.", ("rule",))
BIND_SECONDS = histogram("koord_gateway_bind_seconds", "From a bind decision's arrival to its result.")
WATCH_EVENTS = counter("koord_gateway_watch_events", "Lines of watches received.", ("resource",))
RELISTS = counter("koord_gateway_relists", "Lists made, the first one included.", ("resource",))
BAD_OBJECTS = counter("koord_gateway_unreadable_objects", "Objects and watch lines left out.", ("resource",))
EVENTS_DROPPED = counter("koord_gateway_events_dropped", "Kubernetes Events not recorded.", ("reason",))
REPORTS_DROPPED = counter(
    "koord_gateway_reports_dropped",
    "Patches of lane metric not written: a newer one came, no room, no answer.",
    ("reason",),
)
EVENTS_WRITTEN = counter("koord_gateway_events_written", "Kubernetes Events created or counted up.", ("verb",))
LEADER = gauge("koord_gateway_leader", "1 while this process leads.")
PRECONDITIONS = gauge(
    "koord_gateway_binding_preconditions",
    "Whether the API server honours preconditions of Bindings: 1 yes, 0 no (one scheduler binds), -1 unknown.",
)
FOREIGN = counter(
    "koord_gateway_foreign_bindings",
    "Bindings of other schedulers asked about: claimed, passed (nothing to claim), refused, not judged, late.",
    ("verdict",),
)
BARRIERS = counter("koord_gateway_barriers", "Barriers before a rebuild of the ledger.")
BARRIER_SECONDS = histogram("koord_gateway_barrier_seconds", "One barrier.")
UNSETTLED = gauge("koord_gateway_barrier_unsettled", "Unbound objects that a barrier has yet to settle.")
COMPARED = counter(
    "koord_gateway_stream_compared", "Times the state stream was read back: others wrote to it, or might have."
)
