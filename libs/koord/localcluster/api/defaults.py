"""The defaults that Kubernetes fills in and koord, kubectl or the operators rely on. Cheap, and idempotent."""

from collections.abc import Callable
from typing import Any

from koord.localcluster.api.admission.definitions import MUTATING, VALIDATING, default_configuration
from koord.localcluster.clusterapi import Object

Defaulter = Callable[[Object], None]

_NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
_UNREACHABLE = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}


def default_pod_spec(spec: Object) -> None:
    """Defaults shared by pods and pod templates."""
    default = spec.setdefault
    default("restartPolicy", "Always")
    default("terminationGracePeriodSeconds", 30)
    default("dnsPolicy", "ClusterFirst")
    default("securityContext", {})
    default("schedulerName", "default-scheduler")
    for container in spec.get("containers", ()):
        _default_container(container)
    for container in spec.get("initContainers", ()):
        _default_container(container)


def _default_container(container: Object) -> None:
    default = container.setdefault
    default("terminationMessagePath", "/dev/termination-log")
    default("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        image = container.get("image", "")
        tag = image.rpartition("/")[2].partition(":")[2]
        latest = not tag or tag == "latest"
        container["imagePullPolicy"] = "Always" if latest and "@" not in image else "IfNotPresent"
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    resources = container.get("resources")
    if not resources:
        container["resources"] = resources or {}
    elif limits := resources.get("limits"):
        # A limit without a request is its own request.
        requests = resources.get("requests")
        if requests is None:
            resources["requests"] = dict(limits)
        else:
            for name, amount in limits.items():
                requests.setdefault(name, amount)


def default_pod(pod: Object) -> None:
    """Defaults of a pod, with what the built-in admission plugins add."""
    spec = pod["spec"]
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    tolerations = spec.get("tolerations")
    if tolerations is None:
        spec["tolerations"] = [_NOT_READY, _UNREACHABLE]
    else:
        for default in (_NOT_READY, _UNREACHABLE):
            if not any(_tolerates(toleration, default["key"]) for toleration in tolerations):
                tolerations.append(default)


def _tolerates(toleration: Object, key: Any) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def qos_class(spec: Object) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`, by the cpu and memory of all containers."""
    some, guaranteed = False, True
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name, "0"), limits.get(name, "0")
            if request not in ("0", 0) or limit not in ("0", 0):
                some = True
            if limit in ("0", 0) or str(request) != str(limit):
                guaranteed = False
    if not some:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _default_job(job: Object) -> None:
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    _default_template(spec)
    uid = job["metadata"].get("uid")
    if uid and not spec["manualSelector"] and "selector" not in spec:
        # What ties pods to their job, as the job controller expects it.
        name = job["metadata"]["name"]
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        labels.setdefault("batch.kubernetes.io/controller-uid", uid)
        labels.setdefault("batch.kubernetes.io/job-name", name)
        labels.setdefault("controller-uid", uid)
        labels.setdefault("job-name", name)
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _default_template(spec: Object) -> None:
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        default_pod_spec(template["spec"])


def _default_workload(workload: Object) -> None:
    workload["spec"].setdefault("replicas", 1)
    _default_template(workload["spec"])


def _default_daemonset(workload: Object) -> None:
    _default_template(workload["spec"])


def _default_cronjob(job: Object) -> None:
    spec = job["spec"]
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)


def _default_namespace(namespace: Object) -> None:
    metadata = namespace["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    spec = namespace.setdefault("spec", {})
    if "deletionTimestamp" not in metadata:
        spec.setdefault("finalizers", ["kubernetes"])
        namespace.setdefault("status", {}).setdefault("phase", "Active")


def _default_secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")


def _default_service(service: Object) -> None:
    spec = service["spec"]
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _default_priority_class(priority: Object) -> None:
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")


DEFAULTS: dict[str, Defaulter] = {
    "pods": default_pod,
    "namespaces": _default_namespace,
    "secrets": _default_secret,
    "services": _default_service,
    "jobs.batch": _default_job,
    "cronjobs.batch": _default_cronjob,
    "deployments.apps": _default_workload,
    "replicasets.apps": _default_workload,
    "statefulsets.apps": _default_workload,
    "daemonsets.apps": _default_daemonset,
    "replicationcontrollers": _default_workload,
    "priorityclasses.scheduling.k8s.io": _default_priority_class,
    MUTATING: lambda configuration: default_configuration(configuration, mutating=True),
    VALIDATING: lambda configuration: default_configuration(configuration, mutating=False),
}
"""By resource key; run after the shape of the object was checked."""
