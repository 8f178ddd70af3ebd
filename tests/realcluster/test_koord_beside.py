"""kube-scheduler and koord's scheduler place pods on the same small nodes at once, until there is no room left.

Neither asks the other. What holds, and what happens where both take the last room of a node within the moment that a
binding needs to be seen, stands in docs/compatibility.md.
"""

import asyncio
import json
import os
import signal
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from koord.cli.api import connect
from koord.cli.demo.history import Change, decode
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.httpapi import HttpClusterApi
from tests.integration.exactly_once import until
from tests.realcluster.fixtures import Kubectl, MakeControlPlane
from tests.realcluster.koord import READABLE, koord_up, stored_history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NODES = 40
CPUS = 4
ROOM = NODES * CPUS
PODS = ROOM // 2 + 60
"""Of each scheduler: together more than there is room for, also when dozens found no room and have failed."""
SCHEDULERS = ("koord-scheduler", "default-scheduler")
WEBHOOKS = "validatingwebhookconfigurations.admissionregistration.k8s.io"


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
    async with await connect(str(plane.kubeconfig)) as api:
        hooks, _ = await api.list(WEBHOOKS)
        assert hooks == [], "a tidy end withdraws the registration"
    changes = await stored_history(plane)
    races, running = replay(changes)
    with capsys.disabled():
        late = Counter(name.partition("-")[0] for name, _, _ in races)
        print(f"\n{bindings}: {2 * PODS} pods, room for {ROOM}: bindings into a full node: {dict(late) or 'none'}")
    if bindings == "require":
        assert not races
    assert running == {f"small-{number:03d}": CPUS for number in range(NODES)}


@pytest.mark.since("1.28", "the gateway asks who it is, and webhooks have match conditions")
async def test_the_way_out_when_koord_is_gone_for_good(make_control_plane: MakeControlPlane, tmp_path: Path) -> None:
    """docs/deployment.md, "Before you remove koord": with `require` and no koord nobody binds, until its webhook goes.

    What waited is bound then without anybody's help, and what is spared never waits.
    """
    config = tmp_path / "settings.yaml"
    config.write_text("gateway: {foreign_bindings: require}\n")
    plane = await make_control_plane()
    await plane.start_controller_manager()
    await plane.start_scheduler()
    kubectl = Kubectl(plane.kubeconfig)
    arguments = ("--nodes", "1", "--operators", "none", "--config", str(config))
    up = await asyncio.to_thread(koord_up, tmp_path, plane, *arguments)
    # Not the administrator of `koord up`: who the gateway is, is not asked about.
    other = plane.kubeconfig_for("somebody", ["system:masters"])
    async with await connect(str(plane.kubeconfig)) as api, await connect(str(other)) as somebody:

        async def is_bound(name: str, namespace: str = "default") -> bool:
            return bool((await api.get("pods", namespace, name))["spec"].get("nodeName"))

        async def make(name: str, namespace: str = "default") -> None:
            item = pod("default-scheduler", 0)
            item["metadata"] = {"name": name, "namespace": namespace}
            del item["spec"]["nodeSelector"]
            item["spec"]["tolerations"] = [{"operator": "Exists"}]  # nobody says that the node is well any more
            await api.create("pods", namespace, item)

        try:
            await until(lambda: _asked(api), 60)
            await make("with-koord")
            await until(lambda: is_bound("with-koord"), 60)
            too_much = pod("nobody", 1)
            del too_much["spec"]["nodeSelector"]
            too_much["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000"
            await api.create("pods", "default", too_much)
            said = await _refusal(somebody, "nobody-001")
            assert "node node-00001 has not the room (cpu: 1000000 needed, " in said, said
            await until(lambda: _is_told(api, "nobody-001"), 60)
        finally:
            os.kill(up.process.pid, signal.SIGKILL)  # and all that it started: nobody ends tidily
            await asyncio.to_thread(up.process.wait)
            await asyncio.to_thread(up.stop)
        await make("spared", "kube-system")
        await make("without-koord")
        await until(lambda: is_bound("spared", "kube-system"), 60)
        assert "failed calling webhook" in await _refusal(somebody, "without-koord")
        assert not await is_bound("without-koord")
        # The steps of the page, word by word.
        found = await kubectl("get", "validatingwebhookconfiguration", "koord-foreign-bindings")
        assert "koord-foreign-bindings" in found
        await kubectl("delete", "validatingwebhookconfiguration", "koord-foreign-bindings")
        await until(lambda: is_bound("without-koord"), 120)


async def _refusal(api: HttpClusterApi, name: str) -> str:
    """What the API server says to somebody who binds a pod of `default` to the fake node."""
    meta, target = {"name": name, "namespace": "default"}, {"apiVersion": "v1", "kind": "Node", "name": "node-00001"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
    with pytest.raises(ApiError) as refused:
        await api.create_at(f"/api/v1/namespaces/default/pods/{name}/binding", body)
    return str(refused.value)


async def _is_told(api: HttpClusterApi, name: str) -> bool:
    events, _ = await api.list("events", "default")
    told = [event for event in events if event["involvedObject"]["name"] == name]
    return [event["reason"] for event in told] == ["BindingRefused"] and "cpu: 1000000 needed" in told[0]["message"]


async def _all_ready(api: HttpClusterApi) -> bool:
    nodes, _ = await api.list("nodes")
    return len(nodes) == NODES + 1 and all(
        any(entry["type"] == "Ready" and entry["status"] == "True" for entry in item["status"].get("conditions", ()))
        and not [taint for taint in item["spec"].get("taints", ()) if "not-ready" in taint["key"]]
        for item in nodes
    )


async def _asked(api: HttpClusterApi) -> bool:
    hooks, _ = await api.list(WEBHOOKS)
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
