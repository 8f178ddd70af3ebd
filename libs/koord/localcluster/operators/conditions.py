"""Conditions of job statuses, as plain JSON: set by type, with a transition time that moves only with the status."""

from koord.kube.meta import now_rfc3339
from koord.localcluster.clusterapi import Object, Objects


def is_true(conditions: Objects, type_: str) -> bool:
    """Whether the condition is there and True."""
    return any(condition.get("type") == type_ and condition.get("status") == "True" for condition in conditions)


def find(conditions: Objects, type_: str) -> Object | None:
    """The condition of a type."""
    return next((condition for condition in conditions if condition.get("type") == type_), None)


def with_condition(
    conditions: Objects,
    type_: str,
    status: bool | None,
    reason: str,
    message: str,
    now: float,
    *,
    probe: str = "lastUpdateTime",
    without: tuple[str, ...] = (),
) -> Objects:
    """A list with the condition set (None: Unknown); `conditions` itself if nothing changes.

    `probe` is the kind's second time field (`lastProbeTime` for batch Jobs); `without` are types that it displaces.
    """
    old = find(conditions, type_)
    word = "Unknown" if status is None else "True" if status else "False"
    rest = [condition for condition in conditions if condition.get("type") not in without]
    if old is not None and (old.get("status"), old.get("reason"), old.get("message")) == (word, reason, message):
        return rest if len(rest) != len(conditions) else conditions
    stamp = now_rfc3339(now)
    moved = stamp if old is None or old.get("status") != word else old.get("lastTransitionTime", stamp)
    new = {
        "type": type_,
        "status": word,
        "reason": reason,
        "message": message,
        probe: stamp,
        "lastTransitionTime": moved,
    }
    if old is None:
        return [*rest, new]
    return [new if condition.get("type") == type_ else condition for condition in rest]
