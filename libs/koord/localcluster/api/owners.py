"""Who depends on whom: owner uid -> the objects that name it, kept up to date by every write.

The garbage collector asks for the dependents of one owner; with 50,000 pods it must not have to look at all of them.
A write of an object without owner references, or with those it had, costs an attribute and a comparison.
"""

from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from koord.localcluster.api.watchcache import Entry, Owner
from koord.localcluster.clusterapi import Object, Objects

_KNOWN = 16_384
_NAMES = ("uid", "name", "kind", "apiVersion", "blockOwnerDeletion")
_new = tuple.__new__  # what a NamedTuple's own constructor calls, at half its cost


class Place(NamedTuple):
    """Where an object is: the key of its resource, its namespace ("" when cluster-scoped) and name."""

    key: str
    namespace: str
    name: str


class OwnerIndex:
    """Owner references of all objects, from the side of the owners."""

    def __init__(self) -> None:
        self._dependents: dict[str, set[Place]] = {}
        self._known: dict[tuple[Any, ...], tuple[Owner, ...]] = {}

    def known(self, references: Objects) -> tuple[Owner, ...]:
        """References as the store keeps them; equal ones are one tuple (the pods of a job have the same owner)."""
        if len(references) == 1:
            get = references[0].get
            key: tuple[Any, ...] = (
                get("uid"),
                get("name"),
                get("kind"),
                get("apiVersion"),
                get("blockOwnerDeletion"),
            )
        else:
            key = tuple([tuple(map(reference.get, _NAMES)) for reference in references])
        kept = self._known.get(key)
        if kept is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            kept = self._known[key] = tuple([_owner(reference) for reference in references])
        return kept

    def dependents(self, uid: str) -> AbstractSet[Place]:
        """The objects that name an owner; changes with the next write, so copy it to go on holding it."""
        return self._dependents.get(uid, _NONE)

    def put(self, key: str, entry: Entry, old: Entry | None) -> None:
        """An object is as `entry` says now."""
        before = old.owners if old is not None else None
        owners = entry.owners
        if owners is before:
            return
        place = _new(Place, (key, entry.namespace, entry.name))
        if before:
            self._drop(place, before)
        if owners:
            for owner in owners:
                known = self._dependents.get(owner.uid)
                if known is None:
                    self._dependents[owner.uid] = {place}
                else:
                    known.add(place)

    def remove(self, key: str, entry: Entry) -> None:
        """An object is gone."""
        if entry.owners:
            self._drop(Place(key, entry.namespace, entry.name), entry.owners)

    def _drop(self, place: Place, owners: tuple[Owner, ...]) -> None:
        for owner in owners:
            places = self._dependents.get(owner.uid)
            if places is not None:
                places.discard(place)
                if not places:
                    del self._dependents[owner.uid]


def _owner(reference: Object) -> Owner:
    api_version, kind = reference.get("apiVersion") or "", reference.get("kind") or ""
    blocking = bool(reference.get("blockOwnerDeletion"))
    return Owner(api_version, kind, reference.get("name") or "", reference.get("uid") or "", blocking)


_NONE: AbstractSet[Place] = frozenset()
