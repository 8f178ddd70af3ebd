"""Names and keys by which a pod finds its scheduler, or is held back from it (spec 10 section 2.5, 70 section 2.6)."""

from collections.abc import Mapping
from typing import Final

KOORD_SCHEDULER: Final = "koord-scheduler"
DEFAULT_SCHEDULER: Final = "default-scheduler"

SCHEDULER_NAME: Final = "scheduling.koordinator.sh/scheduler-name"
"""Label: overrides spec.schedulerName inside the scheduler."""

REPLACE_RESOURCES: Final = "pod.koordinator.sh/replace-resources"
"""Annotation ``resA:resB,resC:``: resources to rename, or to leave out, before the pod is scheduled (if turned on)."""

SCHEDULE_ADMISSION: Final = "scheduling.koordinator.sh/schedule-admission"
"""Label, presence only: the pod is not enqueued while it exists."""
LEGACY_SCHEDULE_ADMISSION: Final = "alibabacloud.com/schedule-admission"
"""Label: ``false`` holds the pod, ``true`` lets it go."""

QUESTIONED_OBJECT_KEY: Final = "scheduling.koordinator.sh/questioned-object-key"
"""Label: the job that a pod belongs to, as a ScheduleExplanation asks for it."""

TOPOLOGY_KEY_TO_EXPLAIN: Final = "scheduling.koordinator.sh/topology-key-to-explain"
"""Label of a pod: the node label whose values a ScheduleExplanation looks at one by one."""

KUEUE_GATES: Final = frozenset(("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"))

BIND_SETTLED: Final = "koord.sh/bind-settled"
"""Annotation that the gateway changes to make older writes fail; only its change of the object's version matters."""


def scheduler_name(labels: Mapping[str, str], spec_name: str) -> str:
    """Which scheduler a pod is for: the label, else the spec, else the default scheduler."""
    return labels.get(SCHEDULER_NAME) or spec_name or DEFAULT_SCHEDULER


def admission_gates(labels: Mapping[str, str], *, prefix: bool = False) -> list[str]:
    """The labels that hold the pod back, sorted. ``prefix``: also ``…/schedule-admission-<gate>`` labels."""
    if not labels:
        return []
    gates = [SCHEDULE_ADMISSION] if SCHEDULE_ADMISSION in labels else []
    if labels.get(LEGACY_SCHEDULE_ADMISSION) == "false":
        gates.append(LEGACY_SCHEDULE_ADMISSION)
    if prefix:
        gates += [key for key in labels if key.startswith(SCHEDULE_ADMISSION + "-")]
    return sorted(gates)
