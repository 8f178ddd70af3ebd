"""QoS and priority classes (spec 10 sections 2.5 and 2.9)."""

from collections.abc import Mapping
from typing import Final

from koord.kube.protocol.gotext import go_int

QOS_CLASS: Final = "koordinator.sh/qosClass"
PRIORITY_CLASS: Final = "koordinator.sh/priority-class"
PRIORITY: Final = "koordinator.sh/priority"
"""Label: an integer sub-priority; the scheduler's queue reads it if it is told to."""

LSE: Final = "LSE"
LSR: Final = "LSR"
LS: Final = "LS"
BE: Final = "BE"
SYSTEM: Final = "SYSTEM"
QOS_CLASSES: Final = frozenset((LSE, LSR, LS, BE, SYSTEM))

PROD: Final = "koord-prod"
MID: Final = "koord-mid"
BATCH: Final = "koord-batch"
FREE: Final = "koord-free"
NONE: Final = ""

RANGES: Final = {PROD: (9000, 9999), MID: (7000, 7999), BATCH: (5000, 5999), FREE: (3000, 3999)}
"""Priority class to the lowest and highest spec.priority that stands for it."""
DEFAULT_VALUES: Final = {PROD: 9500, MID: 7500, BATCH: 5500, FREE: 3500, NONE: 0}

BATCH_CPU: Final = "kubernetes.io/batch-cpu"
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"
MID_CPU: Final = "kubernetes.io/mid-cpu"
MID_MEMORY: Final = "kubernetes.io/mid-memory"

_KUBERNETES: Final = {"Guaranteed": LSR, "Burstable": LS, "BestEffort": BE}


def qos_class(labels: Mapping[str, str]) -> str:
    """The QoS class by label; ``""`` when absent or unknown."""
    text = labels.get(QOS_CLASS, "")
    return text if text in QOS_CLASSES else NONE


def qos_class_with_default(labels: Mapping[str, str], kubernetes_qos: str) -> str:
    """The QoS class by label, else by Kubernetes' own class (Guaranteed, Burstable, BestEffort)."""
    return qos_class(labels) or _KUBERNETES.get(kubernetes_qos, NONE)


def priority_class(labels: Mapping[str, str], priority: int | None) -> str:
    """The priority class: the label when present (unknown text: none), else by the range ``priority`` falls in."""
    text = labels.get(PRIORITY_CLASS)
    if text is not None:
        return text if text in RANGES else NONE
    if priority is not None:
        for name, (low, high) in RANGES.items():
            if low <= priority <= high:
                return name
    return NONE


def priority_class_with_default(labels: Mapping[str, str], priority: int | None, kubernetes_qos: str) -> str:
    """The priority class, else batch for BE and prod for every other known QoS class."""
    name = priority_class(labels, priority)
    if name:
        return name
    qos = qos_class_with_default(labels, kubernetes_qos)
    if qos == BE:
        return BATCH
    return PROD if qos else NONE


def sub_priority(labels: Mapping[str, str]) -> int | None:
    """The integer sub-priority; None when absent or bad."""
    text = labels.get(PRIORITY)
    return None if text is None else go_int(text)
