"""All objects, as JSON bytes with projected metadata, under one growing resource version.

Decoded pods cost fifty kilobytes each, their bytes two or three: nothing decoded is kept. Every method is synchronous
and so atomic on the event loop.
"""

import time
from collections.abc import Callable, Iterator
from sys import intern
from typing import Any

import msgspec

from koord.localcluster.api.errors import version_too_large
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.watchcache import Change, Entry, Match, Subscription, WatchCache
from koord.localcluster.clusterapi import Object

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode

Snapshot = list[Entry]


def decode(entry: Entry) -> Object:
    """A fresh decoded copy of an object."""
    obj: Object = _decode(entry.raw)
    return obj


def encode(value: Any) -> bytes:
    """Compact JSON."""
    return _encode(value)


def same_json(value: Any, raw: bytes) -> bool:
    """Whether a value is what the bytes say; the order of names does not matter, `1` and `true` differ."""
    encoded = _encode(value)
    if encoded == raw:
        return True
    return len(encoded) == len(raw) and _encode_sorted(value) == _encode_sorted(_decode(raw))


class Collection:
    """The objects of one resource: namespace -> name -> entry (namespace "" when cluster-scoped)."""

    def __init__(self, resource: Resource, version: int) -> None:
        self.resource = resource
        self.objects: dict[str, dict[str, Entry]] = {}
        self.cache = WatchCache(version)
        self.changed = version
        self.count = 0
        self._order: dict[str, list[str]] = {}
        self._project = _projector(resource)

    def get(self, namespace: str, name: str) -> Entry | None:
        """One object, or None."""
        names = self.objects.get(namespace)
        return names.get(name) if names is not None else None

    def entries(self, namespace: str | None = None) -> Snapshot:
        """All objects (of one namespace), ordered by namespace and name; the list is the caller's."""
        if namespace is not None:
            names = self.objects.get(namespace)
            return [names[name] for name in self._sorted(namespace)] if names else []
        return [self.objects[space][name] for space in sorted(self.objects) for name in self._sorted(space)]

    def _sorted(self, namespace: str) -> list[str]:
        order = self._order.get(namespace)
        if order is None:
            order = self._order[namespace] = sorted(self.objects[namespace])
        return order

    def put(self, obj: Object, version: int) -> Entry:
        """Store an object whose metadata is complete, stamping the version."""
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(version)
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        names = self.objects.get(namespace)
        if names is None:
            names = self.objects[intern(namespace)] = {}
        old = names.get(name)
        entry = Entry(
            intern(namespace),
            name if old is None else old.name,
            metadata["uid"] if old is None else old.uid,
            version,
            _encode(obj),
            _labels(metadata),
            self._project(obj),
            "deletionTimestamp" in metadata,
        )
        names[entry.name] = entry
        self.changed = version
        if old is None:
            self.count += 1
            self._order.pop(namespace, None)
            self.cache.append(Change("ADDED", entry, None, None))
        else:
            self.cache.append(Change("MODIFIED", entry, old.labels, old.fields))
        return entry

    def remove(self, entry: Entry, obj: Object, version: int) -> Entry:
        """Take an object out; the last state that watchers see carries the version of the deletion."""
        obj["metadata"]["resourceVersion"] = str(version)
        last = Entry(
            entry.namespace, entry.name, entry.uid, version, _encode(obj), entry.labels, entry.fields, entry.deleting
        )
        names = self.objects[entry.namespace]
        del names[entry.name]
        if not names:
            del self.objects[entry.namespace]
        self._order.pop(entry.namespace, None)
        self.count -= 1
        self.changed = version
        self.cache.append(Change("DELETED", last, entry.labels, entry.fields))
        return last

    def subscribe(self, namespace: str | None, match: Match | None, version: int) -> Subscription:
        """Follow the changes after a version; 410 if they are no longer held."""
        return Subscription(self.cache, self.cache.position(version), namespace, match)


class Store:
    """The collections and the one version counter over all of them."""

    def __init__(self, first_version: int | None = None) -> None:
        # Starting at the clock makes versions of an earlier life too old (410) instead of silently valid; microseconds,
        # because nobody writes a million times a second for long.
        self.version = int(time.time() * 1_000_000) if first_version is None else first_version
        self.collections: dict[str, Collection] = {}

    def open(self, resource: Resource) -> Collection:
        """The collection of a resource, made on first use; a changed definition keeps the objects."""
        collection = self.collections.get(resource.key)
        if collection is None:
            collection = self.collections[resource.key] = Collection(resource, self.version)
        else:
            collection.resource = resource
        return collection

    def drop(self, key: str) -> None:
        """Forget a collection and end its watches."""
        collection = self.collections.pop(key, None)
        if collection is not None:
            collection.cache.close()

    def next_version(self) -> int:
        """Count one write."""
        self.version += 1
        return self.version

    def check_version(self, version: int) -> None:
        """504 for a version that has not been reached."""
        if version > self.version:
            raise version_too_large(version, self.version)

    def namespaced(self) -> Iterator[Collection]:
        """The collections whose objects live in namespaces."""
        return (collection for collection in list(self.collections.values()) if collection.resource.namespaced)


def _labels(metadata: Object) -> dict[str, str] | None:
    labels = metadata.get("labels")
    if not labels:
        return None
    return {intern(key): intern(value) for key, value in labels.items()}


# What a field selector compares with when the field is absent and not a text.
_ABSENT = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.successful": "0"}


def _projector(resource: Resource) -> Callable[[Object], tuple[str, ...]]:
    """A function that reads the values of the resource's field selectors from an object."""
    fields = tuple((path, _ABSENT.get(name, "")) for name, path in resource.fields)
    if not fields:
        return lambda obj: ()

    def project(obj: Object) -> tuple[str, ...]:
        return tuple([_text(obj, path, absent) for path, absent in fields])

    return project


def _text(obj: Any, path: tuple[str, ...], absent: str) -> str:
    value = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            return absent
    if isinstance(value, str):
        return intern(value)
    if value is True or value is False:
        return "true" if value else "false"
    return str(value)
