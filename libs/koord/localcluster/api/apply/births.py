"""What is there before anybody has written anything: the parts of an object that nobody comes to own by creating it.

A built-in object always has some parts, if only as zeros (`zero`); the server puts others into new objects itself,
which nobody owns (`server_made`). A custom object has nothing of its own.
"""

from typing import Any

import msgspec

from koord.localcluster.api.apply.fieldsets import Fields, at, difference, union
from koord.localcluster.api.resources import Resource

Object = dict[str, Any]

_META = '"metadata":{}'
_POD_TEMPLATE = '"template":{"metadata":{},"spec":{"containers":null}}'
_REF = '"roleRef":{"apiGroup":"","kind":"","name":""}'
_BUDGET = '"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0'
_DAEMONS = '"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0'
_NODE_INFO = ",".join(
    f'"{name}":""'
    for name in (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    )
)
_DAEMON_PORT = '{"kubeletEndpoint":{"Port":0}}'
_NAMES = '{"plural":"","kind":""}'
_PARTS = {
    "events": '"involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,'
    '"reportingComponent":"","reportingInstance":""',
    "limitranges": '"spec":{"limits":null}',
    "namespaces": '"spec":{},"status":{}',
    "nodes": f'"spec":{{}},"status":{{"daemonEndpoints":{_DAEMON_PORT},"nodeInfo":{{{_NODE_INFO}}}}}',
    "persistentvolumes": '"spec":{},"status":{}',
    "persistentvolumeclaims": '"spec":{"resources":{}},"status":{}',
    "pods": '"spec":{"containers":null},"status":{}',
    "podtemplates": _POD_TEMPLATE,
    "replicationcontrollers": '"spec":{},"status":{"replicas":0}',
    "resourcequotas": '"spec":{},"status":{}',
    "services": '"spec":{},"status":{"loadBalancer":{}}',
    "customresourcedefinitions.apiextensions.k8s.io": f'"spec":{{"group":"","names":{_NAMES},"scope":"",'
    f'"versions":null}},"status":{{"conditions":null,"acceptedNames":{_NAMES},"storedVersions":null}}',
    "controllerrevisions.apps": '"data":null,"revision":0',
    "daemonsets.apps": f'"spec":{{"selector":null,{_POD_TEMPLATE},"updateStrategy":{{}}}},"status":{{{_DAEMONS}}}',
    "deployments.apps": f'"spec":{{"selector":null,{_POD_TEMPLATE},"strategy":{{}}}},"status":{{}}',
    "replicasets.apps": f'"spec":{{"selector":null,{_POD_TEMPLATE}}},"status":{{"replicas":0}}',
    "statefulsets.apps": f'"spec":{{"selector":null,{_POD_TEMPLATE},"serviceName":"","updateStrategy":{{}}}},'
    '"status":{"replicas":0,"availableReplicas":0}',
    "horizontalpodautoscalers.autoscaling": '"spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},'
    '"status":{"desiredReplicas":0,"currentMetrics":null}',
    "cronjobs.batch": f'"spec":{{"schedule":"","jobTemplate":{{{_META},"spec":{{{_POD_TEMPLATE}}}}}}},"status":{{}}',
    "jobs.batch": f'"spec":{{{_POD_TEMPLATE}}},"status":{{}}',
    "leases.coordination.k8s.io": '"spec":{}',
    "endpointslices.discovery.k8s.io": '"addressType":"","endpoints":null,"ports":null',
    "ingresses.networking.k8s.io": '"spec":{},"status":{"loadBalancer":{}}',
    "ingressclasses.networking.k8s.io": '"spec":{}',
    "networkpolicies.networking.k8s.io": '"spec":{"podSelector":{}}',
    "poddisruptionbudgets.policy": f'"spec":{{}},"status":{{{_BUDGET}}}',
    "clusterroles.rbac.authorization.k8s.io": '"rules":null',
    "clusterrolebindings.rbac.authorization.k8s.io": _REF,
    "roles.rbac.authorization.k8s.io": '"rules":null',
    "rolebindings.rbac.authorization.k8s.io": _REF,
    "priorityclasses.scheduling.k8s.io": '"value":0',
    "deviceclasses.resource.k8s.io": '"spec":{}',
    "resourceclaims.resource.k8s.io": '"spec":{"devices":{}},"status":{}',
    "resourceclaimtemplates.resource.k8s.io": f'"spec":{{{_META},"spec":{{"devices":{{}}}}}}',
    "resourceslices.resource.k8s.io": '"spec":{"driver":"","pool":{"name":"","generation":0,"resourceSliceCount":0}}',
    "csidrivers.storage.k8s.io": '"spec":{}',
    "csinodes.storage.k8s.io": '"spec":{"drivers":null}',
    "csistoragecapacities.storage.k8s.io": '"storageClassName":""',
    "storageclasses.storage.k8s.io": '"provisioner":""',
    "volumeattachments.storage.k8s.io": '"spec":{"attacher":"","source":{},"nodeName":""},"status":{"attached":false}',
}


def zero(resource: Resource, api_version: str) -> Object:
    """An object of which nothing is known yet, in a version (`apps/v1`); the caller's."""
    result: Object = {"apiVersion": api_version, "kind": resource.kind}
    if not resource.custom:
        parts = _PARTS.get(resource.key)
        result |= msgspec.json.decode(f"{{{_META},{parts}}}" if parts else f"{{{_META}}}")
    return result


_POD_FIELDS = (("priority", None), ("preemptionPolicy", "PreemptLowerPriority"), ("serviceAccountName", "default"))
_SERVICE_FIELDS = union(
    union(at("spec", "clusterIP"), at("spec", "clusterIPs")),
    union(at("spec", "ipFamilies"), at("spec", "ipFamilyPolicy")),
)
_CLAIM_FIELDS = at("metadata", "finalizers")
_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
_TOLERATED = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def server_made(resource: Resource, obj: Object) -> Fields:
    """The fields of an object that the server has put there, everything beneath them included."""
    match resource.key:
        case "pods":
            return _of_pod(obj.get("spec") or {}, obj.get("status") or {})
        case "jobs.batch":
            return _of_job(obj)
        case "namespaces":
            return at("spec")
        case "services":
            headless = (obj.get("spec") or {}).get("clusterIP") == "None"
            return difference(_SERVICE_FIELDS, at("spec", "clusterIP")) if headless else _SERVICE_FIELDS
        case "persistentvolumeclaims":
            return _CLAIM_FIELDS
        case "nodes":
            return at("spec", "taints") if _fresh_taints(obj.get("spec") or {}) else {}
    return {}


def _of_pod(spec: Object, status: Object) -> Fields:
    fields: Fields = {}
    for name, value in _POD_FIELDS:
        if value is None or spec.get(name) == value:
            fields["f:" + name] = {}
    if "f:serviceAccountName" in fields:
        fields["f:serviceAccount"] = {}
    conditions: list[Object] = status.get("conditions") or []
    if any(one.get("type") == "PodScheduled" and one.get("status") == "True" for one in conditions):
        fields["f:nodeName"] = {}  # by binding: who creates a pod on a node leaves it without the condition
    tolerations: list[Object] = spec.get("tolerations") or []
    if len(tolerations) == 2 and {entry.get("key") for entry in tolerations} == _TOLERATED:
        fields["f:tolerations"] = {}
    return {"f:spec": fields}


def _fresh_taints(spec: Object) -> bool:
    taints: list[Object] = spec.get("taints") or []
    return bool(taints) and all(taint.get("key") == "node.kubernetes.io/not-ready" for taint in taints)


def _of_job(job: Object) -> Fields:
    spec = job.get("spec") or {}
    if spec.get("manualSelector"):
        return {}
    fields: Fields = {"f:selector": {}}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if any(name in labels for name in _JOB_LABELS):
        fields["f:template"] = {"f:metadata": {"f:labels": _job_labels(labels)}}
    result: Fields = {"f:spec": fields}
    labels = job["metadata"].get("labels") or {}
    if any(name in labels for name in _JOB_LABELS):
        result["f:metadata"] = {"f:labels": _job_labels(labels)}
    return result


def _job_labels(labels: Object) -> Fields:
    # The map itself is the server's too when it has nothing else in it.
    return {f"f:{name}": {} for name in _JOB_LABELS} if any(name not in _JOB_LABELS for name in labels) else {}


def first_status(resource: Resource, obj: Object) -> Object:
    """The status that an object had before anybody wrote it, as far as that can be told from what it has now."""
    status = obj.get("status") or {}
    match resource.key:
        case "pods":
            return _first_pod_status(obj, status)
        case "namespaces":
            return {"phase": "Active"}
        case "nodes":
            return status if isinstance(status, dict) else {}
    zeros = zero(resource, "").get("status")
    return zeros if isinstance(zeros, dict) else {}


def _first_pod_status(obj: Object, status: Object) -> Object:
    first: Object = {"phase": "Pending"}
    if "qosClass" in status:
        first["qosClass"] = status["qosClass"]
    if (obj.get("spec") or {}).get("nodeName"):
        # Binding has set the condition, unless a kubelet says more of it.
        bound = [
            condition
            for condition in (status.get("conditions") or [])
            if condition.get("type") == "PodScheduled" and condition.get("status") == "True"
        ]
        if bound:
            first["conditions"] = bound
    return first
