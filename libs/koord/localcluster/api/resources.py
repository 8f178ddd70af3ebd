"""What a resource is to the server, and which resources there are right now.

A `Resource` is what is stored (one collection). A `Route` is one group and version under which it is served: custom
resources may have several versions, and Events are served by two groups from one collection.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.clusterapi import Object

Convert = Callable[[Object], Object]


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a resource keeps what its scale sub-resource shows; each path is a tuple of field names."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a server-side table: `value` reads the cell from the decoded object."""

    name: str
    type: str
    value: Callable[[Object], Any]
    description: str = ""
    priority: int = 0
    format: str = ""


@dataclass(slots=True, eq=False)
class Resource:
    """One kind of object with its own collection.

    `key` is the plural with its group (`jobs.batch`). `fields` are the field selectors besides metadata.name and
    metadata.namespace, each with its path. `generation`: metadata.generation counts changes of everything but metadata
    and status. `status`: status is a sub-resource, so a plain write cannot change it. `schemas`: by version, of custom
    resources (`schemas.lookup` knows those of built-in kinds). `readers`: what `shapes` has compiled, by version.
    `source`: what a custom resource's definition says, as JSON.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    generation: bool = False
    scale: ScalePaths | None = None
    fields: tuple[tuple[str, tuple[str, ...]], ...] = ()
    strategic: str | None = None
    custom: bool = False
    columns: tuple[Column, ...] | None = None
    singular: str = ""
    list_kind: str = ""
    source: bytes = b""
    schemas: dict[str, Schema] = field(default_factory=dict)
    readers: dict[str, Any] = field(default_factory=dict)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = f"{self.plural}.{self.group}" if self.group else self.plural
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or f"{self.kind}List"

    @property
    def api_version(self) -> str:
        """The apiVersion in which objects are stored."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(slots=True, eq=False)
class Route:
    """One group and version that serves a resource; `outward` and `inward` convert from and to the stored form.

    `warning` is what every answer warns of, when the version is deprecated.
    """

    resource: Resource
    group: str
    version: str
    outward: Convert | None = None
    inward: Convert | None = None
    columns: tuple[Column, ...] | None = None
    warning: str = ""

    @property
    def api_version(self) -> str:
        """The apiVersion of objects on this route."""
        return f"{self.group}/{self.version}" if self.group else self.version


_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {None: 0, "beta": 1, "alpha": 2}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """What sorts versions as Kubernetes prefers them: `v2`, `v1`, `v2beta1`, `v1alpha1`, then all others by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return 3, 0, 0, version
    return _STAGES[match[2]], -int(match[1]), -int(match[3] or 0), version


class Registry:
    """All resources by key and all routes by (group, version, plural). CRDs come and go at run time."""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.routes: dict[tuple[str, str, str], Route] = {}
        self.generation = 0

    def add(self, resource: Resource, routes: list[Route]) -> None:
        """Serve a resource, replacing whatever its key was served as before."""
        self.remove(resource.key)
        self.resources[resource.key] = resource
        for route in routes:
            self.routes[route.group, route.version, resource.plural] = route
        self.generation += 1

    def remove(self, key: str) -> None:
        """Serve a resource no longer."""
        resource = self.resources.pop(key, None)
        if resource is not None:
            for where in [where for where, route in self.routes.items() if route.resource is resource]:
                del self.routes[where]
            self.generation += 1

    def groups(self) -> Iterator[tuple[str, list[str]]]:
        """Every group with its versions, the best ones first."""
        found: dict[str, dict[str, None]] = {}
        for group, version, _ in self.routes:
            found.setdefault(group, {})[version] = None
        for group, versions in found.items():
            yield group, sorted(versions, key=version_rank)

    def of(self, group: str, version: str) -> list[Route]:
        """The routes of one group and version."""
        return [route for (g, v, _), route in self.routes.items() if g == group and v == version]
