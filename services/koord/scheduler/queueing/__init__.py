"""Which pod or gang is tried next: active, backoff, unschedulable and gated places, and the events that wake them."""
