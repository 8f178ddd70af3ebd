"""Types of the parts of objects that the server itself reads, so that later code may rely on them.

Only what would otherwise break the server or a selector is typed; everything else passes as sent. A mismatch names the
field: `Expected `str`, got `int` - at `$.metadata.labels[...]``.
"""

from typing import Any

import msgspec

from koord.localcluster.api.errors import bad_request
from koord.localcluster.api.resources import Resource
from koord.localcluster.clusterapi import Object

Strings = dict[str, str]
Amounts = dict[str, str | int | float]


class _OwnerReference(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    finalizers: list[str] | None = None
    owner_references: list[_OwnerReference] | None = None


class _Resources(msgspec.Struct):
    requests: Amounts | None = None
    limits: Amounts | None = None


class _Port(msgspec.Struct, rename="camel"):
    container_port: int | None = None
    host_port: int | None = None
    protocol: str | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str | None = None
    image: str | None = None
    resources: _Resources | None = None
    ports: list[_Port] | None = None


class _Toleration(msgspec.Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Named(msgspec.Struct):
    name: str | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    node_name: str | None = None
    node_selector: Strings | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    restart_policy: str | None = None
    tolerations: list[_Toleration] | None = None
    scheduling_gates: list[_Named] | None = None
    overhead: Amounts | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str | None = None
    conditions: list[Object] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec | None = None
    status: _Status | None = None


class _Template(msgspec.Struct):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class _WorkloadSpec(msgspec.Struct, rename="camel"):
    template: _Template | None = None
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    selector: Object | None = None


class _Workload(msgspec.Struct):
    metadata: _Metadata
    spec: _WorkloadSpec
    status: Object | None = None


class _Taint(msgspec.Struct):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class _NodeSpec(msgspec.Struct):
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None


class _NodeStatus(msgspec.Struct):
    capacity: Amounts | None = None
    allocatable: Amounts | None = None
    conditions: list[Object] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


class _Any(msgspec.Struct):
    metadata: _Metadata
    spec: Object | None = None
    status: Object | None = None


class _AnyNoSpec(msgspec.Struct):
    metadata: _Metadata


class _ServiceSpec(msgspec.Struct):
    ports: list[Object] | None = None


class _Service(msgspec.Struct):
    metadata: _Metadata
    spec: _ServiceSpec


class _PriorityClass(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    value: int
    global_default: bool | None = None


class _Priority(msgspec.Struct):
    metadata: _Metadata
    spec: Object


_WORKLOADS = ("jobs.batch", "deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps")
_SHAPES: dict[str, type[msgspec.Struct]] = {
    "pods": _Pod,
    "nodes": _Node,
    "services": _Service,
    "cronjobs.batch": _Priority,
    "replicationcontrollers": _Workload,
    "namespaces": _Any,
    "persistentvolumeclaims": _Any,
    "persistentvolumes": _Any,
    "poddisruptionbudgets.policy": _Any,
    "priorityclasses.scheduling.k8s.io": _PriorityClass,
    **dict.fromkeys(_WORKLOADS, _Workload),
}


_NOTHING: Object = {}


def strip_nulls(node: Any, before: Any = _NOTHING) -> None:
    """Remove members that are null, in place: typed API objects cannot tell them from absent ones.

    What a patched object shares with the object `before` has none and is passed over.
    """
    if type(node) is list:
        for item in node:
            if type(item) is dict or type(item) is list:
                strip_nulls(item)
        return
    get = before.get if type(before) is dict else _NOTHING.get
    dead: list[str] | None = None
    for name, value in node.items():
        if value is None:
            dead = [*(dead or ()), name]
            continue
        kind = type(value)
        if (kind is dict or kind is list) and value is not (old := get(name)):
            strip_nulls(value, old)
    for name in dead or ():
        del node[name]


def check_shape(resource: Resource, obj: Any, before: Object = _NOTHING) -> None:
    """Raise 400 unless the parts of the object that the server reads have their types; metadata is made if missing."""
    if not isinstance(obj, dict):
        raise bad_request("the body must be a JSON object")
    if resource.custom:
        for section in ("metadata", "spec", "status"):
            if section in obj and obj[section] is None:
                del obj[section]
        if isinstance(obj.get("metadata"), dict):
            strip_nulls(obj["metadata"])
    else:
        strip_nulls(obj, before)
    obj.setdefault("metadata", {})
    try:
        msgspec.convert(obj, _SHAPES.get(resource.key, _AnyNoSpec))
    except msgspec.ValidationError as error:
        raise bad_request(f"{obj.get('kind', 'object')} in the request cannot be handled: {error}") from error
