# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""Pods: what scheduling, queueing and accounting read of them."""

from typing import Final

import msgspec

from koord.kube.conditions import Condition
from koord.kube.meta import ObjectMeta, ResourceList, TypedObject, View
from koord.kube.selectors import LabelSelector

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"


class ResourceRequirements(View, frozen=True):
    """What a container, or a whole pod, asks for and is held to."""

    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerPort(View, frozen=True):
    """A port; only those with a ``host_port`` matter to scheduling."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(View, frozen=True):
    """A container. An init container with ``restart_policy`` Always is a sidecar: it runs beside the others."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    restart_policy: str | None = None
    ports: list[ContainerPort] = []


class Toleration(View, frozen=True):
    """What taints a pod accepts. An empty key with Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(View, frozen=True):
    """One test of a node's label or field."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(View, frozen=True):
    """Tests that must all hold; a term without any matches nothing."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(View, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(View, frozen=True):
    """A term that adds ``weight`` (1..100) to the score of nodes that match it; an empty one changes nothing."""

    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(View, frozen=True):
    """Which nodes a pod must, and would like to, run on."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class PodAffinityTerm(View, frozen=True):
    """Pods near which a pod wants to be (or not): those in the same ``topology_key`` domain that match.

    Without ``namespaces`` and ``namespace_selector`` only the pod's own namespace counts; an empty namespace selector
    matches all. No ``label_selector`` matches nothing, an empty one everything.
    """

    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(View, frozen=True):
    """A term that adds ``weight`` (1..100) to a node's score for each pod that matches."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(View, frozen=True):
    """Which pods a pod must, and would like to, be near to; as anti-affinity: which it must, or likes to, avoid."""

    required: list[PodAffinityTerm] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(View, frozen=True):
    """Affinity to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(View, frozen=True):
    """How evenly the pods that match are spread over the domains of ``topology_key``; policies empty: the default."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] = []


class ClaimVolume(View, frozen=True):
    """A volume that is a PersistentVolumeClaim of the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolume(View, frozen=True):
    """A volume whose claim is made for this pod alone, and named ``<pod>-<volume>``.

    The API has a template of the claim here. Who reads pods for scheduling puts in its place which claim it is, because
    the pod's own name is not part of what equal pods share.
    """

    claim_name: str = ""
    pod_uid: str = msgspec.field(name="podUID", default="")


class GcePersistentDisk(View, frozen=True):
    """A disk of Google's; only read-only mounts may share it on a node."""

    pd_name: str = ""
    read_only: bool = False


class AwsElasticBlockStore(View, frozen=True):
    """A disk of Amazon's; nobody may share it on a node."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    read_only: bool = False


class Iscsi(View, frozen=True):
    """An iSCSI disk; only read-only mounts may share it on a node."""

    iqn: str = ""
    read_only: bool = False


class Rbd(View, frozen=True):
    """A Ceph block device; the same one if a monitor, the pool and the image are the same."""

    monitors: list[str] = []
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class AzureDisk(View, frozen=True):
    """A disk of Azure's."""

    disk_uri: str = msgspec.field(name="diskURI", default="")


class CinderVolume(View, frozen=True):
    """A disk of OpenStack's."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class VsphereVolume(View, frozen=True):
    """A disk of vSphere's."""

    volume_path: str = ""


class Volume(View, frozen=True):
    """A volume of a pod; only the kinds that decide where the pod may run are read."""

    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: VsphereVolume | None = None


class SchedulingGate(View, frozen=True):
    """A named reason to leave the pod alone."""

    name: str = ""


class PodResourceClaim(View, frozen=True):
    """A claim on devices that the pod uses: by its name, or one that is made for the pod of a template.

    Who reads pods for scheduling puts in the place of a template which claim was made of it and (``pod_uid``) for whom;
    no claim's name then means that none was made yet.
    """

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    pod_uid: str = msgspec.field(name="podUID", default="")


class PodSpec(View, frozen=True):
    """What a pod wants."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    volumes: list[Volume] = []
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    scheduling_gates: list[SchedulingGate] = []
    resource_claims: list[PodResourceClaim] = []
    termination_grace_period_seconds: int | None = None
    restart_policy: str = ""
    host_network: bool = False


class PodStatus(View, frozen=True):
    """What became of a pod."""

    phase: str = ""
    conditions: list[Condition] = []
    nominated_node_name: str = ""
    start_time: str | None = None
    reason: str = ""
    message: str = ""
    qos_class: str = ""


class Pod(TypedObject, frozen=True):
    """A pod."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended and holds nothing any more."""
        return self.status.phase in (SUCCEEDED, FAILED)


class PodTemplate(View, frozen=True):
    """The template of a workload's pods."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
