"""Command-line flags of the original's scheduler: its own (spec 10 section 2.3) and those of kube-scheduler.

``setting`` is where koord has the same, by the path in its settings file. Without one a flag is *moot* (accepted; koord
is built so that it changes nothing) or *absent* (what it asks for is not there); ``note`` says why.
"""

from typing import Literal

import msgspec

Support = Literal["honoured", "moot", "absent"]
Kind = Literal["text", "whole", "number", "bool", "duration", "pairs"]
Value = str | int | float | bool


class Flag(msgspec.Struct, frozen=True):
    """A flag. A duration's value is in seconds, ``pairs`` are ``name=value`` with commas between."""

    name: str
    kind: Kind
    default: Value
    support: Support
    note: str = ""
    setting: str = ""
    short: str = ""


def _here(name: str, kind: Kind, default: Value, setting: str, short: str = "") -> Flag:
    return Flag(name, kind, default, "honoured", f"setting {setting}", setting, short)


def _moot(names: str, kind: Kind, default: Value, note: str, short: str = "") -> tuple[Flag, ...]:
    return tuple(Flag(name, kind, default, "moot", note, short=short) for name in names.split())


_PLAIN = "koord serves plain HTTP; who needs more puts a proxy before it"
_GATEWAY = "only the gateway speaks to the API server"
_SHARED = "schedulers share the pods, nobody leads"
_BARRIER = "the gateway has a barrier of its own"
_LOG = "koord's log has settings of its own"
_METRICS = "koord serves all of its metrics"

KOORDINATOR: tuple[Flag, ...] = (
    _here("port", "whole", 10251, "http.port"),
    _here("address", "text", "0.0.0.0", "http.host"),
    _here("scheduler-monitor-period", "duration", 10.0, "scheduler.monitor.period_s"),
    _here("scheduling-timeout", "duration", 30.0, "scheduler.monitor.timeout_s"),
    *_moot("scheduling-drop-unhandled-timeout", "duration", 5.0, "no pod leaves the queue without its attempt"),
    _here("debug-scores", "whole", 0, "scheduler.debug.scores", "s"),
    _here("debug-filters", "bool", False, "scheduler.debug.filters", "f"),
    _here("debug-diagnosis", "bool", False, "scheduler.debug.diagnosis", "d"),
    _here("debug-diagnosis-blocking", "bool", False, "scheduler.debug.blocking"),
    _here("debug-diagnosis-queue-size", "whole", 1000, "scheduler.debug.queue_size"),
    *_moot("debug-diagnosis-worker-count", "whole", 10, "one task writes the dumps"),
    *_moot("controller-plugins", "text", "*", "controllers are services of their own, not parts of plugins"),
    *_moot("enable-network-topology-manager", "bool", False, "not there yet; the chart sets it"),
    _here("enable-workload-auditor", "bool", False, "scheduler.auditor.enabled"),
    _here("workload-auditor-metric-labels", "pairs", "", "scheduler.auditor.metric_labels"),
    _here("workload-auditor-victim-reschedule-duration", "duration", 10.0, "scheduler.auditor.victim_reschedule_s"),
    _here("workload-auditor-victim-deletion-duration", "duration", 30.0, "scheduler.auditor.victim_deletion_s"),
    _here("workload-auditor-victim-deleting-retries", "whole", 3, "scheduler.auditor.victim_deleting_retries"),
    _here(
        "workload-auditor-scheduling-event-interval",
        "duration",
        300.0,
        "scheduler.auditor.scheduling_event_interval_s",
    ),
    *_moot("sync-barrier-pod-namespace", "text", "kube-system", _BARRIER),
    *_moot("sync-barrier-pod-name", "text", "koord-scheduler-sync-barrier", _BARRIER),
    *_moot("sync-hard-timeout", "duration", 60.0, _BARRIER),
    *_moot("async-log", "bool", False, _LOG),
    *_moot("async-log-queue-length", "whole", 10_000, _LOG),
)

UPSTREAM: tuple[Flag, ...] = (
    _here("config", "text", "", "scheduler.config"),
    _here("pod-max-in-unschedulable-pods-duration", "duration", 300.0, "scheduler.queue.flush_after_s"),
    *_moot("v", "whole", 0, "koord has the setting log.level", "v"),
    *_moot("vmodule", "text", "", _LOG),
    *_moot("logging-format", "text", "text", "koord has the setting log.format"),
    *_moot("log-flush-frequency", "duration", 5.0, _LOG),
    *_moot("log-json-info-buffer-size log-text-info-buffer-size", "text", "0", _LOG),
    *_moot("log-json-split-stream log-text-split-stream logtostderr alsologtostderr", "bool", False, _LOG),
    *_moot("bind-address", "text", "0.0.0.0", "koord has the setting http.host"),
    *_moot("secure-port", "whole", 10259, _PLAIN),
    *_moot("cert-dir tls-cert-file tls-private-key-file tls-min-version tls-cipher-suites", "text", "", _PLAIN),
    *_moot("tls-sni-cert-key tls-curve-preferences client-ca-file", "text", "", _PLAIN),
    *_moot("http2-max-streams-per-connection", "whole", 0, _PLAIN),
    *_moot("disable-http2-serving permit-address-sharing permit-port-sharing", "bool", False, _PLAIN),
    *_moot("authentication-skip-lookup", "bool", False, _PLAIN),
    *_moot("authentication-tolerate-lookup-failure", "bool", True, _PLAIN),
    *_moot("authentication-kubeconfig authorization-kubeconfig requestheader-client-ca-file", "text", "", _PLAIN),
    *_moot("authentication-token-webhook-cache-ttl", "duration", 10.0, _PLAIN),
    *_moot("authorization-webhook-cache-authorized-ttl", "duration", 10.0, _PLAIN),
    *_moot("authorization-webhook-cache-unauthorized-ttl", "duration", 10.0, _PLAIN),
    *_moot("authorization-always-allow-paths", "text", "/healthz,/readyz,/livez", _PLAIN),
    *_moot("requestheader-allowed-names", "text", "", _PLAIN),
    *_moot("requestheader-extra-headers-prefix", "text", "x-remote-extra-", _PLAIN),
    *_moot("requestheader-group-headers", "text", "x-remote-group", _PLAIN),
    *_moot("requestheader-username-headers", "text", "x-remote-user", _PLAIN),
    *_moot("requestheader-uid-headers", "text", "", _PLAIN),
    *_moot("kubeconfig master kube-api-content-type", "text", "", _GATEWAY),
    *_moot("kube-api-qps", "number", 50.0, _GATEWAY),
    *_moot("kube-api-burst", "whole", 100, _GATEWAY),
    *_moot("leader-elect", "bool", True, _SHARED),
    *_moot("leader-elect-lease-duration", "duration", 15.0, _SHARED),
    *_moot("leader-elect-renew-deadline", "duration", 10.0, _SHARED),
    *_moot("leader-elect-retry-period", "duration", 2.0, _SHARED),
    *_moot("leader-elect-resource-lock", "text", "leases", _SHARED),
    *_moot("leader-elect-resource-name", "text", "kube-scheduler", _SHARED),
    *_moot("leader-elect-resource-namespace", "text", "kube-system", _SHARED),
    *_moot("profiling", "bool", True, "the configuration file has enableProfiling"),
    *_moot("contention-profiling", "bool", True, "there are no locks to profile"),
    *_moot("allow-metric-labels allow-metric-labels-manifest disabled-metrics", "text", "", _METRICS),
    *_moot("show-hidden-metrics-for-version", "text", "", _METRICS),
    *_moot("emulated-version", "text", "", "koord is of one version"),
    *_moot("emulation-forward-compatible", "bool", False, "koord is of one version"),
    *_moot("write-config-to", "text", "", "koord check scheduler-config shows what a file comes to"),
)

FLAGS: tuple[Flag, ...] = (*KOORDINATOR, *UPSTREAM)
