"""A pod of higher priority takes the place of others, through every service and the API, as users would see it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.scheduler.config.registry import UPSTREAM
from koord.scheduler.plugins.factories import BUILT
from tests.integration.conftest import Up

NAMES = ("koord-scheduler", "default-scheduler")


def settings(directory: Path) -> Path:
    """Settings with kube-scheduler's default profile under both names, as far as it is built."""
    missing = [{"name": name} for name in UPSTREAM if name not in BUILT]
    profiles = [{"schedulerName": name, "plugins": {"multiPoint": {"disabled": missing}}} for name in NAMES]
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (directory / "scheduler.yaml").write_text(yaml.safe_dump({**head, "profiles": profiles}))
    path = directory / "koord.yaml"
    path.write_text(yaml.safe_dump({"scheduler": {"config": str(directory / "scheduler.yaml")}}))
    return path


def priority(name: str, value: int) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def pod(name: str, class_: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "koord-scheduler",
            "priorityClassName": class_,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def create(up: Up, *objects: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    up.kubectl("create", "-f", "-", stdin=json.dumps(items))


@pytest.mark.slow
def test_a_higher_pod_takes_the_place_of_the_cheapest(own_up: Callable[..., Up], tmp_path: Path) -> None:
    up = own_up("--nodes", "1", "--config", str(settings(tmp_path)))
    [node] = up.objects("nodes")
    cpu = int(node["status"]["allocatable"]["cpu"])
    create(up, priority("low", 10), priority("middle", 20), priority("high", 1000))
    create(up, pod("low", "low", f"{cpu // 2}"), pod("middle", "middle", f"{cpu // 2 - 1}"))

    def running(name: str) -> bool:
        return any(
            found["metadata"]["name"] == name and found["status"].get("phase") == "Running"
            for found in up.objects("pods", "-n", "default")
        )

    up.wait(lambda: running("low") and running("middle"), "both run")
    create(up, pod("high", "high", f"{cpu // 2}"))
    up.wait(lambda: running("high"), "the higher one runs")
    names = {found["metadata"]["name"] for found in up.objects("pods", "-n", "default")}
    assert names == {"middle", "high"}
    events = up.objects("events", "-n", "default")
    [told] = [event for event in events if event["reason"] == "Preempted"]
    assert (told["involvedObject"]["name"], told["type"]) == ("low", "Normal")
    assert told["message"].startswith("Preempted by pod ")
    assert told["message"].endswith(f" on node {node['metadata']['name']}")
    create(up, pod("meek", "low", f"{cpu // 2}"))

    def refused() -> str:
        for condition in up.objects("pod", "meek", "-n", "default")[0]["status"].get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return str(condition["message"])
        return ""

    up.wait(refused, "it is told why it waits")
    assert refused() == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
