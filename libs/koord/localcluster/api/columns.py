"""The columns of built-in resources in `kubectl get`, wide ones with priority 1."""

import time
from typing import Any

from koord.localcluster.api.resources import Column
from koord.localcluster.api.tables import AGE, age_of, human_duration, parse_time
from koord.localcluster.clusterapi import Object


def _at(obj: Any, *path: str) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
        if obj is None:
            return None
    return obj


def _conditions(obj: Object) -> dict[str, Object]:
    return {condition.get("type", ""): condition for condition in _at(obj, "status", "conditions") or ()}


def _or_none(text: Any) -> str:
    return str(text) if text else "<none>"


# --- pods


def _pod_ready(pod: Object) -> str:
    statuses = _at(pod, "status", "containerStatuses") or ()
    ready = sum(1 for status in statuses if status.get("ready"))
    return f"{ready}/{len(_at(pod, 'spec', 'containers') or ())}"


def _pod_status(pod: Object) -> str:
    status = pod.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    scheduled = _conditions(pod).get("PodScheduled", {})
    if scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if waiting := _at(state, "waiting", "reason"):
            reason = str(waiting)
        elif terminated := _at(state, "terminated", "reason"):
            reason = str(terminated)
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _pod_restarts(pod: Object) -> str:
    return str(sum(status.get("restartCount", 0) for status in _at(pod, "status", "containerStatuses") or ()))


def _pod_gates(pod: Object) -> str:
    gates = _at(pod, "spec", "readinessGates")
    if not gates:
        return "<none>"
    conditions = _conditions(pod)
    true = sum(1 for gate in gates if conditions.get(gate.get("conditionType"), {}).get("status") == "True")
    return f"{true}/{len(gates)}"


# --- nodes


def _node_status(node: Object) -> str:
    ready = _conditions(node).get("Ready")
    words = [("Ready" if ready.get("status") == "True" else "NotReady") if ready else "Unknown"]
    if _at(node, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = _at(node, "metadata", "labels") or {}
    return ",".join(sorted(key[len(prefix) :] for key in labels if key.startswith(prefix))) or "<none>"


def _address(kind: str) -> Any:
    def find(node: Object) -> str:
        for address in _at(node, "status", "addresses") or ():
            if address.get("type") == kind:
                return str(address.get("address"))
        return "<none>"

    return find


# --- jobs


def _job_status(job: Object) -> str:
    conditions = {name for name, condition in _conditions(job).items() if condition.get("status") == "True"}
    for name in ("Complete", "Failed"):
        if name in conditions:
            return name
    if "deletionTimestamp" in job["metadata"]:
        return "Terminating"
    for name, shown in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if name in conditions:
            return shown
    return "Running"


def _job_completions(job: Object) -> str:
    done = _at(job, "status", "succeeded") or 0
    wanted = _at(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = _at(job, "spec", "parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: Object) -> str:
    start = parse_time(_at(job, "status", "startTime"))
    if start is None:
        return ""
    end = parse_time(_at(job, "status", "completionTime"))
    return human_duration((time.time() if end is None else end) - start)


def _containers(*path: str) -> tuple[Column, ...]:
    def names(obj: Object) -> str:
        return ",".join(str(container.get("name")) for container in _at(obj, *path, "containers") or ())

    def images(obj: Object) -> str:
        return ",".join(str(container.get("image")) for container in _at(obj, *path, "containers") or ())

    return (Column("Containers", "string", names, priority=1), Column("Images", "string", images, priority=1))


def _selector(obj: Object) -> str:
    selector = _at(obj, "spec", "selector") or {}
    labels = (
        selector.get("matchLabels", {}) if "matchLabels" in selector or "matchExpressions" in selector else selector
    )
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


_SELECTOR = Column("Selector", "string", _selector, priority=1)


# --- events


def _event_last_seen(event: Object) -> str:
    return age_of(
        _at(event, "series", "lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )


def _event_first_seen(event: Object) -> str:
    return age_of(event.get("firstTimestamp") or event.get("eventTime"))


def _event_object(event: Object) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_source(event: Object) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    return f"{component}, {source['host']}" if source.get("host") else str(component)


# --- the rest


def _field(name: str, *path: str, kind: str = "string", priority: int = 0, empty: Any = "") -> Column:
    def read(obj: Object) -> Any:
        value = _at(obj, *path)
        return empty if value is None else value

    return Column(name, kind, read, priority=priority)


def _count(name: str, *path: str) -> Column:
    return Column(name, "integer", lambda obj: len(_at(obj, *path) or ()))


def _ready_of(obj: Object) -> str:
    return f"{_at(obj, 'status', 'readyReplicas') or 0}/{_at(obj, 'spec', 'replicas') or 0}"


def _ports(service: Object) -> str:
    ports = _at(service, "spec", "ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _established(crd: Object) -> Any:
    return crd["metadata"].get("creationTimestamp")


COLUMNS: dict[str, tuple[Column, ...]] = {
    "pods": (
        Column("Ready", "string", _pod_ready),
        Column("Status", "string", _pod_status),
        Column("Restarts", "string", _pod_restarts),
        AGE,
        Column("IP", "string", lambda pod: _or_none(_at(pod, "status", "podIP")), priority=1),
        Column("Node", "string", lambda pod: _or_none(_at(pod, "spec", "nodeName")), priority=1),
        Column("Nominated Node", "string", lambda pod: _or_none(_at(pod, "status", "nominatedNodeName")), priority=1),
        Column("Readiness Gates", "string", _pod_gates, priority=1),
    ),
    "nodes": (
        Column("Status", "string", _node_status),
        Column("Roles", "string", _node_roles),
        AGE,
        _field("Version", "status", "nodeInfo", "kubeletVersion"),
        Column("Internal-IP", "string", _address("InternalIP"), priority=1),
        Column("External-IP", "string", _address("ExternalIP"), priority=1),
        _field("OS-Image", "status", "nodeInfo", "osImage", priority=1, empty="<unknown>"),
        _field("Kernel-Version", "status", "nodeInfo", "kernelVersion", priority=1, empty="<unknown>"),
        _field("Container-Runtime", "status", "nodeInfo", "containerRuntimeVersion", priority=1, empty="<unknown>"),
    ),
    "namespaces": (_field("Status", "status", "phase"), AGE),
    "events": (
        Column("Last Seen", "string", _event_last_seen),
        _field("Type", "type"),
        _field("Reason", "reason"),
        Column("Object", "string", _event_object),
        _field("Subobject", "involvedObject", "fieldPath", priority=1),
        Column("Source", "string", _event_source, priority=1),
        _field("Message", "message"),
        Column("First Seen", "string", _event_first_seen, priority=1),
        _field("Count", "count", kind="integer", priority=1, empty=1),
    ),
    "configmaps": (_count("Data", "data"), AGE),
    "secrets": (_field("Type", "type"), _count("Data", "data"), AGE),
    "serviceaccounts": (_count("Secrets", "secrets"), AGE),
    "services": (
        _field("Type", "spec", "type"),
        _field("Cluster-IP", "spec", "clusterIP", empty="<none>"),
        Column("External-IP", "string", lambda obj: "<none>"),
        Column("Port(s)", "string", _ports),
        AGE,
        _SELECTOR,
    ),
    "persistentvolumeclaims": (
        _field("Status", "status", "phase"),
        _field("Volume", "spec", "volumeName"),
        _field("Capacity", "status", "capacity", "storage"),
        _field("StorageClass", "spec", "storageClassName"),
        AGE,
    ),
    "jobs.batch": (
        Column("Status", "string", _job_status),
        Column("Completions", "string", _job_completions),
        Column("Duration", "string", _job_duration),
        AGE,
        *_containers("spec", "template", "spec"),
        _SELECTOR,
    ),
    "cronjobs.batch": (
        _field("Schedule", "spec", "schedule"),
        _field("Timezone", "spec", "timeZone", empty="<none>"),
        _field("Suspend", "spec", "suspend"),
        _count("Active", "status", "active"),
        Column("Last Schedule", "date", lambda obj: _at(obj, "status", "lastScheduleTime")),
        AGE,
    ),
    "deployments.apps": (
        Column("Ready", "string", _ready_of),
        _field("Up-to-date", "status", "updatedReplicas", kind="integer", empty=0),
        _field("Available", "status", "availableReplicas", kind="integer", empty=0),
        AGE,
        *_containers("spec", "template", "spec"),
        _SELECTOR,
    ),
    "statefulsets.apps": (Column("Ready", "string", _ready_of), AGE, *_containers("spec", "template", "spec")),
    "replicasets.apps": (
        _field("Desired", "spec", "replicas", kind="integer", empty=0),
        _field("Current", "status", "replicas", kind="integer", empty=0),
        _field("Ready", "status", "readyReplicas", kind="integer", empty=0),
        AGE,
        *_containers("spec", "template", "spec"),
        _SELECTOR,
    ),
    "daemonsets.apps": (
        _field("Desired", "status", "desiredNumberScheduled", kind="integer", empty=0),
        _field("Current", "status", "currentNumberScheduled", kind="integer", empty=0),
        _field("Ready", "status", "numberReady", kind="integer", empty=0),
        AGE,
    ),
    "leases.coordination.k8s.io": (_field("Holder", "spec", "holderIdentity"), AGE),
    "priorityclasses.scheduling.k8s.io": (
        _field("Value", "value", kind="integer"),
        _field("Global-Default", "globalDefault", kind="boolean", empty=False),
        AGE,
        _field("PreemptionPolicy", "preemptionPolicy"),
    ),
    "poddisruptionbudgets.policy": (
        _field("Min Available", "spec", "minAvailable", empty="N/A"),
        _field("Max Unavailable", "spec", "maxUnavailable", empty="N/A"),
        _field("Allowed Disruptions", "status", "disruptionsAllowed", kind="integer", empty=0),
        AGE,
    ),
    "storageclasses.storage.k8s.io": (_field("Provisioner", "provisioner"), AGE),
    "customresourcedefinitions.apiextensions.k8s.io": (Column("Created At", "string", _established),),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": (_count("Webhooks", "webhooks"), AGE),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": (_count("Webhooks", "webhooks"), AGE),
}
"""By resource key; a resource without an entry shows name and age."""
