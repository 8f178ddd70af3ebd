"""From client-side to server-side apply: what `kubectl apply` without --server-side left in an annotation.

Only for the manager `kubectl`: what it says in the annotation it may take over without force, and the annotation is
kept up to date for those that still read it.
"""

from typing import Any

import msgspec

from koord.localcluster.api.apply.checking import check
from koord.localcluster.api.apply.comparing import compare, fields_of
from koord.localcluster.api.apply.elements import TypedError
from koord.localcluster.api.apply.fieldsets import Fields, contains, difference
from koord.localcluster.api.apply.structure import Type
from koord.localcluster.api.apply.updating import Conflict

Object = dict[str, Any]

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER = "kubectl"
_MOST_BYTES = 256 * 1024


def text_of(obj: Object) -> str:
    """The annotation of an object, empty when it has none."""
    annotations = obj["metadata"].get("annotations")
    text = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else ""


def not_allowed(conflicts: list[Conflict], live: Object, version: str, of: Type) -> list[Conflict]:
    """The conflicts that remain when kubectl may take over what it applied before and nobody has changed since."""
    allowed = _allowed(live, version, of)
    return conflicts if allowed is None else [one for one in conflicts if not contains(allowed, one.path)]


def _allowed(live: Object, version: str, of: Type) -> Fields | None:
    text = text_of(live)
    if not text:
        return None
    try:
        last = msgspec.json.decode(text)
        if not isinstance(last, dict) or last.get("apiVersion") != version:
            return None
        check(last, of)
        comparison = compare(last, live, of)
        fields = fields_of(last, of)
    except (msgspec.MsgspecError, TypedError):
        return None
    for changed in comparison:
        fields = difference(fields, changed)
    return fields


def kept(obj: Object, config: Object) -> Object:
    """The object with its annotation, if it has one, saying what was applied now; a copy of what changes."""
    if not text_of(obj):
        return obj
    metadata = dict(config["metadata"])
    if isinstance(metadata.get("annotations"), dict):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != ANNOTATION}
        if not metadata["annotations"]:
            del metadata["annotations"]
    text = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode() + "\n"
    annotations = {**obj["metadata"]["annotations"], ANNOTATION: text}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MOST_BYTES:
        del annotations[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
