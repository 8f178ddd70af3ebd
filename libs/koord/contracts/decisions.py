"""Decisions: what a service asks the gateway to write to the API.

A decision is idempotent: it has an id, names the object by uid (and resourceVersion where it matters), and is durable
until executed. Where it spends room of the ledger it carries the claim, which the gateway moves to BINDING right
before the write, so a stale or redelivered decision is refused there (spec 20 section 3.12).
"""

from typing import Final, Literal

import msgspec

Lane = Literal["bind", "status", "event", "metric"]
"""What goes first. ``metric`` is for reports of which only the newest of an object counts: best effort, as Events.

Each names all that it has to say: a newer one replaces one that waits, and one that cannot be written soon is left out
(both ``conflict``). A gateway that is older than this lane rejects it: upgrade the gateway first.
"""


class ClaimRef(msgspec.Struct, frozen=True):
    """The claim a decision spends: its id, its fencing token and the ledger epoch it was made under."""

    claim: str
    token: int
    epoch: int


class ObjectRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """One API object. ``resource`` is the state token (``pods_core``).

    ``uid`` and ``resource_version``, where set, are preconditions of the write.
    """

    resource: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""


class BindMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod of a bind: where it goes and the annotations written with the Binding.

    ``trace`` is the pod's own traceparent, parent of its ``gateway.bind`` span; ``gang`` is ``ns/name`` or empty.
    """

    uid: str
    namespace: str
    name: str
    node: str
    annotations: dict[str, str] = {}
    gang: str = ""
    trace: str = ""


class Bind(msgspec.Struct, frozen=True, tag="bind", tag_field="kind", omit_defaults=True):
    """Bind every member of one claim. ``id`` is the claim's id.

    ``minimum`` says per Strict gang how many of the members must be bound for the gang to stand: once fewer than that
    can still be bound, members not sent yet are released unsent.
    """

    id: str
    claim: ClaimRef
    members: list[BindMember]
    minimum: dict[str, int] = {}
    v: int = 1


class Create(msgspec.Struct, frozen=True, tag="create", tag_field="kind", omit_defaults=True):
    """Create an object from its JSON ``body``. Already existing with the same owner uid counts as done."""

    id: str
    resource: str
    namespace: str
    name: str
    body: bytes
    owner_uid: str = ""
    v: int = 1


class Patch(msgspec.Struct, frozen=True, tag="patch", tag_field="kind", omit_defaults=True):
    """Patch an object or its sub-resource with a JSON ``body``.

    With a ``claim`` the gateway advances ``claim_uid`` (or the target's uid) in the ledger first.
    """

    id: str
    target: ObjectRef
    body: bytes
    patch: Literal["merge", "json", "strategic", "apply"] = "merge"
    subresource: str = ""
    claim: ClaimRef | None = None
    lane: Lane = "status"
    v: int = 1


class Delete(msgspec.Struct, frozen=True, tag="delete", tag_field="kind", omit_defaults=True):
    """Delete an object; ``uid`` of the target is required so that a successor of the same name survives."""

    id: str
    target: ObjectRef
    propagation: Literal["", "Background", "Foreground", "Orphan"] = ""
    v: int = 1


class Evict(msgspec.Struct, frozen=True, tag="evict", tag_field="kind", omit_defaults=True):
    """Evict a pod through the Eviction API, which stays the judge of disruption budgets."""

    id: str
    target: ObjectRef
    reason: str = ""
    v: int = 1


MAX_NOTE: Final = 1024
"""Characters that the API takes in the text of an Event."""


class EventNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Kubernetes Event to record; the gateway aggregates equal ones.

    A longer ``note`` is cut: it may quote what a user wrote, and a thousand of them have to fit into one message.
    """

    target: ObjectRef
    kind: str
    api_version: str
    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    action: str = ""
    controller: str = ""
    time_ns: int = 0

    def __post_init__(self) -> None:
        if len(self.note) > MAX_NOTE:
            msgspec.structs.force_setattr(self, "note", f"{self.note[: MAX_NOTE - 1]}…")


class RecordEvents(msgspec.Struct, frozen=True, tag="event", tag_field="kind", omit_defaults=True):
    """Record Events, best effort: they never hold up a bind or a status write."""

    id: str
    events: list[EventNote]
    v: int = 1


Decision = Bind | Create | Patch | Delete | Evict | RecordEvents

KINDS: dict[type, str] = {
    Bind: "bind",
    Create: "create",
    Patch: "patch",
    Delete: "delete",
    Evict: "evict",
    RecordEvents: "event",
}
