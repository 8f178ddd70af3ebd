"""Whose the fields of an object are, without paying for it: most objects have one writer, and one of their status.

As long as that is so, an entry of the store only says who they are (`Writers`), and all fields are theirs but those
that the server made; the exact sets are derived when somebody asks. The first write by somebody else, and the first
apply, derive them and put them into the object as managedFields: from then on the object is tracked exactly. An object
that has neither belongs to nobody, as after a client has reset managedFields.
"""

from collections.abc import Callable
from typing import Any

from koord.localcluster.api.apply import births
from koord.localcluster.api.apply.comparing import compare
from koord.localcluster.api.apply.elements import TypedError
from koord.localcluster.api.apply.fieldsets import Fields, at, difference, union, without
from koord.localcluster.api.apply.managers import (
    APPLY,
    MOST_SUBRESOURCE,
    UPDATE,
    Managed,
    Owned,
    decode,
    encode,
    is_reset,
    owner,
    stored,
)
from koord.localcluster.api.apply.options import name_causes, too_long
from koord.localcluster.api.apply.structure import Type, type_of
from koord.localcluster.api.apply.updating import NEVER, Write, update
from koord.localcluster.api.apply.writers import Applied, By, Writer, Writers, born, shared
from koord.localcluster.api.errors import Cause
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.schemas.lookup import storage_schema

Object = dict[str, Any]
Entries = list[dict[str, Any]]

_UNTRACKED_AT_FIRST = frozenset(
    ("pods", "nodes", "events", "jobs.batch", "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io")
)


def may_be_untracked(resource: Resource) -> bool:
    """Whether objects of a resource begin untracked: those of which there are many, or whose writes are many."""
    return resource.custom or resource.key in _UNTRACKED_AT_FIRST


def types_of(resource: Resource) -> Callable[[str], Type | None]:
    """The type of a resource's objects by their apiVersion; None for one that is not served."""

    def lookup(api_version: str) -> Type | None:
        if not resource.custom:
            return type_of(storage_schema(resource)) if api_version in _versions(resource) else None
        group, _, version = api_version.rpartition("/")
        if group != resource.group or version not in resource.schemas:
            return None
        return type_of(resource.schemas[version])

    return lookup


def _versions(resource: Resource) -> tuple[str, ...]:
    # Events are one collection under two groups.
    return (resource.api_version, "events.k8s.io/v1") if resource.key == "events" else (resource.api_version,)


def reset_fields(resource: Resource, subresource: str) -> Fields:
    """What a write of a kind cannot set, whatever it says."""
    if subresource == "status":
        if resource.custom:
            return _METADATA_AND_SPEC
        return _STATUS_RESETS.get(resource.key, _SPEC)
    return _STATUS if resource.status else {}


_SPEC, _STATUS = at("spec"), at("status")
_METADATA_AND_SPEC = union(_SPEC, at("metadata"))
_STATUS_RESETS = {
    "deployments.apps": union(_SPEC, at("metadata", "labels")),
    "pods": union(_SPEC, union(at("metadata", "deletionTimestamp"), at("metadata", "ownerReferences"))),
    "volumeattachments.storage.k8s.io": _METADATA_AND_SPEC,
}


def write_of(resource: Resource, by: Writer, now: str, *, subresource: str = "", operation: str = UPDATE) -> Write:
    """A write by somebody as the algorithm takes it."""
    return Write(
        owner(by.manager, operation, by.version, subresource),
        by.version,
        now,
        types_of(resource),
        reset_fields(resource, subresource),
        settled=not resource.custom,
    )


def derived(resource: Resource, obj: Object, writers: Writers) -> Managed:
    """The exact sets of an object that is not tracked; `obj` is its state now. Empty when its type cannot be told."""
    try:
        return _derived(resource, obj, writers)
    except TypedError:
        return {}


def _derived(resource: Resource, obj: Object, writers: Writers) -> Managed:
    types = types_of(resource)
    result: Managed = {}
    of = types(writers.version)
    if of is not None:
        comparison = compare(births.zero(resource, writers.version), obj, of)
        fields = union(comparison.added, comparison.modified)
        fields = without(without(fields, reset_fields(resource, "")), births.server_made(resource, obj))
        fields = difference(fields, NEVER)
        if fields:
            since = writers.since or obj["metadata"].get("creationTimestamp")
            result[owner(writers.main, UPDATE, writers.version)] = Owned(writers.version, fields, since)
    if writers.status and (of := types(writers.status_version)) is not None:
        first = births.zero(resource, writers.status_version)
        status = births.first_status(resource, obj)
        if status or not resource.custom:
            first["status"] = status
        comparison = compare(_status_only(first), _status_only(obj), of)
        if fields := union(comparison.added, comparison.modified):
            key = owner(writers.status, UPDATE, writers.status_version, "status")
            result[key] = Owned(writers.status_version, fields, writers.status_since)
    return result


def _status_only(obj: Object) -> Object:
    return {"status": obj["status"]} if "status" in obj else {}


def current(resource: Resource, obj: Object, writers: Writers | None) -> Managed:
    """Who owns what of an object, tracked or not."""
    entries = obj["metadata"].get("managedFields")
    if entries:
        return stored(entries)
    return {} if writers is None else derived(resource, obj, writers)


def at_creation(resource: Resource, obj: Object, given: Any, by: By, now: str) -> tuple[Entries | None, Writers | None]:
    """What a new object says of its owners: entries to store in it, or its writers.

    obj: with its defaults, before the server puts in what nobody owns. given: managedFields as sent.
    """
    if by is None:
        return None, None
    if isinstance(by, Applied):
        return by.entries or None, None
    sent = _usable(given)
    if sent is None and may_be_untracked(resource):
        # Who creates an object that says nothing owns nothing of it, and nobody ever will until somebody applies.
        return None, born(by) if obj.get("spec") or _says_something(resource, obj) else None
    write = write_of(resource, by, now)
    try:
        managed = update(births.zero(resource, by.version), obj, sent or {}, write)
    except TypedError:
        return None, born(by)
    made = births.server_made(resource, obj)
    mine = managed.get(write.owner)
    if made and mine is not None:
        managed[write.owner] = mine._replace(fields=without(mine.fields, made))
    return encode({key: owned for key, owned in managed.items() if owned.fields}), None


def _says_something(resource: Resource, obj: Object) -> bool:
    """Whether a new object has anything that its creator can own."""
    for key, value in obj.items():
        if key == "metadata":
            if any(field in value for field in _OWNABLE):
                return True
        elif key == "status" and resource.status:
            continue
        elif key not in ("apiVersion", "kind") and (resource.custom or value):
            return True
    return False


def given_anew(resource: Resource, old: Object, writers: Writers | None, given: Any, subresource: str) -> Any:
    """The managedFields as sent; None when they are the object's own, or come through a sub-resource."""
    if subresource or given == old["metadata"].get("managedFields"):
        return None
    if writers is not None and (sent := _usable(given)) is not None and sent == derived(resource, old, writers):
        return None
    return given


def at_change(
    resource: Resource,
    old: Object,
    new: Object,
    writers: Writers | None,
    given: Any,
    by: By,
    now: str,
    subresource: str,
) -> tuple[Entries | None, Writers | None]:
    """What an object says of its owners after a write.

    old and new: without regard to managedFields in the new one; those that were sent anew are `given` (`given_anew`).
    by: None for the server itself, which owns nothing.
    """
    if isinstance(by, Applied):
        return by.entries or None, None
    if by is not None and by.through:
        subresource = by.through
    if is_reset(given):
        return None, None
    tracked = old["metadata"].get("managedFields")
    sent = _usable(given)
    if by is None:
        return (encode(sent), None) if sent is not None else (tracked, writers)
    if sent is None and not tracked:
        if writers is None:
            return None, None
        after = _after(writers, old, new, by, now, subresource)
        if after is not None:
            return None, after
    managed = sent if sent is not None else current(resource, old, writers)
    if not managed:
        return None, None
    try:
        managed = update(_plain(old), _plain(new), managed, write_of(resource, by, now, subresource=subresource))
    except TypedError:
        return tracked, writers
    return encode(managed) or None, None


def _after(writers: Writers, old: Object, new: Object, by: Writer, now: str, subresource: str) -> Writers | None:
    """The writers after one more write, None when they no longer say it all."""
    if subresource == "":
        if (writers.main, writers.version) != by[:2]:
            return None
        return shared(
            Writers(by.manager, by.version, now, writers.status, writers.status_version, writers.status_since)
        )
    if subresource != "status" or (writers.status and (writers.status, writers.status_version) != by[:2]):
        return None
    before, after = old["metadata"], new["metadata"]
    if before is not after:
        was, now_is = before.get, after.get
        for field in _OWNABLE:
            if was(field) != now_is(field):
                return None
    return shared(Writers(writers.main, writers.version, writers.since, by.manager, by.version, now))


_OWNABLE = ("labels", "annotations", "finalizers", "ownerReferences")


def _plain(obj: Object) -> Object:
    """An object without its managedFields, which are not compared."""
    metadata = obj["metadata"]
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def causes(given: Any) -> list[Cause]:
    """What is wrong with managedFields that can be read; what cannot be read is ignored (`at_change`)."""
    found: list[Cause] = []
    if _usable(given) is None:
        return found
    for index, entry in enumerate(given):
        field = f"metadata.managedFields[{index}]"
        found.extend(name_causes(entry.get("manager", ""), f"{field}.manager"))
        if len(entry.get("subresource", "")) > MOST_SUBRESOURCE:
            found.append(too_long(f"{field}.subresource", MOST_SUBRESOURCE))
    return found


def _usable(given: Any) -> Managed | None:
    """ManagedFields as a client sent them; None when they are to be ignored, as a real server ignores them."""
    if not isinstance(given, list) or is_reset(given):
        return None
    try:
        return decode(given) or None
    except (ValueError, TypeError, AttributeError):
        return None


def same_but_times(left: Entries | None, right: Entries | None) -> bool:
    """Whether two lists of entries differ in nothing but their times."""
    if left is None or right is None or len(left) != len(right):
        return left == right
    return all(
        {**a, "time": None} == {**b, "time": None} and a["operation"] in (APPLY, UPDATE)
        for a, b in zip(left, right, strict=True)
    )


def shown(resource: Resource, obj: Object, writers: Writers) -> Object:
    """An untracked object with the managedFields that it stands for; changes the object."""
    entries = encode(derived(resource, obj, writers))
    if entries:
        obj["metadata"]["managedFields"] = entries
    return obj
