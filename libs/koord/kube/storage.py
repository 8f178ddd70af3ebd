# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""Storage: claims, volumes, their classes, and what CSI drivers say of nodes; what placing pods with volumes needs."""

from typing import Final

import msgspec

from koord.kube.meta import ObjectReference, ResourceList, TypedObject, View
from koord.kube.pods import (
    AwsElasticBlockStore,
    AzureDisk,
    CinderVolume,
    GcePersistentDisk,
    NodeSelector,
    VsphereVolume,
)
from koord.kube.selectors import LabelSelector

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which its volume is to be made; the scheduler writes it."""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""On a claim: its volume is bound for good."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""On a volume: its ``claimRef`` was not written by its maker, so it may be taken back."""
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""On claims and volumes of old: the class; goes before the field."""

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
STORAGE: Final = "storage"

LOST: Final = "Lost"
AVAILABLE: Final = "Available"


class ClaimResources(View, frozen=True):
    """What a claim asks for."""

    requests: ResourceList = {}


class PersistentVolumeClaimSpec(View, frozen=True):
    """What volume a claim wants; ``volume_name``: which one it has or insists on."""

    access_modes: list[str] = []
    selector: LabelSelector | None = None
    resources: ClaimResources = msgspec.field(default_factory=ClaimResources)
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(View, frozen=True):
    """What became of a claim."""

    phase: str = ""


class PersistentVolumeClaim(TypedObject, frozen=True):
    """A wish for a volume, and the handle by which pods use it."""

    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)

    @property
    def storage_class(self) -> str:
        """The class asked for; empty: none."""
        beta = self.metadata.annotations.get(BETA_CLASS)
        return beta if beta is not None else self.spec.storage_class_name or ""

    @property
    def bound(self) -> bool:
        """Whether it has its volume for good."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations


class VolumeNodeAffinity(View, frozen=True):
    """From which nodes a volume can be reached; None: from all."""

    required: NodeSelector | None = None


class CSIVolume(View, frozen=True):
    """A volume of a CSI driver; driver and handle are its identity."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(View, frozen=True):
    """One volume."""

    capacity: ResourceList = {}
    access_modes: list[str] = []
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolume | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: VsphereVolume | None = None


class PersistentVolumeStatus(View, frozen=True):
    """What became of a volume."""

    phase: str = ""


class PersistentVolume(TypedObject, frozen=True):
    """A volume that exists."""

    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = msgspec.field(default_factory=PersistentVolumeStatus)

    @property
    def storage_class(self) -> str:
        """Its class; empty: none."""
        beta = self.metadata.annotations.get(BETA_CLASS)
        return beta if beta is not None else self.spec.storage_class_name

    @property
    def required(self) -> NodeSelector | None:
        """The nodes it can be reached from; None: all."""
        return None if self.spec.node_affinity is None else self.spec.node_affinity.required


class TopologySelectorRequirement(View, frozen=True):
    """A label of a node must have one of the values."""

    key: str = ""
    values: list[str] = []


class TopologySelectorTerm(View, frozen=True):
    """Requirements that must all hold; a term without any matches nothing."""

    match_label_expressions: list[TopologySelectorRequirement] = []


class StorageClass(TypedObject, frozen=True):
    """How volumes are made, and when they are bound."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = []


class CSINodeAllocatable(View, frozen=True):
    """How many volumes of a driver a node takes; None: no limit."""

    count: int | None = None


class CSINodeDriver(View, frozen=True):
    """A driver on a node."""

    name: str = ""
    node_id: str = msgspec.field(name="nodeID", default="")
    topology_keys: list[str] = []
    allocatable: CSINodeAllocatable | None = None


class CSINodeSpec(View, frozen=True):
    """The drivers of a node."""

    drivers: list[CSINodeDriver] = []


class CSINode(TypedObject, frozen=True):
    """What CSI drivers say of the node of the same name."""

    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class CSIDriverSpec(View, frozen=True):
    """``storage_capacity``: the driver publishes how much room it has where."""

    storage_capacity: bool | None = None


class CSIDriver(TypedObject, frozen=True):
    """A CSI driver."""

    spec: CSIDriverSpec = msgspec.field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(TypedObject, frozen=True):
    """How much room there is for volumes of a class on nodes of a topology; without one, on no node."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None

    @property
    def limit(self) -> str | int | float | None:
        """The largest volume that can be made; None: not known."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


class VolumeAttachmentSource(View, frozen=True):
    """What is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(View, frozen=True):
    """What is attached where, by which driver."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = msgspec.field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(TypedObject, frozen=True):
    """A volume that is, or is to be, attached to a node."""

    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)
