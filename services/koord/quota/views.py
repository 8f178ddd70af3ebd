"""The parts of pods and QueueUnits that the quota sums need, decoded as little as possible."""

import msgspec

from koord.accounting.requests import amounts, pod_request
from koord.kube.conditions import is_true
from koord.kube.meta import ResourceList, View
from koord.kube.nodes import NodeSpec, NodeStatus
from koord.kube.pods import Container, PodSpec, ResourceRequirements
from koord.kube.queues import ENQUEUED, FAILED, PREEMPTED, SUCCEED, QueueSpec
from koord.quota.waiting import Amounts, Rank

_NONE = b""
_WAITING = frozenset(("", ENQUEUED, PREEMPTED))


def _raw() -> msgspec.Raw:
    return msgspec.Raw(_NONE)


class BriefMeta(View, frozen=True):
    """Metadata: what names a quota or a unit, and how old it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class BriefSpec(View, frozen=True):
    """Spec: the containers stay undecoded, pods of one template share the same bytes."""

    node_name: str = ""
    priority: int | None = None
    containers: msgspec.Raw = msgspec.field(default_factory=_raw)
    init_containers: msgspec.Raw = msgspec.field(default_factory=_raw)
    overhead: msgspec.Raw = msgspec.field(default_factory=_raw)
    resources: msgspec.Raw = msgspec.field(default_factory=_raw)


class BriefStatus(View, frozen=True):
    """Status: whether the pod has ended, and when it began."""

    phase: str = ""
    start_time: str | None = None


class PodBrief(View, frozen=True):
    """A pod."""

    metadata: BriefMeta = msgspec.field(default_factory=BriefMeta)
    spec: BriefSpec = msgspec.field(default_factory=BriefSpec)
    status: BriefStatus = msgspec.field(default_factory=BriefStatus)

    @property
    def ended(self) -> bool:
        """Whether it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


class UnitSpec(View, frozen=True):
    """Spec of a QueueUnit: its total, and its place in the queue."""

    priority: int | None = None
    active: bool | None = None
    resource: ResourceList = msgspec.field(default_factory=dict)
    request: ResourceList = msgspec.field(default_factory=dict)


class UnitStatus(View, frozen=True):
    """Status of a QueueUnit: its phase, and whether it holds room."""

    phase: str = ""
    admissions: list[msgspec.Raw] | None = None


class UnitBrief(View, frozen=True):
    """A QueueUnit."""

    metadata: BriefMeta = msgspec.field(default_factory=BriefMeta)
    spec: UnitSpec = msgspec.field(default_factory=UnitSpec)
    status: UnitStatus = msgspec.field(default_factory=UnitStatus)

    @property
    def ended(self) -> bool:
        """Whether it asks for nothing any more."""
        return self.status.phase in (SUCCEED, FAILED)

    @property
    def waits(self) -> bool:
        """Whether its queue may hand it out now."""
        return self.status.phase in _WAITING and not self.status.admissions and self.spec.active is not False

    def total(self) -> Amounts:
        """What the whole job asks for; QuantityError names the field and the rule."""
        field = f"QueueUnit {self.metadata.namespace}/{self.metadata.name}: spec.resource"
        return tuple(sorted(amounts(self.spec.resource or self.spec.request, field).items()))


class QueueBrief(View, frozen=True):
    """A Queue: its policy. Its status, which lists who waits, stays undecoded."""

    metadata: BriefMeta = msgspec.field(default_factory=BriefMeta)
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)


class NodeBrief(View, frozen=True):
    """A node: its room, and what a profile selects it by."""

    metadata: BriefMeta = msgspec.field(default_factory=BriefMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def usable(self) -> bool:
        """Whether it is open for pods and ready."""
        return not self.spec.unschedulable and is_true(self.status.conditions, "Ready")


def rank_of(priority: int | None, meta: BriefMeta) -> Rank:
    """The place in line: the queues' order (spec 70 section 3.8); a pod's is the same."""
    return Rank(-(priority or 0), meta.creation_timestamp or "")


_containers = msgspec.json.Decoder(list[Container])
_overhead = msgspec.json.Decoder(ResourceList)
_resources = msgspec.json.Decoder(ResourceRequirements)


class RequestCache:
    """Requests by the bytes that decide them: a job's pods are summed once, not a thousand times."""

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._known: dict[tuple[bytes, bytes, bytes, bytes], Amounts] = {}

    def request(self, spec: BriefSpec) -> Amounts:
        """What the pod asks for, zeros left out. QuantityError and msgspec.ValidationError name what is wrong."""
        key = (bytes(spec.containers), bytes(spec.init_containers), bytes(spec.overhead), bytes(spec.resources))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._size:
                self._known.clear()
            known = self._known[key] = _sum(*key)
        return known


def _sum(containers: bytes, init_containers: bytes, overhead: bytes, resources: bytes) -> Amounts:
    spec = PodSpec(
        containers=_containers.decode(containers) if containers else [],
        init_containers=_containers.decode(init_containers) if init_containers else [],
        overhead=_overhead.decode(overhead) if overhead else {},
        resources=_resources.decode(resources) if resources else None,
    )
    return tuple(sorted((name, amount) for name, amount in pod_request(spec).items() if amount))
