"""What every API object has: metadata, owners, keys and timestamps.

All views of this package are frozen msgspec structs: they declare only the fields that koord reads, unknown fields are
skipped while decoding, and one decoded object may be shared by everybody. A changed copy is made with
``msgspec.structs.replace``.
"""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

ResourceList = dict[str, str | int | float]
"""Resource name to quantity, as it stands in JSON."""


class View(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True):
    """Base of all views. ``gc=False``: API objects are trees, so the collector need not walk them."""


class OwnerReference(View, frozen=True):
    """Who owns an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(View, frozen=True):
    """The metadata that koord reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None

    @property
    def key(self) -> str:
        """``ns/name``, or ``name`` of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class TypedObject(View, frozen=True):
    """An API object: kind and metadata. Watch events and lists may leave kind and apiVersion out."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> str:
        """``ns/name``, or ``name`` of a cluster-scoped object."""
        return self.metadata.key


class PartialObject(TypedObject, frozen=True):
    """Any object, of which only the metadata matters."""


class ObjectReference(View, frozen=True):
    """A reference from one object to another."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


def key(namespace: str, name: str) -> str:
    """``ns/name``, or ``name`` of a cluster-scoped object."""
    return f"{namespace}/{name}" if namespace else name


def split_key(text: str) -> tuple[str, str]:
    """Namespace (may be empty) and name of a key."""
    namespace, _, name = text.rpartition("/")
    return namespace, name


def now_rfc3339(t: float) -> str:
    """``t`` (seconds since the epoch) as the API writes times: UTC, whole seconds."""
    return datetime.fromtimestamp(int(t), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_rfc3339(t: float) -> str:
    """``t`` (seconds since the epoch) as a MicroTime: UTC, six digits."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; ValueError names the text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'time "{text}": must be RFC 3339, like 2026-03-02T09:00:00Z') from None
    if moment.tzinfo is None:
        raise ValueError(f'time "{text}": must be RFC 3339 with a zone, like 2026-03-02T09:00:00Z')
    return moment.timestamp()


def decode(type_: type[T], body: bytes) -> T:
    """Decode one object, forgiving JSON nulls.

    Kubernetes reads a null as "absent". Objects normally carry none, so the fast path is a plain decode; only a body
    that fails is decoded again without its nulls. msgspec.ValidationError names the field's path.
    """
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError:
        return msgspec.json.decode(msgspec.json.encode(without_nulls(msgspec.json.decode(body))), type=type_)


def without_nulls(value: Any) -> Any:
    """A copy of decoded JSON in which no mapping has a null value."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
