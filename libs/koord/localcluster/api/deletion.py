"""Deleting one object: preconditions, grace, finalizers, and what is left for the controllers to finish.

A deletion either takes the object out at once or marks it and lets others work: its kubelet (grace of bound pods),
whoever put a finalizer on it, the garbage collector (policies Foreground and Orphan), the namespace controller.
"""

import calendar
import time
from typing import NamedTuple

from koord.localcluster.api.builtin import CRDS, NAMESPACES, PODS
from koord.localcluster.api.cluster import SYSTEM_NAMESPACES, Cluster
from koord.localcluster.api.deleteoptions import DeleteOptions, Preconditions, given_options
from koord.localcluster.api.errors import conflict, forbidden
from koord.localcluster.api.finalizers import DEFINITION, FOREGROUND, ORPHAN, for_deletion
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.store import decode, encode, same_json
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ApiError, Object

IMMORTAL_NAMESPACES = SYSTEM_NAMESPACES[:3]

# The kinds whose deletion is answered with the object that is gone; for all others with a Status.
RETURNED_WHEN_GONE = frozenset(
    (
        "pods",
        "namespaces",
        "services",
        "serviceaccounts",
        "resourcequotas",
        "persistentvolumes",
        "persistentvolumeclaims",
        "podtemplates",
        "deviceclasses.resource.k8s.io",
        "resourceclaims.resource.k8s.io",
        "resourceclaimtemplates.resource.k8s.io",
        "resourceslices.resource.k8s.io",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "storageclasses.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
    )
)


class Deleted(NamedTuple):
    """The object's state after the request (its last one if it is `gone`), as JSON."""

    raw: bytes
    gone: bool
    uid: str


def preconditions(uid: str | None, resource_version: str | None) -> Preconditions | None:
    """Preconditions from plain values."""
    return Preconditions(uid, resource_version) if uid or resource_version else None


def delete(
    cluster: Cluster,
    resource: Resource,
    namespace: str | None,
    name: str,
    options: DeleteOptions,
    *,
    dry_run: bool = False,
    ask: bool = True,
) -> Deleted:
    """Delete one object, or mark it when something must still happen first; `ask`: admission webhooks have a say."""
    dry_run = dry_run or options.tries_only
    if resource is NAMESPACES and name in IMMORTAL_NAMESPACES:
        raise forbidden(NAMESPACES, name, "this namespace may not be deleted")
    entry = cluster.find(resource, namespace, name)
    obj = decode(entry)
    _check_preconditions(resource, entry, options)
    if ask and cluster.admission.current is not None:
        cluster.admission.deletable(resource, entry, given_options(options), dry_run=dry_run)
    if resource is NAMESPACES:
        if not entry.deleting:
            _begin_namespace(cluster, obj, options)
            return _write(cluster, resource, entry, obj, dry_run)
        if (obj.get("spec") or {}).get("finalizers"):
            return Deleted(entry.raw, False, entry.uid)
    elif resource is CRDS and not entry.deleting:
        _begin_definition(cluster, obj)
        return _write(cluster, resource, entry, obj, dry_run)
    metadata = obj["metadata"]
    graceful = False
    if resource is PODS:
        settled = _settle_grace(cluster, obj, options)
        if settled is None:
            return Deleted(entry.raw, False, entry.uid)
        graceful = settled
    finalizers = for_deletion(resource, metadata, options.propagation_policy, options.orphan_dependents)
    if finalizers:
        metadata["finalizers"] = finalizers
        if not graceful:
            _mark(cluster, metadata)
    else:
        metadata.pop("finalizers", None)
    if finalizers or (graceful and metadata["deletionGracePeriodSeconds"] > 0):
        return _write(cluster, resource, entry, obj, dry_run)
    if dry_run:
        return Deleted(encode(obj) if graceful else entry.raw, True, entry.uid)
    return Deleted(cluster.remove(resource, entry, obj).raw, True, entry.uid)


def _write(cluster: Cluster, resource: Resource, entry: Entry, obj: Object, dry_run: bool) -> Deleted:
    if dry_run:
        return Deleted(encode(obj), False, entry.uid)
    if not same_json(obj, entry.raw):
        entry = cluster.collection(resource).put(obj, cluster.store.next_version())
    return Deleted(entry.raw, False, entry.uid)


def _check_preconditions(resource: Resource, entry: Entry, options: DeleteOptions) -> None:
    wanted = options.preconditions
    if wanted is None:
        return
    version = str(entry.version)
    if resource is NAMESPACES or resource is CRDS:
        first = "Precondition" if resource is NAMESPACES else "precondition"
        if wanted.uid is not None and wanted.uid != entry.uid:
            why = f"{first} failed: UID in precondition: {wanted.uid}, UID in object meta: {entry.uid}"
            raise conflict(resource, entry.name, why)
        if wanted.resource_version is not None and wanted.resource_version != version:
            given = wanted.resource_version
            why = f"{first} failed: ResourceVersion in precondition: {given}, ResourceVersion in object meta: {version}"
            raise conflict(resource, entry.name, why)
        return
    check_record(resource, entry, wanted.uid, wanted.resource_version)


def check_record(resource: Resource, entry: Entry, uid: str | None, version: str | None) -> None:
    """409 unless the object has this uid and this version; None is any."""
    record: tuple[str, str, str] | None = None
    if uid is not None and uid != entry.uid:
        record = ("UID", uid, entry.uid)
        hint = "The object might have been deleted and then recreated"
    elif version is not None and version != str(entry.version):
        record = ("ResourceVersion", version, str(entry.version))
        hint = "The object might have been modified"
    if record is not None:
        what, given, found = record
        why = f"the {what} in the precondition ({given}) does not match the {what} in record ({found}). {hint}"
        raise kind_conflict(resource, entry.name, why)


def kind_conflict(resource: Resource, name: str, why: str) -> ApiError:
    """409 that names the kind instead of the resource, as Kubernetes does for preconditions of deletions."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: Object = {"name": name, "kind": resource.kind}
    if resource.group:
        details["group"] = resource.group
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}', details)


def _settle_grace(cluster: Cluster, pod: Object, options: DeleteOptions) -> bool | None:
    """Write the time a pod has left into it.

    True: it may go when that time is over; False: its time was over before; None: nothing changes, it is going already
    and a deletion can only shorten its time.
    """
    metadata = pod["metadata"]
    asked = options.grace_period_seconds
    if asked is not None and asked < 0:
        asked = 1
    now = time.time()
    if "deletionTimestamp" not in metadata:
        grace = _grace(cluster, pod, asked)
        metadata["deletionTimestamp"] = cluster.clock.at(now + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        if metadata.get("generation"):
            metadata["generation"] += 1
        return True
    left = metadata.get("deletionGracePeriodSeconds")
    if not left:
        return False
    if asked is None or asked >= left:
        return None
    until = _seconds(metadata["deletionTimestamp"]) - left + asked
    if until < int(now):
        until = int(now)
        asked = 1 if asked else 0
    metadata["deletionTimestamp"] = cluster.clock.at(until)
    metadata["deletionGracePeriodSeconds"] = asked
    return True


def _grace(cluster: Cluster, pod: Object, asked: int | None) -> int:
    """Seconds until a pod's kubelet must have removed it; 0 when nobody has to stop anything first."""
    if not cluster.graceful_pods or not pod["spec"].get("nodeName"):
        return 0
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)


def _seconds(stamp: str) -> int:
    return calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))


def _mark(cluster: Cluster, metadata: Object) -> None:
    """Say that the object is being deleted, and waits for nothing but its finalizers."""
    if "deletionTimestamp" not in metadata:
        if metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = cluster.clock.now()
    elif _seconds(metadata["deletionTimestamp"]) > time.time():
        metadata["deletionTimestamp"] = cluster.clock.now()
    metadata["deletionGracePeriodSeconds"] = 0


def _begin_namespace(cluster: Cluster, obj: Object, options: DeleteOptions) -> None:
    """Close a namespace; the namespace controller empties it and then takes `kubernetes` out of spec.finalizers."""
    metadata = obj["metadata"]
    metadata["deletionTimestamp"] = cluster.clock.now()
    obj.setdefault("status", {})["phase"] = "Terminating"
    present = metadata.get("finalizers") or []
    orphan, policy = options.orphan_dependents, options.propagation_policy
    if orphan is not None:
        wanted = [ORPHAN] if orphan else [FOREGROUND]
    elif policy is not None:
        wanted = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(policy, [])
    else:
        return
    finalizers = [finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND)] + wanted
    metadata["finalizers"] = finalizers
    if not finalizers:
        del metadata["finalizers"]


def _begin_definition(cluster: Cluster, obj: Object) -> None:
    """Close a definition; its controller deletes the objects it defines and then lets it go."""
    metadata = obj["metadata"]
    metadata["deletionTimestamp"] = cluster.clock.now()
    finalizers = metadata.setdefault("finalizers", [])
    if DEFINITION not in finalizers:
        finalizers.append(DEFINITION)
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [condition for condition in conditions if condition.get("type") != "Terminating"]
    conditions.append(
        {
            "type": "Terminating",
            "status": "True",
            "lastTransitionTime": cluster.clock.now(),
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        }
    )
