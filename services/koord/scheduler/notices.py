"""What users are told: Events and the PodScheduled condition, batched, and only when there is something new to say."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Collection

import msgspec

from koord.contracts.decisions import Decision, EventNote, ObjectRef, Patch, RecordEvents
from koord.kube.meta import now_rfc3339
from koord.kube.protocol.scheduler import scheduler_name
from koord.scheduler.engine.diagnosis import note
from koord.scheduler.podview import PodView

HEARTBEAT_S = 300.0
EVENTS_PER_DECISION = 100
MOST_EVENTS = 20_000
"""Events that wait while the bus takes nothing; the oldest go."""
_encode = msgspec.json.Encoder().encode


class Notices:
    """Collects; ``take`` hands out what is to be published. ``view`` finds a pod by ``ns/name``. What is said of a pod
    is said by its scheduler if that is one of ``names``, all else by ``controller``."""

    def __init__(
        self,
        incarnation: str,
        controller: str,
        view: Callable[[str], PodView | None],
        names: Collection[str] = (),
    ) -> None:
        self._incarnation = incarnation
        self._controller = controller
        self._view = view
        self._names = frozenset(names)
        self._numbers = itertools.count(1)
        self._events: deque[EventNote] = deque(maxlen=MOST_EVENTS)
        self._patches: dict[str, Decision] = {}
        """The condition to write, by the pod's uid: a later one says it all."""
        self._told: dict[str, tuple[str, float]] = {}

    def scheduled(self, uid: str, namespace: str, name: str, node: str) -> None:
        """A pod that we placed is bound."""
        self._told.pop(uid, None)
        text = f"Successfully assigned {namespace}/{name} to {node}"
        self._add(ObjectRef("pods_core", namespace, name, uid), "Normal", "Scheduled", text, "Binding")

    def failed(self, uid: str, namespace: str, name: str, message: str, now: float, *, error: bool = False) -> None:
        """A pod found no place: event and condition, when the text is new; the event again every five minutes."""
        told = self._told.get(uid)
        if told is not None and told[0] == message and now - told[1] < HEARTBEAT_S:
            return
        fresh = told is None or told[0] != message
        self._told[uid] = (message, now)
        target = ObjectRef("pods_core", namespace, name, uid)
        self._add(target, "Warning", "FailedScheduling", message, "Scheduling")
        if fresh:
            self._condition(target, message, "SchedulerError" if error else "Unschedulable")

    def warn(self, target: ObjectRef, kind: str, reason: str, message: str, *, api_version: str = "v1") -> None:
        """A warning about any object."""
        self._add(target, "Warning", reason, message, "Scheduling", kind=kind, api_version=api_version)

    def inform(self, target: ObjectRef, kind: str, reason: str, message: str, *, api_version: str = "v1") -> None:
        """Something about any object that is worth knowing and no trouble."""
        self._add(target, "Normal", reason, message, "Scheduling", kind=kind, api_version=api_version)

    def preempted(self, target: ObjectRef, message: str, controller: str = "") -> None:
        """A pod goes so that another one, which is of the scheduler ``controller``, has room."""
        self._add(target, "Normal", "Preempted", message, "Preempting", controller=controller or self._controller)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._told.pop(uid, None)

    def take(self) -> list[Decision]:
        """Everything collected since the last call, as decisions."""
        decisions = list(self._patches.values())
        self._patches.clear()
        events = list(self._events)
        self._events.clear()
        decisions.extend(
            RecordEvents(self._id("event"), events[start : start + EVENTS_PER_DECISION])
            for start in range(0, len(events), EVENTS_PER_DECISION)
        )
        return decisions

    @property
    def waiting(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._events or self._patches)

    def _id(self, what: str) -> str:
        return f"{self._incarnation}-{what}-{next(self._numbers)}"

    def _add(
        self,
        target: ObjectRef,
        type_: str,
        reason: str,
        message: str,
        action: str,
        *,
        kind: str = "Pod",
        api_version: str = "v1",
        controller: str = "",
    ) -> None:
        self._events.append(
            EventNote(
                target,
                kind,
                api_version,
                "Normal" if type_ == "Normal" else "Warning",
                reason,
                note(message),
                action,
                controller or self._speaker(target, kind),
                time.time_ns(),
            )
        )

    def _speaker(self, target: ObjectRef, kind: str) -> str:
        """Whose event it is: with several profiles in one process each has a name of its own."""
        if kind == "Pod" and len(self._names) > 1:
            view = self._view(f"{target.namespace}/{target.name}")
            if view is not None:
                name = scheduler_name(view.metadata.labels, view.spec.scheduler_name)
                if name in self._names:
                    return name
        return self._controller

    def _condition(self, target: ObjectRef, message: str, reason: str) -> None:
        view = self._view(f"{target.namespace}/{target.name}")
        shown = None
        if view is not None and view.metadata.uid == target.uid:
            shown = next((found for found in view.status.conditions if found.type == "PodScheduled"), None)
        if shown is not None and (shown.status, shown.reason, shown.message) == ("False", reason, message):
            self._patches.pop(target.uid, None)
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        if shown is None or shown.status != "False":
            condition["lastTransitionTime"] = now_rfc3339(time.time())
        body = _encode({"status": {"conditions": [condition]}})
        self._patches[target.uid] = Patch(
            self._id("condition"), target, body, patch="strategic", subresource="status", lane="event"
        )
