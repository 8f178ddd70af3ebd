"""Status conditions, and the rule that their transition time moves only when the status flips."""

import msgspec

from koord.kube.meta import View, now_rfc3339


class Condition(View, frozen=True):
    """One status condition. ``status`` is True, False or Unknown."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_probe_time: str | None = None
    last_heartbeat_time: str | None = None
    last_update_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


def find(conditions: list[Condition], type_: str) -> Condition | None:
    """The condition of that type."""
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: list[Condition], type_: str) -> bool:
    """Whether the condition of that type is there and True."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"


def set_condition(conditions: list[Condition], new: Condition, now: float) -> bool:
    """Put ``new`` into ``conditions`` (in place, by type); True if anything but times changed.

    ``now`` is in seconds; it becomes the transition time when the status flips or the condition is new.
    """
    for index, old in enumerate(conditions):
        if old.type != new.type:
            continue
        changed = (old.status, old.reason, old.message) != (new.status, new.reason, new.message)
        if changed:
            moved = now_rfc3339(now) if old.status != new.status else old.last_transition_time
            conditions[index] = msgspec.structs.replace(new, last_transition_time=moved)
        return changed
    conditions.append(msgspec.structs.replace(new, last_transition_time=now_rfc3339(now)))
    return True
