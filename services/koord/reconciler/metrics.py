"""What the reconciler counts."""

from koord.telemetry.metrics import counter, gauge, histogram

OBSERVATIONS = counter("koord_reconciler_observations", "Observations folded into the ledger.", ("kind",))
FOLD_SECONDS = histogram("koord_reconciler_fold_seconds", "One call of observe, as seen by the caller.")
PENDING = gauge("koord_reconciler_pending", "Observations that wait to be folded.")
LEDGER_OPEN = gauge("koord_ledger_open", "1 while the ledger takes claims.")
RECORDS = gauge("koord_ledger_records", "Records by state.", ("state",))
ITEMS = gauge("koord_ledger_items", "Items of the ledger.")
LIVE = gauge("koord_ledger_live_objects", "Assigned live pods and admitted QueueUnits, as the API shows them.")
DRIFT = counter("koord_ledger_drift", "Records that did not match the objects and were put right.", ("kind",))
DAMAGED = gauge("koord_ledger_damaged", "1 while an audit's damage is not mended: it is, or was just, rebuilt.")
NAMELESS = counter("koord_ledger_nameless", "Items with limits of resource names that the ledger has no column for.")
OVERCOMMITTED = counter("koord_ledger_overcommitted", "Node amounts found below zero.")
REBUILDS = counter("koord_ledger_rebuilds", "Times the ledger was emptied and filled anew.")
REBUILD_SECONDS = histogram("koord_ledger_rebuild_seconds", "From finding the ledger closed until it is open.")
PROBLEMS = counter("koord_reconciler_problems", "Objects that could not be charged as written.", ("kind",))
EXPIRED = counter("koord_ledger_expired_claims", "Claims whose lease ran out.")
SETTLED = counter("koord_ledger_settled", "BINDING records that stayed unbound, by what the gateway found.", ("state",))
EVENTS_DROPPED = counter(
    "koord_reconciler_events_dropped", "Events that were not told: too many, or no bus.", ("reason",)
)
