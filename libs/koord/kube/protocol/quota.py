"""Keys of elastic quota (spec 20 section 2.9; spec 70 section 2.5), with their readers and writers."""

from collections.abc import Mapping
from typing import Final

import msgspec

PREFIX: Final = "quota.scheduling.koordinator.sh/"

NAME: Final = PREFIX + "name"
"""Label of a pod or job: the quota it uses."""
LEGACY_NAME: Final = "alibabacloud.com/quota-name"
PARENT: Final = PREFIX + "parent"
IS_PARENT: Final = PREFIX + "is-parent"
IS_ROOT: Final = PREFIX + "is-root"
TREE_ID: Final = PREFIX + "tree-id"
IGNORE_DEFAULT_TREE: Final = PREFIX + "ignore-default-tree"
ALLOW_LENT_RESOURCE: Final = PREFIX + "allow-lent-resource"
ALLOW_FORCE_UPDATE: Final = PREFIX + "allow-force-update"
PROFILE: Final = PREFIX + "profile"
PREEMPTIBLE: Final = PREFIX + "preemptible"
LEGACY_PREEMPTIBLE: Final = "quota.scheduling.alibabacloud.com/preemptible"

SHARED_WEIGHT: Final = PREFIX + "shared-weight"
TOTAL_RESOURCE: Final = PREFIX + "total-resource"
UNSCHEDULABLE_RESOURCE: Final = PREFIX + "unschedulable-resource"
RESOURCE_KEYS: Final = PREFIX + "resource-keys"
"""Annotation of a profile: the resources of which its quota gets a min and a max."""
NAMESPACES: Final = PREFIX + "namespaces"
RUNTIME: Final = PREFIX + "runtime"
REQUEST: Final = PREFIX + "request"
CHILD_REQUEST: Final = PREFIX + "child-request"
ALLOCATED: Final = PREFIX + "allocated"
GUARANTEED: Final = PREFIX + "guaranteed"
NON_PREEMPTIBLE_REQUEST: Final = PREFIX + "non-preemptible-request"
NON_PREEMPTIBLE_USED: Final = PREFIX + "non-preemptible-used"

WRITTEN: Final = frozenset(
    (RUNTIME, REQUEST, CHILD_REQUEST, ALLOCATED, GUARANTEED, NON_PREEMPTIBLE_REQUEST, NON_PREEMPTIBLE_USED)
)
"""Annotations that show what a quota uses and may use; they are written every second and decide nothing."""

ROOT_QUOTA: Final = "koordinator-root-quota"
SYSTEM_QUOTA: Final = "koordinator-system-quota"
DEFAULT_QUOTA: Final = "koordinator-default-quota"
SPECIAL_QUOTAS: Final = frozenset((ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA))
"""Those that take no part in sharing out: what they may use is their max, and they guarantee nothing."""
GROUP_NAMESPACE: Final = "koordinator-system"
"""Where the three special quotas live by default."""

_names = msgspec.json.Decoder(list[str])
_amounts = msgspec.json.Decoder(dict[str, str | int | float])


class AnnotationError(ValueError):
    """An annotation whose text breaks a rule; the message names the key and the rule."""


def quota_label(labels: Mapping[str, str]) -> str:
    """The quota a pod or job names, or ``""``."""
    return labels.get(NAME) or labels.get(LEGACY_NAME, "")


def parent_of(labels: Mapping[str, str]) -> str:
    """The parent a quota names; absent or empty means the root quota."""
    return labels.get(PARENT) or ROOT_QUOTA


def is_parent(labels: Mapping[str, str]) -> bool:
    """Whether a quota is an inner node of its tree."""
    return labels.get(IS_PARENT) == "true"


def tree_id(labels: Mapping[str, str]) -> str:
    """The tree a quota belongs to; ``""`` is the default tree."""
    return labels.get(TREE_ID, "")


def allows_lending(labels: Mapping[str, str]) -> bool:
    """Whether idle ``min`` may be lent; only the text ``false`` forbids it."""
    return labels.get(ALLOW_LENT_RESOURCE) != "false"


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Whether a pod may be a victim; only the text ``false`` forbids it."""
    return (labels.get(PREEMPTIBLE) or labels.get(LEGACY_PREEMPTIBLE)) != "false"


def bound_namespaces(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The namespaces a quota is bound to; AnnotationError if the text is no JSON list of strings."""
    return _list(annotations, NAMESPACES, "namespaces")


def resource_keys(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The resources a profile names, none without the annotation; AnnotationError as :func:`bound_namespaces`."""
    return _list(annotations, RESOURCE_KEYS, "resources")


def _list(annotations: Mapping[str, str], key: str, of: str) -> tuple[str, ...]:
    text = annotations.get(key)
    if not text:
        return ()
    try:
        return tuple(_names.decode(text))
    except msgspec.MsgspecError as error:
        raise AnnotationError(f"annotation {key}: must be a JSON list of {of}: {error}") from None


def resource_list(annotations: Mapping[str, str], key: str) -> dict[str, str | int | float] | None:
    """The ResourceList in annotation ``key``; None when absent; AnnotationError if it is no JSON object."""
    text = annotations.get(key)
    if not text:
        return None
    try:
        return _amounts.decode(text)
    except msgspec.MsgspecError as error:
        raise AnnotationError(f"annotation {key}: must be a JSON object of quantities: {error}") from None


def write_resource_list(amounts: Mapping[str, str]) -> str:
    """A ResourceList as annotation text: JSON, keys sorted, so that equal amounts are equal texts."""
    return msgspec.json.encode(dict(sorted(amounts.items()))).decode()
