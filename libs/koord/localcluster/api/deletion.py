"""Deleting: preconditions, finalizers, the grace of bound pods, the contents of namespaces."""

import time
from typing import Any, NamedTuple

import msgspec

from koord.localcluster.api.builtin import NAMESPACES, PODS
from koord.localcluster.api.cluster import SYSTEM_NAMESPACES, Cluster
from koord.localcluster.api.errors import bad_request, conflict, forbidden
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import Object


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
    """The parts of a DeleteOptions body that matter here; the propagation policy is accepted and without effect."""

    kind: str | None = None
    grace_period_seconds: int | None = None
    preconditions: _Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None


class Deleted(NamedTuple):
    """The object's state after the request; `gone` when it was removed at once."""

    entry: Entry
    gone: bool


def read_options(body: Any) -> DeleteOptions:
    """The options of a delete request; 400 when they cannot be read."""
    try:
        options = msgspec.convert(body, DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"DeleteOptions in the request cannot be handled: {error}") from error
    if options.propagation_policy not in (None, "Orphan", "Background", "Foreground"):
        raise bad_request(f"propagationPolicy {options.propagation_policy!r} is not Orphan, Background or Foreground")
    return options


def preconditions(uid: str | None, resource_version: str | None) -> _Preconditions | None:
    """Preconditions from plain values."""
    return _Preconditions(uid, resource_version) if uid or resource_version else None


def delete(
    cluster: Cluster,
    resource: Resource,
    namespace: str | None,
    name: str,
    options: DeleteOptions,
    *,
    dry_run: bool = False,
) -> Deleted:
    """Delete one object, or mark it when something must still happen first."""
    entry = cluster.find(resource, namespace, name)
    if wanted := options.preconditions:
        if wanted.uid and wanted.uid != entry.uid:
            raise conflict(
                resource,
                name,
                f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {entry.uid}",
            )
        if wanted.resource_version and wanted.resource_version != str(entry.version):
            raise conflict(
                resource,
                name,
                f"Precondition failed: ResourceVersion in precondition: {wanted.resource_version}, "
                f"ResourceVersion in object meta: {entry.version}",
            )
    obj = decode(entry)
    if resource is NAMESPACES:
        return _delete_namespace(cluster, entry, obj, dry_run=dry_run)
    grace = _grace(cluster, resource, obj, options)
    if dry_run:
        return Deleted(entry, False)
    metadata = obj["metadata"]
    if not grace and not metadata.get("finalizers"):
        return Deleted(cluster.remove(resource, entry, obj), True)
    return Deleted(_mark(cluster, resource, entry, obj, grace), False)


def _grace(cluster: Cluster, resource: Resource, obj: Object, options: DeleteOptions) -> int:
    """Seconds until a pod's kubelet must have removed it; 0 when nobody has to stop anything first."""
    if resource is not PODS or not cluster.graceful_pods or not obj["spec"].get("nodeName"):
        return 0
    if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.grace_period_seconds
    grace = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return max(0, int(grace))


def _mark(cluster: Cluster, resource: Resource, entry: Entry, obj: Object, grace: int) -> Entry:
    metadata = obj["metadata"]
    before = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" in metadata and (before or 0) <= grace:
        return entry
    metadata["deletionTimestamp"] = cluster.clock.at(time.time() + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if "generation" in metadata and before is None:
        metadata["generation"] += 1
    return cluster.collection(resource).put(obj, cluster.store.next_version())


def resume_deletions(cluster: Cluster) -> None:
    """Go on with namespaces that were being deleted when the server ended, or when its disk was full."""
    for name in list(cluster.terminating):
        if cluster.collection(NAMESPACES).get("", name) is None:
            cluster.terminating.discard(name)
        else:
            delete(cluster, NAMESPACES, None, name, DeleteOptions())


def _delete_namespace(cluster: Cluster, entry: Entry, obj: Object, *, dry_run: bool) -> Deleted:
    name = entry.name
    if name in SYSTEM_NAMESPACES[:3]:
        raise forbidden(NAMESPACES, name, "this namespace may not be deleted")
    if dry_run:
        return Deleted(entry, False)
    if not entry.deleting:
        obj["metadata"]["deletionTimestamp"] = cluster.clock.now()
        obj["metadata"]["deletionGracePeriodSeconds"] = 0
        obj.setdefault("status", {})["phase"] = "Terminating"
        entry = cluster.collection(NAMESPACES).put(obj, cluster.store.next_version())
    cluster.terminating.add(name)
    for collection in list(cluster.store.namespaced()):
        for item in collection.entries(name) if name in collection.objects else ():
            delete(cluster, collection.resource, name, item.name, DeleteOptions())
    cluster.finish_namespace(name)
    return Deleted(entry, cluster.collection(NAMESPACES).get("", name) is None)
