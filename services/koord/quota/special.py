"""The quotas and namespaces that must exist: root, system and default (spec 20 section 2.9)."""

from collections.abc import Mapping
from typing import Any

from koord.kube.protocol.quota import ALLOW_LENT_RESOURCE, DEFAULT_QUOTA, IS_PARENT, PARENT, ROOT_QUOTA, SYSTEM_QUOTA
from koord.kube.resources import ELASTIC_QUOTAS, NAMESPACES

NAMESPACE = "koord-system"
HUGE = str((2**63 - 1) // 5)
"""The original's max of the system and default quotas, per resource: in effect no limit."""
UNLIMITED: Mapping[str, Any] = {"cpu": HUGE, "memory": HUGE}


def namespace_object(name: str) -> dict[str, Any]:
    """A Namespace to create."""
    return {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": {"name": name}}


def special_quotas(
    namespace: str = NAMESPACE, default: Mapping[str, Any] = UNLIMITED, system: Mapping[str, Any] = UNLIMITED
) -> list[dict[str, Any]]:
    """The three quotas to create where they are absent, with the max of two; an existing one is never changed."""
    return [
        _quota(namespace, ROOT_QUOTA, {IS_PARENT: "true", ALLOW_LENT_RESOURCE: "false", PARENT: ""}, {}),
        _quota(namespace, SYSTEM_QUOTA, {}, {"max": dict(system)}),
        _quota(namespace, DEFAULT_QUOTA, {}, {"max": dict(default)}),
    ]


def _quota(namespace: str, name: str, labels: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": ELASTIC_QUOTAS.api_version, "kind": ELASTIC_QUOTAS.kind, "metadata": metadata, "spec": spec}
