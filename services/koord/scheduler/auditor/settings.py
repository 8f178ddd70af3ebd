"""Settings of the workload auditor: the original's flags ``--enable-workload-auditor`` and ``--workload-auditor-*``."""

import re

import msgspec

LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
RESERVED = frozenset(("priority", "event_type", "outcome", "method", "le", "quantile"))


class AuditorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``metric_labels``: labels of the metrics, each with the pod label whose value it has. What lasts longer than the
    rest says (seconds), or is retried more often, is logged as an ALERT."""

    enabled: bool = False
    metric_labels: dict[str, str] = {}
    victim_reschedule_s: float = 10.0
    victim_deletion_s: float = 30.0
    victim_deleting_retries: int = 3
    scheduling_event_interval_s: float = 300.0

    def check(self) -> None:
        """ValueError names the key and the rule."""
        for name, key in self.metric_labels.items():
            if not LABEL.fullmatch(name) or name.startswith("__") or name in RESERVED:
                raise ValueError(f"auditor.metric_labels: {name!r} cannot be the name of a label")
            if not key:
                raise ValueError(f"auditor.metric_labels.{name}: the pod label must not be empty")
        for key in ("victim_reschedule_s", "victim_deletion_s", "scheduling_event_interval_s"):
            if getattr(self, key) <= 0:
                raise ValueError(f"auditor.{key}: {getattr(self, key)} must be greater than 0")
        if self.victim_deleting_retries < 0:
            raise ValueError(f"auditor.victim_deleting_retries: {self.victim_deleting_retries} must not be negative")
