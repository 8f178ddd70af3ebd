"""kube-scheduler and koord's scheduler place pods on the same small nodes at once, until there is no room left.

Neither asks the other. What holds, and what happens where both take the last room of a node within the moment that a
binding needs to be seen, stands in docs/compatibility.md.
"""

import asyncio
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from koord.cli.api import connect
from koord.cli.demo.history import Change, decode
from koord.localcluster.httpapi import HttpClusterApi
from tests.integration.exactly_once import until
from tests.realcluster.fixtures import MakeControlPlane
from tests.realcluster.koord import READABLE, koord_up, stored_history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NODES = 40
CPUS = 4
ROOM = NODES * CPUS
PODS = ROOM // 2 + 60
"""Of each scheduler: together more than there is room for, also when dozens found no room and have failed."""
SCHEDULERS = ("koord-scheduler", "default-scheduler")


def node(number: int) -> dict[str, Any]:
    name = f"small-{number:03d}"
    amounts = {"cpu": str(CPUS), "memory": "64Gi", "pods": "110"}
    labels = {"koord.sh/fake-node": "true", "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(scheduler: str, number: int) -> dict[str, Any]:
    container = {"name": "c", "image": "x/y:1", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    spec = {"schedulerName": scheduler, "containers": [container], "nodeSelector": {"koord.sh/fake-node": "true"}}
    meta = {"name": f"{scheduler.partition('-')[0]}-{number:03d}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.mark.since("1.28", "the gateway asks who it is, and webhooks have match conditions", only=("require",))
@pytest.mark.parametrize("bindings", ["require", "observe"])
async def test_two_schedulers_on_the_same_nodes(
    make_control_plane: MakeControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str], bindings: str
) -> None:
    """Claimed in the ledger before it is made, no Binding finds a node full. Only observed, some may: the kubelet
    refuses what comes last, and what runs fits."""
    config = tmp_path / "settings.yaml"
    config.write_text(f"gateway: {{foreign_bindings: {bindings}}}\n")
    plane = await make_control_plane(**READABLE)
    await plane.start_controller_manager()
    await plane.start_scheduler()
    up = await asyncio.to_thread(
        koord_up, tmp_path, plane, "--nodes", "1", "--operators", "none", "--config", str(config)
    )
    try:
        async with await connect(str(plane.kubeconfig)) as api:
            await api.patch("nodes", None, "node-00001", {"spec": {"unschedulable": True}})
            for number in range(NODES):
                await api.create("nodes", None, node(number))
            await until(lambda: _all_ready(api), 60)
            if bindings == "require":
                await until(lambda: _asked(api), 60)
            gate = asyncio.Semaphore(16)

            async def one(scheduler: str, number: int) -> None:
                async with gate:
                    await api.create("pods", "default", pod(scheduler, number))

            await asyncio.gather(*(one(scheduler, number) for number in range(PODS) for scheduler in SCHEDULERS))
            await until(lambda: _all_taken(api), 120)
    finally:
        await asyncio.to_thread(up.stop)
    changes = await stored_history(plane)
    races, running = replay(changes)
    with capsys.disabled():
        late = Counter(name.partition("-")[0] for name, _, _ in races)
        print(f"\n{bindings}: {2 * PODS} pods, room for {ROOM}: bindings into a full node: {dict(late) or 'none'}")
    if bindings == "require":
        assert not races
    assert running == {f"small-{number:03d}": CPUS for number in range(NODES)}


async def _all_ready(api: HttpClusterApi) -> bool:
    nodes, _ = await api.list("nodes")
    return len(nodes) == NODES + 1 and all(
        any(entry["type"] == "Ready" and entry["status"] == "True" for entry in item["status"].get("conditions", ()))
        and not [taint for taint in item["spec"].get("taints", ()) if "not-ready" in taint["key"]]
        for item in nodes
    )


async def _asked(api: HttpClusterApi) -> bool:
    hooks, _ = await api.list("validatingwebhookconfigurations.admissionregistration.k8s.io")
    return [hook["metadata"]["name"] for hook in hooks] == ["koord-foreign-bindings"]


async def _all_taken(api: HttpClusterApi) -> bool:
    pods, _ = await api.list("pods", "default")
    return [item["status"].get("phase") for item in pods].count("Running") == ROOM


def replay(changes: list[Change]) -> tuple[list[tuple[str, str, int]], Counter[str]]:
    """Bindings into a node that was full by the API (pod, node, versions since it was filled), and what runs where.

    On the way it is asserted that no pod is bound twice, that what runs never exceeds a node (the kubelets see to it),
    and that a pod which found no room is refused and not killed.
    """
    at: dict[str, str] = {}
    live: dict[str, set[str]] = defaultdict(set)
    filled: dict[str, int] = {}
    runs: dict[str, set[str]] = defaultdict(set)
    races: list[tuple[str, str, int]] = []
    for change in changes:
        if change.resource != "pods":
            continue
        item = decode(change.raw)
        name, where = item["metadata"]["name"], item["spec"].get("nodeName", "")
        phase = item["status"].get("phase")
        if not where:
            continue
        assert at.setdefault(name, where) == where, f"{name} was bound twice"
        over = change.type == "DELETED" or phase in ("Failed", "Succeeded")
        if over:
            assert name not in runs[where], f"{name} ran and was ended: {json.dumps(item['status'])}"
            assert item["status"].get("reason", "OutOfcpu") == "OutOfcpu", item["status"]
            live[where].discard(name)
        elif name not in live[where]:
            if len(live[where]) >= CPUS:
                races.append((name, where, change.version - filled[where]))
            live[where].add(name)
            if len(live[where]) == CPUS:
                filled[where] = change.version
        if phase == "Running":
            runs[where].add(name)
            assert len(runs[where]) <= CPUS, f"{where} runs {runs[where]}"
    return races, Counter({where: len(names) for where, names in runs.items()})
