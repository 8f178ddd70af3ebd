"""The columns of built-in resources in `kubectl get`, wide ones with priority 1."""

import time
from typing import Any

from koord.localcluster.api.cells import SELECTOR, at, conditions_of, containers, count, field, or_none, pairs
from koord.localcluster.api.othercolumns import OTHER_COLUMNS
from koord.localcluster.api.resources import Column
from koord.localcluster.api.tables import AGE, age_of, human_duration, parse_time
from koord.localcluster.clusterapi import Object

# --- pods


def _pod_ready(pod: Object) -> str:
    statuses = at(pod, "status", "containerStatuses") or ()
    ready = sum(1 for status in statuses if status.get("ready"))
    return f"{ready}/{len(at(pod, 'spec', 'containers') or ())}"


def _pod_status(pod: Object) -> str:
    status = pod.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    scheduled = conditions_of(pod).get("PodScheduled", {})
    if scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if waiting := at(state, "waiting", "reason"):
            reason = str(waiting)
        elif terminated := at(state, "terminated", "reason"):
            reason = str(terminated)
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _pod_restarts(pod: Object) -> str:
    return str(sum(status.get("restartCount", 0) for status in at(pod, "status", "containerStatuses") or ()))


def _pod_gates(pod: Object) -> str:
    gates = at(pod, "spec", "readinessGates")
    if not gates:
        return "<none>"
    conditions = conditions_of(pod)
    true = sum(1 for gate in gates if conditions.get(gate.get("conditionType"), {}).get("status") == "True")
    return f"{true}/{len(gates)}"


# --- nodes


def _node_status(node: Object) -> str:
    ready = conditions_of(node).get("Ready")
    words = [("Ready" if ready.get("status") == "True" else "NotReady") if ready else "Unknown"]
    if at(node, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = at(node, "metadata", "labels") or {}
    return ",".join(sorted(key[len(prefix) :] for key in labels if key.startswith(prefix))) or "<none>"


def _address(kind: str) -> Any:
    def find(node: Object) -> str:
        for address in at(node, "status", "addresses") or ():
            if address.get("type") == kind:
                return str(address.get("address"))
        return "<none>"

    return find


# --- jobs


def _job_status(job: Object) -> str:
    conditions = {name for name, condition in conditions_of(job).items() if condition.get("status") == "True"}
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
    done = at(job, "status", "succeeded") or 0
    wanted = at(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = at(job, "spec", "parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: Object) -> str:
    start = parse_time(at(job, "status", "startTime"))
    if start is None:
        return ""
    end = parse_time(at(job, "status", "completionTime"))
    return human_duration((time.time() if end is None else end) - start)


# --- events


def _event_last_seen(event: Object) -> str:
    return age_of(
        at(event, "series", "lastObservedTime")
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


def _ready_of(obj: Object) -> str:
    return f"{at(obj, 'status', 'readyReplicas') or 0}/{at(obj, 'spec', 'replicas') or 0}"


def _last_schedule(job: Object) -> str:
    last = at(job, "status", "lastScheduleTime")
    return age_of(last) if last else "<none>"


def _controller(revision: Object) -> str:
    for owner in revision["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = str(owner.get("kind", "")).lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return "<none>"


NAME_LAST = Column("Name", "string", lambda obj: obj["metadata"]["name"], "Name of the object", 1, "name")
COLUMNS: dict[str, tuple[Column, ...]] = {
    "pods": (
        Column("Ready", "string", _pod_ready),
        Column("Status", "string", _pod_status),
        Column("Restarts", "string", _pod_restarts),
        AGE,
        Column("IP", "string", lambda pod: or_none(at(pod, "status", "podIP")), priority=1),
        Column("Node", "string", lambda pod: or_none(at(pod, "spec", "nodeName")), priority=1),
        Column("Nominated Node", "string", lambda pod: or_none(at(pod, "status", "nominatedNodeName")), priority=1),
        Column("Readiness Gates", "string", _pod_gates, priority=1),
    ),
    "nodes": (
        Column("Status", "string", _node_status),
        Column("Roles", "string", _node_roles),
        AGE,
        field("Version", "status", "nodeInfo", "kubeletVersion"),
        Column("Internal-IP", "string", _address("InternalIP"), priority=1),
        Column("External-IP", "string", _address("ExternalIP"), priority=1),
        field("OS-Image", "status", "nodeInfo", "osImage", priority=1, empty="<unknown>"),
        field("Kernel-Version", "status", "nodeInfo", "kernelVersion", priority=1, empty="<unknown>"),
        field("Container-Runtime", "status", "nodeInfo", "containerRuntimeVersion", priority=1, empty="<unknown>"),
    ),
    "events": (
        Column("Last Seen", "string", _event_last_seen),
        field("Type", "type"),
        field("Reason", "reason"),
        Column("Object", "string", _event_object),
        field("Subobject", "involvedObject", "fieldPath", priority=1),
        Column("Source", "string", _event_source, priority=1),
        field("Message", "message"),
        Column("First Seen", "string", _event_first_seen, priority=1),
        field("Count", "count", priority=1, empty=1),
        NAME_LAST,
    ),
    "jobs.batch": (
        Column("Status", "string", _job_status),
        Column("Completions", "string", _job_completions),
        Column("Duration", "string", _job_duration),
        AGE,
        *containers("spec", "template", "spec"),
        SELECTOR,
    ),
    "cronjobs.batch": (
        field("Schedule", "spec", "schedule"),
        field("Timezone", "spec", "timeZone", empty="<none>"),
        Column("Suspend", "boolean", lambda job: str(bool(at(job, "spec", "suspend")))),
        count("Active", "status", "active"),
        Column("Last Schedule", "string", _last_schedule),
        AGE,
        *containers("spec", "jobTemplate", "spec", "template", "spec"),
        SELECTOR,
    ),
    "deployments.apps": (
        Column("Ready", "string", _ready_of),
        field("Up-to-date", "status", "updatedReplicas", empty=0),
        field("Available", "status", "availableReplicas", empty=0),
        AGE,
        *containers("spec", "template", "spec"),
        SELECTOR,
    ),
    "statefulsets.apps": (Column("Ready", "string", _ready_of), AGE, *containers("spec", "template", "spec")),
    "replicasets.apps": (
        field("Desired", "spec", "replicas", kind="integer", empty=0),
        field("Current", "status", "replicas", kind="integer", empty=0),
        field("Ready", "status", "readyReplicas", kind="integer", empty=0),
        AGE,
        *containers("spec", "template", "spec"),
        SELECTOR,
    ),
    "daemonsets.apps": (
        field("Desired", "status", "desiredNumberScheduled", kind="integer", empty=0),
        field("Current", "status", "currentNumberScheduled", kind="integer", empty=0),
        field("Ready", "status", "numberReady", kind="integer", empty=0),
        field("Up-to-date", "status", "updatedNumberScheduled", kind="integer", empty=0),
        field("Available", "status", "numberAvailable", kind="integer", empty=0),
        Column("Node Selector", "string", lambda obj: pairs(at(obj, "spec", "template", "spec", "nodeSelector"))),
        AGE,
        *containers("spec", "template", "spec"),
        SELECTOR,
    ),
    "replicationcontrollers": (
        field("Desired", "spec", "replicas", kind="integer", empty=0),
        field("Current", "status", "replicas", kind="integer", empty=0),
        field("Ready", "status", "readyReplicas", kind="integer", empty=0),
        AGE,
        *containers("spec", "template", "spec"),
        SELECTOR,
    ),
    "controllerrevisions.apps": (
        Column("Controller", "string", _controller),
        field("Revision", "revision"),
        AGE,
    ),
    "podtemplates": (
        *containers("template", "spec", priority=0),
        Column("Pod Labels", "string", lambda obj: pairs(at(obj, "template", "metadata", "labels"))),
    ),
    **OTHER_COLUMNS,
}
"""By resource key; a resource without an entry shows name and age."""
