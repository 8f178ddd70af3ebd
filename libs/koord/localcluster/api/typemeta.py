"""What an object says of its own type: it must be the type of the path that it is sent to."""

from koord.localcluster.api.errors import Cause, bad_request, invalid, invalid_patch, invalid_value
from koord.localcluster.api.resources import Resource, Route
from koord.localcluster.clusterapi import Object

_SHOWN = 30


def wrong_version(given: object, expected: str) -> str:
    """The sentence about a version that is not the path's."""
    return f"the API version in the data ({given}) does not match the expected API version ({expected})"


def check_type(route: Route, obj: Object, body: bytes) -> None:
    """400 unless a custom object says its kind and version: nothing else could tell what it is."""
    if not obj.get("kind"):
        text = body.decode("utf-8", "replace")
        short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
        wanted = f"(must be of type {route.resource.kind})"
        why = f"Object 'Kind' is missing in '{text}' ({short})"
        raise bad_request(f"the object provided is unrecognized {wanted}: {why}")
    if obj.get("apiVersion") != route.api_version:
        raise bad_request(wrong_version(obj.get("apiVersion") or "", route.api_version))


def settle_type(resource: Resource, obj: Object, *, patched: bool) -> None:
    """Fill in a type that is not said; refuse another one (400, and 422 for a custom object or a patch's result)."""
    if resource.custom and patched and not obj.get("kind"):
        raise invalid_patch(obj, "Object 'Kind' is missing in the patched object")
    for field, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        given = obj.get(field)
        if given is None or given == "":
            obj[field] = expected
        elif given != expected:
            _refuse(resource, obj, field, expected, patched=patched)


def _refuse(resource: Resource, obj: Object, field: str, expected: str, *, patched: bool) -> None:
    given = obj[field]
    if resource.custom and (patched or field == "kind"):
        cause: Cause = invalid_value(field, given, f"must be {expected}")
        raise invalid(resource, obj["metadata"].get("name", ""), [cause])
    if resource.custom:
        raise bad_request(wrong_version(given, expected))
    kind, version = obj.get("kind") or resource.kind, obj.get("apiVersion") or resource.api_version
    if str(version).count("/") > 1:
        wanted = f"(must be of type {resource.kind})"
        raise bad_request(f"the object provided is unrecognized {wanted}: unexpected GroupVersion string: {version}")
    why = f"{kind} of {version} is not a {resource.kind} of {resource.api_version}"
    if patched:
        raise invalid_patch(obj, why)
    raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}')
