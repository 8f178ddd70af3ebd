"""Which API resources koord deals in, and how their REST paths and bus tokens are spelt."""

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """One kind of API object: enough to build its URL and its place on the bus."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of an object: ``v1``, ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def token(self) -> str:
        """The name on the bus: ``<plural>_<group>``, dots of the group as ``_``; the core group is ``core``."""
        return f"{self.plural}_{(self.group or 'core').replace('.', '_')}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The REST path of the collection, of one object, or of its sub-resource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root = f"{root}/namespaces/{namespace}"
        path = f"{root}/{self.plural}"
        if name:
            path = f"{path}/{name}"
        return f"{path}/{subresource}" if subresource else path


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
JOBS = Resource("batch", "v1", "jobs", "Job")
TFJOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
PYTORCHJOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
RAYJOBS = Resource("ray.io", "v1", "rayjobs", "RayJob")
RAYCLUSTERS = Resource("ray.io", "v1", "rayclusters", "RayCluster")
QUEUES = Resource("scheduling.x-k8s.io", "v1alpha1", "queues", "Queue")
QUEUE_UNITS = Resource("scheduling.x-k8s.io", "v1alpha1", "queueunits", "QueueUnit")
ELASTIC_QUOTAS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
ELASTIC_QUOTA_PROFILES = Resource("quota.koordinator.sh", "v1alpha1", "elasticquotaprofiles", "ElasticQuotaProfile")
POD_GROUPS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup")
NODE_METRICS = Resource("slo.koordinator.sh", "v1alpha1", "nodemetrics", "NodeMetric", namespaced=False)
NODE_RESOURCE_TOPOLOGIES = Resource(
    "topology.node.k8s.io", "v1alpha1", "noderesourcetopologies", "NodeResourceTopology", namespaced=False
)
SCHEDULE_EXPLANATIONS = Resource("scheduling.koordinator.sh", "v1alpha1", "scheduleexplanations", "ScheduleExplanation")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_STORAGE_CAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
VOLUME_ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
STORAGE = (
    STORAGE_CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    VOLUME_ATTACHMENTS,
)
"""What placing pods with volumes reads."""
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DYNAMIC_RESOURCES = (DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS)
"""What giving devices to pods reads; a server before 1.34 does not have them."""
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)

ALL: tuple[Resource, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    EVENTS,
    LEASES,
    PRIORITY_CLASSES,
    POD_DISRUPTION_BUDGETS,
    JOBS,
    TFJOBS,
    PYTORCHJOBS,
    RAYJOBS,
    RAYCLUSTERS,
    QUEUES,
    QUEUE_UNITS,
    ELASTIC_QUOTAS,
    ELASTIC_QUOTA_PROFILES,
    POD_GROUPS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    SCHEDULE_EXPLANATIONS,
    *STORAGE,
    *DYNAMIC_RESOURCES,
    CRDS,
)

BY_TOKEN: dict[str, Resource] = {resource.token: resource for resource in ALL}

WATCHED: tuple[Resource, ...] = (
    NAMESPACES,
    SERVICES,
    PRIORITY_CLASSES,
    NODES,
    ELASTIC_QUOTAS,
    ELASTIC_QUOTA_PROFILES,
    QUEUES,
    QUEUE_UNITS,
    POD_GROUPS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    JOBS,
    TFJOBS,
    PYTORCHJOBS,
    RAYJOBS,
    RAYCLUSTERS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    SCHEDULE_EXPLANATIONS,
    *STORAGE,
    *DYNAMIC_RESOURCES,
)
"""What the gateway lists and watches by default. Events are written, never watched; Leases and CRDs neither."""
