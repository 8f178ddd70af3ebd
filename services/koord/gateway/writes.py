"""Create, patch, delete and evict: what each answer of the API server means for the decision.

All four may be repeated without harm, which is what makes a redelivered decision safe: a create has a fixed name (also
where it asked for a generated one), a patch and a delete carry their preconditions into the request.
"""

import hashlib
from typing import Any, cast
from urllib.parse import urlencode

import msgspec

from koord.contracts.decisions import Create, Delete, Evict, ObjectRef, Patch
from koord.contracts.results import Result
from koord.gateway.allow import Rejected, describe, safe_name
from koord.gateway.api import PATCH_TYPES, Api
from koord.gateway.lanes import BIND, LANE_NAMES, STATUS
from koord.gateway.leanclient import Response
from koord.gateway.objects import ApiStatus, read_status
from koord.gateway.patching import holds, with_preconditions
from koord.kube.resources import BY_TOKEN, PODS, Resource

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_encode = msgspec.json.encode


class _Owner(msgspec.Struct):
    uid: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    owner_references: list[_Owner] | None = None


class _Stored(msgspec.Struct):
    metadata: _Meta


_stored = msgspec.json.Decoder(_Stored)
_anything = msgspec.json.Decoder()


class Writer:
    """Executes the decisions that are one request. Raises Rejected and ApiUnavailable."""

    def __init__(self, api: Api) -> None:
        self._api = api

    # Create -------------------------------------------------------------------------------------------------------

    async def create(self, decision: Create) -> Result:
        """Create the object; one that exists already counts as done if it has the owner named."""
        resource = BY_TOKEN[decision.resource]
        body, name = _complete(decision, resource)
        answer = await self._api.call("create", resource.path(decision.namespace), _encode(body), lane=STATUS)
        if answer.status in (200, 201):
            return _done(decision.id, answer)
        status = read_status(answer.body)
        if answer.status == 409:
            there = await self._api.call("get", resource.path(decision.namespace, name), lane=STATUS)
            if there.status == 200 and decision.owner_uid:
                stored = _stored.decode(there.body).metadata
                if any(owner.uid == decision.owner_uid for owner in stored.owner_references or ()):
                    return _done(decision.id, there)
            return Result(decision.id, "conflict", status.message or f"{name}: exists already", 409)
        if answer.status == 404:
            return Result(decision.id, "gone", status.message, 404)
        return Result(decision.id, "rejected", _why(answer, status), answer.status)

    # Patch --------------------------------------------------------------------------------------------------------

    async def patch(self, decision: Patch, service: str, unsure: list[str] | None = None) -> Result:
        """Patch the object; preconditions of the target travel inside the patch. ``unsure`` as in Api.call."""
        target = decision.target
        resource = BY_TOKEN[target.resource]
        try:
            body = with_preconditions(decision.body, decision.patch, target.uid, target.resource_version)
        except ValueError as error:
            raise Rejected("invalid", f"{describe(target)}: body: {error}") from error
        path = resource.path(target.namespace, target.name, decision.subresource)
        if decision.patch == "apply":
            path = f"{path}?{urlencode({'fieldManager': f'koord-{service}', 'force': 'true'})}"
        lane = LANE_NAMES.index(decision.lane)
        for _ in range(5):
            answer = await self._api.call("patch", path, body, PATCH_TYPES[decision.patch], lane=lane, unsure=unsure)
            if answer.status in (200, 201):
                return _done(decision.id, answer)
            status = read_status(answer.body)
            if answer.status == 404:
                return Result(decision.id, "gone", _why(answer, status), 404)
            if answer.status not in (409, 422) or not (target.uid or target.resource_version or answer.status == 409):
                return Result(decision.id, "rejected", _why(answer, status), answer.status)
            verdict = await self._refused_precondition(decision, resource, answer, status, lane)
            if verdict is not None:
                return verdict
        return Result(decision.id, "conflict", f"{describe(target)}: changed by others again and again", 409)

    async def _refused_precondition(
        self, decision: Patch, resource: Resource, answer: Response, status: ApiStatus, lane: int
    ) -> Result | None:
        """What a 409 or 422 was about, by what is there now; None to try once more."""
        target = decision.target
        there = await self._api.call("get", resource.path(target.namespace, target.name), lane=lane)
        if there.status == 404:
            return Result(decision.id, "gone", f"{describe(target)}: does not exist", 404)
        if there.status != 200:
            return Result(decision.id, "rejected", _why(answer, status), answer.status)
        stored = _stored.decode(there.body).metadata
        if target.uid and stored.uid != target.uid:
            return Result(
                decision.id, "gone", f"{describe(target)}: uid {target.uid} was replaced by {stored.uid}", 409
            )
        if decision.patch == "merge" and holds(there.body, decision.body):
            # An earlier request whose answer was lost, or a redelivery: what was asked for is there.
            return Result(decision.id, "done", code=200, resource_version=stored.resource_version)
        if target.resource_version and stored.resource_version != target.resource_version:
            reason = f"{describe(target)}: resourceVersion is {stored.resource_version}, not {target.resource_version}"
            return Result(decision.id, "conflict", reason, 409, stored.resource_version)
        if answer.status == 422:
            return Result(decision.id, "rejected", _why(answer, status), 422)
        return None

    # Delete, evict ------------------------------------------------------------------------------------------------

    async def delete(self, decision: Delete) -> Result:
        """Delete the object with this uid; already gone counts as ``gone``."""
        target = decision.target
        resource = BY_TOKEN[target.resource]
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        preconditions = {"uid": target.uid}
        if target.resource_version:
            preconditions["resourceVersion"] = target.resource_version
        options["preconditions"] = preconditions
        if decision.propagation:
            options["propagationPolicy"] = decision.propagation
        path = resource.path(target.namespace, target.name)
        answer = await self._api.call("delete", path, _encode(options), lane=STATUS)
        if answer.status in (200, 202):
            return Result(decision.id, "done", code=answer.status)
        return await self._not_there(decision.id, target, resource, answer)

    async def evict(self, decision: Evict) -> Result:
        """Ask the Eviction API, which stays the judge: a disruption budget's refusal is a conflict."""
        target = decision.target
        metadata = {"name": target.name, "namespace": target.namespace}
        options = {"preconditions": {"uid": target.uid}} if target.uid else {}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        path = PODS.path(target.namespace, target.name, "eviction")
        answer = await self._api.once("evict", path, _encode(body), lane=BIND)
        if answer.status in (200, 201):
            return Result(decision.id, "done", code=answer.status)
        if answer.status == 429:
            # Which budget, and what it has, is in the causes only.
            status = read_status(answer.body)
            causes = [cause.message for cause in status.details.causes] if status.details is not None else []
            return Result(decision.id, "conflict", " ".join((status.message, *causes)), 429)
        return await self._not_there(decision.id, target, PODS, answer)

    async def _not_there(self, id_: str, target: ObjectRef, resource: Resource, answer: Response) -> Result:
        status = read_status(answer.body)
        if answer.status == 404:
            return Result(id_, "gone", _why(answer, status), 404)
        if answer.status != 409:
            return Result(id_, "rejected", _why(answer, status), answer.status)
        there = await self._api.call("get", resource.path(target.namespace, target.name), lane=STATUS)
        if there.status == 404 or (there.status == 200 and _stored.decode(there.body).metadata.uid != target.uid):
            return Result(id_, "gone", f"{describe(target)}: uid {target.uid} does not exist any more", 409)
        return Result(id_, "conflict", status.message, 409)


def _complete(decision: Create, resource: Resource) -> tuple[dict[str, Any], str]:
    """The body with kind, namespace and name made sure of, and the name; Rejected if it is for something else."""
    where = f"create {decision.resource}"
    try:
        body = _anything.decode(decision.body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Rejected("invalid", f"{where}: body: {error}") from error
    if not isinstance(body, dict):
        raise Rejected("invalid", f"{where}: body: not a JSON object")
    for field, value in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if body.setdefault(field, value) != value:
            raise Rejected("invalid", f"{where}: body.{field}: {body[field]!r} is not {value!r}")
    metadata = body.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise Rejected("invalid", f"{where}: body.metadata: not an object")
    if resource.namespaced and metadata.setdefault("namespace", decision.namespace) != decision.namespace:
        raise Rejected("invalid", f"{where}: body.metadata.namespace: is not {decision.namespace!r}")
    name = decision.name or metadata.get("name")
    if not name and isinstance(metadata.get("generateName"), str):
        # The name comes from the decision's id, so that a redelivery does not create a second object.
        name = cast(str, metadata.pop("generateName"))[:240] + _suffix(decision.id)
    if not isinstance(name, str) or not safe_name(name):
        raise Rejected("invalid", f"{where}: body.metadata.name: {name!r} is not an object name")
    if metadata.setdefault("name", name) != name:
        raise Rejected("invalid", f"{where}: body.metadata.name: is not {name!r}")
    return body, name


def _suffix(id_: str) -> str:
    number = int.from_bytes(hashlib.blake2b(id_.encode(), digest_size=8).digest(), "big")
    letters = []
    for _ in range(8):
        number, digit = divmod(number, len(_SUFFIX))
        letters.append(_SUFFIX[digit])
    return "".join(letters)


def _done(id_: str, answer: Response) -> Result:
    try:
        version = _stored.decode(answer.body).metadata.resource_version
    except (msgspec.MsgspecError, RecursionError):
        version = ""
    return Result(id_, "done", code=answer.status, resource_version=version)


def _why(answer: Response, status: ApiStatus) -> str:
    return status.message or f"the API server answered {answer.status}"
