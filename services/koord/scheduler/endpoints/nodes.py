"""``GET /apis/v1/nodes/{node}``: a node as the scheduler counts it (spec 10 section 2.11)."""

from collections.abc import Mapping
from typing import Any

from koord.accounting.requests import resource_list
from koord.kube.protocol.nodekeys import AMPLIFICATION_RATIO, amplification, raw_allocatable
from koord.scheduler.engine.placement import Engine
from koord.scheduler.framework.contract import AssignedPod
from koord.scheduler.framework.endpoints import EndpointError

MOST_PODS = 1000
"""Pods of a node that are shown; ``podCount`` says how many there are."""
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")


def node(engine: Engine, name: str) -> dict[str, Any]:
    """The node with its pods and amounts. EndpointError 404: there is none of that name.

    ``requested`` is what pods ask for, ``nonZeroRequested`` the same with the floors of containers without requests;
    both hold planned pods, which are marked ``planned``.
    """
    cluster = engine.cluster
    row = cluster.index.find(name)
    info = cluster.nodes[row] if row is not None else None
    if info is None or row is None:
        raise EndpointError(404, f"cannot find node {name}")
    pods = sorted(engine.pods_on(name), key=lambda pod: (pod.ref.namespace, pod.ref.name))
    requested: dict[str, int] = {"pods": len(pods)}
    nonzero = [0, 0]
    for pod in pods:
        for resource, amount in pod.footprint.request.items():
            requested[resource] = requested.get(resource, 0) + amount
        for index in (0, 1):
            nonzero[index] += pod.footprint.nonzero[index]
    keys = {*info.allocatable, *requested}
    remaining = {key: info.allocatable.get(key, 0) - requested.get(key, 0) for key in keys}
    return {
        "node": {
            "metadata": {"name": name, "labels": info.labels, "annotations": info.annotations},
            "spec": {
                "unschedulable": info.unschedulable,
                "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in info.taints],
            },
            "status": {"allocatable": resource_list(info.allocatable)},
        },
        "pods": [_pod(pod) for pod in pods[:MOST_PODS]],
        "podCount": len(pods),
        "podsWithAffinity": _names(pod for pod in pods if _has_affinity(pod)),
        "podsWithRequiredAntiAffinity": _names(pod for pod in pods if _repels(pod)),
        "usedPorts": _ports(pods),
        "requested": amounts(requested),
        "nonZeroRequested": amounts({"cpu": nonzero[0], "memory": nonzero[1]}),
        "remaining": amounts(remaining),
        "allocatable": amounts(info.allocatable),
        "amplification": _amplification(info.annotations),
        "imageStates": {image: {"size": size} for image, size in sorted(info.images.items())},
        "pvcRefCounts": _claims(pods),
        "generation": cluster.journal.end,
    }


def amounts(of: Mapping[str, int]) -> dict[str, Any]:
    """Amounts under the original's keys: cpu in milli-cores, all else in whole units."""
    return {
        "MilliCPU": of.get("cpu", 0),
        "Memory": of.get("memory", 0),
        "EphemeralStorage": of.get("ephemeral-storage", 0),
        "AllowedPodNumber": of.get("pods", 0),
        "ScalarResources": {name: amount for name, amount in sorted(of.items()) if name not in _NATIVE},
    }


def _pod(pod: AssignedPod) -> dict[str, Any]:
    ref = pod.ref
    return {
        "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
        "priority": pod.priority,
        "planned": pod.planned,
        "terminating": pod.terminating,
        "requested": resource_list(pod.footprint.request),
    }


def _names(pods: Any) -> list[str]:
    return [f"{pod.ref.namespace}/{pod.ref.name}" for pod in pods][:MOST_PODS]


def _has_affinity(pod: AssignedPod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


def _repels(pod: AssignedPod) -> bool:
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    return anti is not None and bool(anti.required)


def _ports(pods: list[AssignedPod]) -> dict[str, list[dict[str, Any]]]:
    used: dict[str, set[tuple[str, int]]] = {}
    for pod in pods:
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            for port in container.ports:
                if port.host_port:
                    used.setdefault(port.host_ip or "0.0.0.0", set()).add((port.protocol or "TCP", port.host_port))
    return {
        address: [{"Protocol": protocol, "Port": port} for protocol, port in sorted(ports)]
        for address, ports in sorted(used.items())
    }


def _claims(pods: list[AssignedPod]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for pod in pods:
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                key = f"{pod.ref.namespace}/{volume.persistent_volume_claim.claim_name}"
                counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items()))


def _amplification(annotations: Mapping[str, str]) -> dict[str, Any]:
    """What the node has before and by how much it is stretched; empty where it is not, or cannot be read."""
    if AMPLIFICATION_RATIO not in annotations:
        return {}
    try:
        return {"ratios": amplification(annotations), "rawAllocatable": raw_allocatable(annotations)}
    except ValueError as error:
        return {"problem": str(error)}
