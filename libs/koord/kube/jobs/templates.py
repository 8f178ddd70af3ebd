"""Patches of pod templates: as a merge patch where the way to the template is objects only, else as a JSON patch.

Only keys that differ from what the template carries are written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from koord.kube.jobs import reading
from koord.kube.jobs.kind import Job, Path, PodSetSpec, TemplateHints, dotted

_PARTS = ("labels", "annotations")


def template_keys(pod_set: PodSetSpec) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations a pod set's template carries; JobError names the field that is wrong."""
    where = dotted(pod_set.template_path) or pod_set.name
    meta = reading.mapping(pod_set.template, "metadata", where)
    return reading.strings(meta, "labels", f"{where}.metadata"), reading.strings(
        meta, "annotations", f"{where}.metadata"
    )


def missing(pod_set: PodSetSpec, hints: TemplateHints | None) -> dict[str, dict[str, str]]:
    """What of the hints the template does not carry yet: ``labels`` and ``annotations``, either only if not empty."""
    if hints is None:
        return {}
    labels, annotations = template_keys(pod_set)
    found = {
        "labels": {key: value for key, value in hints.labels.items() if labels.get(key) != value},
        "annotations": {key: value for key, value in hints.annotations.items() if annotations.get(key) != value},
    }
    return {part: values for part, values in found.items() if values}


def merge_hints(pod_sets: Sequence[PodSetSpec], hints: Mapping[str, TemplateHints]) -> dict[str, Any]:
    """A merge patch of every template whose path holds no list index; empty if nothing changes."""
    patch: dict[str, Any] = {}
    for pod_set in pod_sets:
        parts = missing(pod_set, hints.get(pod_set.name))
        if parts:
            put(patch, (*pod_set.template_path, "metadata"), parts)
    return patch


def put(patch: dict[str, Any], path: Path, value: Any) -> None:
    """Set ``value`` at ``path`` of a merge patch, making the objects on the way."""
    for part in path[:-1]:
        patch = patch.setdefault(part, {})  # type: ignore[arg-type] # merge patches have no list indexes
    patch[path[-1]] = value  # type: ignore[index]


def add_operations(job: Job, path: Path, parts: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """JSON patch operations that add labels and annotations to the template at ``path``; none if there is none."""
    template: Any = job
    for part in path:
        template = template[part] if isinstance(part, int) else template.get(part)
        if template is None:
            return []
    meta = template.get("metadata")
    where = (*path, "metadata")
    if not isinstance(meta, dict):
        return [operation("add", where, {part: dict(values) for part, values in parts.items()})]
    operations = []
    for part in _PARTS:
        values = parts.get(part)
        if not values:
            continue
        if isinstance(meta.get(part), dict):
            operations += [operation("add", (*where, part, key), value) for key, value in values.items()]
        else:
            operations.append(operation("add", (*where, part), dict(values)))
    return operations


def operation(op: str, path: Path, value: Any) -> dict[str, Any]:
    """One operation of a JSON patch."""
    return {"op": op, "path": pointer(path), "value": value}


def pointer(path: Path) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
