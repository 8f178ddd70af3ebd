"""Choosing the patch that a request's content type names, and its errors."""

from collections.abc import Callable
from typing import Any

from koord.localcluster.api.errors import bad_request, unsupported_media_type, unsupported_patch
from koord.localcluster.api.patches import PatchError, json_patch, merge_patch
from koord.localcluster.api.requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.strategic import strategic_merge
from koord.localcluster.clusterapi import ApiError, Object

KINDS = {"json": JSON_PATCH, "merge": MERGE_PATCH, "strategic": STRATEGIC_PATCH}
MAX_OPERATIONS = 10_000


def applier(resource: Resource, media: str, patch: Any, *, type_name: str | None = None) -> Callable[[Object], Object]:
    """A function that applies a patch to an object; 415 for a kind that the resource does not take.

    `type_name` names the strategic type when it is not the resource's (the scale sub-resource).
    """
    if media == JSON_PATCH:
        if not isinstance(patch, list):
            raise bad_request("error decoding patch: a JSON patch must be a list of operations")
        if len(patch) > MAX_OPERATIONS:
            raise ApiError(413, "RequestEntityTooLarge", f"the allowed maximum operations is {MAX_OPERATIONS}")
        return _guarded(lambda obj: json_patch(obj, patch))
    if media not in (MERGE_PATCH, STRATEGIC_PATCH):
        raise unsupported_patch()
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch must be an object")
    if media == MERGE_PATCH:
        return _guarded(lambda obj: merge_patch(obj, patch))
    strategic = type_name or resource.strategic
    if strategic is None:
        raise unsupported_media_type(f"{JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}")
    return _guarded(lambda obj: strategic_merge(obj, patch, strategic), strategic=True)


_REJECTED = "the server rejected our request due to an error in our request"


def _guarded(apply: Callable[[Object], Object], *, strategic: bool = False) -> Callable[[Object], Object]:
    """Refuse in Kubernetes' way: 422 that says no more, and for strategic patches 500."""
    code, reason, message, details = (500, "", "", None) if strategic else (422, "Invalid", _REJECTED, Object())

    def run(obj: Object) -> Object:
        try:
            return apply(obj)
        except PatchError as error:
            raise ApiError(code, reason, message or str(error), details) from error

    return run
