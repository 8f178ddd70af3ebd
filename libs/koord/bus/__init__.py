"""NATS, once: connection, acknowledged publishing, pull loop, StateCache, decisions, questions, leases."""
