"""The nodes and pods of upstream's scheduler benchmark, as the API server would send them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from koord.scheduler.nodeview import NodeView
from koord.scheduler.podview import PodView

SCHEDULER = "koord-scheduler"
ZONE, HOSTNAME, NAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "metadata.name"
SMALL: Mapping[str, str] = {"cpu": "100m", "memory": "500Mi"}
"""What nearly every pod of upstream's benchmark requests."""
# What admission adds to every pod.
_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]
_pods = msgspec.json.Decoder(PodView)
_nodes = msgspec.json.Decoder(NodeView)


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    pods: int = 110,
    more: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    annotations: Mapping[str, str] | None = None,
    bare: bool = False,
) -> NodeView:
    """A node of 4 cpus and 32 GiB, unless ``more`` says otherwise; ``bare``: of nothing but ``pods``."""
    allocatable: dict[str, str] = {"pods": str(pods)}
    if not bare:
        allocatable |= {"cpu": "4", "memory": "32Gi"}
    body = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {HOSTNAME: name, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"taints": list(taints)},
        "status": {"allocatable": allocatable | dict(more or {})},
    }
    return _nodes.decode(json.dumps(body))


def nodes(
    count: int,
    *,
    zones: Sequence[str] = (),
    prefix: str = "node",
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> Iterator[NodeView]:
    """``count`` nodes, in turn in each of ``zones``; other arguments as of :func:`node`."""
    for number in range(count):
        zone = {ZONE: zones[number % len(zones)]} if zones else {}
        yield node(f"{prefix}-{number:05d}", labels={**zone, **(labels or {})}, **more)


def pod(
    name: str,
    *,
    namespace: str = "default",
    requests: Mapping[str, str] = SMALL,
    labels: Mapping[str, str] | None = None,
    priority: int = 0,
    spec: Mapping[str, Any] | None = None,
) -> PodView:
    """A pod of one container; ``spec`` holds further fields of its spec."""
    container: dict[str, Any] = {"name": "pause", "image": "pause:3.10", "ports": [{"containerPort": 80}]}
    if requests:
        container["resources"] = {"requests": dict(requests)}
    body = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "labels": dict(labels or {}),
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "priority": priority,
            "tolerations": _TOLERATIONS,
            "containers": [container],
            **(spec or {}),
        },
    }
    return _pods.decode(json.dumps(body))


def pods(count: int, prefix: str, **more: Any) -> list[PodView]:
    """``count`` pods that differ in their names only; other arguments as of :func:`pod`."""
    return [pod(f"{prefix}-{number}", **more) for number in range(count)]


def node_terms(*, labels: Iterable[Mapping[str, Any]] = (), fields: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A spec with one required term of node affinity."""
    term = {"matchExpressions": list(labels), "matchFields": list(fields)}
    required = {"nodeSelectorTerms": [{key: value for key, value in term.items() if value}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
