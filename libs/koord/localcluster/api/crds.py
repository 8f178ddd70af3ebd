"""CustomResourceDefinitions: serving what one defines.

Versions of a custom resource convert by their apiVersion alone (strategy `None`); each has a schema of its own. What
the schema of the stored version newly says (defaults, fields that are no more) holds at once for objects that are
already there: they are brought into its form in place, without a new version, which a real server does at each read.
"""

from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from koord.localcluster.api.jsonpath import JsonPath, JsonPathError
from koord.localcluster.api.printed import printed_cell
from koord.localcluster.api.resources import Column, Resource, Route, ScalePaths, version_rank
from koord.localcluster.api.schemas.custom import CustomReader, custom_schema
from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.schemas.structural import warnings_of
from koord.localcluster.api.store import Collection, decode, decode_bytes, encode
from koord.localcluster.api.tables import CREATION
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
    deprecated: bool = False
    deprecation_warning: str | None = None


class _Spec(msgspec.Struct):
    group: str = ""
    scope: str = ""
    names: _Names = msgspec.field(default_factory=_Names)
    versions: list[_Version] = []


def prepare(crd: Object, now: str) -> None:
    """Fill in names and say that the definition is established: it is, as soon as it is stored."""
    names = crd["spec"]["names"]
    names["singular"] = names.get("singular") or names["kind"].lower()
    names["listKind"] = names.get("listKind") or names["kind"] + "List"
    for field in ("shortNames", "categories"):
        if field in names and not names[field]:
            del names[field]
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
    source = encode(crd["spec"])
    before = cluster.registry.resources.get(_key(crd))
    if before is not None and before.source == source:
        return
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
        source=source,
        schemas={version.name: _schema(version) for version in spec.versions},
    )
    routes = []
    for version in spec.versions:
        if not version.served:
            continue
        columns = _columns(version.additional_printer_columns)
        route = Route(resource, spec.group, version.name, columns=columns)
        if version.deprecated:
            route.warning = version.deprecation_warning or _deprecation(spec, version.name)
        if version.name != storage.name:
            route.outward = _outward(route, resource.schemas[version.name])
            route.inward = _retype(resource.api_version)
        routes.append(route)
    cluster.registry.add(resource, routes)
    collection = cluster.store.open(resource)
    if before is not None:
        complete(collection)


def _deprecation(spec: _Spec, name: str) -> str:
    """What a deprecated version warns of, with the best version that is not, if that is a better one."""
    told = f"{spec.group}/{name} {spec.names.kind} is deprecated"
    better = [version.name for version in spec.versions if version.served and not version.deprecated]
    best = min(better, key=version_rank, default=name)
    if version_rank(best) < version_rank(name):
        told += f"; use {spec.group}/{best} {spec.names.kind}"
    return told


def complete(collection: Collection) -> None:
    """Bring the objects of a custom resource into the form that its schema gives them now."""
    resource = collection.resource
    reader = CustomReader(resource.schemas[resource.version], resource.kind, resource.version)
    for entry in collection.entries():
        obj = decode(entry)
        obj["apiVersion"] = resource.api_version
        reader.complete(obj)
        collection.rewrite(entry, obj)


def warnings(crd: Object) -> list[str]:
    """What who stores a definition should know."""
    found: list[str] = []
    for version in crd["spec"]["versions"]:
        found += warnings_of(version["schema"]["openAPIV3Schema"])
    return found


def _schema(version: _Version) -> Schema:
    source = version.schema.get("openAPIV3Schema") if isinstance(version.schema, dict) else None
    try:
        return custom_schema(source)
    except (ValueError, TypeError, AttributeError):
        # A data directory of an earlier life may hold what is refused today: what it says is taken as nothing.
        return custom_schema(None)


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


def _outward(route: Route, schema: Schema) -> Any:
    reader = CustomReader(schema, route.resource.kind, route.version)

    def convert(obj: Object) -> Object:
        shown: Object = decode_bytes(encode({**obj, "apiVersion": route.api_version}))
        reader.complete(shown)
        return shown

    return convert


def _columns(columns: list[_PrinterColumn]) -> tuple[Column, ...]:
    """The columns of a version; one with a path that cannot be read ends them, as in Kubernetes."""
    if not columns:
        return (_AGE,)
    made = []
    for column in columns:
        try:
            path = JsonPath(column.json_path)
        except JsonPathError:
            break
        told = column.description or f"Custom resource definition column (in JSONPath format): {column.json_path}"
        cell = printed_cell(path, column.type)
        made.append(Column(column.name, column.type, cell, told, column.priority, column.format))
    return tuple(made)


_AGE = Column("Age", "date", printed_cell(JsonPath(".metadata.creationTimestamp"), "date"), CREATION)


def _dotted(path: str) -> str:
    return path.strip().lstrip(".")


def _steps(path: str) -> tuple[str, ...]:
    return tuple(_dotted(path).split("."))


def _scale_paths(scale: _ScaleSpec | None) -> ScalePaths | None:
    if scale is None:
        return None
    selector = _steps(scale.label_selector_path) if scale.label_selector_path else None
    return ScalePaths(_steps(scale.spec_replicas_path), _steps(scale.status_replicas_path), selector)
