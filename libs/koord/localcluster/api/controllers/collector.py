"""The garbage collector: what belongs to something that is gone goes too, or is told that it belongs to nobody.

An object goes when all its owners are gone. An owner is looked up by what the reference says (kind, name, namespace of
the dependent) and must have the uid it says. An owner that is deleted in the foreground waits for the dependents that
block it; one that is deleted with the policy Orphan is taken out of its dependents' references first.

Which objects depend on an owner the store knows (`owners.OwnerIndex`); a write wakes only what it concerns.
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from koord.localcluster.api.builtin import CRDS, EVENTS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.workqueue import WorkQueue
from koord.localcluster.api.finalizers import FOREGROUND, ORPHAN
from koord.localcluster.api.owners import Place
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry, Owner
from koord.localcluster.clusterapi import ClusterApi, Object, Objects, PropagationPolicy
from koord.localcluster.recording import EventRecorder, Subject
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

_FOREGROUND_MARK = b'"foregroundDeletion"'
_ORPHAN_MARK = b'"orphan"'
_REMEMBERED = 10_000


class _Heads(msgspec.Struct):
    finalizers: list[str] = []


class _Head(msgspec.Struct):
    metadata: _Heads = msgspec.field(default_factory=_Heads)


_decode_head = msgspec.json.Decoder(_Head).decode


class _Sorted(NamedTuple):
    """The references of an object by what became of their owners.

    `misplaced`: an owner that lives in some namespace, of an object that lives in none. `unknown`: an owner of a kind
    that nobody serves, perhaps not yet. With one of these nothing is decided.
    """

    solid: list[Owner]
    dangling: list[Owner]
    waiting: list[Owner]
    misplaced: list[Owner]
    unknown: list[Owner]


class GarbageCollector:
    """The collector of one cluster; `queue` does its work."""

    def __init__(self, cluster: Cluster, api: ClusterApi) -> None:
        self._cluster = cluster
        self._api = api
        self._store = cluster.store
        self.queue: WorkQueue[Place] = WorkQueue("garbage collector", self._handle)
        self._recorder = EventRecorder(api, "garbage-collector-controller")
        self._kinds: dict[tuple[str, str], Resource] = {}
        self._kinds_of = -1
        self._foreground: dict[str, Place] = {}
        self._begun: set[str] = set()
        self._absent: OrderedDict[str, None] = OrderedDict()
        self._elsewhere: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._unresolved: set[Place] = set()
        self.collected = 0

    def start(self) -> None:
        """Hear of writes from now on, and look once at everything that has an owner or is being deleted."""
        self._store.listen(self.on_write)
        for collection in list(self._store.collections.values()):
            for names in collection.objects.values():
                for entry in names.values():
                    if entry.owners is not None or entry.deleting:
                        self.on_write(collection.resource, entry, None)

    # Hearing ------------------------------------------------------------------------------------------------------

    def on_write(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        """Wake what a write concerns; called within it, so it only looks and takes notes."""
        if entry is None:
            if old is not None and resource is not EVENTS:
                self._on_removal(resource, old)
            return
        owners = entry.owners
        if old is not None and old.owners is not owners and old.owners:
            self._wake_owners(old.owners)
        new = resource is not EVENTS and (old is None or old.owners is not owners)
        if owners and new and not self._all_there(entry.namespace, owners):
            self._look_into(Place(resource.key, entry.namespace, entry.name), owners)
        if entry.deleting and resource is not EVENTS:
            self._on_deletion(resource, entry)
        if resource is CRDS and self._unresolved:
            for place in self._unresolved:
                self.queue.add(place)
            self._unresolved.clear()

    def _all_there(self, namespace: str, owners: tuple[Owner, ...]) -> bool:
        """Whether all owners are there and stay, as nearly always: what `_sort` would call solid, in a microsecond."""
        collections = self._store.collections
        for owner in owners:
            resource = self._kind(owner)
            if resource is None or (resource.namespaced and not namespace):
                return False
            entry = collections[resource.key].get(namespace if resource.namespaced else "", owner.name)
            if entry is None or entry.deleting or entry.uid != owner.uid:
                return False
        return True

    def _look_into(self, place: Place, owners: tuple[Owner, ...]) -> None:
        found = self._sort(place, owners)
        if found.unknown:
            self._unresolved.add(place)
        if found.dangling or found.waiting or found.misplaced:
            self.queue.add(place)

    def _on_removal(self, resource: Resource, entry: Entry) -> None:
        dependents = self._store.owners.dependents(entry.uid)
        if dependents:
            self._absent[entry.uid] = None
            if len(self._absent) > _REMEMBERED:
                self._absent.popitem(last=False)
            for place in dependents:
                self.queue.add(place)
        if entry.deleting:
            self._foreground.pop(entry.uid, None)
            self._begun.discard(entry.uid)
        if self._unresolved:
            self._unresolved.discard(Place(resource.key, entry.namespace, entry.name))
        if entry.owners:
            self._wake_owners(entry.owners)

    def _on_deletion(self, resource: Resource, entry: Entry) -> None:
        finalizers: list[str] = []
        if _FOREGROUND_MARK in entry.raw or _ORPHAN_MARK in entry.raw:
            finalizers = _decode_head(entry.raw).metadata.finalizers
        place = Place(resource.key, entry.namespace, entry.name)
        if FOREGROUND in finalizers:
            self._foreground[entry.uid] = place
            self.queue.add(place)
            return
        self._foreground.pop(entry.uid, None)  # another deletion may have said Orphan since
        self._begun.discard(entry.uid)
        if ORPHAN in finalizers:
            self.queue.add(place)

    def _wake_owners(self, owners: tuple[Owner, ...]) -> None:
        for owner in owners:
            place = self._foreground.get(owner.uid)
            if place is not None:
                self.queue.add(place)

    # Looking ------------------------------------------------------------------------------------------------------

    def _kind(self, owner: Owner) -> Resource | None:
        registry = self._cluster.registry
        if self._kinds_of != registry.generation:
            self._kinds = {
                (route.api_version, route.resource.kind): route.resource for route in registry.routes.values()
            }
            self._kinds_of = registry.generation
        return self._kinds.get((owner.api_version, owner.kind))

    def _entry(self, place: Place) -> Entry | None:
        collection = self._store.collections.get(place.key)
        return collection.get(place.namespace, place.name) if collection is not None else None

    def _sort(self, place: Place, owners: tuple[Owner, ...]) -> _Sorted:
        found = _Sorted([], [], [], [], [])
        for owner in owners:
            resource = self._kind(owner)
            if owner.uid in self._absent:
                found.dangling.append(owner)
            elif resource is None:
                found.unknown.append(owner)
            elif resource.namespaced and not place.namespace:
                found.misplaced.append(owner)
            else:
                collection = self._store.collections[resource.key]
                entry = collection.get(place.namespace if resource.namespaced else "", owner.name)
                if entry is None or entry.uid != owner.uid:
                    found.dangling.append(owner)
                elif entry.deleting and owner.uid in self._foreground:
                    found.waiting.append(owner)
                else:
                    found.solid.append(owner)
        return found

    # Acting -------------------------------------------------------------------------------------------------------

    async def _handle(self, place: Place) -> None:
        entry = self._entry(place)
        if entry is None:
            return
        if entry.deleting:
            finalizers = _decode_head(entry.raw).metadata.finalizers
            if ORPHAN in finalizers:
                await self._orphan(place, entry, finalizers)
            elif FOREGROUND in finalizers:
                await self._finish_foreground(place, entry, finalizers)
            return
        if not entry.owners:
            return
        found = self._sort(place, entry.owners)
        if found.dangling or found.misplaced:
            await self._report_elsewhere(place, entry, found.dangling + found.misplaced)
        if found.unknown:
            self._unresolved.add(place)
        if found.unknown or found.misplaced:
            return
        over = {owner.uid for owner in (*found.dangling, *found.waiting)}
        if not over:
            return
        if found.solid:
            await self._drop_references(place, entry, over)
        elif found.waiting and self._store.owners.dependents(entry.uid):
            if self._in_a_circle(entry):
                await self._unblock(place, entry)
            await self._delete(place, "Foreground")
        else:
            finalizers = _decode_head(entry.raw).metadata.finalizers
            policy: PropagationPolicy = (
                "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
            )
            await self._delete(place, policy)

    async def _delete(self, place: Place, policy: PropagationPolicy) -> None:
        entry = self._entry(place)
        if entry is None:
            return
        await self._api.delete(
            place.key,
            place.namespace or None,
            place.name,
            uid=entry.uid,
            resource_version=str(entry.version),
            propagation_policy=policy,
        )
        self.collected += 1

    async def _finish_foreground(self, place: Place, entry: Entry, finalizers: list[str]) -> None:
        """Let an owner go that waits for its dependents, if none is left that blocks it."""
        dependents = self._store.owners.dependents(entry.uid)
        if entry.uid not in self._begun:
            self._begun.add(entry.uid)
            self._foreground[entry.uid] = place
            for dependent in dependents:
                self.queue.add(dependent)
        if not any(self._blocks(dependent, entry.uid) for dependent in dependents):
            await self._set_finalizers(place, entry, [item for item in finalizers if item != FOREGROUND])
            self._foreground.pop(entry.uid, None)
            self._begun.discard(entry.uid)

    def _blocks(self, dependent: Place, uid: str) -> bool:
        entry = self._entry(dependent)
        return (
            entry is not None
            and entry.owners is not None
            and any(owner.blocking and owner.uid == uid for owner in entry.owners)
        )

    def _in_a_circle(self, entry: Entry) -> bool:
        """Whether a dependent waits for its own dependents: then it may wait for this object."""
        dependents = [self._entry(place) for place in self._store.owners.dependents(entry.uid)]
        return any(dependent is not None and dependent.uid in self._foreground for dependent in dependents)

    async def _orphan(self, place: Place, entry: Entry, finalizers: list[str]) -> None:
        for dependent in list(self._store.owners.dependents(entry.uid)):
            current = self._entry(dependent)
            if current is not None:
                await self._drop_references(dependent, current, {entry.uid})
        current = self._entry(place)
        if current is not None and current.uid == entry.uid:
            await self._set_finalizers(place, current, [item for item in finalizers if item != ORPHAN])

    async def _drop_references(self, place: Place, entry: Entry, uids: set[str]) -> None:
        kept = [item for item in _references(entry) if item.get("uid") not in uids]
        await self._patch(place, entry, {"ownerReferences": kept or None})

    async def _unblock(self, place: Place, entry: Entry) -> None:
        await self._patch(
            place, entry, {"ownerReferences": [{**item, "blockOwnerDeletion": False} for item in _references(entry)]}
        )

    async def _set_finalizers(self, place: Place, entry: Entry, finalizers: list[str]) -> None:
        await self._patch(place, entry, {"finalizers": finalizers or None})

    async def _patch(self, place: Place, entry: Entry, metadata: Object) -> None:
        body = {"metadata": {"uid": entry.uid, "resourceVersion": str(entry.version), **metadata}}
        await self._api.patch(place.key, place.namespace or None, place.name, body, kind="merge")

    async def _report_elsewhere(self, place: Place, entry: Entry, owners: list[Owner]) -> None:
        """Say it when an owner exists, but in another namespace: that is a mistake of who wrote the reference."""
        for owner in owners:
            resource = self._kind(owner)
            key = (entry.uid, owner.uid)
            if resource is None or not resource.namespaced or owner.uid in self._absent or key in self._elsewhere:
                continue
            spaces = self._store.collections[resource.key].objects
            there = (names.get(owner.name) for names in spaces.values())
            self._elsewhere[key] = None
            if len(self._elsewhere) > _REMEMBERED:
                self._elsewhere.popitem(last=False)
            if any(other is not None and other.uid == owner.uid for other in there):
                kind = self._cluster.resource(place.key)
                subject = Subject(kind.api_version, kind.kind, place.namespace, place.name, entry.uid)
                shown = (
                    f"[{owner.api_version}/{owner.kind}, namespace: {place.namespace},"
                    f" name: {owner.name}, uid: {owner.uid}]"
                )
                message = f'ownerRef {shown} does not exist in namespace "{place.namespace}"'
                await self._recorder.record(subject, "Warning", "OwnerRefInvalidNamespace", message)


def _references(entry: Entry) -> Objects:
    references: Objects = decode(entry)["metadata"].get("ownerReferences") or []
    return references
