"""Pods as the scheduler reads them: a light projection.

A pod is decoded twice in its life here (created, bound), so decoding is on the hot path. What decides its placement
goes into its shape (:mod:`koord.scheduler.podshape`) as bytes; times stay texts until somebody asks for them.
"""

from typing import Final

import msgspec
from msgspec.structs import astuple

from koord.kube.meta import parse_time
from koord.kube.pods import PodResourceClaim, SchedulingGate
from koord.kube.protocol.scheduler import REPLACE_RESOURCES
from koord.scheduler.podshape import PodShape, PodShapeError, shape_of, split_name

__all__ = ["PodShape", "PodShapeError", "PodView"]

_ABSENT = msgspec.Raw(b"")
_EMPTY: dict[str, str] = {}
_DISRUPTED: Final = "DisruptionTarget"
_PREEMPTED: Final = "PreemptionByScheduler"
_KEPT: Final = frozenset(("PodScheduled", "Initialized", _DISRUPTED))
_EVICTED: Final = "EvictionByEvictionAPI"


class _Container(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    image: str = ""
    resources: msgspec.Raw = _ABSENT
    ports: msgspec.Raw = _ABSENT
    restart_policy: str | None = None


def _containers(items: list[_Container]) -> bytes:
    if len(items) == 1:
        [item] = items
        if item.restart_policy is None and not (item.ports and b'"hostPort"' in bytes(item.ports)):
            name = item.name.encode()
            resources = item.resources
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


class _Volume(msgspec.Struct, gc=False, rename="camel"):
    """A volume that may decide where its pod can run; those made of secrets, config or nothing never do."""

    name: str = ""
    persistent_volume_claim: msgspec.Raw = _ABSENT
    csi: msgspec.Raw = _ABSENT
    gce_persistent_disk: msgspec.Raw = _ABSENT
    aws_elastic_block_store: msgspec.Raw = _ABSENT
    iscsi: msgspec.Raw = _ABSENT
    rbd: msgspec.Raw = _ABSENT
    azure_disk: msgspec.Raw = _ABSENT
    cinder: msgspec.Raw = _ABSENT
    vsphere_volume: msgspec.Raw = _ABSENT
    ephemeral: msgspec.Raw = _ABSENT


_RAW_VOLUMES = tuple(field.encode_name.encode() for field in msgspec.structs.fields(_Volume)[1:-1])
_PLAIN = (_ABSENT,) * (len(_RAW_VOLUMES) + 1)


def _volumes(items: list[_Volume], pod: str, uid: str) -> bytes:
    """Names of volumes are left out (the token's is another one in each pod), except that an ephemeral volume becomes
    the claim that belongs to it."""
    texts: list[bytes] = []
    for item in items:
        values = astuple(item)[1:]
        if values == _PLAIN:
            continue
        for name, raw in zip(_RAW_VOLUMES, values, strict=False):
            if raw:
                texts.append(b'{"%s":%s}' % (name, bytes(raw)))
        if item.ephemeral:
            claim = {"ephemeral": {"claimName": f"{pod}-{item.name}", "podUID": uid}}
            texts.append(msgspec.json.encode(claim))
    return b",".join(texts)


class _Claim(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _ClaimStatus(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None


def _claims(items: list[_Claim], made: list[_ClaimStatus], uid: str) -> bytes:
    """A template becomes the claim that was made of it; one of which none is needed is left out."""
    known = {status.name: status.resource_claim_name for status in made}
    shown: list[PodResourceClaim] = []
    for item in items:
        if item.resource_claim_name is not None or item.resource_claim_template_name is None:
            shown.append(PodResourceClaim(name=item.name, resource_claim_name=item.resource_claim_name))
        elif item.name not in known:
            shown.append(PodResourceClaim(name=item.name, pod_uid=uid))
        elif (claim := known[item.name]) is not None:
            shown.append(PodResourceClaim(name=item.name, resource_claim_name=claim, pod_uid=uid))
    return msgspec.json.encode(shown) if shown else b""


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    scheduling_gates: list[SchedulingGate] = []
    node_selector: msgspec.Raw = _ABSENT
    affinity: msgspec.Raw = _ABSENT
    tolerations: msgspec.Raw = _ABSENT
    overhead: msgspec.Raw = _ABSENT
    resources: msgspec.Raw = _ABSENT
    topology_spread_constraints: msgspec.Raw = _ABSENT
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    volumes: list[_Volume] = []
    resource_claims: list[_Claim] = []


class _Condition(msgspec.Struct, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, gc=False, rename="camel"):
    phase: str = ""
    conditions: list[_Condition] = []
    start_time: str | None = None
    nominated_node_name: str = ""
    resource_claim_statuses: list[_ClaimStatus] = []


class _Owner(msgspec.Struct, gc=False, frozen=True):
    name: str = ""
    kind: str = ""
    controller: bool | None = None


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
    """One pod. ``shape``, ``only`` and ``images`` (of the containers, then of the init containers) are set once
    decoded; the raw parts are dropped then, so nothing holds on to the message. ``only`` is the one node that the
    affinity names, which is not in the shape."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)
    shape: PodShape | None = msgspec.field(name="-shape", default=None)
    images: tuple[str, ...] = msgspec.field(name="-images", default=())
    only: str = msgspec.field(name="-only", default="")

    def __post_init__(self) -> None:
        spec, meta = self.spec, self.metadata
        affinity, constraints = bytes(spec.affinity), bytes(spec.topology_spread_constraints)
        if affinity and not constraints:  # constraints may honour the whole node affinity
            affinity, self.only = split_name(affinity)
        self.shape = shape_of(
            (
                bytes(spec.node_selector),
                affinity,
                bytes(spec.tolerations),
                bytes(spec.overhead),
                bytes(spec.resources),
                constraints,
                _claims(spec.resource_claims, self.status.resource_claim_statuses, meta.uid)
                if spec.resource_claims
                else b"",
                _containers(spec.containers),
                _containers(spec.init_containers) if spec.init_containers else b"",
                _volumes(spec.volumes, meta.name, meta.uid) if spec.volumes else b"",
                meta.annotations.get(REPLACE_RESOURCES, "") if meta.annotations else "",
            )
        )
        if len(spec.containers) == 1 and not spec.init_containers:
            self.images = (spec.containers[0].image,)
        else:
            self.images = tuple([item.image for item in (*spec.containers, *spec.init_containers)])
        spec.node_selector = spec.affinity = spec.tolerations = spec.overhead = spec.resources = _ABSENT
        spec.topology_spread_constraints = _ABSENT
        spec.containers = spec.init_containers = []
        spec.volumes = []
        spec.resource_claims = []
        if self.status.conditions:
            self.status.conditions = [c for c in self.status.conditions if c.type in _KEPT]

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

    @property
    def owner(self) -> str:
        """The kind of the pod's controller, or of its first owner; empty without any."""
        owners = self.metadata.owner_references
        for owner in owners:
            if owner.controller:
                return owner.kind
        return owners[0].kind if owners else ""

    def true_since(self, condition: str) -> float:
        """Since when (seconds since the epoch) PodScheduled or Initialized is True; 0: it is not, or nobody knows."""
        for found in self.status.conditions:
            if found.type == condition:
                return _seconds(found.last_transition_time) if found.status == "True" else 0.0
        return 0.0

    @property
    def evicted(self) -> float:
        """When it was evicted by the Eviction API, in seconds since the epoch; 0: it was not."""
        for found in self.status.conditions:
            if found.type == _DISRUPTED and found.reason == _EVICTED and found.status == "True":
                return _seconds(found.last_transition_time)
        return 0.0

    @property
    def preempted(self) -> bool:
        """Whether a scheduler asked it to go for a pod of higher priority."""
        return any(
            found.type == _DISRUPTED and found.reason == _PREEMPTED and found.status == "True"
            for found in self.status.conditions
        )

    @property
    def started(self) -> float:
        """When its kubelet saw the pod, in seconds since the epoch; 0: not yet."""
        return _seconds(self.status.start_time)


def _seconds(text: str | None) -> float:
    """A time of the API server; one that does not parse is as one that is not there."""
    if not text:
        return 0.0
    try:
        return parse_time(text)
    except ValueError:
        return 0.0
