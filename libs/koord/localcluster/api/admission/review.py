"""The question to a webhook and its answer: AdmissionReview objects, written and read.

An answer that breaks the protocol raises `BadAnswer` with the words of the real server.
"""

import base64
import binascii
import string
from typing import Any

import msgspec

from koord.localcluster.api.admission.attributes import Attributes
from koord.localcluster.api.admission.failures import BadAnswer
from koord.localcluster.api.resources import Route
from koord.localcluster.clusterapi import ApiError, Object

_GROUP = "admission.k8s.io"
_BASE64 = frozenset(string.ascii_letters + string.digits + "+/=")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Status(msgspec.Struct):
    """Why a webhook refuses."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


class Verdict(msgspec.Struct, rename="camel"):
    """The response part of a review."""

    uid: str = ""
    allowed: bool = False
    status: Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: Verdict | None = None


def review_version(accepted: list[str] | None) -> str | None:
    """The first version among those a webhook accepts that the server can write."""
    return next((version for version in accepted or () if version in ("v1", "v1beta1")), None)


def describe(write: Attributes, route: Route) -> Object:
    """The request part of a review in the version of `route`, without uid and objects."""
    kind, resource = write.kind_in(route), write.resource_in(route)
    asked_kind, asked_resource = write.kind_in(write.route), write.resource_in(write.route)
    request: Object = {"kind": kind._asdict(), "resource": resource._asdict()}
    if write.subresource:
        request["subResource"] = write.subresource
    request["requestKind"] = asked_kind._asdict()
    request["requestResource"] = asked_resource._asdict()
    if write.subresource:
        request["requestSubResource"] = write.subresource
    if write.name:
        request["name"] = write.name
    if write.namespace:
        request["namespace"] = write.namespace
    request["operation"] = write.operation
    who: Object = {"username": write.user.username, "groups": list(write.user.groups)}
    if write.user.uid:
        who["uid"] = write.user.uid
    request["userInfo"] = who
    request["dryRun"] = write.dry_run
    request["options"] = write.options
    return request


def encode_review(version: str, uid: str, write: Attributes, route: Route) -> bytes:
    """An AdmissionReview that asks about a write, in the version of `route`."""
    request: Object = {"uid": uid, **describe(write, route)}
    request["object"] = write.outward(route, write.obj)
    request["oldObject"] = write.outward(route, write.old)
    return _encode({"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{version}", "request": request})


def read_verdict(body: bytes, version: str, uid: str, *, mutating: bool) -> Verdict:
    """What a webhook answered."""
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"failed to call webhook: couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(value, dict):
        what = "array" if isinstance(value, list) else "string"
        raise BadAnswer(
            f"failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal {what}"
        )
    try:
        answer = msgspec.convert(_without_nulls(value), _Answer)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"failed to call webhook: json: cannot unmarshal the response: {error}") from None
    wanted = f"{_GROUP}/{version}"
    if answer.kind and answer.kind != "AdmissionReview":
        raise BadAnswer(
            f'failed to call webhook: no kind "{answer.kind}" is registered for version "{answer.api_version}"'
        )
    if answer.api_version and answer.api_version != wanted:
        given = answer.api_version.rpartition("/")[2]
        raise BadAnswer(
            f"failed to call webhook: converting ({given}.AdmissionReview) to ({version}.AdmissionReview):"
            " unknown conversion"
        )
    verdict = answer.response
    if verdict is None:
        raise _invalid("webhook response was absent")
    if version == "v1":
        _check(answer, verdict, uid, mutating=mutating)
    else:
        # Of the old version neither uid nor patch type were ever checked.
        verdict.patch_type = "JSONPatch" if mutating and verdict.patch else None
        verdict.patch = verdict.patch if mutating else None
    return verdict


def _check(answer: _Answer, verdict: Verdict, uid: str, *, mutating: bool) -> None:
    if verdict.uid != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{verdict.uid}"')
    if not answer.api_version or not answer.kind:
        group, _, version = answer.api_version.rpartition("/")
        got = f"{group}/{version}, Kind={answer.kind}"
        raise _invalid(f"expected webhook response of {_GROUP}/v1, Kind=AdmissionReview, got {got}")
    if not mutating:
        if verdict.patch:
            raise _invalid("validating webhook may not return response.patch")
        if verdict.patch_type is not None:
            raise _invalid("validating webhook may not return response.patchType")
    elif verdict.patch and verdict.patch_type is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    elif not verdict.patch and verdict.patch_type is not None:
        raise _invalid("webhook returned response.patchType but not response.patch")
    elif verdict.patch_type == "":
        raise _invalid('webhook returned invalid response.patchType of ""')


def _invalid(why: str) -> BadAnswer:
    return BadAnswer(f"received invalid webhook response: {why}")


def _without_nulls(value: Any) -> Any:
    """Null means absent, on the two levels that are read."""
    if not isinstance(value, dict):
        return value
    return {
        name: {key: item for key, item in part.items() if item is not None} if isinstance(part, dict) else part
        for name, part in value.items()
        if part is not None
    }


def read_patch(verdict: Verdict) -> list[Any]:
    """The operations of a verdict's patch; empty when it changes nothing."""
    if not verdict.patch:
        return []
    try:
        text = base64.b64decode(verdict.patch, validate=True)
    except (binascii.Error, ValueError):
        at = next((i for i, char in enumerate(verdict.patch) if char not in _BASE64), len(verdict.patch))
        raise BadAnswer(f"failed to call webhook: illegal base64 data at input byte {at}") from None
    try:
        operations = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"received undecodable patch in webhook response: {error}") from None
    if operations is None:
        return []
    if not isinstance(operations, list):
        what = {dict: "object", str: "string", bool: "bool"}.get(type(operations), "number")
        why = f"json: cannot unmarshal {what} into Go value of type jsonpatch.Patch"
        raise BadAnswer(f"received undecodable patch in webhook response: {why}")
    if verdict.patch_type != "JSONPatch" and operations:
        raise BadAnswer(f'unsupported patch type "{verdict.patch_type}"')
    return operations


def rejection(name: str, status: Status | None) -> ApiError:
    """The error that the client of a refused write gets: in the webhook's words, with its code and reason, if any."""
    given = status or Status()
    message = f'admission webhook "{name}" denied the request'
    if given.message or given.reason:
        message = f"{message}: {given.message or given.reason}"
    else:
        message += " without explanation"
    return ApiError(given.code if 400 <= given.code <= 599 else 400, given.reason, message, given.details)
