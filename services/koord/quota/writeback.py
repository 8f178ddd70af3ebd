"""What is written back to an ElasticQuota: status.used and up to seven annotations (spec 20 section 2.9)."""

from collections.abc import Mapping
from typing import Any

from koord.accounting.requests import amounts, resource_list
from koord.kube.protocol.quota import AnnotationError, write_resource_list
from koord.kube.protocol.quota import resource_list as annotated
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota

Annotations = Mapping[str, Mapping[str, int]]


def patch_of(quota: ElasticQuota, used: Mapping[str, int], annotations: Annotations) -> dict[str, Any] | None:
    """The merge patch that makes the object show ``used`` and each of ``annotations``; None if it does already.

    An absent key and a zero are the same. What does not parse on the object is overwritten.
    """
    patch: dict[str, Any] = {}
    changed = {
        key: write_resource_list(resource_list(values))
        for key, values in annotations.items()
        if not _same(_annotation(quota, key), values)
    }
    if changed:
        patch["metadata"] = {"annotations": changed}
    shown = quota.status.used
    if not _same(_amounts(shown), used):
        new: dict[str, str | None] = dict.fromkeys(key for key in shown if key not in used)
        new.update(resource_list(used))
        patch["status"] = {"used": new}
    return patch or None


def _annotation(quota: ElasticQuota, key: str) -> dict[str, int] | None:
    try:
        return _amounts(annotated(quota.metadata.annotations, key) or {})
    except AnnotationError:
        return None


def _amounts(values: Mapping[str, Any]) -> dict[str, int] | None:
    try:
        return amounts(values)
    except QuantityError:
        return None


def _same(shown: Mapping[str, int] | None, wanted: Mapping[str, int]) -> bool:
    if shown is None:
        return False
    return {k: v for k, v in shown.items() if v} == {k: v for k, v in wanted.items() if v}
