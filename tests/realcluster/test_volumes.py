"""Volumes with the volume controller of Kubernetes: local ones that wait for their pod, and what goes wrong."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Up
from tests.realcluster.fixtures import MakeControlPlane
from tests.realcluster.koord import koord_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PODS = 12
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def volume(name: str, node: str) -> dict[str, Any]:
    test = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/mnt/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [test]}]}},
        },
    }


def claim(name: str) -> dict[str, Any]:
    spec = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def pod(name: str, claim_name: str) -> dict[str, Any]:
    spec = {
        "schedulerName": "koord-scheduler",
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def create(up: Up, *objects: dict[str, Any]) -> None:
    up.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


async def test_local_volumes_and_their_pods_meet(make_control_plane: MakeControlPlane, tmp_path: Path) -> None:
    plane = await make_control_plane()
    await plane.start_controller_manager()
    up = await asyncio.to_thread(koord_up, tmp_path, plane, "--nodes", "8", "--gpu-nodes", "0")
    try:
        await asyncio.to_thread(meet, up)
    finally:
        await asyncio.to_thread(up.stop)


def meet(up: Up) -> None:
    nodes = sorted(one["metadata"]["name"] for one in up.objects("nodes"))
    home = {f"disk-{number}": nodes[number % len(nodes)] for number in range(PODS)}
    create(up, CLASS, *(volume(name, node) for name, node in home.items()))
    # One more pod than there are volumes, which is told so and gets the volume that comes.
    names = [f"p{number}" for number in range(PODS + 1)]
    create(up, *(claim(f"data-{name}") for name in names), *(pod(name, f"data-{name}") for name in names))

    def placed() -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["spec"]["nodeName"]
            for one in up.objects("pods", "-n", "default")
            if one["spec"].get("nodeName")
        }

    up.wait(lambda: len(placed()) == PODS, "a pod for each volume", 120)

    def told() -> list[str]:
        return [one.get("note", one.get("message", "")) for one in up.objects("events", "-n", "default")]

    text = f"0/{len(nodes)} nodes are available: {len(nodes)} node(s) didn't find available persistent volumes to bind."
    up.wait(lambda: any(note.startswith(text) for note in told()), "the last one is told", 60)
    create(up, volume("late", nodes[0]))
    up.wait(lambda: len(placed()) == PODS + 1, "the last one has its volume", 60)
    held = {one["metadata"]["name"]: one for one in up.objects("pvc", "-n", "default")}
    home["late"] = nodes[0]
    for name, node in placed().items():
        one = held[f"data-{name}"]
        assert one["status"]["phase"] == "Bound"
        assert home[one["spec"]["volumeName"]] == node
    assert len({one["spec"]["volumeName"] for one in held.values()}) == PODS + 1
