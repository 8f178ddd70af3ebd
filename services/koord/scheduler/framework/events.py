"""What happens in the cluster that may make a rejected pod fit. Plugins register the events that may help them.

``subject`` below is what :meth:`Plugin.helps` is told about an event (None when too many came at once).
"""

import enum


class ClusterEvent(enum.Enum):
    """The values are upstream's labels of ``scheduler_queue_incoming_pods_total{event}``: the resource and what
    happened to it."""

    NODE_ADD = "NodeAdd"
    NODE_ALLOCATABLE = "NodeUpdateNodeAllocatable"
    NODE_LABEL = "NodeUpdateNodeLabel"
    NODE_TAINT = "NodeUpdateNodeTaint"
    NODE_ANNOTATION = "NodeUpdateNodeAnnotation"
    NODE_DELETE = "NodeDelete"
    """Subject: the ``NodeInfo`` as it is now, or was last."""
    POD_DELETE = "AssignedPodDelete"
    POD_ASSIGNED = "AssignedPodAdd"
    POD_LABEL = "AssignedPodUpdatePodLabel"
    """Subject: the ``AssignedPod`` that left its node, came to one, or has other labels now."""
    POD_UPDATE = "PodUpdate"
    """A pod that is to be placed changed itself."""
    QUOTA_CHANGE = "ElasticQuotaUpdate"
    LEDGER_RELEASE = "LedgerRelease"
    GANG_CHANGE = "GangUpdate"
    TIMEOUT = "UnschedulableTimeout"
    NAMESPACE_ADD = "NamespaceAdd"
    NAMESPACE_UPDATE = "NamespaceUpdate"
    """Subject of this and all below: the object as it is now, or was last."""
    PVC_ADD = "PersistentVolumeClaimAdd"
    PVC_UPDATE = "PersistentVolumeClaimUpdate"
    PVC_DELETE = "PersistentVolumeClaimDelete"
    PV_ADD = "PersistentVolumeAdd"
    PV_UPDATE = "PersistentVolumeUpdate"
    STORAGE_CLASS_ADD = "StorageClassAdd"
    STORAGE_CLASS_UPDATE = "StorageClassUpdate"
    CSI_NODE_ADD = "CSINodeAdd"
    CSI_NODE_UPDATE = "CSINodeUpdate"
    CSI_DRIVER_ADD = "CSIDriverAdd"
    CSI_DRIVER_UPDATE = "CSIDriverUpdate"
    CSI_CAPACITY_ADD = "CSIStorageCapacityAdd"
    CSI_CAPACITY_UPDATE = "CSIStorageCapacityUpdate"
    VOLUME_ATTACHMENT_DELETE = "VolumeAttachmentDelete"
    RESOURCE_CLAIM_ADD = "ResourceClaimAdd"
    RESOURCE_CLAIM_UPDATE = "ResourceClaimUpdate"
    RESOURCE_CLAIM_DELETE = "ResourceClaimDelete"
    RESOURCE_SLICE_ADD = "ResourceSliceAdd"
    RESOURCE_SLICE_UPDATE = "ResourceSliceUpdate"
    DEVICE_CLASS_ADD = "DeviceClassAdd"
    DEVICE_CLASS_UPDATE = "DeviceClassUpdate"
    NODE_METRIC_ADD = "nodemetrics.v1alpha1.slo.koordinator.shAdd"
    NODE_METRIC_UPDATE = "nodemetrics.v1alpha1.slo.koordinator.shUpdate"
    NODE_METRIC_DELETE = "nodemetrics.v1alpha1.slo.koordinator.shDelete"
    NODE_TOPOLOGY_ADD = "noderesourcetopologies.v1alpha1.topology.node.k8s.ioAdd"
    NODE_TOPOLOGY_UPDATE = "noderesourcetopologies.v1alpha1.topology.node.k8s.ioUpdate"
    NODE_TOPOLOGY_DELETE = "noderesourcetopologies.v1alpha1.topology.node.k8s.ioDelete"
    PLUGIN_OBJECT = "PluginObjectChange"
    """An object of a kind that only a third party's plugin watches, which its type tells."""


NODE_EVENTS = frozenset(
    (
        ClusterEvent.NODE_ADD,
        ClusterEvent.NODE_ALLOCATABLE,
        ClusterEvent.NODE_LABEL,
        ClusterEvent.NODE_TAINT,
    )
)
NODE_METRIC_EVENTS = frozenset(
    (ClusterEvent.NODE_METRIC_ADD, ClusterEvent.NODE_METRIC_UPDATE, ClusterEvent.NODE_METRIC_DELETE)
)
NODE_TOPOLOGY_EVENTS = frozenset(
    (ClusterEvent.NODE_TOPOLOGY_ADD, ClusterEvent.NODE_TOPOLOGY_UPDATE, ClusterEvent.NODE_TOPOLOGY_DELETE)
)
ALL_EVENTS = frozenset(ClusterEvent)
