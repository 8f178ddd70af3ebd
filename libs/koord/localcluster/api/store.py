"""All objects, as JSON bytes with projected metadata, under one growing resource version.

Decoded pods cost fifty kilobytes each, their bytes two or three: nothing decoded is kept. Every method is synchronous
and so atomic on the event loop.
"""

import time
from collections.abc import Callable, Iterator
from sys import intern
from types import EllipsisType
from typing import Any

import msgspec

from koord.localcluster.api.apply.writers import Writers
from koord.localcluster.api.errors import too_old, version_too_large
from koord.localcluster.api.journal import Journal
from koord.localcluster.api.owners import OwnerIndex
from koord.localcluster.api.records import Kind
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.watchcache import Change, Entry, Match, Subscription, WatchCache
from koord.localcluster.clusterapi import Object

_encode = msgspec.json.Encoder().encode
_encode_into = msgspec.json.Encoder().encode_into
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode

Snapshot = list[Entry]
Listener = Callable[[Resource, Entry | None, Entry | None], None]
"""resource, the object now (None: it is gone), the object before (None: it is new); called within the write."""
Wants = Callable[[Resource], bool]
_KNOWN_LABELS = 1_024
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def decode(entry: Entry) -> Object:
    """A fresh decoded copy of an object."""
    obj: Object = _decode(entry.raw)
    return obj


def decode_bytes(raw: bytes) -> Any:
    """What compact JSON says."""
    return _decode(raw)


def encode(value: Any) -> bytes:
    """Compact JSON."""
    return _encode(value)


def same_json(value: Any, raw: bytes) -> bool:
    """Whether a value is what the bytes say; the order of names does not matter, `1` and `true` differ."""
    encoded = _encode(value)
    if encoded == raw:
        return True
    return len(encoded) == len(raw) and _encode_sorted(value) == _encode_sorted(_decode(raw))


def place(entry: Entry) -> str:
    """Where an object comes in lists: the order of etcd's keys, in which `a-b/x` comes before `a/x`."""
    return f"{entry.namespace}/{entry.name}"


class Collection:
    """The objects of one resource: namespace -> name -> entry (namespace "" when cluster-scoped)."""

    def __init__(self, resource: Resource, store: "Store") -> None:
        version = store.version
        self.resource = resource
        self._store = store
        self.objects: dict[str, dict[str, Entry]] = {}
        self.cache = WatchCache(version, current=self.get)
        self.changed = version
        self.count = 0
        self.listeners: list[Listener] = []
        self._order: dict[str, list[str]] = {}
        self._known_labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._project = _projector(resource)

    def get(self, namespace: str, name: str) -> Entry | None:
        """One object, or None."""
        names = self.objects.get(namespace)
        return names.get(name) if names is not None else None

    def entries(self, namespace: str | None = None) -> Snapshot:
        """All objects (of one namespace), in the order of `place`; the list is the caller's."""
        if namespace is not None:
            names = self.objects.get(namespace)
            return [names[name] for name in self._sorted(namespace)] if names else []
        spaces = sorted(self.objects, key=lambda space: space + "/")
        return [self.objects[space][name] for space in spaces for name in self._sorted(space)]

    def entries_at(self, namespace: str | None, version: int) -> Snapshot:
        """The same as it was at a version; 410 when the changes since are no longer held."""
        before: dict[tuple[str, str], Entry | None] = {}
        for change in self.cache.since(version):
            entry = change.entry
            if namespace is None or entry.namespace == namespace:
                before.setdefault((entry.namespace, entry.name), change.old)
        entries = self.entries(namespace)
        if not before:
            return entries
        entries = [entry for entry in entries if (entry.namespace, entry.name) not in before]
        entries.extend(old for old in before.values() if old is not None)
        entries.sort(key=place)
        return entries

    def _sorted(self, namespace: str) -> list[str]:
        order = self._order.get(namespace)
        if order is None:
            order = self._order[namespace] = sorted(self.objects[namespace])
        return order

    def put(self, obj: Object, version: int, writers: Writers | EllipsisType | None = ...) -> Entry:
        """Store an object whose metadata is complete, stamping the version; 507 when it cannot be kept.

        writers: whose it is when it has no managedFields; left out, whose it was.
        """
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(version)
        old = self.get(metadata.get("namespace", ""), metadata["name"])
        if isinstance(writers, EllipsisType):
            writers = old.writers if old is not None else None
        entry = self._entry(obj, self._store.encode(obj), version, old, writers)
        journal = self._store.journal
        if journal is not None:
            journal.append(Kind.PUT, version, self.resource.key, entry)
        self._set(entry, old)
        self._tell(entry, old)
        return entry

    def rewrite(self, entry: Entry, obj: Object) -> None:
        """Hold an object in a form that its definition gives it now: no change, so no version and nothing to tell."""
        names = self.objects[entry.namespace]
        names[entry.name] = self._entry(obj, self._store.encode(obj), entry.version, entry, entry.writers)

    def restore(self, raw: bytes, version: int, writers: Writers | None = None, *, announce: bool) -> Object:
        """Take in an object as it was stored; with `announce` as a change that watches can still ask for."""
        obj: Object = _decode(raw)
        metadata = obj["metadata"]
        old = self.get(metadata.get("namespace", ""), metadata["name"])
        entry = self._entry(obj, raw, version, old, writers)
        self._set(entry, old)
        if announce:
            self._tell(entry, old)
        return obj

    def _entry(self, obj: Object, raw: bytes, version: int, old: Entry | None, writers: Writers | None) -> Entry:
        metadata = obj["metadata"]
        fields = self._project(obj)
        if old is None:
            name, uid, labels = metadata["name"], metadata["uid"], self._labels(metadata)
        else:
            # Most changes leave these alone; what is equal is held once.
            name, uid = old.name, old.uid
            labels = old.labels if (metadata.get("labels") or None) == old.labels else self._labels(metadata)
            fields = old.fields if fields == old.fields else fields
        namespace = intern(metadata.get("namespace", ""))
        references = metadata.get("ownerReferences")
        owners = self._store.owners.known(references) if references else None
        deleting = "deletionTimestamp" in metadata
        return Entry(namespace, name, uid, version, raw, labels, fields, deleting, owners, writers)

    def _labels(self, metadata: Object) -> dict[str, str] | None:
        """The labels, the same dict for objects that have the same ones: it is often larger than what is in it."""
        labels = metadata.get("labels")
        if not labels:
            return None
        key = tuple(labels.items())
        known = self._known_labels.get(key)
        if known is None:
            if len(self._known_labels) >= _KNOWN_LABELS:
                self._known_labels.clear()
            known = {intern(name): intern(value) for name, value in key}
            self._known_labels[key] = known
        return known

    def _set(self, entry: Entry, old: Entry | None) -> None:
        names = self.objects.get(entry.namespace)
        if names is None:
            names = self.objects[entry.namespace] = {}
        names[entry.name] = entry
        if entry.version > self.changed:
            self.changed = entry.version
        resource = self.resource
        if old is None:
            self.count += 1
            self._order.pop(entry.namespace, None)
            if entry.owners is not None:
                self._store.owners.put(resource.key, entry, None)
        elif entry.owners is not old.owners:
            self._store.owners.put(resource.key, entry, old)
        for listener in self.listeners:
            listener(resource, entry, old)

    def _tell(self, entry: Entry, old: Entry | None) -> None:
        self.cache.append(Change("ADDED" if old is None else "MODIFIED", entry, old))

    def remove(self, entry: Entry, obj: Object, version: int) -> Entry:
        """Take an object out; the last state that watchers see carries the version of the deletion. 507 as `put`."""
        obj["metadata"]["resourceVersion"] = str(version)
        last = self._last(entry, self._store.encode(obj), version)
        journal = self._store.journal
        if journal is not None:
            journal.append(Kind.DELETE, version, self.resource.key, last)
        return self._take_out(entry, last)

    def restore_removal(self, namespace: str, name: str, raw: bytes, version: int) -> Object | None:
        """Take out an object as it was taken out before; its last state, None if it is not there."""
        entry = self.get(namespace, name)
        if entry is None:
            return None
        self._take_out(entry, self._last(entry, raw, version))
        obj: Object = _decode(raw)
        return obj

    @staticmethod
    def _last(entry: Entry, raw: bytes, version: int) -> Entry:
        space, name, labels, fields = entry.namespace, entry.name, entry.labels, entry.fields
        return Entry(space, name, entry.uid, version, raw, labels, fields, entry.deleting, entry.owners)

    def _take_out(self, entry: Entry, last: Entry) -> Entry:
        names = self.objects[entry.namespace]
        del names[entry.name]
        if not names:
            del self.objects[entry.namespace]
        self._order.pop(entry.namespace, None)
        self.count -= 1
        self.changed = last.version
        self.cache.append(Change("DELETED", last, entry))
        self._store.owners.remove(self.resource.key, entry)
        for listener in self.listeners:
            listener(self.resource, None, last)
        return last

    def subscribe(self, namespace: str | None, match: Match | None, version: int) -> Subscription:
        """Follow the changes after a version; 410 if they are no longer held."""
        return Subscription(self.cache, self.cache.position(version), namespace, match)


class Store:
    """The collections and the one version counter over all of them; with a journal every change is written first."""

    def __init__(self, first_version: int | None = None, journal: Journal | None = None) -> None:
        # Starting at the clock makes versions of an earlier life too old (410) instead of silently valid; microseconds,
        # because nobody writes a million times a second for long.
        self.version = int(time.time() * 1_000_000) if first_version is None else first_version
        self.collections: dict[str, Collection] = {}
        self.journal = journal
        self.owners = OwnerIndex()
        self._listeners: list[tuple[Listener, Wants]] = []
        self._gaps: list[tuple[int, int]] = []
        self._buffer = bytearray(16_384)

    def encode(self, obj: Object) -> bytes:
        """Compact JSON that takes no more memory than its length says.

        What `encode` of msgspec answers keeps the room it was given while it grew, up to half as much again.
        """
        _encode_into(obj, self._buffer)
        return bytes(self._buffer)

    def open(self, resource: Resource) -> Collection:
        """The collection of a resource, made on first use; a changed definition keeps the objects."""
        collection = self.collections.get(resource.key)
        if collection is None:
            collection = self.collections[resource.key] = Collection(resource, self)
        else:
            collection.resource = resource
            collection._project = _projector(resource)
        collection.listeners = [listener for listener, wants in self._listeners if wants(resource)]
        return collection

    def listen(self, listener: Listener, wants: Wants = lambda resource: True) -> None:
        """Have a function called by every write of the resources it wants; one that nobody wants costs nothing."""
        self._listeners.append((listener, wants))
        for collection in self.collections.values():
            if wants(collection.resource):
                collection.listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Call a function no longer."""
        self._listeners = [known for known in self._listeners if known[0] != listener]
        for collection in self.collections.values():
            if listener in collection.listeners:
                collection.listeners.remove(listener)

    def drop(self, key: str) -> None:
        """Forget a collection and end its watches."""
        collection = self.collections.pop(key, None)
        if collection is not None:
            collection.cache.close()

    def next_version(self) -> int:
        """Count one write."""
        self.version += 1
        return self.version

    def skip_to(self, version: int) -> None:
        """Go on from a version; those in between were lost or never given out, and nobody may resume from them."""
        self._gaps.append((self.version, version))
        self.version = version

    def check_reached(self, version: int) -> None:
        """504 for a version that has not been reached."""
        if version > self.version:
            raise version_too_large(version, self.version)

    def check_version(self, version: int) -> None:
        """504 for a version that has not been reached, 410 for one that was lost."""
        self.check_reached(version)
        for before, after in self._gaps:
            if before < version < after:
                raise too_old(version, after)

    def state(self) -> list[tuple[str, list[Entry]]]:
        """All objects as they are now, those that define resources first."""
        first = sorted(self.collections.items(), key=lambda item: item[0] != _DEFINITIONS)
        return [
            (key, [entry for names in collection.objects.values() for entry in names.values()])
            for key, collection in first
        ]

    def namespaced(self) -> Iterator[Collection]:
        """The collections whose objects live in namespaces."""
        return (collection for collection in list(self.collections.values()) if collection.resource.namespaced)


# What a field selector compares with when the field is absent and not a text.
_NOTHING: Object = {}
_ABSENT = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.successful": "0"}


def _projector(resource: Resource) -> Callable[[Object], tuple[str, ...]]:
    """A function that reads the values of the resource's field selectors from an object."""
    fields = tuple((path[:-1], path[-1], _ABSENT.get(name, "")) for name, path in resource.fields)
    if not fields:
        return lambda obj: ()
    # Most fields of a kind lie in the same few objects: each is looked up once.
    parents = tuple(dict.fromkeys(parent for parent, _, _ in fields))
    places = tuple((parents.index(parent), last, absent) for parent, last, absent in fields)

    def project(obj: Object) -> tuple[str, ...]:
        within = [_part(obj, parent) for parent in parents]
        return tuple(
            [
                intern(value) if type(value := within[at].get(last)) is str else _text(value, absent)
                for at, last, absent in places
            ]
        )

    return project


def _part(obj: Any, path: tuple[str, ...]) -> Object:
    for step in path:
        obj = obj.get(step)
        if type(obj) is not dict:
            return _NOTHING
    return obj  # type: ignore[no-any-return]


def _text(value: Any, absent: str) -> str:
    if value is None:
        return absent
    if value is True or value is False:
        return "true" if value else "false"
    return str(value)
