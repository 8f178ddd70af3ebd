"""Merge patches of a QueueUnit's status: one place where every field of it is written."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.kube.conditions import Condition
from koord.kube.meta import now_rfc3339
from koord.kube.queues import QueueUnit
from koord.queue.backoff import RequeueState
from koord.queue.conditions import mirror
from koord.queue.headroom import WAITING

Patch = dict[str, Any]


def phase_of(unit: QueueUnit) -> str:
    """The phase; the empty one of a new unit and the legacy ``Preempted`` read as Enqueued."""
    phase = unit.status.phase
    return "Enqueued" if phase in ("", "Preempted") else phase


class Granted(msgspec.Struct, frozen=True):
    """What one pod set is admitted with: replicas and the quantities of one replica, as canonical texts."""

    name: str
    replicas: int
    resources: Mapping[str, str]


def admitted(unit: QueueUnit, granted: Sequence[Granted], message: str, now_s: float, failed_tries: int) -> Patch:
    """Decision 1 of an admission: Dequeued, with what each pod set holds and the clocks of the attempt.

    ``failed_tries`` are tries since the last write, counted into ``attempts`` (spec 70 section 2.3).
    """
    now = now_rfc3339(now_s)
    return {
        "status": {
            "phase": "Dequeued",
            "message": message,
            "attempts": unit.status.attempts + failed_tries,
            "admissions": [
                {"name": part.name, "replicas": part.replicas, "running": 0, "resources": dict(part.resources)}
                for part in granted
            ],
            "podState": {"running": 0, "pending": 0},
            "lastUpdateTime": now,
            "lastAllocateTime": now,
            "conditions": _conditions(unit, "Dequeued", message, now_s),
        }
    }


def moved(
    unit: QueueUnit,
    phase: str,
    message: str,
    now_s: float,
    *,
    release: bool = False,
    requeue: RequeueState | None = None,
    failed_tries: int = 0,
    waiting_reason: str = WAITING,
) -> Patch:
    """Any other phase write. ``release`` clears the admissions, which ends the unit's record in the ledger."""
    status: Patch = {
        "phase": phase,
        "message": message,
        "attempts": unit.status.attempts + failed_tries,
        "lastUpdateTime": now_rfc3339(now_s),
        "conditions": _conditions(unit, phase, message, now_s, waiting_reason),
    }
    if release or phase == "Enqueued":
        status["admissions"] = []
        status["podState"] = {"running": 0, "pending": 0}
    if requeue is not None:
        status["requeueState"] = {"count": requeue.count, "requeueAt": now_rfc3339(requeue.requeue_at_s)}
    elif unit.status.requeue_state is not None:
        status["requeueState"] = None
    return {"status": status}


def running(unit: QueueUnit, running_by_set: Mapping[str, int], pending: int) -> Patch | None:
    """Counts of running pods per pod set; None if the unit shows them already."""
    parts = [
        {
            "name": part.name,
            "replicas": part.replicas,
            "running": running_by_set.get(part.name, 0),
            "resources": part.resources,
        }
        for part in unit.status.admissions
    ]
    total = sum(part["running"] for part in parts)  # type: ignore[misc]
    same = all(part.running == running_by_set.get(part.name, 0) for part in unit.status.admissions)
    if same and (unit.status.pod_state.running, unit.status.pod_state.pending) == (total, pending):
        return None
    return {"status": {"admissions": parts, "podState": {"running": total, "pending": pending}}}


def _conditions(unit: QueueUnit, phase: str, message: str, now_s: float, waiting_reason: str = WAITING) -> list[Any]:
    return shown(mirror(unit.status.conditions, phase, message, now_s, waiting_reason))


def shown(conditions: Sequence[Condition]) -> list[Any]:
    """Conditions as JSON. Their message is always written: schemas of conditions require it, empty or not."""
    return [{"message": "", **msgspec.to_builtins(condition)} for condition in conditions]
