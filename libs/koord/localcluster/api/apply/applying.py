"""An apply request: from its body to a write of the object, created when it is not there."""

import contextlib
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from koord.localcluster.api.apply import births, lastapplied
from koord.localcluster.api.apply.checking import check
from koord.localcluster.api.apply.elements import TypedError
from koord.localcluster.api.apply.managers import APPLY, BEFORE_FIRST_APPLY, Managed, encode
from koord.localcluster.api.apply.ownership import current, write_of
from koord.localcluster.api.apply.structure import DEDUCED, Type
from koord.localcluster.api.apply.updating import Conflict, Conflicts, Write, apply, update
from koord.localcluster.api.apply.writers import Applied, Writer
from koord.localcluster.api.errors import Cause, bad_request, conflict, invalid, invalid_value, not_found
from koord.localcluster.api.requests import decode_json
from koord.localcluster.api.resources import Route
from koord.localcluster.api.scale import paths_of
from koord.localcluster.api.schemas.lookup import schema_of
from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.store import decode
from koord.localcluster.api.yamlbodies import YamlError, read_yaml
from koord.localcluster.clusterapi import ApiError, Object

if TYPE_CHECKING:
    from koord.localcluster.api.cluster import Cluster


SCALE = "autoscaling/v1"


class Apply(NamedTuple):
    """What an apply asks for; `subresource` is empty, `status` or `scale`."""

    route: Route
    namespace: str | None
    name: str
    subresource: str
    manager: str
    force: bool


def read_configuration(body: bytes, validation: str, warnings: list[str]) -> Object:
    """The configuration in a body, JSON or YAML; 400 when it is none.

    Keys that come twice are an error, a warning or nothing, by the request's `fieldValidation`.
    """
    value: Any = None
    repeated: list[str] = []
    if body.lstrip()[:1] == b"{":
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            value = msgspec.json.decode(body)
    if value is None:
        value, repeated = _read_yaml(body)
    if repeated and validation == "Strict":
        lines = "\n  ".join(["error converting YAML to JSON: yaml: unmarshal errors:", *repeated])
        raise bad_request(f"error strict decoding patch: {lines}")
    if repeated and validation != "Ignore":
        warnings.extend(repeated)
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = {list: "array", str: "string", bool: "bool"}.get(type(value), "number")
        raise bad_request(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal"
            f" {kind} into Go value of type map[string]interface {{}}"
        )
    return value


def _read_yaml(body: bytes) -> tuple[Any, list[str]]:
    try:
        text, repeated = read_yaml(body)
    except YamlError as error:
        raise bad_request(f"error decoding patch: error converting YAML to JSON: {error}") from error
    return decode_json(text), repeated


def apply_patch(cluster: "Cluster", asked: Apply, config: Object, *, dry_run: bool) -> tuple[bytes, bool]:
    """Apply a configuration; the object as stored, and whether it is new.

    409 with the fields that others own, 404 for the status of an object that is not there.
    """
    route, resource = asked.route, asked.route.resource
    version, kind = config.get("apiVersion") or "", config.get("kind") or ""
    if not isinstance(version, str) or not isinstance(kind, str):
        raise bad_request("invalid object type: /, Kind=")
    scaling = asked.subresource == "scale"
    if (version, kind) != ((SCALE, "Scale") if scaling else (route.api_version, resource.kind)):
        raise bad_request(f"invalid object type: {version if '/' in version else '/' + version}, Kind={kind}")
    metadata = config.get("metadata") or {}
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    if scaling:
        config = _scaled(route, config)
    writer = Writer(asked.manager, route.api_version)
    write = write_of(resource, writer, cluster.clock.now(), subresource=asked.subresource, operation=APPLY)
    entry = cluster.collection(resource).get(asked.namespace or "", asked.name)
    if entry is None:
        if asked.subresource:
            raise not_found(resource, asked.name)
        live = births.zero(resource, route.api_version)
        new, managed = _applied(asked, live, config, {}, write)
        return _create(cluster, asked, live if new is None else new, managed, dry_run=dry_run), True
    stored = decode(entry)
    managed = current(resource, stored, entry.writers)
    stored["metadata"].pop("managedFields", None)
    live = stored if route.outward is None else route.outward(stored)
    live["metadata"].pop("managedFields", None)
    had = managed
    if not managed:
        # Nobody's so far: what is there belongs to whoever was before.
        earlier = Writer(BEFORE_FIRST_APPLY, route.api_version)
        before = write_of(resource, earlier, cluster.clock.now(), subresource=asked.subresource)
        managed = update(births.zero(resource, route.api_version), live, {}, before)
    new, managed = _applied(asked, live, config, managed, write)
    if new is None and managed == had:
        return entry.raw, False
    new = copy.deepcopy(live if new is None else new)
    _check_place(asked, new)
    uid = new["metadata"].get("uid")
    if uid and uid != entry.uid:
        raise invalid(resource, asked.name, [invalid_value("metadata.uid", uid, "field is immutable")])
    by = Applied(encode(managed))
    raw = cluster.patch(
        resource,
        asked.namespace,
        asked.name,
        lambda _: new if route.inward is None else route.inward(new),
        subresource="status" if asked.subresource == "status" else None,
        dry_run=dry_run,
        by=by,
    )
    return raw, False


def _scaled(route: Route, config: Object) -> Object:
    """What a configuration of the scale sub-resource says of the object itself."""
    spec = config.get("spec")
    value = spec.get("replicas") if isinstance(spec, dict) else None
    inner: Any = value if isinstance(value, int) else 0
    for step in reversed(paths_of(route.resource).spec_replicas):
        inner = {step: inner}
    return {
        "apiVersion": route.api_version,
        "kind": route.resource.kind,
        "metadata": config.get("metadata") or {},
        **inner,
    }


def _create(cluster: "Cluster", asked: Apply, new: Object, managed: Managed, *, dry_run: bool) -> bytes:
    resource = asked.route.resource
    new = copy.deepcopy(new)
    metadata = new.setdefault("metadata", {})
    if metadata.get("uid"):
        raise conflict(
            resource,
            asked.name,
            f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found",
        )
    _check_place(asked, new)
    metadata.pop("resourceVersion", None)
    if asked.route.inward is not None:
        new = asked.route.inward(new)
    return cluster.create(resource, asked.namespace, new, dry_run=dry_run, by=Applied(encode(managed)))


def _check_place(asked: Apply, new: Object) -> None:
    metadata = new["metadata"]
    given = metadata.get("namespace")
    if asked.namespace and given and given != asked.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    name = metadata.get("name")
    if not name:
        raise bad_request(
            f"the name of the object ({asked.name} based on URL) was undeterminable: name must be provided"
        )
    if name != asked.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({asked.name})")


def _applied(
    asked: Apply, live: Object, config: Object, managed: Managed, write: Write
) -> tuple[Object | None, Managed]:
    of = write.types(write.version)
    assert of is not None  # the route is served
    try:
        check(config, of)
    except TypedError as error:
        raise _untyped(config, error) from error
    try:
        new, owners = _forced_by_annotation(asked, live, config, managed, write, of)
    except TypedError as error:
        raise ApiError(500, "", str(error)) from error
    except Conflicts as error:
        raise refused(error.conflicts, SCALE if asked.subresource == "scale" else "") from error
    if asked.manager == lastapplied.MANAGER and lastapplied.text_of(new or live):
        new = lastapplied.kept(new or live, config)
    if new is None:
        return None, owners
    if not asked.route.resource.custom:
        return _settled(new, of), owners
    schema = schema_of(asked.route)
    if schema is not None and (causes := list(_nulls(new, schema, ""))):
        raise invalid(asked.route.resource, asked.name, causes)
    return new, owners


def _forced_by_annotation(
    asked: Apply, live: Object, config: Object, managed: Managed, write: Write, of: Type
) -> tuple[Object | None, Managed]:
    try:
        return apply(live, config, managed, write, force=asked.force)
    except Conflicts as error:
        if asked.manager != lastapplied.MANAGER:
            raise
        left = lastapplied.not_allowed(error.conflicts, live, write.version, of)
        if left:
            raise Conflicts(left) from error
    return apply(live, config, managed, write, force=True)


def _nulls(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """The nulls of a custom object that its schema does not allow: those that applying leaves are not dropped."""
    if isinstance(value, dict):
        for key, inner in value.items():
            known = schema.field(key)
            if known is None or known.definition:
                continue
            where = f"{path}.{key}" if path else key
            if inner is not None:
                yield from _nulls(inner, known, where)
            elif known.type and not known.nullable and known.default is UNSET:
                why = f'{where} in body must be of type {known.type}: "null"'
                yield Cause("FieldValueTypeInvalid", where, f'Invalid value: "null": {why}')
    elif isinstance(value, list) and schema.items is not None:
        for index, inner in enumerate(value):
            yield from _nulls(inner, schema.items, f"{path}[{index}]")


_ZEROS: dict[str, Any] = {"string": "", "numeric": 0, "boolean": False}


def _settled(value: Any, of: Type) -> Any:
    """A built-in object as its Go type would hold it: fields that are null are not there, other nulls are zeros."""
    if isinstance(value, dict) and of.map is not None:
        result = {}
        for key, inner in value.items():
            type_ = of.map.field(key) or DEDUCED
            if inner is not None:
                result[key] = _settled(inner, type_)
            elif not of.map.declares(key):
                result[key] = _ZEROS.get(type_.scalar)
        return result
    if isinstance(value, list) and of.list is not None:
        return [_settled(inner, of.list.element) for inner in value]
    return value


def _untyped(config: Object, error: TypedError) -> ApiError:
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    version, kind = config.get("apiVersion", ""), config.get("kind", "")
    group = version if "/" in version else f"/{version}"
    where = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {group}, Kind={kind}"
    return ApiError(500, "", f"failed to create typed patch object ({where}): {error}")


def refused(conflicts: list[Conflict], version: str = "") -> ApiError:
    """409: an apply without force that changes what others own; `version` is shown for theirs when it is given."""
    if version:
        conflicts = [one._replace(owner=one.owner._replace(version=version)) for one in conflicts]
    conflicts = sorted(conflicts, key=_owner_text)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_owner_text(one)}", "field": one.field}
        for one in conflicts
    ]
    if len(conflicts) == 1:
        only = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {_owner_text(only)}: {only.field}"
    else:
        lines = []
        for position, one in enumerate(conflicts):
            if position == 0 or conflicts[position - 1].owner != one.owner:
                lines.append(f"conflicts with {_owner_text(one)}:")
            lines.append(f"- {one.field}")
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, {"causes": causes})


def _owner_text(one: Conflict) -> str:
    text = msgspec.json.encode(one.owner.manager).decode()
    if one.owner.subresource:
        text += f' with subresource "{one.owner.subresource}"'
    return text if one.owner.operation == APPLY else f"{text} using {one.owner.version}"
