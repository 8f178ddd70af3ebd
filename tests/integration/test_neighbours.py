"""Two schedulers share pods that may not share nodes, ports, disks and CPUs, while one of them, Redis and NATS die."""

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from koord.cli.api import connect
from koord.cli.demo.checker import Checker
from koord.cli.demo.history import Change, History
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.httpapi import HttpClusterApi
from tests.integration.conftest import Up
from tests.integration.exactly_once import GRACE_S, create, restarted, until
from tests.integration.neighbours import GANG, HOSTNAME, RESOURCE_STATUS, ZONE, Neighbours

NODES = 16
WAVES = ("scheduler-1", "redis-server", "nats-server", "scheduler-2", "")
"""Who is killed in the middle of each wave."""
PER_NODE_CPUS = 8


def pod(name: str, labels: dict[str, str], *, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    container["resources"]["limits"] = container["resources"]["requests"]  # type: ignore[index]
    ports = spec.pop("ports", None)
    if ports:
        container["ports"] = ports
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"schedulerName": "koord-scheduler", "containers": [container], **spec},
    }


def apart(key: str, labels: dict[str, str]) -> dict[str, Any]:
    required = [{"topologyKey": key, "labelSelector": {"matchLabels": labels}}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def wave(number: int) -> list[dict[str, Any]]:
    """Every kind of pod that two blind schedulers could put wrongly beside each other, in any order."""
    made: list[dict[str, Any]] = []
    kind = {"app": f"web-{number}"}
    for each in range(NODES // 2):
        made.append(pod(f"apart-{number}-{each}", kind, affinity=apart(HOSTNAME, kind)))
        made.append(pod(f"plain-{number}-{each}", kind))
    zone = {"app": f"zone-{number}"}
    made += [pod(f"zone-{number}-{each}", zone, affinity=apart(ZONE, zone)) for each in range(3)]
    even = {"app": f"even-{number}"}
    rule = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": even},
    }
    made += [pod(f"even-{number}-{each}", even, topologySpreadConstraints=[rule]) for each in range(12)]
    port = [{"containerPort": 80, "hostPort": 8000 + number}]
    made += [pod(f"port-{number}-{each}", {}, ports=port) for each in range(NODES)]
    disk = [{"name": "d", "gcePersistentDisk": {"pdName": f"disk-{number}"}}]
    made += [pod(f"disk-{number}-{each}", {}, volumes=disk) for each in range(NODES)]
    for gang in range(3):
        name = f"gang-{number}-{gang}"
        labels = {GANG: name, "app": f"gang-{number}"}
        off = apart(HOSTNAME, {"app": f"gang-{number}"})
        made.append(
            {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"minMember": 4, "scheduleTimeoutSeconds": 600},
            }
        )
        made += [pod(f"{name}-{each}", labels, affinity=off) for each in range(4)]
    lsr = {"koordinator.sh/qosClass": "LSR"}
    # All CPUs of a fifth of what there is: in the end each CPU has its pod.
    whole = NODES * PER_NODE_CPUS // 2 // len(WAVES)
    for each in range(whole):
        made.append(pod(f"bound-{number}-{each}", lsr, cpu="2", priorityClassName="prod"))
    random.Random(number).shuffle(made)
    return made


def topology(node: str) -> dict[str, Any]:
    """A machine of 8 CPUs, two threads a core."""
    detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": 0} for cpu in range(PER_NODE_CPUS)]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
        },
        "topologyPolicies": ["None"],
        "zones": [],
    }


async def bound(api: HttpClusterApi) -> int:
    pods, _ = await api.list("pods")
    return sum(1 for each in pods if each["spec"].get("nodeName") and each["metadata"]["namespace"] == "default")


@pytest.mark.slow
async def test_two_schedulers_break_no_rule_while_what_they_share_dies(
    own_up: Callable[..., Up],
) -> None:
    up = await asyncio.to_thread(own_up, "--nodes", str(NODES), "--replicas", "scheduler=2")
    async with await connect(str(up.kubeconfig)) as api:
        history = History(api)
        await history.start()
        for node in (await api.list("nodes"))[0]:
            await create(api, topology(node["metadata"]["name"]))
        prod = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "prod"},
            "value": 9500,
        }
        await create(api, prod)
        waves = [wave(number) for number in range(len(WAVES))]
        made = 0
        for victim, objects in zip(WAVES, waves, strict=True):
            half = len(objects) // 2
            before = up.ready["pids"].get(victim, 0)
            await asyncio.gather(*(create(api, each) for each in objects[:half]))
            if victim:
                up.kill(victim)
            await asyncio.gather(*(create(api, each) for each in objects[half:]))
            if victim:
                await until(restarted(up, victim, before), 60)
            made += sum(each["kind"] == "Pod" for each in objects)
            left = await placed(api, made)
            assert not left, left

        async def seen() -> bool:
            neighbours = Neighbours()
            neighbours.run(history.changes())
            return len(live(neighbours)) == made

        await until(seen, 30)  # the watch may be behind the list
        changes = list(history.changes())
        await history.stop()
    judge(changes, made)


async def placed(api: HttpClusterApi, count: int) -> str:
    """Wait until so many pods have a node; else who has none, and what each was told last."""

    async def all_there() -> bool:
        with contextlib.suppress(ApiError, OSError):
            return await bound(api) == count
        return False

    try:
        await until(all_there, 90)
    except TimeoutError:
        pods, _ = await api.list("pods")
        return "\n".join(
            f"{each['metadata']['name']}: {json.dumps(each['status'])}"
            for each in pods
            if not each["spec"].get("nodeName")
        )
    return ""


def live(neighbours: Neighbours) -> list[dict[str, Any]]:
    return [each for each in neighbours.on.values() if each["metadata"]["namespace"] == "default"]


def judge(changes: list[Change], made: int) -> None:
    """No rule broken between pods, none of amounts and gangs; each CPU was given."""
    neighbours = Neighbours()
    broken = neighbours.run(changes)
    assert not broken, "\n".join(broken)
    violations = Checker(gang_grace_s=GRACE_S).run(changes)
    assert not violations, violations
    assert len(live(neighbours)) == made
    held = [each for each in live(neighbours) if RESOURCE_STATUS in each["metadata"].get("annotations", {})]
    assert len(held) == NODES * PER_NODE_CPUS // 2 // len(WAVES) * len(WAVES)
