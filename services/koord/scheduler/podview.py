"""Pods as the scheduler reads them: a light projection, and the shape that equal pods share.

A pod is decoded twice in its life here (created, bound), so decoding is on the hot path. The parts of the spec that
decide placement are kept as the bytes the API server sent: pods made from one template have equal bytes, which makes
the key of their class a lookup and not a walk. Equal specs written differently only become two classes.
"""

from collections.abc import Hashable
from weakref import WeakValueDictionary

import msgspec

from koord.accounting.requests import nonzero_request, pod_request
from koord.kube.meta import decode
from koord.kube.pods import PodSpec, SchedulingGate

_ABSENT = msgspec.Raw(b"")
_EMPTY: dict[str, str] = {}


class PodShapeError(ValueError):
    """A pod spec that cannot be scheduled as written; names the field and the rule."""


class PodShape:
    """The scheduling-relevant part of a spec, shared by every pod that has it."""

    __slots__ = ("__weakref__", "_failure", "_request", "_spec", "parts")

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        self.parts = parts
        self._spec: PodSpec | None = None
        self._request: tuple[dict[str, int], tuple[int, int]] | None = None
        self._failure: str | None = None

    @property
    def spec(self) -> PodSpec:
        """The typed spec; PodShapeError names what is wrong with it."""
        if self._failure is not None:
            raise PodShapeError(self._failure)
        if self._spec is None:
            try:
                self._spec = decode(PodSpec, _assemble(self.parts))
            except msgspec.ValidationError as error:
                self._failure = f"spec: {error}"
                raise PodShapeError(self._failure) from error
        return self._spec

    @property
    def request(self) -> tuple[dict[str, int], tuple[int, int]]:
        """Effective request, and cpu and memory with the non-zero floor; PodShapeError names a bad quantity."""
        if self._request is None:
            spec = self.spec
            try:
                request = pod_request(spec)
                self._request = (request, nonzero_request(spec))
            except ValueError as error:
                self._failure = str(error)
                raise PodShapeError(self._failure) from error
        return self._request


_FIELDS = (b"nodeSelector", b"affinity", b"tolerations", b"overhead", b"resources", b"topologySpreadConstraints")
_shapes: WeakValueDictionary[Hashable, PodShape] = WeakValueDictionary()


def _assemble(parts: tuple[bytes, ...]) -> bytes:
    """One JSON object out of the parts that are there."""
    fields = [b'"%s":%s' % (name, part) for name, part in zip(_FIELDS, parts, strict=False) if part]
    containers, init_containers = parts[len(_FIELDS)], parts[len(_FIELDS) + 1]
    fields.append(b'"containers":[%s]' % containers)
    fields.append(b'"initContainers":[%s]' % init_containers)
    return b"{%s}" % b",".join(fields)


class _Container(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    resources: msgspec.Raw = _ABSENT
    ports: msgspec.Raw = _ABSENT
    restart_policy: str | None = None


def _containers(items: list[_Container]) -> bytes:
    if len(items) == 1 and items[0].restart_policy is None and not items[0].ports:
        resources = items[0].resources
        name = items[0].name.encode()
        return b'{"name":"%s","resources":%s}' % (name, resources) if resources else b'{"name":"%s"}' % name
    texts: list[bytes] = []
    for item in items:
        fields: list[bytes] = [b'"name":"%s"' % item.name.encode()]
        if item.resources:
            fields.append(b'"resources":' + bytes(item.resources))
        if item.ports and b'"hostPort"' in bytes(item.ports):
            fields.append(b'"ports":' + bytes(item.ports))
        if item.restart_policy is not None:
            fields.append(b'"restartPolicy":"%s"' % item.restart_policy.encode())
        texts.append(b"{%s}" % b",".join(fields))
    return b",".join(texts)


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    scheduling_gates: list[SchedulingGate] = []
    node_selector: msgspec.Raw = _ABSENT
    affinity: msgspec.Raw = _ABSENT
    tolerations: msgspec.Raw = _ABSENT
    overhead: msgspec.Raw = _ABSENT
    resources: msgspec.Raw = _ABSENT
    topology_spread_constraints: msgspec.Raw = _ABSENT
    containers: list[_Container] = []
    init_containers: list[_Container] = []


class _Condition(msgspec.Struct, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, gc=False, rename="camel"):
    phase: str = ""
    conditions: list[_Condition] = []


class _Owner(msgspec.Struct, gc=False, frozen=True):
    name: str = ""


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str
    uid: str
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] = _EMPTY
    annotations: dict[str, str] = _EMPTY
    owner_references: list[_Owner] = []
    deletion_timestamp: str | None = None


class PodView(msgspec.Struct, rename="camel"):
    """One pod. ``shape`` is set once decoded; the raw parts are dropped then, so nothing holds on to the message."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)
    shape: PodShape | None = msgspec.field(name="-shape", default=None)

    def __post_init__(self) -> None:
        spec = self.spec
        parts = (
            bytes(spec.node_selector),
            bytes(spec.affinity),
            bytes(spec.tolerations),
            bytes(spec.overhead),
            bytes(spec.resources),
            bytes(spec.topology_spread_constraints),
            _containers(spec.containers),
            _containers(spec.init_containers) if spec.init_containers else b"",
        )
        shape = _shapes.get(parts)
        if shape is None:
            shape = _shapes[parts] = PodShape(parts)
        self.shape = shape
        spec.node_selector = spec.affinity = spec.tolerations = spec.overhead = spec.resources = _ABSENT
        spec.topology_spread_constraints = _ABSENT
        spec.containers = spec.init_containers = []
        if self.status.conditions:
            self.status.conditions = [c for c in self.status.conditions if c.type == "PodScheduled"]

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.metadata.uid

    @property
    def key(self) -> str:
        """``ns/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended and holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")
