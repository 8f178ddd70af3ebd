"""The schema of what is served: of a custom resource by version, of a built-in kind by its facts."""

from koord.localcluster.api.resources import Resource, Route
from koord.localcluster.api.schemas.builtin import builtin_schema, facts
from koord.localcluster.api.schemas.model import Schema


def schema_of(route: Route) -> Schema | None:
    """The schema of objects as this route reads and writes them; None when nothing is known of them."""
    resource = route.resource
    if resource.custom:
        return resource.schemas.get(route.version)
    if route.group == resource.group:
        return storage_schema(resource)
    return _builtin(f"{route.group.partition('.')[0]}.{route.version}.{resource.kind}")


def storage_schema(resource: Resource) -> Schema | None:
    """The schema of objects as they are stored; None when nothing is known of them."""
    if resource.custom:
        return resource.schemas.get(resource.version)
    return _builtin(resource.strategic)


def _builtin(name: str | None) -> Schema | None:
    return builtin_schema(name) if name and name in facts() else None
