"""Keys of the job queue on Queues, quotas, jobs, QueueUnits and pods (spec 70 sections 2.4 to 2.6).

Every key of the queue exists as ``koord-queue/X`` and, from older releases, as ``kube-queue/X``; the former wins.
"""

import re
from collections.abc import Mapping
from typing import Final

from koord.kube.meta import parse_time
from koord.kube.protocol.gotext import DurationError, go_bool, go_duration, go_int

PREFIX: Final = "koord-queue/"
LEGACY_PREFIX: Final = "kube-queue/"

QUEUE_POLICY: Final = PREFIX + "queue-policy"
QUOTA_QUEUE_ENABLE: Final = "quota-koord-queue-enable"
WAIT_FOR_PODS_RUNNING: Final = PREFIX + "wait-for-pods-running"
ENABLE_PREEMPTION: Final = PREFIX + "enable-queueunit-preemption"
MAX_DEPTH: Final = PREFIX + "max-depth"
PRIORITY_THRESHOLD: Final = PREFIX + "priority-threshold"
ITEMS_REFRESH_INTERVAL: Final = PREFIX + "queue-items-refresh-interval"
DISABLE_SHOW_ITEMS: Final = PREFIX + "disable-show-queue-items"
CREATED_BY: Final = "create-by-koordqueue"
LEGACY_CREATED_BY: Final = "create-by-kubequeue"

QUEUE_NAME: Final = PREFIX + "queue-name"
SUSPEND: Final = "scheduling.x-k8s.io/suspend"
PRIORITY: Final = "scheduling.x-k8s.io/priority"
ACTIVE: Final = "scheduling.x-k8s.io/active"
MAX_EXEC_TIME: Final = "scheduling.x-k8s.io/max-exec-time-seconds"
JOB_HAS_ENQUEUED: Final = PREFIX + "job-has-enqueued"
JOB_ENQUEUE_TIMESTAMP: Final = PREFIX + "job-enqueue-timestamp"
JOB_DEQUEUE_TIMESTAMP: Final = PREFIX + "job-dequeue-timestamp"
DISABLE_RESOURCE_RECYCLE: Final = "alibabacloud.com/disable-resource-recycle"

RELATED_QUEUE_UNIT: Final = PREFIX + "related-queueunit"
"""Annotation of pod templates and pods: ``ns/name`` of the unit that holds the pod's room."""
RELATED_POD_SET: Final = PREFIX + "related-podset-name"
RELATED_API_VERSION_KIND: Final = PREFIX + "related-apiversion-kind"
RELATED_OBJECT: Final = PREFIX + "related-object"

KUEUE_QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"

POLICY_PRIORITY: Final = "Priority"
POLICY_BLOCK: Final = "Block"
POLICY_INTELLIGENT: Final = "Intelligent"
POLICY_FIFO: Final = "FIFO"
POLICY_ROUND: Final = "Round"
POLICIES: Final = frozenset((POLICY_PRIORITY, POLICY_BLOCK, POLICY_INTELLIGENT, POLICY_FIFO, POLICY_ROUND))

AUTO_QUEUE_PRIORITY: Final = 1000
"""Priority of a Queue made from a quota."""

_GO_TIME = re.compile(r"([0-9-]{10}) ([0-9:]{8})(\.[0-9]{1,9})? ([+-][0-9]{2})([0-9]{2}) [A-Z0-9+-]+( m=[+-][0-9.]+)?")


def lookup(mapping: Mapping[str, str], key: str) -> str | None:
    """The value of a ``koord-queue/`` key, else of its ``kube-queue/`` twin; None when both are absent."""
    value = mapping.get(key)
    if value is None and key.startswith(PREFIX):
        return mapping.get(LEGACY_PREFIX + key[len(PREFIX) :])
    return value


def flag(mapping: Mapping[str, str], key: str) -> bool:
    """Whether a key says ``true``."""
    return lookup(mapping, key) == "true"


def integer(mapping: Mapping[str, str], key: str, default: int) -> int:
    """An integer key; absent or unparsable is ``default``."""
    text = lookup(mapping, key)
    number = None if text is None else go_int(text, 64)
    return default if number is None else number


def integer_problem(mapping: Mapping[str, str], key: str) -> str:
    """What is wrong with an integer key, if anything."""
    text = lookup(mapping, key)
    if text is None or go_int(text, 64) is not None:
        return ""
    return f'annotation {key}: must be a 64-bit integer, got "{text}"; it is left out'


def duration_s(mapping: Mapping[str, str], key: str, default: float) -> float:
    """A Go duration key in seconds; absent or unparsable is ``default``."""
    text = lookup(mapping, key)
    if text is None:
        return default
    try:
        return go_duration(text) / 1e9
    except DurationError:
        return default


def policy_of_quota(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The queue policy a quota asks for: label, then annotation, else Priority. The text is not judged here."""
    return lookup(labels, QUEUE_POLICY) or lookup(annotations, QUEUE_POLICY) or POLICY_PRIORITY


def wants_queue(annotations: Mapping[str, str]) -> bool:
    """Whether a quota gets a Queue of its own; only the text ``false`` says no."""
    return annotations.get(QUOTA_QUEUE_ENABLE) != "false"


def queue_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """What a quota's annotations put onto its Queue: every queue key but the policy, spelt with the new prefix."""
    copied = {key: value for key, value in annotations.items() if key.startswith(PREFIX)}
    for key, value in annotations.items():
        if key.startswith(LEGACY_PREFIX):
            copied.setdefault(PREFIX + key[len(LEGACY_PREFIX) :], value)
    copied.pop(QUEUE_POLICY, None)
    return copied


def created_by_queue(labels: Mapping[str, str]) -> bool:
    """Whether koord made this Queue, so that it may change and delete it."""
    return labels.get(CREATED_BY) == "true" or labels.get(LEGACY_CREATED_BY) == "true"


def queue_priority(annotations: Mapping[str, str]) -> tuple[int | None, str]:
    """The priority a job's annotation sets, and what is wrong with it (``""`` if nothing is)."""
    text = annotations.get(PRIORITY)
    if text is None:
        return None, ""
    number = go_int(text)
    if number is None:
        return None, f'annotation {PRIORITY}: must be a 32-bit integer, got "{text}"'
    return number, ""


def active(annotations: Mapping[str, str]) -> tuple[bool | None, str]:
    """What a job's annotation says about ``spec.active`` (None: leave it), and what is wrong with it."""
    text = annotations.get(ACTIVE)
    if not text:
        return None, ""
    value = go_bool(text)
    return value, "" if value is not None else f'annotation {ACTIVE}: must be true or false, got "{text}"'


def max_exec_seconds(annotations: Mapping[str, str]) -> tuple[int | None, str]:
    """The longest execution time a job's annotation allows (None: no limit), and what is wrong with it."""
    text = annotations.get(MAX_EXEC_TIME)
    if text is None:
        return None, ""
    number = go_int(text)
    if number is None or number <= 0:
        return None, f'annotation {MAX_EXEC_TIME}: must be a 32-bit integer above 0, got "{text}"'
    return number, ""


def read_timestamp(text: str) -> float | None:
    """Seconds since the epoch of a job's time stamp: RFC 3339, or as older releases print it; None for other texts."""
    match = _GO_TIME.fullmatch(text)
    if match is not None:
        text = f"{match[1]}T{match[2]}{(match[3] or '')[:7]}{match[4]}:{match[5]}"
    try:
        return parse_time(text)
    except ValueError:
        return None
