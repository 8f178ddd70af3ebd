"""`metadata.managedFields`: its entries, their order, and how many there may be."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from koord.localcluster.api.apply.fieldsets import Fields, read, union

APPLY = "Apply"
UPDATE = "Update"
BEFORE_FIRST_APPLY = "before-first-apply"
ANCIENT = "ancient-changes"
MOST_UPDATERS = 10
MOST_SUBRESOURCE = 256


class Owner(NamedTuple):
    """Who owns fields. A manager that applies is the same one in every version: its `version` is empty here."""

    manager: str
    operation: str
    version: str
    subresource: str = ""


class Owned(NamedTuple):
    """What an owner owns: fields of objects in a version, since when (RFC 3339; None when that is not known)."""

    version: str
    fields: Fields
    time: str | None


Managed = dict[Owner, Owned]


def owner(manager: str, operation: str, version: str, subresource: str = "") -> Owner:
    """The owner that a write by a manager makes."""
    return Owner(manager or "unknown", operation, "" if operation == APPLY else version, subresource)


def decode(entries: Sequence[Any]) -> Managed:
    """The entries as a client or the store has them; ValueError when one is no entry."""
    result: Managed = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise ValueError("an entry is an object")
        operation, version = entry.get("operation"), entry.get("apiVersion")
        if operation not in (APPLY, UPDATE):
            raise ValueError("operation must be `Apply` or `Update`")
        if not version:
            raise ValueError("apiVersion must not be empty")
        if entry.get("fieldsType") != "FieldsV1":
            raise ValueError(f"invalid fieldsType {entry.get('fieldsType')!r}")
        key = Owner(
            entry.get("manager", ""), operation, "" if operation == APPLY else version, entry.get("subresource", "")
        )
        result[key] = Owned(version, read(entry.get("fieldsV1")), entry.get("time"))
    return result


def stored(entries: Sequence[Any]) -> Managed:
    """The entries of a stored object, which this server has written."""
    result: Managed = {}
    for entry in entries:
        version, operation = entry["apiVersion"], entry["operation"]
        key = Owner(
            entry.get("manager", ""), operation, "" if operation == APPLY else version, entry.get("subresource", "")
        )
        result[key] = Owned(version, entry["fieldsV1"], entry.get("time"))
    return result


def encode(managed: Managed) -> list[dict[str, Any]]:
    """The entries as they are stored and shown: those that apply first, then by time and name."""
    result: list[dict[str, Any]] = []
    keys = sorted(
        managed.items(),
        key=lambda item: (item[0].operation, item[1].time or "", item[0].manager, item[1].version, item[0].subresource),
    )
    for key, owned in keys:
        entry: dict[str, Any] = {}
        if key.manager:
            entry["manager"] = key.manager
        entry |= {"operation": key.operation, "apiVersion": owned.version}
        if owned.time is not None:
            entry["time"] = owned.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": owned.fields}
        if key.subresource:
            entry["subresource"] = key.subresource
        result.append(entry)
    return result


def is_reset(entries: Any) -> bool:
    """Whether a client asks to forget who owns what: an empty list, or one empty entry."""
    return isinstance(entries, list) and (not entries or (len(entries) == 1 and not any((entries[0] or {}).values())))


def cap(managed: Managed) -> None:
    """Join the oldest managers that update when there are too many, those of one version in one entry."""
    updaters = [key for key in managed if key.operation == UPDATE]
    surplus = len(updaters) - MOST_UPDATERS
    if surplus <= 0:
        return
    updaters.sort(key=lambda key: (managed[key].time or "", key.manager, key.version, key.subresource))
    first: dict[str, Owner] = {}
    for key in updaters:
        if surplus <= 0:
            return
        version = managed[key].version
        if version not in first:
            first[version] = key
            continue
        bucket = Owner(ANCIENT, UPDATE, version)
        if bucket not in managed:
            managed[bucket] = managed.pop(first[version])
        oldest = managed.pop(key)
        managed[bucket] = Owned(version, union(oldest.fields, managed[bucket].fields), oldest.time)
        surplus -= 1
