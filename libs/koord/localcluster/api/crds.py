"""CustomResourceDefinitions: reading one, and serving what it defines.

Objects of custom resources are stored as sent: there is no schema validation, pruning or defaulting, and versions
convert only by their apiVersion (strategy None).
"""

from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from koord.localcluster.api.errors import Cause, invalid_value, not_supported, required
from koord.localcluster.api.jsonpath import JsonPath, JsonPathError
from koord.localcluster.api.resources import Column, Resource, Route, ScalePaths
from koord.localcluster.api.schemas.custom import custom_schema
from koord.localcluster.api.store import decode
from koord.localcluster.api.tables import AGE
from koord.localcluster.clusterapi import Object

if TYPE_CHECKING:
    from koord.localcluster.api.cluster import Cluster


class _Names(msgspec.Struct, rename="camel"):
    plural: str = ""
    kind: str = ""
    singular: str = ""
    list_kind: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class _ScaleSpec(msgspec.Struct, rename="camel"):
    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str | None = None


class _Subresources(msgspec.Struct):
    status: Object | None = None
    scale: _ScaleSpec | None = None


class _PrinterColumn(msgspec.Struct, rename={"json_path": "jsonPath"}):
    name: str
    type: str
    json_path: str
    description: str = ""
    priority: int = 0
    format: str = ""


class _SelectableField(msgspec.Struct, rename="camel"):
    json_path: str


class _Version(msgspec.Struct, rename="camel"):
    name: str = ""
    served: bool = False
    storage: bool = False
    schema: Any = None
    subresources: _Subresources | None = None
    additional_printer_columns: list[_PrinterColumn] = []
    selectable_fields: list[_SelectableField] = []


class _Spec(msgspec.Struct):
    group: str = ""
    scope: str = ""
    names: _Names = msgspec.field(default_factory=_Names)
    versions: list[_Version] = []


def validate_crd(crd: Object) -> list[Cause]:
    """The rules without which a definition cannot be served."""
    try:
        spec = msgspec.convert(crd.get("spec") or {}, _Spec)
    except msgspec.ValidationError as error:
        return [invalid_value("spec", "object", str(error))]
    causes: list[Cause] = []
    for path, value in (
        ("spec.group", spec.group),
        ("spec.names.plural", spec.names.plural),
        ("spec.names.kind", spec.names.kind),
    ):
        if not value:
            causes.append(required(path))
    if spec.scope not in ("Namespaced", "Cluster"):
        causes.append(not_supported("spec.scope", spec.scope, ("Cluster", "Namespaced")))
    expected = f"{spec.names.plural}.{spec.group}"
    if not causes and crd["metadata"].get("name") != expected:
        detail = f'must be spec.names.plural+"."+spec.group, {expected}'
        causes.append(invalid_value("metadata.name", crd["metadata"].get("name", ""), detail))
    if sum(version.storage for version in spec.versions) != 1:
        detail = "must have exactly one version marked as storage version"
        causes.append(invalid_value("spec.versions", [version.name for version in spec.versions], detail))
    for i, version in enumerate(spec.versions):
        if not version.name:
            causes.append(required(f"spec.versions[{i}].name"))
        for j, column in enumerate(version.additional_printer_columns):
            try:
                JsonPath(column.json_path)
            except JsonPathError as error:
                path = f"spec.versions[{i}].additionalPrinterColumns[{j}].jsonPath"
                causes.append(invalid_value(path, column.json_path, str(error)))
    return causes


def prepare(crd: Object, now: str) -> None:
    """Fill in names and say that the definition is established: it is, as soon as it is stored."""
    names = crd["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    crd["spec"].setdefault("conversion", {"strategy": "None"})
    versions = [version["name"] for version in crd["spec"]["versions"] if version.get("storage")]
    status = dict(crd.get("status") or {})
    if not status.get("conditions"):
        status["conditions"] = [
            {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
    status["acceptedNames"] = names
    stored = status.get("storedVersions") or []
    status["storedVersions"] = stored + [version for version in versions if version not in stored]
    crd["status"] = status


def register(cluster: "Cluster", crd: Object) -> None:
    """Serve what a stored definition defines, or what it defines now."""
    spec = msgspec.convert(crd["spec"], _Spec)
    storage = next(version for version in spec.versions if version.storage)
    subresources = storage.subresources or _Subresources()
    resource = Resource(
        spec.group,
        storage.name,
        spec.names.plural,
        spec.names.kind,
        namespaced=spec.scope == "Namespaced",
        short_names=tuple(spec.names.short_names),
        categories=tuple(spec.names.categories),
        status=subresources.status is not None,
        generation=True,
        scale=_scale_paths(subresources.scale),
        fields=tuple((_dotted(field.json_path), _steps(field.json_path)) for field in storage.selectable_fields),
        custom=True,
        singular=spec.names.singular,
        list_kind=spec.names.list_kind,
        schemas={version.name: custom_schema(_source(version)) for version in spec.versions},
    )
    routes = []
    for version in spec.versions:
        if not version.served:
            continue
        columns = _columns(version.additional_printer_columns)
        route = Route(resource, spec.group, version.name, columns=columns)
        if version.name != storage.name:
            route.outward, route.inward = _retype(route.api_version), _retype(resource.api_version)
        routes.append(route)
    cluster.registry.add(resource, routes)
    cluster.store.open(resource)


def _source(version: _Version) -> Object | None:
    source = version.schema.get("openAPIV3Schema") if isinstance(version.schema, dict) else None
    return source if isinstance(source, dict) else None


def clear(cluster: "Cluster", crd: Object) -> None:
    """Delete all objects of a definition that is about to go."""
    resource = cluster.registry.resources.get(_key(crd))
    if resource is not None:
        for entry in cluster.collection(resource).entries():
            cluster.remove(resource, entry, decode(entry))


def _key(crd: Object) -> str:
    return f"{crd['spec']['names']['plural']}.{crd['spec']['group']}"


def unregister(cluster: "Cluster", crd: Object) -> None:
    """Serve a removed definition no longer."""
    key = _key(crd)
    if key in cluster.registry.resources:
        cluster.registry.remove(key)
        cluster.store.drop(key)


def read_definitions(text: str) -> list[Object]:
    """The definitions in a YAML text of one or more documents."""
    found = [document for document in yaml.safe_load_all(text) if document]
    return [document for document in found if document.get("kind") == "CustomResourceDefinition"]


def _retype(api_version: str) -> Any:
    def convert(obj: Object) -> Object:
        return {**obj, "apiVersion": api_version}

    return convert


def _columns(columns: list[_PrinterColumn]) -> tuple[Column, ...]:
    made = []
    for column in columns:
        path = JsonPath(column.json_path)
        made.append(Column(column.name, column.type, path.first, column.description, column.priority, column.format))
    return tuple(made) if made else (AGE,)


def _dotted(path: str) -> str:
    return path.strip().lstrip(".")


def _steps(path: str) -> tuple[str, ...]:
    return tuple(_dotted(path).split("."))


def _scale_paths(scale: _ScaleSpec | None) -> ScalePaths | None:
    if scale is None:
        return None
    selector = _steps(scale.label_selector_path) if scale.label_selector_path else None
    return ScalePaths(_steps(scale.spec_replicas_path), _steps(scale.status_replicas_path), selector)
