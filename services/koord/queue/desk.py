"""What the controllers write with: decisions with ids, traces and preconditions, events, and the clock of this pass."""

from typing import Any, Literal

import msgspec

from koord.contracts.decisions import ClaimRef, Create, Delete, Lane, ObjectRef, Patch, RecordEvents
from koord.kube.meta import ObjectMeta
from koord.kube.protocol.trace import TRACEPARENT
from koord.kube.resources import Resource
from koord.queue.eventbook import EventBook
from koord.queue.outbox import Outbox, object_key
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans

PatchType = Literal["merge", "json", "strategic", "apply"]


class Desk:
    """One per service. ``now_s`` and ``now_ns`` are set at the start of each pass."""

    def __init__(self, incarnation: str, spans: Spans) -> None:
        self.incarnation = incarnation
        self.spans = spans
        self.outbox = Outbox()
        self.events = EventBook()
        self.now_s = 0.0
        self.now_ns = 0
        self._numbers = 0

    def tick(self, now_ns: int) -> None:
        """A new pass begins."""
        self.now_ns = now_ns
        self.now_s = now_ns / 1e9

    def id(self) -> str:
        """A new decision or claim id."""
        self._numbers += 1
        return f"{self.incarnation}-{self._numbers}"

    def free(self, resource: Resource, meta: ObjectMeta) -> bool:
        """May the object be written now: nothing under way and no pause after a failure?"""
        object_ = object_key(resource.token, meta.key)
        return not self.outbox.busy(object_) and self.outbox.pause(object_, self.now_s) <= 0

    def pause(self, resource: Resource, meta: ObjectMeta) -> float:
        """Seconds until the object may be written again after a failure."""
        return self.outbox.pause(object_key(resource.token, meta.key), self.now_s)

    def patch(
        self,
        resource: Resource,
        meta: ObjectMeta,
        body: Any,
        *,
        subresource: str = "",
        claim: ClaimRef | None = None,
        kind: PatchType = "merge",
        trace: TraceContext | None = None,
        lane: Lane = "status",
        decision_id: str = "",
    ) -> None:
        """Patch an object as it was read: a change by anyone else in between makes the write a conflict."""
        target = ObjectRef(resource.token, meta.namespace, meta.name, meta.uid, meta.resource_version)
        decision = Patch(
            decision_id or self.id(),
            target,
            msgspec.json.encode(body),
            patch=kind,
            subresource=subresource,
            claim=claim,
            lane=lane,
        )
        self.outbox.put(object_key(resource.token, meta.key), decision, trace or self.trace_of(meta), self.now_s)

    def create(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        *,
        owner_uid: str = "",
        trace: TraceContext | None = None,
    ) -> bool:
        """Create an object, unless a write of it is under way or has just failed; True if it was decided."""
        key = object_key(resource.token, f"{namespace}/{name}" if namespace else name)
        if self.outbox.busy(key) or self.outbox.pause(key, self.now_s) > 0:
            return False
        decision = Create(self.id(), resource.token, namespace, name, msgspec.json.encode(body), owner_uid=owner_uid)
        self.outbox.put(key, decision, trace or TraceContext.new(sampled=False), self.now_s)
        return True

    def delete(self, resource: Resource, meta: ObjectMeta) -> None:
        """Delete exactly this object, not a successor of its name."""
        target = ObjectRef(resource.token, meta.namespace, meta.name, meta.uid)
        decision = Delete(self.id(), target, propagation="Background")
        self.outbox.put(object_key(resource.token, meta.key), decision, self.trace_of(meta), self.now_s)

    def warn(self, resource: Resource, meta: ObjectMeta, reason: str, text: str) -> None:
        """A Warning event."""
        self.events.note(resource, meta, "Warning", reason, text, self.now_s)

    def tell(self, resource: Resource, meta: ObjectMeta, reason: str, text: str) -> None:
        """A Normal event."""
        self.events.note(resource, meta, "Normal", reason, text, self.now_s)

    def recorded(self) -> tuple[RecordEvents, TraceContext] | None:
        """The events of this pass as one decision."""
        notes = self.events.take()
        return (RecordEvents(self.id(), notes), TraceContext.new(sampled=False)) if notes else None

    def trace_of(self, meta: ObjectMeta) -> TraceContext:
        """The trace an object's writes belong to; an unsampled one of their own where it carries none."""
        return TraceContext.parse(meta.annotations.get(TRACEPARENT)) or TraceContext.new(sampled=False)
