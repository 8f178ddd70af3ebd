"""Small things that tests of all areas share: names, the smallest objects, the type of `kubectl`."""

import subprocess
import uuid
from collections.abc import Callable
from typing import Any

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def unique(prefix: str = "t") -> str:
    """A name that no other test has: for namespaces, nodes and whatever else is the whole cluster's."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """The smallest pod. It gets no token mounted, so that it is the same on a server with service accounts."""
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = labels
    containers = [{"name": "main", "image": "busybox"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"automountServiceAccountToken": False, "containers": containers, **spec},
    }


def config_map(name: str, **data: str) -> dict[str, Any]:
    """A ConfigMap with these values."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
