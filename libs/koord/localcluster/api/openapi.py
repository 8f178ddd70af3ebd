"""Just enough OpenAPI v3 for kubectl: it looks for `fieldValidation` on patches and for metadata's type.

The documents list paths and kinds, not fields: `kubectl explain` has nothing to show.
"""

import hashlib

from koord.localcluster.api.errors import no_such_path
from koord.localcluster.api.resources import Registry, Route
from koord.localcluster.api.store import encode
from koord.localcluster.clusterapi import Object

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# Strategic merge patch is left out although it is served: kubectl would then compute patches from these documents,
# which have no fields; without it kubectl uses its own compiled types.
# An OpenAPI v2 document without a path, as the protobuf that kubectl asks for: swagger "2.0", info {title, version},
# paths {}. kubectl validates a `kind: List` against it, finds no types and lets the items pass.
V2_TYPE = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_EMPTY = b"\x0a\x032.0\x12\x0c\x0a\x05koord\x12\x031.0\x42\x00"
_PATCHES = ("application/json-patch+json", "application/merge-patch+json")


class OpenApi:
    """Makes the documents, and keeps them until the set of resources changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._documents: dict[str, bytes] = {}

    def _current(self) -> dict[str, bytes]:
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._documents = {
                f"apis/{group}/{version}" if group else f"api/{version}": encode(
                    _document(group, version, self._registry.of(group, version))
                )
                for group, versions in self._registry.groups()
                for version in versions
            }
        return self._documents

    def index(self) -> bytes:
        """The answer of /openapi/v3."""
        paths = {}
        for path, document in self._current().items():
            digest = hashlib.sha256(document).hexdigest().upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return encode({"paths": paths})

    def document(self, path: str) -> bytes:
        """The document of one group and version."""
        document = self._current().get(path)
        if document is None:
            raise no_such_path()
        return document


def _document(group: str, version: str, routes: list[Route]) -> Object:
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: Object = {}
    schemas: Object = {_META: {"type": "object", "description": "Metadata of an object.", "properties": {}}}
    for route in routes:
        resource = route.resource
        name = f"{(group or 'core')}.{version}.{resource.kind}"
        kind = {"group": group, "version": version, "kind": resource.kind}
        schemas[name] = {
            "type": "object",
            "description": f"{resource.kind}, stored as sent.",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_META}"}], "default": {}},
            },
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-group-version-kind": [kind],
        }
        inner = f"namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else resource.plural
        reference = {"$ref": f"#/components/schemas/{name}"}
        answer = {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}}
        parameters = [
            {"name": parameter, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for parameter in ("dryRun", "fieldManager", "fieldValidation")
        ]
        operations = {
            "get": ("get", None),
            "put": ("put", ("application/json",)),
            "patch": ("patch", _PATCHES),
            "delete": ("delete", None),
        }
        paths[f"{base}/{inner}/{{name}}"] = {
            method: _operation(action, kind, answer, parameters, media)
            for method, (action, media) in operations.items()
        }
        paths[f"{base}/{inner}"] = {
            "get": _operation("list", kind, answer, [], None),
            "post": _operation("post", kind, answer, parameters, ("application/json",)),
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "koord embedded Kubernetes API", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(
    action: str, kind: Object, answer: Object, parameters: list[Object], media: tuple[str, ...] | None
) -> Object:
    operation: Object = {
        "responses": answer,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
        "parameters": parameters if action != "get" else [],
    }
    if media:
        operation["requestBody"] = {"content": {name: {"schema": {"type": "object"}} for name in media}}
    return operation
