"""The scale sub-resource: a view of an object's replica count that can be written."""

from typing import Any

from koord.localcluster.api.errors import bad_request, invalid, invalid_value, no_such_path
from koord.localcluster.api.resources import Resource, ScalePaths
from koord.localcluster.clusterapi import Object

_SCALE = Resource("autoscaling", "v1", "scales", "Scale")


def _read(obj: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _selector_text(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    labels = selector.get("matchLabels", selector) if isinstance(selector, dict) else {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if isinstance(value, str))


def paths_of(resource: Resource) -> ScalePaths:
    """Where a resource keeps its replicas; 404 when it has no scale sub-resource."""
    if resource.scale is None:
        raise no_such_path()
    return resource.scale


def to_scale(resource: Resource, obj: Object) -> Object:
    """The `Scale` of an object."""
    paths = paths_of(resource)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {field: obj["metadata"][field] for field in kept if field in obj["metadata"]}
    status: Object = {"replicas": _read(obj, paths.status_replicas) or 0}
    if paths.selector and (text := _selector_text(_read(obj, paths.selector))):
        status["selector"] = text
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas} if (replicas := _read(obj, paths.spec_replicas)) else {},
        "status": status,
    }


def from_scale(resource: Resource, obj: Object, scale: Object) -> Object:
    """A copy of the object with the replicas of a written `Scale`; its preconditions are carried over."""
    paths = paths_of(resource)
    spec = scale.get("spec")
    replicas = (spec if isinstance(spec, dict) else {}).get("replicas", 0)
    name = obj["metadata"]["name"]
    sent = scale.get("metadata")
    sent = sent if isinstance(sent, dict) else {}
    if sent.get("name", name) != name:
        raise bad_request(f"the name of the object ({sent['name']}) does not match the name on the URL ({name})")
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        cause = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(_SCALE, name, [cause])
    metadata = dict(obj["metadata"])
    for field in ("uid", "resourceVersion"):
        if sent.get(field):
            metadata[field] = sent[field]
    result = {**obj, "metadata": metadata}
    _write(result, paths.spec_replicas, replicas)
    return result


def _write(copy: Object, path: tuple[str, ...], value: int) -> None:
    for step in path[:-1]:
        inner = copy.get(step)
        copy[step] = copy = dict(inner) if isinstance(inner, dict) else {}
    copy[path[-1]] = value
