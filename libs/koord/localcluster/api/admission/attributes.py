"""What a write is, as admission sees it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from koord.localcluster.api.resources import Resource, Route
from koord.localcluster.clusterapi import Object

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"


class GroupVersionKind(NamedTuple):
    """A kind as a review names it."""

    group: str
    version: str
    kind: str


class GroupVersionResource(NamedTuple):
    """A resource as a review names it."""

    group: str
    version: str
    resource: str


BINDING = GroupVersionKind("", "v1", "Binding")
EVICTION = GroupVersionKind("policy", "v1", "Eviction")
SCALE = GroupVersionKind("autoscaling", "v1", "Scale")


@dataclass(frozen=True, slots=True)
class User:
    """Who asks."""

    username: str
    groups: tuple[str, ...]
    uid: str = ""


@dataclass(slots=True)
class Attributes:
    """One write.

    `route` is the version in which it was sent; `obj` and `old` are in the form in which objects of the resource are
    stored, or of `kind` when that is given (a Binding, an Eviction, a Scale), which is the same in every version.
    `namespace` is "" for what is not in one, and the name of a Namespace for that itself.
    """

    operation: str
    resource: Resource
    route: Route
    name: str
    namespace: str
    obj: Object | None
    old: Object | None
    subresource: str = ""
    kind: GroupVersionKind | None = None
    plural: str = ""
    dry_run: bool = False
    user: User = User("", ())
    options: Object = field(default_factory=dict)

    def resource_in(self, route: Route) -> GroupVersionResource:
        """The resource as it is named on a route."""
        return GroupVersionResource(route.group, route.version, self.plural or self.resource.plural)

    def kind_in(self, route: Route) -> GroupVersionKind:
        """The kind of `obj` and `old` as it is named on a route."""
        return self.kind or GroupVersionKind(route.group, route.version, self.resource.kind)

    def outward(self, route: Route, obj: Object | None) -> Object | None:
        """The object as it is written on a route."""
        if obj is None or self.kind is not None or route.outward is None:
            return obj
        return route.outward(obj)

    def inward(self, route: Route, obj: Object) -> Object:
        """The stored form of an object that was written on a route."""
        if self.kind is not None or route.inward is None:
            return obj
        return route.inward(obj)
