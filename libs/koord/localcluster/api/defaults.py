"""The defaults of all other kinds, as the real server fills them in. Cheap, and idempotent.

`FIRST_STATUS` is what an object's status says before any controller has seen it.
"""

import base64
from collections.abc import Callable
from typing import Any

from koord.localcluster.api.admission.definitions import (
    BINDINGS,
    MUTATING,
    POLICIES,
    VALIDATING,
    default_configuration,
)
from koord.localcluster.api.admission.policydefinitions import default_binding, default_policy
from koord.localcluster.api.devicerules import (
    default_device_claim,
    default_device_claim_template,
    default_device_slice,
)
from koord.localcluster.api.poddefaults import default_claim_spec, default_pod, default_pod_spec
from koord.localcluster.api.validation import canonical_amounts
from koord.localcluster.clusterapi import Object

Defaulter = Callable[[Object], None]
_RBAC = "rbac.authorization.k8s.io"


def _template_of(spec: Object) -> Object:
    """The pod template of a spec, with its defaults."""
    template: Object = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))
    return template


def _default_job(job: Object) -> None:
    spec = job.setdefault("spec", {})
    _default_job_spec(spec)
    uid = job["metadata"].get("uid")
    if uid and not spec["manualSelector"] and "selector" not in spec:
        # What ties pods to their job, as the job controller expects it.
        name = job["metadata"]["name"]
        labels = spec["template"]["metadata"].setdefault("labels", {})
        labels.setdefault("batch.kubernetes.io/controller-uid", uid)
        labels.setdefault("batch.kubernetes.io/job-name", name)
        labels.setdefault("controller-uid", uid)
        labels.setdefault("job-name", name)
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    if not job["metadata"].get("labels") and (labels := spec["template"]["metadata"].get("labels")):
        job["metadata"]["labels"] = dict(labels)


def _default_job_spec(spec: Object) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    policy = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if policy is None else "Failed")
    for rule in (policy or {}).get("rules", ()):
        for condition in rule.get("onPodConditions", ()):
            condition.setdefault("status", "True")
    _template_of(spec)


def _default_cronjob(job: Object) -> None:
    spec = job.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    _template_of(template.setdefault("spec", {}))


def _default_deployment(workload: Object) -> None:
    spec = workload.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("progressDeadlineSeconds", 600)
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    _template_of(spec)


def _default_replicaset(workload: Object) -> None:
    spec = workload.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _template_of(spec)


def _default_replication_controller(workload: Object) -> None:
    spec = workload.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    labels = _template_of(spec)["metadata"].get("labels")
    if labels:
        spec.setdefault("selector", dict(labels))
        if not workload["metadata"].get("labels"):
            workload["metadata"]["labels"] = dict(labels)


def _default_statefulset(workload: Object) -> None:
    spec = workload.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("partition", 0)
        rolling.setdefault("maxUnavailable", 1)
    for claim in spec.get("volumeClaimTemplates", ()):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        default_claim_spec(claim.setdefault("spec", {}))
        claim.setdefault("status", {}).setdefault("phase", "Pending")
    _template_of(spec)


def _default_daemonset(workload: Object) -> None:
    spec = workload.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", 0)
        rolling.setdefault("maxUnavailable", 1)
    generation = str(workload["metadata"].get("generation", 1))
    annotations = workload["metadata"].setdefault("annotations", {})
    annotations.setdefault("deprecated.daemonset.template.generation", generation)
    _template_of(spec)


def _default_pod_template(template: Object) -> None:
    _template_of(template)


def _default_namespace(namespace: Object) -> None:
    metadata = namespace["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    spec = namespace.setdefault("spec", {})
    if "deletionTimestamp" not in metadata:
        spec.setdefault("finalizers", ["kubernetes"])
        namespace.setdefault("status", {}).setdefault("phase", "Active")


def _default_secret(secret: Object) -> None:
    secret["type"] = secret.get("type") or "Opaque"
    if text := secret.pop("stringData", None):
        data = secret.setdefault("data", {})
        for name, value in text.items():
            data[name] = base64.b64encode(value.encode()).decode()


def _default_service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    for field in ("selector", "ports", "externalIPs"):
        if field in spec and not spec[field]:
            del spec[field]
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        affinity = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        affinity.setdefault("timeoutSeconds", 10800)
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec.get("clusterIP") == "None" and not spec.get("selector"):
            # Whoever fills in its endpoints may choose among both kinds of addresses.
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
            spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if spec.get("clusterIP"):
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
    if kind in ("NodePort", "LoadBalancer") or spec.get("externalIPs"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port", 0))


def _default_priority_class(priority: Object) -> None:
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _default_quota(quota: Object) -> None:
    for section in ("spec", "status"):
        for amounts in (quota.get(section) or {}).values():
            if isinstance(amounts, dict):
                canonical_amounts(amounts)


def _default_limits(limits: Object) -> None:
    for limit in limits.setdefault("spec", {}).get("limits", ()):
        for amounts in limit.values():
            if isinstance(amounts, dict):
                canonical_amounts(amounts)


def _default_lease(lease: Object) -> None:
    lease.setdefault("spec", {})


def _default_claim(claim: Object) -> None:
    default_claim_spec(claim.setdefault("spec", {}))


def _default_event(event: Object) -> None:
    event.setdefault("source", {})
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def _default_role(role: Object) -> None:
    if not role.get("rules"):
        role.pop("rules", None)


def _default_role_binding(binding: Object) -> None:
    if not binding.get("subjects"):
        binding.pop("subjects", None)
    role = binding.get("roleRef")
    if isinstance(role, dict):
        role.setdefault("apiGroup", _RBAC)
    for subject in binding.get("subjects", ()):
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", _RBAC)


def _default_network_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
        for port in rule.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _default_endpoints(endpoints: Object) -> None:
    for subset in endpoints.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _default_slice(endpoint_slice: Object) -> None:
    if not endpoint_slice.get("ports"):
        endpoint_slice.pop("ports", None)
    for endpoint in endpoint_slice.get("endpoints", ()):
        endpoint.setdefault("conditions", {})
    for port in endpoint_slice.get("ports", ()):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


DEFAULTS: dict[str, Defaulter] = {
    "pods": default_pod,
    "namespaces": _default_namespace,
    "secrets": _default_secret,
    "services": _default_service,
    "events": _default_event,
    "endpoints": _default_endpoints,
    "leases.coordination.k8s.io": _default_lease,
    "limitranges": _default_limits,
    "persistentvolumeclaims": _default_claim,
    "podtemplates": _default_pod_template,
    "replicationcontrollers": _default_replication_controller,
    "resourcequotas": _default_quota,
    "jobs.batch": _default_job,
    "cronjobs.batch": _default_cronjob,
    "deployments.apps": _default_deployment,
    "replicasets.apps": _default_replicaset,
    "statefulsets.apps": _default_statefulset,
    "daemonsets.apps": _default_daemonset,
    "endpointslices.discovery.k8s.io": _default_slice,
    "networkpolicies.networking.k8s.io": _default_network_policy,
    "roles.rbac.authorization.k8s.io": _default_role,
    "clusterroles.rbac.authorization.k8s.io": _default_role,
    "rolebindings.rbac.authorization.k8s.io": _default_role_binding,
    "clusterrolebindings.rbac.authorization.k8s.io": _default_role_binding,
    "priorityclasses.scheduling.k8s.io": _default_priority_class,
    "resourceclaims.resource.k8s.io": default_device_claim,
    "resourceclaimtemplates.resource.k8s.io": default_device_claim_template,
    "resourceslices.resource.k8s.io": default_device_slice,
    MUTATING: lambda configuration: default_configuration(configuration, mutating=True),
    VALIDATING: lambda configuration: default_configuration(configuration, mutating=False),
    POLICIES: default_policy,
    BINDINGS: default_binding,
}
"""By resource key; run after the shape of the object was checked."""
FIRST_STATUS: dict[str, Callable[[], Any]] = {
    "services": lambda: {"loadBalancer": {}},
    "persistentvolumeclaims": lambda: {"phase": "Pending"},
    "persistentvolumes": lambda: {"phase": "Pending"},
    "replicationcontrollers": lambda: {"replicas": 0},
    "resourcequotas": dict,
    "jobs.batch": dict,
    "resourceclaims.resource.k8s.io": dict,
    "cronjobs.batch": dict,
    "deployments.apps": dict,
    "replicasets.apps": lambda: {"replicas": 0},
    "statefulsets.apps": lambda: {"replicas": 0, "availableReplicas": 0},
    "daemonsets.apps": lambda: {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    "poddisruptionbudgets.policy": lambda: {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    },
}
"""By resource key; made when an object is created."""
