"""Pods, nodes and QueueUnits as the reconciler reads them: the few fields that charges depend on.

A pod passes three times (created, bound, running), so its containers are not decoded each time: their bytes are the
key of its request, and pods made from one template share them.
"""

from typing import Final

import msgspec

from koord.accounting.generation import node_generation
from koord.accounting.requests import pod_request
from koord.accounting.slots import HostPort, host_ports, pod_slots
from koord.kube.meta import ResourceList
from koord.kube.pods import FAILED, SUCCEEDED, PodSpec, Volume

_NONE: Final = msgspec.Raw(b"")
_MEMO: Final = 8192

Parts = tuple[bytes, bytes, bytes, bytes]


class SightError(ValueError):
    """A spec whose request cannot be computed; names the field and the rule."""


class MetaSight(msgspec.Struct, rename="camel", gc=False):
    """Metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class PodSpecSight(msgspec.Struct, rename="camel", gc=False):
    """A pod's node, the bytes that decide its request (``parts``, filled after decoding), and the names of its volumes'
    claims (``claims``)."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    containers: msgspec.Raw = _NONE
    init_containers: msgspec.Raw = _NONE
    overhead: msgspec.Raw = _NONE
    resources: msgspec.Raw = _NONE
    volumes: msgspec.Raw = _NONE
    parts: Parts | None = None
    claims: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # A Raw is a window on the whole message: keep the bytes, once per template, and let the message go.
        parts = (bytes(self.containers), bytes(self.init_containers), bytes(self.overhead), bytes(self.resources))
        self.parts = _interned.setdefault(parts, parts)
        if len(_interned) > _MEMO:
            _interned.clear()
        self.containers = self.init_containers = self.overhead = self.resources = _NONE
        volumes = bytes(self.volumes)
        if b'"persistentVolumeClaim"' in volumes:
            self.claims = _claims_in(volumes)
        self.volumes = _NONE


def _claims_in(volumes: bytes) -> tuple[str, ...]:
    try:
        decoded = _volumes.decode(volumes)
    except (msgspec.MsgspecError, RecursionError):
        return ()  # no pod that the API took
    return tuple(
        dict.fromkeys(
            volume.persistent_volume_claim.claim_name for volume in decoded or () if volume.persistent_volume_claim
        )
    )


class ConditionSight(msgspec.Struct, rename="camel", gc=False):
    """A condition's type, status and time."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodStatusSight(msgspec.Struct, rename="camel", gc=False):
    """A pod's phase and conditions, and the node that it waits for."""

    phase: str = ""
    nominated_node_name: str | None = None
    conditions: list[ConditionSight] | None = None


class PodSight(msgspec.Struct, rename="camel", gc=False):
    """A pod."""

    metadata: MetaSight
    spec: PodSpecSight = msgspec.field(default_factory=PodSpecSight)
    status: PodStatusSight = msgspec.field(default_factory=PodStatusSight)

    @property
    def terminal(self) -> bool:
        """Whether it has ended and holds nothing any more."""
        return self.status.phase in (SUCCEEDED, FAILED)


class NodeStatusSight(msgspec.Struct, rename="camel", gc=False):
    """A node's room."""

    allocatable: ResourceList | None = None


class TaintSight(msgspec.Struct, gc=False):
    """A taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpecSight(msgspec.Struct, gc=False):
    """Who may be placed on a node."""

    unschedulable: bool = False
    taints: list[TaintSight] | None = None


class NodeSight(msgspec.Struct, rename="camel", gc=False):
    """A node."""

    metadata: MetaSight
    spec: NodeSpecSight = msgspec.field(default_factory=NodeSpecSight)
    status: NodeStatusSight = msgspec.field(default_factory=NodeStatusSight)

    @property
    def generation(self) -> int:
        """The version of its guard in the ledger."""
        return node_generation(
            self.metadata.labels or {},
            [(taint.key, taint.value, taint.effect) for taint in self.spec.taints or ()],
            unschedulable=self.spec.unschedulable,
            deleting=self.metadata.deletion_timestamp is not None,
        )


class BudgetStatusSight(msgspec.Struct, rename="camel", gc=False):
    """How many pods a disruption budget lets go now, and for which version of its spec that was counted."""

    disruptions_allowed: int = 0
    observed_generation: int = 0


class GenerationSight(MetaSight, gc=False):
    """Metadata with the version of the spec."""

    generation: int = 0


class BudgetSight(msgspec.Struct, rename="camel", gc=False):
    """A disruption budget."""

    metadata: GenerationSight
    status: BudgetStatusSight = msgspec.field(default_factory=BudgetStatusSight)

    @property
    def allowed(self) -> int:
        """Pods that may be evicted now; none before the spec was looked at, for the API evicts none then either."""
        if self.status.observed_generation < self.metadata.generation:
            return 0
        return max(0, self.status.disruptions_allowed)


class UnitSpecSight(msgspec.Struct, rename="camel", gc=False):
    """What a QueueUnit asks for."""

    resource: ResourceList | None = None
    request: ResourceList | None = None


class AdmissionSight(msgspec.Struct, gc=False):
    """One admitted pod set."""

    name: str = ""


class UnitStatusSight(msgspec.Struct, rename="camel", gc=False):
    """Whether a QueueUnit holds room."""

    phase: str = ""
    admissions: list[AdmissionSight] | None = None


class UnitSight(msgspec.Struct, rename="camel", gc=False):
    """A QueueUnit."""

    metadata: MetaSight
    spec: UnitSpecSight = msgspec.field(default_factory=UnitSpecSight)
    status: UnitStatusSight = msgspec.field(default_factory=UnitStatusSight)


_interned: dict[Parts, Parts] = {}
_volumes = msgspec.json.Decoder(list[Volume] | None)
_ports: dict[Parts, tuple[HostPort, ...]] = {}
_requests: dict[Parts, dict[str, int]] = {}


def request_of(pod: PodSight) -> dict[str, int]:
    """What the pod asks for; SightError names the field and the rule. The answer is shared: do not change it."""
    parts = pod.spec.parts
    assert parts is not None
    request = _requests.get(parts)
    if request is None:
        try:
            request = pod_request(_spec_of(parts))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise SightError(f"spec: {error}") from error
        if len(_requests) >= _MEMO:
            _requests.clear()
        _requests[parts] = request
    return request


def slots_of(pod: PodSight) -> tuple[str, ...]:
    """What the pod alone has of its node, and the volumes that nobody else may use meanwhile."""
    spec, parts = pod.spec, pod.spec.parts
    assert parts is not None
    ports: tuple[HostPort, ...] = ()
    if b'"hostPort"' in parts[0] or b'"hostPort"' in parts[1]:
        known = _ports.get(parts)
        if known is None:
            try:
                read = _spec_of(parts)
            except (ValueError, msgspec.MsgspecError, RecursionError):
                return ()  # its request cannot be read either, which is told
            known = host_ports(read.containers, read.init_containers)
            if len(_ports) >= _MEMO:
                _ports.clear()
            _ports[parts] = known
        ports = known
    return pod_slots(spec.node_name or "", pod.metadata.namespace, ports, spec.claims, pod.metadata.annotations)


def _spec_of(parts: Parts) -> PodSpec:
    names = (b'"containers":', b'"initContainers":', b'"overhead":', b'"resources":')
    body = b"{%s}" % b",".join(name + part for name, part in zip(names, parts, strict=True) if part)
    return msgspec.json.decode(body, type=PodSpec)
