"""The rules of one update: what it may not change, what it carries over, whether it counts as another wish."""

from koord.localcluster.api.apply.comparing import equal
from koord.localcluster.api.errors import bad_request, broken_precondition, modified, unreasoned
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import Object

FIXED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
"""Fields of metadata that no update changes."""


def check_preconditions(resource: Resource, entry: Entry, sent: Object) -> None:
    """Name, namespace, uid and version that a write names are those of the object; ApiError if not."""
    if sent.get("name") != entry.name:
        if sent.get("name"):
            why = f"the name of the object ({sent['name']}) does not match the name on the URL ({entry.name})"
        else:
            why = f"the name of the object ({entry.name} based on URL) was undeterminable: name must be provided"
        raise bad_request(why)
    if (sent.get("namespace") or entry.namespace) != entry.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    uid = sent.get("uid")
    if uid and uid != entry.uid:
        raise broken_precondition(resource, entry.namespace, entry.name, "UID", uid, entry.uid)
    version = sent.get("resourceVersion")
    if version and version != str(entry.version):
        if not (version.isascii() and version.isdigit()):
            raise unreasoned(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        raise modified(resource, entry.name)


def drop_empty(obj: Object, metadata: Object) -> None:
    """Maps and lists that have nothing in them are not there, as in Go."""
    metadata.pop("selfLink", None)
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in metadata and not metadata[field]:
            del metadata[field]
    if "data" in obj or "binaryData" in obj:
        for field in ("data", "binaryData"):
            if obj.get(field) == {} and obj.get("kind") in ("ConfigMap", "Secret"):
                del obj[field]


def carry(into: Object, source: Object, field: str) -> None:
    """Make one field of `into` as it is in `source`, absent included."""
    if field in source and source[field] is not None:
        into[field] = source[field]
    else:
        into.pop(field, None)


def desired_differs(resource: Resource, old: Object, new: Object) -> bool:
    """Whether a write counts in `metadata.generation`."""
    if not resource.custom:
        if old.get("template") != new.get("template"):
            return True
        if resource.key == "deployments.apps" and (
            (old["metadata"].get("annotations") or {}) != (new["metadata"].get("annotations") or {})
        ):
            return True  # they go on to its ReplicaSets
        if resource.key == "endpointslices.discovery.k8s.io":
            before, now = old["metadata"], new["metadata"]
            labelled = any(before.get(field) != now.get(field) for field in ("labels", "annotations"))
            return labelled or any(old.get(field) != new.get(field) for field in ("endpoints", "ports"))
        return bool(old.get("spec") != new.get("spec") or old.get("webhooks") != new.get("webhooks"))
    ignored = ("metadata", "status") if resource.status else ("metadata",)
    names = (old.keys() | new.keys()).difference(ignored)
    return any(name not in old or name not in new or not equal(old[name], new[name]) for name in names)
