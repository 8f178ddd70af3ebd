"""OpenAPI v3 as kubectl reads it (explain, apply, diff): every kind's fields and merge rules, what requests take.

Built-in types come from the facts of `schemas`, which have no descriptions; custom resources show what their
definitions say. Documents are made when they are asked for, one for each group and version.
"""

import hashlib
from typing import Any

from koord.localcluster.api.errors import no_such_path
from koord.localcluster.api.requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from koord.localcluster.api.resources import Registry, Route
from koord.localcluster.api.schemas.builtin import META, fact, facts
from koord.localcluster.api.schemas.lookup import fact_name
from koord.localcluster.api.store import decode_bytes, encode
from koord.localcluster.clusterapi import Object

# An OpenAPI v2 document without a path, as the protobuf that kubectl asks for: swagger "2.0", info {title, version},
# paths {}. kubectl validates a `kind: List` against it, finds no types and lets the items pass.
V2_TYPE = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_EMPTY = b"\x0a\x032.0\x12\x0c\x0a\x05koord\x12\x031.0\x42\x00"
_REFERENCE = "#/components/schemas/"
_LIST_META = "apis.meta.v1.ListMeta"


class OpenApi:
    """Makes the documents, and keeps those that were asked for until the set of resources changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._documents: dict[str, bytes] = {}

    def _current(self) -> dict[str, tuple[str, str]]:
        """Group and version of each document's path; forgets documents that are no longer so."""
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._documents = {}
        return {
            f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
            for group, versions in self._registry.groups()
            for version in versions
        }

    def index(self) -> bytes:
        """The answer of /openapi/v3. The hash stands for what a document is made of, so none needs to be made."""
        paths = {}
        for path, (group, version) in self._current().items():
            digest = hashlib.sha256(path.encode())
            for route in self._registry.of(group, version):
                digest.update(route.resource.key.encode() + route.resource.source)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest.hexdigest().upper()}"}
        return encode({"paths": paths})

    def document(self, path: str) -> bytes:
        """The document of one group and version."""
        where = self._current().get(path)
        if where is None:
            raise no_such_path()
        document = self._documents.get(path)
        if document is None:
            document = self._documents[path] = encode(_document(*where, self._registry.of(*where)))
        return document


def full_name(name: str) -> str:
    """`core.v1.Pod` as OpenAPI documents call it: `io.k8s.api.core.v1.Pod`."""
    if name.startswith(("apis.meta.", "api.resource.", "util.intstr.", "runtime.", "version.")):
        return f"io.k8s.apimachinery.pkg.{name}"
    if name.startswith("apiextensions."):
        return f"io.k8s.apiextensions-apiserver.pkg.apis.{name}"
    return f"io.k8s.api.{name}"


def _document(group: str, version: str, routes: list[Route]) -> Object:
    schemas: Object = {}
    paths: Object = {}
    for route in routes:
        kind = {"group": group, "version": version, "kind": route.resource.kind}
        name = _add_kind(schemas, route, kind)
        _add_paths(paths, route, kind, {"$ref": _REFERENCE + name}, {"$ref": f"{_REFERENCE}{name}List"})
    return {
        "openapi": "3.0.0",
        "info": {"title": "koord embedded Kubernetes API", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _add_kind(schemas: Object, route: Route, kind: Object) -> str:
    """Put a kind, its list and all that they are made of into `schemas`; answers its name there."""
    resource = route.resource
    if resource.custom:
        groups = ".".join(reversed(route.group.split(".")))
        name = f"{groups}.{route.version}.{resource.kind}"
        schemas[name] = {**_custom(route), "x-kubernetes-group-version-kind": [kind]}
        _add(schemas, META)
    else:
        short = fact_name(route)
        name = full_name(short)
        if short in facts():
            _add(schemas, short)
        else:
            # Named in no facts: stored as sent, nothing is known of its fields.
            schemas[name] = {**_whole({}), "x-kubernetes-group-version-kind": [kind]}
            _add(schemas, META)
    _add(schemas, _LIST_META)
    listed = {**kind, "kind": resource.list_kind}
    schemas[f"{name}List"] = {
        "type": "object",
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": _REFERENCE + name}},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": _REFERENCE + full_name(_LIST_META)}]},
        },
        "x-kubernetes-group-version-kind": [listed],
    }
    return name


def _whole(properties: Object) -> Object:
    return {
        "type": "object",
        "properties": {
            **properties,
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": _REFERENCE + full_name(META)}], "default": {}},
        },
    }


def _custom(route: Route) -> Object:
    spec = decode_bytes(route.resource.source)
    for version in spec["versions"]:
        if version["name"] == route.version:
            source = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            whole = _whole(source.get("properties") or {})
            return {**source, **whole}
    return _whole({})


def _add(schemas: Object, name: str) -> None:
    """Put a built-in type, and what it refers to, into `schemas`."""
    pending = [name]
    while pending:
        name = pending.pop()
        shown = full_name(name)
        if shown in schemas or name not in facts():
            continue
        schemas[shown] = _shown(fact(name), pending)


def _shown(source: Any, pending: list[str]) -> Any:
    """A fact as a document says it: references in full."""
    if isinstance(source, list):
        return [_shown(inner, pending) for inner in source]
    if not isinstance(source, dict):
        return source
    made = {key: _shown(value, pending) for key, value in source.items() if key != "$ref"}
    reference = source.get("$ref")
    if isinstance(reference, str):
        pending.append(reference)
        target = {"$ref": _REFERENCE + full_name(reference)}
        return {"allOf": [target], **made}
    return made


def _add_paths(paths: Object, route: Route, kind: Object, one: Object, many: Object) -> None:
    resource = route.resource
    base = f"/apis/{route.group}/{route.version}" if route.group else f"/api/{route.version}"
    inner = f"namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else resource.plural
    patches = [APPLY_PATCH, JSON_PATCH, MERGE_PATCH, *([] if resource.custom else [STRATEGIC_PATCH])]
    parameters = [
        {"name": parameter, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for parameter in ("dryRun", "fieldManager", "fieldValidation")
    ]
    anything = {"schema": {"$ref": _REFERENCE + "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"}}

    def operation(action: str, answer: Object, body: Object | None = None) -> Object:
        made: Object = {
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": answer}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        }
        if body is not None:
            made["parameters"] = parameters
            made["requestBody"] = {"content": body, "required": True}
        return made

    whole = {"*/*": {"schema": one}}
    changes = {
        "get": operation("get", one),
        "put": operation("put", one, whole),
        "patch": operation("patch", one, dict.fromkeys(patches, anything)),
    }
    paths[f"{base}/{inner}/{{name}}"] = {**changes, "delete": operation("delete", one)}
    paths[f"{base}/{inner}"] = {"get": operation("list", many), "post": operation("post", one, whole)}
    if resource.status:
        paths[f"{base}/{inner}/{{name}}/status"] = changes
