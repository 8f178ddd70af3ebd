# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""Queue and QueueUnit (spec 70 sections 2.2 and 2.3)."""

from typing import Any, Final

import msgspec

from koord.kube.conditions import Condition
from koord.kube.meta import ObjectReference, ResourceList, TypedObject, View
from koord.kube.selectors import LabelSelector

NAMESPACE: Final = "koord-queue"
"""Where all Queues live."""

ENQUEUED: Final = "Enqueued"
RESERVED: Final = "Reserved"
DEQUEUED: Final = "Dequeued"
SCHED_READY: Final = "SchedReady"
SCHED_SUCCEED: Final = "SchedSucceed"
SCHED_FAILED: Final = "SchedFailed"
RUNNING: Final = "Running"
SUCCEED: Final = "Succeed"
FAILED: Final = "Failed"
TIMEOUT_BACKOFF: Final = "TimeoutBackoff"
PREEMPTED: Final = "Preempted"
"""A legacy phase, read as Enqueued."""


class QueueAdmissionCheck(View, frozen=True):
    """A check that applies to units whose labels match; no selector matches every unit."""

    name: str = ""
    label_selector: LabelSelector | None = None


class QueueSpec(View, frozen=True):
    """How a queue orders and admits."""

    queue_policy: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    admission_checks: list[QueueAdmissionCheck] = []


class QueueItemDetail(View, frozen=True):
    """One waiting unit; ``position`` counts from 1."""

    name: str = ""
    namespace: str = ""
    priority: int = 0
    position: int = 0


class QueueStatus(View, frozen=True):
    """The published order, under the key ``active``."""

    queue_item_details: dict[str, list[QueueItemDetail]] = {}
    conditions: list[Condition] = []


class Queue(TypedObject, frozen=True):
    """A queue."""

    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


class PodSet(View, frozen=True):
    """Pods of one template. The template is kept as raw JSON: only who needs it decodes it."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class QueueUnitSpec(View, frozen=True):
    """One whole job: what it is, what it asks for."""

    consumer_ref: ObjectReference | None = None
    priority: int | None = None
    priority_class_name: str = ""
    queue: str = ""
    resource: ResourceList = {}
    request: ResourceList = {}
    pod_set: list[PodSet] = []
    active: bool | None = None
    maximum_execution_time_seconds: int | None = None


class PodSetUpdate(View, frozen=True):
    """What an admission check wants changed in a pod set's template."""

    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[msgspec.Raw] = []


class AdmissionCheckState(View, frozen=True):
    """The state of one admission check: Pending, Ready, Retry or Rejected."""

    name: str = ""
    state: str = ""
    last_transition_time: str | None = None
    message: str = ""
    pod_set_updates: list[PodSetUpdate] = []


class ReclaimState(View, frozen=True):
    """How many replicas of a pod set are to be given back."""

    replicas: int = 0


class Admission(View, frozen=True, omit_defaults=False):
    """What one pod set holds: replicas admitted, and how many of them run."""

    name: str = ""
    replicas: int = 0
    running: int = 0
    resources: ResourceList = {}
    reclaim_state: ReclaimState | msgspec.UnsetType | None = msgspec.UNSET


class PodState(View, frozen=True, omit_defaults=False):
    """Pods of the unit, by whether they run."""

    running: int = 0
    pending: int = 0


class RequeueState(View, frozen=True):
    """How often, and until when, the unit was sent back."""

    count: int = 0
    requeue_at: str | None = None


class ReclaimablePods(View, frozen=True):
    """Pods of a pod set that ended well and need no replacement."""

    name: str = ""
    count: int = 0


class QueueUnitStatus(View, frozen=True):
    """Where the unit stands; :func:`status_body` writes it, with the keys that are always present."""

    phase: str = ""
    attempts: int = 0
    message: str = ""
    last_update_time: str | None = None
    last_allocate_time: str | None = None
    admission_checks: list[AdmissionCheckState] = []
    admissions: list[Admission] = []
    pod_state: PodState = msgspec.field(default_factory=PodState)
    conditions: list[Condition] = []
    requeue_state: RequeueState | None = None
    reclaimable_pods: list[ReclaimablePods] = []
    accumulated_past_execution_time_seconds: int | None = None


class QueueUnit(TypedObject, frozen=True):
    """One job waiting for, or holding, room in a quota."""

    spec: QueueUnitSpec = msgspec.field(default_factory=QueueUnitSpec)
    status: QueueUnitStatus = msgspec.field(default_factory=QueueUnitStatus)


def status_body(status: QueueUnitStatus) -> dict[str, Any]:
    """The status as JSON data, with ``phase``, ``attempts`` and ``admissions`` even when they are empty."""
    body: dict[str, Any] = {"phase": status.phase, "attempts": status.attempts}
    body.update(msgspec.to_builtins(status))
    if status.pod_state == PodState():
        del body["podState"]
    body.setdefault("admissions", [])
    return body
