"""The objects of a run: how they are made, and what the test reads of them."""

from collections.abc import Mapping
from typing import Any

from koord.accounting.requests import amounts
from koord.kube.protocol.queue import RELATED_QUEUE_UNIT, lookup

QUOTA = "team"
NAMESPACE = "default"
BUDGET = "team"
"""The disruption budget of all pods that name a quota."""
Object = dict[str, Any]

PRIORITY_CLASS, PRIORITY = "high", 10
NODE_CPU = 4000
"""Milli-cpu of a node."""
ENDED = ("Succeeded", "Failed")
GANG = "gang.scheduling.koordinator.sh/"
GANG_NAME, GANG_MINIMUM, GANG_MODE = GANG + "name", GANG + "min-available", GANG + "mode"
POD_GROUP_NAME, POD_GROUP_MINIMUM = (
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io/min-available",
)
UNIT_ENDED = ("Succeed", "Failed")
QUOTA_NAME = "quota.scheduling.koordinator.sh/name"


def cpu_of(pod: Mapping[str, Any]) -> int:
    """What a pod of this test asks for, in milli."""
    return amounts(pod["spec"]["containers"][0]["resources"]["requests"], "requests")["cpu"]


def unit_cpu(unit: Mapping[str, Any]) -> int:
    return 1000 * int(unit["spec"]["resource"]["cpu"])


def admits(unit: Mapping[str, Any]) -> bool:
    return bool(unit.get("status", {}).get("admissions"))


def allocatable_cpu(node: Mapping[str, Any]) -> int:
    return amounts(node["status"]["allocatable"], "a")["cpu"]


def charged(unit: Mapping[str, Any]) -> bool:
    """Whether a unit holds room."""
    return admits(unit) and unit["status"].get("phase") not in UNIT_ENDED


def live(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") not in ENDED


def owner_of(item: Object) -> str:
    """The uid of its owner."""
    return next((owner["uid"] for owner in item["metadata"].get("ownerReferences", ())), "")


def of_unit(pod: Object) -> bool:
    """Whether the pod's room was admitted with a QueueUnit."""
    return bool(lookup(pod["metadata"].get("annotations", {}), RELATED_QUEUE_UNIT))


def quota_spec(cpu: int) -> Object:
    return {"max": {"cpu": str(cpu)}, "min": {"cpu": "0"}}


def pod_spec(cpu: int, priority: int) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    named = {"priorityClassName": PRIORITY_CLASS} if priority else {}
    return {"schedulerName": "koord-scheduler", "containers": [container], **named}
