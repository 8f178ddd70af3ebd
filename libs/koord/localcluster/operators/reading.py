"""Read fields of a job that nobody has validated: each getter names the field and the rule it breaks."""

from typing import Any

from koord.kube.meta import parse_time
from koord.localcluster.clusterapi import Object, Objects
from koord.localcluster.operators.plan import JobInvalid


def at(obj: Object, path: str) -> Any:
    """The value at a dotted path; None if it, or something on the way, is absent or null."""
    value: Any = obj
    walked: list[str] = []
    for part in path.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise JobInvalid(".".join(walked), f"must be an object, got {_shown(value)}")
        value = value.get(part)
        walked.append(part)
    return value


def mapping(obj: Object, path: str) -> Object:
    """An object, empty if absent."""
    value = at(obj, path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise JobInvalid(path, f"must be an object, got {_shown(value)}")
    return value


def objects(obj: Object, path: str) -> Objects:
    """A list of objects, empty if absent."""
    value = at(obj, path)
    if value is None:
        return []
    if not isinstance(value, list):
        raise JobInvalid(path, f"must be a list, got {_shown(value)}")
    for i, item in enumerate(value):
        if not isinstance(item, dict):
            raise JobInvalid(f"{path}[{i}]", f"must be an object, got {_shown(item)}")
    return value


def integer(obj: Object, path: str, default: int | None = None, *, least: int = 0, prefix: str = "") -> int | None:
    """A whole number of at least `least`; `default` if absent. `prefix` completes the path in the complaint."""
    value = at(obj, path)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise JobInvalid(f"{prefix}{path}", f"must be a whole number, at least {least}, got {_shown(value)}")
    return value


def count(obj: Object, path: str, default: int, *, prefix: str = "") -> int:
    """A whole number of at least 0."""
    value = integer(obj, path, default, prefix=prefix)
    assert value is not None
    return value


def flag(obj: Object, path: str, *, prefix: str = "") -> bool:
    """A boolean, false if absent."""
    value = at(obj, path)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise JobInvalid(f"{prefix}{path}", f"must be true or false, got {_shown(value)}")
    return value


def text(obj: Object, path: str, default: str = "", *, allowed: tuple[str, ...] = (), prefix: str = "") -> str:
    """A string, `default` if absent; one of `allowed` if given."""
    value = at(obj, path)
    if value is None or value == "":
        return default
    if not isinstance(value, str) or (allowed and value not in allowed):
        rule = f"must be one of {', '.join(allowed)}" if allowed else "must be a string"
        raise JobInvalid(f"{prefix}{path}", f"{rule}, got {_shown(value)}")
    return value


def template(obj: Object, path: str, *, prefix: str = "") -> Object:
    """A pod template that has at least one container."""
    value = at(obj, path)
    whole = f"{prefix}{path}"
    if not isinstance(value, dict):
        raise JobInvalid(whole, "is required")
    if not isinstance(value.get("metadata", {}), dict | None):
        raise JobInvalid(f"{whole}.metadata", f"must be an object, got {_shown(value['metadata'])}")
    spec = value.get("spec")
    if not isinstance(spec, dict):
        raise JobInvalid(f"{whole}.spec", "is required")
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        raise JobInvalid(f"{whole}.spec.containers", "must have at least one container")
    for field in ("labels", "annotations"):
        marks = (value.get("metadata") or {}).get(field) or {}
        if not isinstance(marks, dict) or not all(isinstance(mark, str) for mark in marks.values()):
            raise JobInvalid(f"{whole}.metadata.{field}", "must map strings to strings")
    return value


def moment(obj: Object, path: str) -> float | None:
    """A time that we wrote ourselves, in seconds; None if absent or unreadable."""
    value = at(obj, path)
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value)
    except ValueError:
        return None


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
