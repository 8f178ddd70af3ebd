"""The built-in resources that the server serves. Most are storage only: nothing reconciles them."""

from koord.localcluster.api.columns import COLUMNS
from koord.localcluster.api.eventversions import from_events_v1, to_events_v1
from koord.localcluster.api.resources import Registry, Resource, Route, ScalePaths

Path = tuple[str, ...]


def _fields(*paths: str) -> tuple[tuple[str, Path], ...]:
    return tuple((path, tuple(path.split("."))) for path in paths)


_POD_FIELDS = _fields(
    "spec.nodeName",
    "status.phase",
    "spec.schedulerName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    *_fields(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ),
    ("source", ("source", "component")),
)

_REPLICAS = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))
_ALL = ("all",)

PODS = Resource(
    "", "v1", "pods", "Pod", short_names=("po",), categories=_ALL, status=True, generation=True, fields=_POD_FIELDS
)
NODES = Resource(
    "", "v1", "nodes", "Node", namespaced=False, short_names=("no",), status=True, fields=_fields("spec.unschedulable")
)
NAMESPACES = Resource(
    "",
    "v1",
    "namespaces",
    "Namespace",
    namespaced=False,
    short_names=("ns",),
    status=True,
    fields=_fields("status.phase"),
)
EVENTS = Resource("", "v1", "events", "Event", short_names=("ev",), fields=_EVENT_FIELDS)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short_names=("pc",)
)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", status=True)
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    status=True,
    generation=True,
)


# Webhooks are called; the policies, which would need CEL, are only stored.
_ADMISSION = (
    ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
)


def _admission_resources() -> list[Resource]:
    return [
        Resource(
            "admissionregistration.k8s.io",
            "v1",
            plural,
            kind,
            namespaced=False,
            categories=("api-extensions",),
            status=plural == "validatingadmissionpolicies",
            generation=True,
        )
        for plural, kind in _ADMISSION
    ]


def builtin_resources() -> list[Resource]:
    """All built-in resources, in the order of discovery."""
    return [
        Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
        Resource("", "v1", "endpoints", "Endpoints", short_names=("ep",), list_kind="EndpointsList"),
        EVENTS,
        Resource("", "v1", "limitranges", "LimitRange", short_names=("limits",)),
        NAMESPACES,
        NODES,
        Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), status=True),
        Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short_names=("pv",), status=True),
        PODS,
        Resource("", "v1", "podtemplates", "PodTemplate", generation=True),
        Resource(
            "",
            "v1",
            "replicationcontrollers",
            "ReplicationController",
            short_names=("rc",),
            categories=_ALL,
            status=True,
            generation=True,
            scale=_REPLICAS,
        ),
        Resource("", "v1", "resourcequotas", "ResourceQuota", short_names=("quota",), status=True),
        Resource("", "v1", "secrets", "Secret", fields=_fields("type")),
        Resource("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",)),
        Resource("", "v1", "services", "Service", short_names=("svc",), categories=_ALL, status=True),
        CRDS,
        *_admission_resources(),
        Resource("apps", "v1", "controllerrevisions", "ControllerRevision"),
        Resource(
            "apps", "v1", "daemonsets", "DaemonSet", short_names=("ds",), categories=_ALL, status=True, generation=True
        ),
        Resource(
            "apps",
            "v1",
            "deployments",
            "Deployment",
            short_names=("deploy",),
            categories=_ALL,
            status=True,
            generation=True,
            scale=_REPLICAS,
        ),
        Resource(
            "apps",
            "v1",
            "replicasets",
            "ReplicaSet",
            short_names=("rs",),
            categories=_ALL,
            status=True,
            generation=True,
            scale=_REPLICAS,
        ),
        Resource(
            "apps",
            "v1",
            "statefulsets",
            "StatefulSet",
            short_names=("sts",),
            categories=_ALL,
            status=True,
            generation=True,
            scale=_REPLICAS,
        ),
        Resource(
            "batch",
            "v1",
            "cronjobs",
            "CronJob",
            short_names=("cj",),
            categories=_ALL,
            status=True,
            generation=True,
        ),
        Resource(
            "batch",
            "v1",
            "jobs",
            "Job",
            categories=_ALL,
            status=True,
            generation=True,
            fields=(("status.successful", ("status", "succeeded")),),
        ),
        Resource(
            "autoscaling",
            "v2",
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            short_names=("hpa",),
            categories=_ALL,
            status=True,
        ),
        Resource("coordination.k8s.io", "v1", "leases", "Lease"),
        Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", generation=True),
        Resource(
            "networking.k8s.io",
            "v1",
            "networkpolicies",
            "NetworkPolicy",
            short_names=("netpol",),
            generation=True,
        ),
        Resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False, generation=True),
        Resource(
            "networking.k8s.io",
            "v1",
            "ingresses",
            "Ingress",
            short_names=("ing",),
            status=True,
            generation=True,
        ),
        Resource(
            "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",), generation=True
        ),
        Resource(
            "policy",
            "v1",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            short_names=("pdb",),
            status=True,
            generation=True,
        ),
        Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
        Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
        Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False, generation=True),
        RESOURCE_CLAIMS,
        Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
        Resource(
            "resource.k8s.io",
            "v1",
            "resourceslices",
            "ResourceSlice",
            namespaced=False,
            generation=True,
            fields=_fields("spec.nodeName", "spec.driver", "spec.pool.name"),
        ),
        PRIORITY_CLASSES,
        Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False),
        Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
        Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
        Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short_names=("sc",)),
        Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False, status=True),
    ]


_DEPRECATED = {"endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"}


def register_builtins(registry: Registry) -> None:
    """Serve all built-in resources."""
    for resource in builtin_resources():
        columns = COLUMNS.get(resource.key)
        resource.columns = columns
        group = resource.group.partition(".")[0] or "core"
        resource.strategic = f"{group}.{resource.version}.{resource.kind}"
        warning = _DEPRECATED.get(resource.key, "")
        routes = [Route(resource, resource.group, resource.version, columns=columns, warning=warning)]
        if resource is EVENTS:
            routes.append(Route(resource, "events.k8s.io", "v1", to_events_v1, from_events_v1, columns))
        registry.add(resource, routes)
