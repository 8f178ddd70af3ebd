"""Merge patches of a QueueUnit's status: one place where every field of it is written."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.accounting.requests import resource_list
from koord.kube.conditions import Condition
from koord.kube.meta import now_rfc3339
from koord.kube.queues import QueueUnit
from koord.queue.backoff import RequeueState
from koord.queue.conditions import exceeded, mirror, ready_since_s, stamp_evicted
from koord.queue.headroom import WAITING

Patch = dict[str, Any]


def phase_of(unit: QueueUnit) -> str:
    """The phase; the empty one of a new unit and the legacy ``Preempted`` read as Enqueued."""
    phase = unit.status.phase
    return "Enqueued" if phase in ("", "Preempted") else phase


def draining(unit: QueueUnit) -> bool:
    """Evicted, and its room is taken until its pods are gone."""
    return phase_of(unit) == "Enqueued" and bool(unit.status.admissions)


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
    """Any other phase write. ``release`` clears the admissions, which ends the unit's record in the ledger.

    A unit that goes back from Running counts the time it ran.
    """
    status: Patch = {
        "phase": phase,
        "message": message,
        "attempts": unit.status.attempts + failed_tries,
        "lastUpdateTime": now_rfc3339(now_s),
        "conditions": _conditions(unit, phase, message, now_s, waiting_reason),
    }
    if unit.status.phase == "Running" and phase == "Enqueued":
        status.update(_ran(unit, now_s))
    if release or (phase == "Enqueued" and not unit.status.admissions):
        status["admissions"] = []
        status["podState"] = {"running": 0, "pending": 0}
    if requeue is not None:
        status["requeueState"] = {"count": requeue.count, "requeueAt": now_rfc3339(requeue.requeue_at_s)}
    elif unit.status.requeue_state is not None:
        status["requeueState"] = None
    return {"status": status}


def evicted(unit: QueueUnit, reason: str, message: str, now_s: float, failed_tries: int) -> Patch:
    """A deactivated unit waits again, without being handed out; its admissions stand until its pods are gone."""
    body = moved(unit, "Enqueued", message, now_s, failed_tries=failed_tries, waiting_reason="Pending")
    held = mirror(unit.status.conditions, "Enqueued", message, now_s, "Pending")
    stamp_evicted(held, reason, message, now_s)
    body["status"]["conditions"] = shown(held)
    body["status"].update(_ran(unit, now_s))
    return body


def overdue(unit: QueueUnit, reason: str, message: str, now_s: float) -> Patch:
    """The longest execution time is over: what counted towards it is done with."""
    status: Patch = {
        "message": message,
        "lastUpdateTime": now_rfc3339(now_s),
        "conditions": shown(exceeded(unit.status.conditions, reason, message, now_s)),
    }
    if unit.status.accumulated_past_execution_time_seconds is not None:
        status["accumulatedPastExecutionTimeSeconds"] = None
    return {"status": status}


def _ran(unit: QueueUnit, now_s: float) -> Patch:
    """``accumulatedPastExecutionTimeSeconds`` with the time since the pods were ready; nothing if they were not."""
    since = ready_since_s(unit.status.conditions)
    if since is None:
        return {}
    past = unit.status.accumulated_past_execution_time_seconds or 0
    return {"accumulatedPastExecutionTimeSeconds": past + max(0, int(now_s - since))}


def drained(unit: QueueUnit, running_by_set: Mapping[str, int], pending_by_set: Mapping[str, int]) -> Patch | None:
    """Admissions of an evicted unit shrink as its pods go, and end with the last one; None if nothing changed."""
    pods = (sum(running_by_set.values()), sum(pending_by_set.values()))
    if not any(pods):
        return {"status": {"admissions": [], "podState": {"running": 0, "pending": 0}}}
    parts = []
    for part in unit.status.admissions:
        runs = running_by_set.get(part.name, 0)
        left = min(part.replicas, runs + pending_by_set.get(part.name, 0))
        parts.append({"name": part.name, "replicas": left, "running": runs, "resources": part.resources})
    stood = [(part.replicas, part.running) for part in unit.status.admissions]
    shown_pods = (unit.status.pod_state.running, unit.status.pod_state.pending)
    if shown_pods == pods and stood == [(part["replicas"], part["running"]) for part in parts]:
        return None
    return {"status": {"admissions": parts, "podState": {"running": pods[0], "pending": pods[1]}}}


def replicas_now(count: int, replicas: int, live: int) -> int:
    """Replicas a pod set holds when its job asks for ``count`` now and ``live`` of its pods exist (spec 70, 3.13).

    What was admitted beyond the count goes as the pods go; nothing is taken from a set that is not too big.
    """
    if count >= replicas or live >= replicas:
        return replicas
    return max(count, live)


def running(
    unit: QueueUnit,
    running_by_set: Mapping[str, int],
    pending_by_set: Mapping[str, int],
    requests: Mapping[str, Mapping[str, int]] | None = None,
) -> Patch | None:
    """What an admitted unit's pods make of its status; None if the unit shows it already.

    ``requests``, by pod set: what one pod asks for; given while the job runs, when ``resources`` follow the pods.
    """
    counts = {part.name: part.count for part in unit.spec.pod_set}
    parts: list[dict[str, Any]] = []
    for part in unit.status.admissions:
        runs = running_by_set.get(part.name, 0)
        live = runs + pending_by_set.get(part.name, 0)
        replicas = replicas_now(counts.get(part.name, part.replicas), part.replicas, live)
        resources: Mapping[str, Any] = part.resources
        if requests is not None and part.name in requests:
            asked = requests[part.name].items()
            resources = resource_list({name: amount * live for name, amount in asked if amount})
        parts.append({"name": part.name, "replicas": max(replicas, runs), "running": runs, "resources": resources})
    pods = (sum(part["running"] for part in parts), sum(pending_by_set.values()))
    stood = [
        {"name": old.name, "replicas": old.replicas, "running": old.running, "resources": dict(old.resources)}
        for old in unit.status.admissions
    ]
    if stood == parts and (unit.status.pod_state.running, unit.status.pod_state.pending) == pods:
        return None
    for old, new in zip(unit.status.admissions, parts, strict=True):
        # A merge patch replaces the list: what somebody asks to be given back must stand in it.
        if old.reclaim_state:
            new["reclaimState"] = {"replicas": old.reclaim_state.replicas}
    return {"status": {"admissions": parts, "podState": {"running": pods[0], "pending": pods[1]}}}


def _conditions(unit: QueueUnit, phase: str, message: str, now_s: float, waiting_reason: str = WAITING) -> list[Any]:
    return shown(mirror(unit.status.conditions, phase, message, now_s, waiting_reason))


def shown(conditions: Sequence[Condition]) -> list[Any]:
    """Conditions as JSON. Their message is always written: schemas of conditions require it, empty or not."""
    return [{"message": "", **msgspec.to_builtins(condition)} for condition in conditions]
