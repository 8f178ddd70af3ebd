"""The schema of what is served: of a custom resource by version, of a built-in kind by its facts."""

from koord.localcluster.api.resources import Resource, Route
from koord.localcluster.api.schemas.builtin import builtin_schema, facts
from koord.localcluster.api.schemas.model import Schema


def fact_name(route: Route) -> str:
    """The name of a built-in kind's type, as this route serves it (`core.v1.Pod`)."""
    group = route.group.partition(".")[0] or "core"
    return f"{group}.{route.version}.{route.resource.kind}"


def schema_of(route: Route) -> Schema | None:
    """The schema of objects as this route reads and writes them; None when nothing is known of them."""
    resource = route.resource
    if resource.custom:
        return resource.schemas.get(route.version)
    return _builtin(fact_name(route))


def storage_schema(resource: Resource) -> Schema | None:
    """The schema of objects as they are stored; None when nothing is known of them."""
    if resource.custom:
        return resource.schemas.get(resource.version)
    return _builtin(resource.strategic)


def _builtin(name: str | None) -> Schema | None:
    return builtin_schema(name) if name and name in facts() else None
