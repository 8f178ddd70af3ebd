"""The algorithm of server-side apply: what writes do to ownership, and what applying does to an object.

All functions are pure. Objects are JSON values without managedFields; `Managed` values are never changed, only
replaced.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from koord.localcluster.api.apply.comparing import Comparison, compare, equal, fields_of
from koord.localcluster.api.apply.elements import shown
from koord.localcluster.api.apply.fieldsets import (
    Fields,
    at,
    difference,
    intersection,
    paths,
    reconciled,
    union,
    with_named,
    without,
)
from koord.localcluster.api.apply.managers import Managed, Owned, Owner, cap
from koord.localcluster.api.apply.merging import merge, remove
from koord.localcluster.api.apply.structure import Type

Object = dict[str, Any]

NEVER = union(at("apiVersion"), at("kind"))
for _name in (
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
):
    NEVER = union(NEVER, at("metadata", _name))
NEVER = union(NEVER, at("metadata"))


class Conflict(NamedTuple):
    """A field that an apply would change although somebody else owns it."""

    owner: Owner
    path: tuple[str, ...]

    @property
    def field(self) -> str:
        """The field as messages show it."""
        return shown(self.path)


class Conflicts(Exception):
    """An apply that changes what others own, without force."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__(", ".join(conflict.field for conflict in conflicts))
        self.conflicts = conflicts


class Write(NamedTuple):
    """One write: by whom, of objects in which version, at what time (RFC 3339).

    types: the type of objects in a version that is served, None for others. reset: fields that such a write cannot set
    (those of the status, for a write that is not one of the status). settled: types never change, so sets fit them.
    """

    owner: Owner
    version: str
    time: str
    types: Callable[[str], Type | None]
    reset: Fields
    settled: bool = False


def update(old: Object, new: Object, managed: Managed, write: Write) -> Managed:
    """Who owns what after a write that is no apply: the writer takes over what it changed, and nobody what went."""
    managed, comparison, _ = _changed(old, new, _known(managed, write), write, None)
    touched = without(union(comparison.modified, comparison.added), write.reset)
    cap_needed = False
    if touched := difference(touched, NEVER):
        before = managed.get(write.owner)
        # The writer was not compared with itself.
        left = difference(before.fields, comparison.removed) if before is not None else {}
        managed[write.owner] = Owned(write.version, union(left, touched), write.time)
        cap_needed = True
    elif (before := managed.get(write.owner)) is not None:
        left = difference(before.fields, comparison.removed)
        if left:
            managed[write.owner] = Owned(before.version, left, before.time)
        else:
            del managed[write.owner]
    if cap_needed:
        cap(managed)
    return managed


def apply(
    live: Object, config: Object, managed: Managed, write: Write, *, force: bool
) -> tuple[Object | None, Managed]:
    """The object with an applied configuration in it (None when that changes nothing), and who owns what then.

    What this manager applied before and leaves out now goes, unless somebody else owns it too. Without force
    `Conflicts` are raised.
    """
    managed = _known(managed, write)
    of = _type(write, write.version)
    new = merge(live, config, of)
    last = managed.get(write.owner)
    own = without(fields_of(config, of), write.reset)
    managed[write.owner] = Owned(write.version, own, last.time if last is not None else None)
    if last is not None and last.fields:
        new = _pruned(new, managed, last, write)
    managed, _, conflicts = _changed(live, new, managed, write, write.owner)
    if conflicts and not force:
        raise Conflicts(conflicts)
    mine = managed.get(write.owner)
    changes = not equal(live, new)
    if mine is not None:
        fields = difference(mine.fields, NEVER)
        if fields:
            managed[write.owner] = mine._replace(fields=fields, time=write.time if changes else mine.time)
        else:
            del managed[write.owner]
    return new if changes else None, managed


def _type(write: Write, version: str) -> Type:
    of = write.types(version)
    assert of is not None  # versions that are not served were taken out before
    return of


def _known(managed: Managed, write: Write) -> Managed:
    """Without owners of versions that are no longer served, and with the sets as types are now."""
    result: Managed = {}
    for key, owned in managed.items():
        of = write.types(owned.version)
        if of is not None:
            result[key] = owned if write.settled else owned._replace(fields=reconciled(owned.fields, of))
    return result


def _changed(
    old: Object, new: Object, managed: Managed, write: Write, applier: Owner | None
) -> tuple[Managed, Comparison, list[Conflict]]:
    """Take from everybody but the writer what a write changed or removed; also what was changed of others' fields."""
    comparisons: dict[str, Comparison] = {}

    def at_version(version: str) -> Comparison:
        if version not in comparisons:
            found = compare(old, new, _type(write, version))
            comparisons[version] = Comparison(*(without(fields, write.reset) for fields in found))
        return comparisons[version]

    own = at_version(write.version)
    result: Managed = {}
    conflicts: list[Conflict] = []
    for key, owned in managed.items():
        if key == write.owner:
            result[key] = owned
            continue
        comparison = at_version(owned.version)
        taken = intersection(owned.fields, union(comparison.modified, comparison.added))
        if taken and applier is not None:
            conflicts.extend(Conflict(key, path) for path in paths(taken))
        left = difference(difference(owned.fields, taken), comparison.removed)
        if left:
            result[key] = owned._replace(fields=left)
    if not result.get(write.owner, _SOMETHING).fields:
        del result[write.owner]
    return result, own, conflicts


_SOMETHING = Owned("", {"f:": {}}, None)


def _pruned(merged: Object, managed: Managed, last: Owned, write: Write) -> Object:
    """The merged object without what this manager applied last time and nobody claims now."""
    of = write.types(last.version)
    if of is None:
        return merged
    theirs: dict[str, Fields] = {}
    for owned in managed.values():
        theirs[owned.version] = union(theirs.get(owned.version, {}), owned.fields)
    had = with_named(last.fields, of)
    pruned = remove(merged, had, of) or {}
    for version in sorted(theirs, key=lambda version: version != last.version):
        type_ = _type(write, version)
        everything = with_named(fields_of(merged, type_), type_)
        kept = union(with_named(fields_of(pruned, type_), type_), with_named(theirs[version], type_))
        pruned = remove(merged, difference(everything, kept), type_) or {}
    # What nobody owned, or only others, does not go with what went.
    everything = with_named(fields_of(merged, of), of)
    gone = difference(everything, with_named(fields_of(pruned, of), of))
    return remove(merged, intersection(gone, had), of) or {}
