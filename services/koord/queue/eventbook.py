"""Events to record, each distinct one at most once in five minutes (spec 70 section 5)."""

from typing import Literal

from koord.contracts.decisions import EventNote, ObjectRef
from koord.kube.meta import ObjectMeta
from koord.kube.resources import Resource

REPEAT_S = 300.0
CONTROLLER = "koord-queue"
_SWEEP_AT = 20_000


class EventBook:
    """Collects events between two publications."""

    def __init__(self, controller: str = CONTROLLER) -> None:
        self._controller = controller
        self._notes: list[EventNote] = []
        self._told: dict[tuple[str, str, str], float] = {}

    def note(
        self,
        resource: Resource,
        meta: ObjectMeta,
        type_: Literal["Normal", "Warning"],
        reason: str,
        text: str,
        now_s: float,
    ) -> None:
        """Something worth telling about an object; an equal event of the last five minutes is left out."""
        key = (meta.uid or meta.key, reason, text)
        if now_s - self._told.get(key, -REPEAT_S) < REPEAT_S:
            return
        if len(self._told) > _SWEEP_AT:
            self._told = {k: t for k, t in self._told.items() if now_s - t < REPEAT_S}
        self._told[key] = now_s
        self._notes.append(
            EventNote(
                target=ObjectRef(resource.token, meta.namespace, meta.name, meta.uid),
                kind=resource.kind,
                api_version=resource.api_version,
                type=type_,
                reason=reason,
                note=text,
                controller=self._controller,
                time_ns=int(now_s * 1e9),
            )
        )

    def drop_old(self, now_s: float) -> None:
        """Forget what was collected more than five minutes ago: whoever led then has told it."""
        self._notes = [note for note in self._notes if now_s - note.time_ns / 1e9 < REPEAT_S]

    def take(self) -> list[EventNote]:
        """What was collected."""
        notes, self._notes = self._notes, []
        return notes
