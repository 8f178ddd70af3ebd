"""What a request says about unknown and duplicate fields of its body, and the report that its body gets."""

from typing import Any

from koord.localcluster.api.errors import not_supported
from koord.localcluster.api.requests import JSON_PATCH, Request, media_type
from koord.localcluster.api.resources import Route
from koord.localcluster.api.schemas.strict import IGNORE, SUPPORTED, WARN, Report
from koord.localcluster.clusterapi import ApiError, Object

_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_OPERATION = frozenset({"op", "path", "from", "value"})
_NOT_JSON = ("application/yaml", "text/yaml", "application/vnd.kubernetes.protobuf")


def report_of(request: Request, route: Route, decoded: Any) -> Report:
    """The report of a request whose body was decoded (and not yet changed); 422 for an unknown `fieldValidation`.

    In mode `Warn` what it notes becomes the request's warnings.
    """
    mode = request.query.text("fieldValidation") or WARN
    if mode not in SUPPORTED:
        raise _unsupported(request.method, mode)
    resource = route.resource
    report = Report(mode, route.version if resource.custom and route.version != resource.version else "")
    if mode == IGNORE:
        return report
    if mode == WARN:
        report.problems = request.warnings
    report.add_repeated(request.repeated)
    media = media_type(request.content_type)
    if media == JSON_PATCH:
        report.problems += _operations(decoded)
    elif media not in _NOT_JSON:
        report.add_duplicates(request.body, decoded)
    return report


def _operations(decoded: Any) -> list[str]:
    if not isinstance(decoded, list):
        return []
    return [
        f'json patch unknown field "[{i}].{name}"'
        for i, operation in enumerate(decoded)
        if isinstance(operation, dict)
        for name in operation
        if name not in _OPERATION
    ]


def _unsupported(method: str, mode: str) -> ApiError:
    kind = _OPTIONS.get(method, "PatchOptions")
    cause = not_supported("fieldValidation", mode, SUPPORTED)
    causes = [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
    details: Object = {"group": "meta.k8s.io", "kind": kind, "causes": causes}
    message = f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}'
    return ApiError(422, "Invalid", message, details)
