"""Traces, metrics and logs: OpenTelemetry set-up, cheap span records for hot paths, Prometheus, structured logs."""
