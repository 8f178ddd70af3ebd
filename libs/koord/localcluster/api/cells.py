"""What columns of built-in kinds are made of: paths, counts, containers, selectors, lists."""

from collections.abc import Iterable
from typing import Any

from koord.localcluster.api.resources import Column
from koord.localcluster.clusterapi import Object


def at(obj: Any, *path: str) -> Any:
    """The value at a path of field names, None when there is none."""
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
        if obj is None:
            return None
    return obj


def conditions_of(obj: Object) -> dict[str, Object]:
    """The conditions of an object's status by type."""
    return {condition.get("type", ""): condition for condition in at(obj, "status", "conditions") or ()}


def or_none(text: Any) -> str:
    """A text, or what stands for none."""
    return str(text) if text else "<none>"


def join(values: Iterable[Any] | None, *, empty: str = "", most: int = 0) -> str:
    """Texts with commas, at most so many of them, or `empty`."""
    texts = [str(value) for value in values or ()]
    if most and len(texts) > most:
        return f"{','.join(texts[:most])} + {len(texts) - most} more..."
    return ",".join(texts) or empty


def pairs(labels: Any) -> str:
    """Labels or a node selector as `a=b,c=d`."""
    return join((f"{key}={value}" for key, value in sorted((labels or {}).items())), empty="<none>")


def containers(*path: str, priority: int = 1) -> tuple[Column, ...]:
    """The names and images of the containers of the pod spec at a path."""

    def names(obj: Object) -> str:
        return join(container.get("name") for container in at(obj, *path, "containers") or ())

    def images(obj: Object) -> str:
        return join(container.get("image") for container in at(obj, *path, "containers") or ())

    return (
        Column("Containers", "string", names, priority=priority),
        Column("Images", "string", images, priority=priority),
    )


def _selector(obj: Object) -> str:
    found = at(obj, "spec", "selector") or {}
    return pairs(found.get("matchLabels", {}) if "matchLabels" in found or "matchExpressions" in found else found)


SELECTOR = Column("Selector", "string", _selector, priority=1)


def field(name: str, *path: str, kind: str = "string", priority: int = 0, empty: Any = "") -> Column:
    """A column that shows the value at a path, or `empty`."""

    def read(obj: Object) -> Any:
        value = at(obj, *path)
        return empty if value is None else value

    return Column(name, kind, read, priority=priority)


def count(name: str, *path: str, kind: str = "integer") -> Column:
    """A column that shows how many elements there are at a path."""
    return Column(name, kind, lambda obj: len(at(obj, *path) or ()))
