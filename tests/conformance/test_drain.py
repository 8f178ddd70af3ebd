"""`kubectl drain`: evictions as kubectl asks for them. The test plays the kubelet's part."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.conformance.client import Client
from tests.conformance.rig import Kubectl
from tests.conformance.test_eviction import REFUSED, Pods


@pytest.fixture
def pods(client: Client, namespace: str) -> Pods:
    return Pods(client, namespace)


def drain(kubectl: Kubectl, node: str, *options: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return kubectl(
        "drain",
        node,
        "--force",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=60s",
        *options,
        check=check,
    )


async def playing_kubelet(pods: Pods, until_done: Callable[[], Awaitable[Any]]) -> None:
    """Remove what is marked, until something is so."""
    while not await until_done():
        for item in (await pods.client.get(pods.pods)).body["items"]:
            if "deletionTimestamp" in item["metadata"]:
                await pods.client.delete(f"{pods.pods}/{item['metadata']['name']}", {"gracePeriodSeconds": 0})
        await asyncio.sleep(0.05)


async def test_drain(pods: Pods, node: str, kubectl: Kubectl) -> None:
    for name in ("a", "b"):
        await pods.make(name, node=node)
    tried = await asyncio.to_thread(drain, kubectl, node, "--dry-run=server")
    assert f"evicting pod {pods.namespace}/a (server dry run)" in tried.stdout
    spec = (await pods.client.get(f"/api/v1/nodes/{node}")).body.get("spec") or {}
    assert not spec.get("unschedulable")
    draining = asyncio.create_task(asyncio.to_thread(drain, kubectl, node))

    async def done() -> bool:
        return draining.done()

    await playing_kubelet(pods, done)
    assert f"node/{node} drained" in (await draining).stdout
    assert (await pods.client.get(f"/api/v1/nodes/{node}")).body["spec"]["unschedulable"] is True
    assert (await pods.client.get(pods.pods)).body["items"] == []
    assert "uncordoned" in kubectl("uncordon", node).stdout


async def test_drain_waits_for_a_budget(pods: Pods, node: str, kubectl: Kubectl) -> None:
    await pods.make("a", node=node)
    await pods.budget("one", {"currentHealthy": 1, "disruptionsAllowed": 0}, minAvailable=1)
    for seconds in (2, 10, 30):  # the time is for all of it: a busy machine may need it for the first answer
        stopped = await asyncio.to_thread(drain, kubectl, node, f"--timeout={seconds}s", check=False)
        assert stopped.returncode != 0
        if REFUSED in stopped.stderr:
            break
    assert f"{REFUSED}" in stopped.stderr and "will retry" in stopped.stderr
    assert await pods.is_there("a")
    draining = asyncio.create_task(asyncio.to_thread(drain, kubectl, node))
    assert (await pods.client.delete(f"{pods.budgets}/one")).status == 200

    async def done() -> bool:
        return draining.done()

    await playing_kubelet(pods, done)
    assert f"node/{node} drained" in (await draining).stdout
