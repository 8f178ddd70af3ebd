"""The refusals of the API server, in the words and shapes that Kubernetes clients know."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from koord.localcluster.api.resources import Resource
from koord.localcluster.clusterapi import ApiError, Object


class Cause(NamedTuple):
    """One broken rule: `reason` is a Kubernetes field error type, `field` a path such as `spec.containers[0].name`."""

    reason: str
    field: str
    message: str


def required(field: str, detail: str = "") -> Cause:
    """A value that must be there is not."""
    return Cause("FieldValueRequired", field, f"Required value{': ' + detail if detail else ''}")


def invalid_value(field: str, value: object, detail: str) -> Cause:
    """A value that does not follow its rule."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {_show(value)}: {detail}")


def forbidden_value(field: str, detail: str) -> Cause:
    """A value or change that is not allowed."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {detail}")


def not_supported(field: str, value: object, supported: Sequence[str]) -> Cause:
    """A value outside of an enumeration."""
    known = ", ".join(f'"{item}"' for item in supported)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {_show(value)}: supported values: {known}")


def duplicate(field: str, value: object) -> Cause:
    """A value that may occur once occurs twice."""
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {_show(value)}")


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return str(value)


def _details(resource: Resource, name: str) -> Object:
    details: Object = {"name": name, "kind": resource.plural} if name else {"kind": resource.plural}
    if resource.group:
        details["group"] = resource.group
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    """404: no such object."""
    return ApiError(404, "NotFound", f'{resource.key} "{name}" not found', _details(resource, name))


def no_such_path() -> ApiError:
    """404: no such resource or version."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(409, "AlreadyExists", f'{resource.key} "{name}" already exists', _details(resource, name))


def conflict(resource: Resource, name: str, why: str, *, part: str = "") -> ApiError:
    """409: the write rests on something that is no longer so; `part` is the sub-resource that says it."""
    details = _details(resource, name)
    if part:
        details["kind"] = f"{resource.plural}/{part}"
    what = f"{resource.plural}/{part}" if part else resource.key
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {what} "{name}": {why}', details)


def broken_precondition(resource: Resource, namespace: str, name: str, what: str, asked: str, found: str) -> ApiError:
    """409: a write was to rest on a uid or a resourceVersion (`what`) that is not the object's."""
    group = f"{resource.group}/" if resource.custom else ""
    key = "/".join(("/registry", f"{group}{resource.plural}", *((namespace,) if namespace else ()), name))
    why = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition"
        f" failed: {what} in precondition: {asked}, {what} in object meta: {found}"
    )
    return conflict(resource, name, why)


def modified(resource: Resource, name: str) -> ApiError:
    """409: the resourceVersion sent is not the object's."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object breaks rules; every one is named with its field."""
    words = [f"{cause.field}: {cause.message}" for cause in causes]
    text = words[0] if len(words) == 1 else "[" + ", ".join(words) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: Object = {"name": name, "kind": resource.kind} if name else {"kind": resource.kind}
    if resource.group:
        details["group"] = resource.group
    details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def invalid_patch(patched: object, why: str) -> ApiError:
    """422: a patch whose result cannot be read as an object of its kind."""
    text = msgspec.json.encode(patched).decode().replace("\\", "\\\\").replace('"', '\\"')
    message = f'Invalid value: "{text}": {why}'
    causes = [{"reason": "FieldValueInvalid", "message": message, "field": "patch"}]
    return ApiError(422, "Invalid", f' "" is invalid: patch: {message}', {"causes": causes})


def bad_request(message: str) -> ApiError:
    """400: the request itself cannot be understood."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: no token, or a wrong one."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """403: understood, and not allowed."""
    message = f'{resource.key} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _details(resource, name))


def namespace_terminating(resource: Resource, name: str, namespace: str) -> ApiError:
    """403: nothing is created in a namespace that is being deleted."""
    error = forbidden(
        resource, name, f"unable to create new content in namespace {namespace} because it is being terminated"
    )
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
    causes = [{**cause, "field": "metadata.namespace"}]
    return ApiError(error.code, error.reason, error.message, {**(error.details or {}), "causes": causes})


def method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> ApiError:
    """405: the resource has no such verb."""
    return ApiError(405, "MethodNotAllowed", message, {})


def not_acceptable(why: str = "") -> ApiError:
    """406: the client accepts nothing that the server can write, or a form that this answer does not have (`why`)."""
    if why:
        return ApiError(406, "NotAcceptable", why)
    return ApiError(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: application/json", {})


def unsupported_patch() -> ApiError:
    """415: the content type names no kind of patch."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


class PageNotFound(ApiError):
    """404 below no API at all: Kubernetes says it in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def unreasoned(message: str) -> ApiError:
    """500 without a reason: what Kubernetes answers where it did not foresee an error of the client."""
    return ApiError(500, "", message)


def unsupported_media_type(supported: str, given: str = "") -> ApiError:
    """415: the body's content type cannot be read here."""
    message = f"the body of the request was in an unknown format - accepted media types include: {supported}"
    if given:
        message += f" (the request says {given!r})"
    return ApiError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> ApiError:
    """413: the body is over the limit."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def expired(message: str = "The provided continue parameter is too old or not valid any more") -> ApiError:
    """410: the version or continue token asked for is no longer held."""
    return ApiError(410, "Expired", message)


class ListExpired(ApiError):
    """A list that was begun cannot be gone on with; `token` goes on in the present instead."""

    def __init__(self, message: str, token: str) -> None:
        super().__init__(410, "Expired", message)
        self.token = token

    def status(self) -> Object:
        """The Status, with the token where a list has it."""
        return {**super().status(), "metadata": {"continue": self.token}}


def list_expired(token: str) -> ApiError:
    """410: what a continue token rests on is no longer held."""
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list"
        " without the continue parameter, or use the continue token in this response to retrieve the remainder of the"
        " results. Continuing with the provided token results in an inconsistent list - objects that were created,"
        " modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    return ListExpired(message, token)


def invalid_options(kind: str, causes: Sequence[Cause]) -> ApiError:
    """422: the parameters of a request (`ListOptions`, `CreateOptions`, ...) break rules."""
    words = [f"{cause.field}: {cause.message}" for cause in causes]
    text = words[0] if len(words) == 1 else "[" + ", ".join(words) + "]"
    listed = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    details: Object = {"group": "meta.k8s.io", "kind": kind, "causes": listed}
    return ApiError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {text}', details)


def too_old(asked: int, oldest: int) -> ApiError:
    """410 for a watch whose start is no longer held."""
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def version_too_large(asked: int, current: int) -> ApiError:
    """504: a version of the future was asked for."""
    details: Object = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiError(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)


def insufficient_storage(why: str) -> ApiError:
    """507: the write cannot be kept, so it was not made."""
    message = (
        f"the data directory cannot be written ({why}): the write was refused and nothing has changed;"
        " reads and watches go on, and so do writes once there is space"
    )
    return ApiError(507, "InsufficientStorage", message, {"retryAfterSeconds": 1})


def internal(message: str) -> ApiError:
    """500: a fault of the server, not of the request."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})
