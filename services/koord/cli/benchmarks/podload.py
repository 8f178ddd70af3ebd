"""A load of plain pods on a whole local cluster, timed from each create call to the binding seen in a watch.

The generator shares the two cores with everything it measures, so it is as cheap as the gateway's own writer.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import psutil

from koord.cli.local import LocalCluster, LocalOptions
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient
from koord.localcluster.httpapi import HttpClusterApi

NAMESPACE = "load"
_AT_ONCE = 32
_STALL_S = 30.0


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Brief(msgspec.Struct):
    spec: _Spec


_brief = msgspec.json.Decoder(_Brief)


class Load(NamedTuple):
    """What one run showed. Seconds; ``cpu_ms`` is CPU milliseconds per pod by process, the generator's included."""

    pods: int
    bound: int
    creating_s: float
    binding_s: float
    waits_s: list[float]
    cpu_ms: dict[str, float]

    def quantile(self, share: float) -> float:
        """A quantile of the seconds from create to nodeName."""
        ordered = sorted(self.waits_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("inf")


async def run_load(nodes: int, pods: int, rate: float | None, log: list[str]) -> Load:
    """Start a cluster of ``nodes``, create ``pods`` at ``rate`` per second (None: as fast as it goes), wait for all."""
    options = LocalOptions(cluster="bench", nodes=nodes)
    async with LocalCluster(options, sink=log.append) as cluster:
        access = await load_access(cluster.kubeconfig)
        async with HttpClusterApi(access.url, tls=access.ssl, headers={"Authorization": access.authorization}) as api:
            await api.create("namespaces", None, {"metadata": {"name": NAMESPACE}})
            client = LeanClient(access, connections=_AT_ONCE)
            try:
                return await _measure(cluster, api, client, pods, rate)
            finally:
                await client.close()


async def _measure(
    cluster: LocalCluster, api: HttpClusterApi, client: LeanClient, pods: int, rate: float | None
) -> Load:
    created: dict[str, float] = {}
    bound: dict[str, float] = {}
    synced, done = asyncio.Event(), asyncio.Event()

    async def follow() -> None:
        async for events in api.watch("pods", NAMESPACE):
            now = time.monotonic()
            for event in events:
                if event.type == "BOOKMARK":
                    synced.set()
                elif event.name not in bound and _brief.decode(event.raw).spec.node_name:
                    bound[event.name] = now
            if len(bound) >= pods:
                done.set()

    watching = asyncio.create_task(follow(), name="bench watch")
    await synced.wait()
    processes = {name: psutil.Process(pid) for name, pid in cluster.pids.items()}
    before = _cpu(processes)
    started = time.monotonic()
    await _create(client, pods, rate, created, started)
    creating_s = time.monotonic() - started
    seen = -1
    while not done.is_set():
        seen = len(bound)
        try:
            async with asyncio.timeout(_STALL_S):
                await done.wait()
        except TimeoutError:
            if len(bound) == seen:
                break
    after = _cpu(processes)
    watching.cancel()
    last = max(bound.values(), default=float("inf"))
    return Load(
        pods=pods,
        bound=len(bound),
        creating_s=creating_s,
        binding_s=last - started,
        waits_s=[bound[name] - created[name] for name in bound],
        cpu_ms={name: (after[name] - before[name]) * 1000 / pods for name in before},
    )


async def _create(client: LeanClient, pods: int, rate: float | None, created: dict[str, float], started: float) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str, body: bytes) -> None:
        async with gate:
            created[name] = time.monotonic()
            response = await client.request("POST", path, body)
            if response.status != 201:
                raise RuntimeError(f"create of pod {name}: HTTP {response.status} {response.body[:200]!r}")

    async with asyncio.TaskGroup() as group:
        for number in range(pods):
            if rate is not None:
                ahead = started + number / rate - time.monotonic()
                if ahead > 0:
                    await asyncio.sleep(ahead)
            name = f"pod-{number:05d}"
            group.create_task(one(name, msgspec.json.encode(_pod(name))))
            if rate is None and number % _AT_ONCE == 0:
                await asyncio.sleep(0)


def _pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "load"}},
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/pause:3",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                }
            ],
        },
    }


def _cpu(processes: Mapping[str, psutil.Process]) -> dict[str, float]:
    """CPU seconds used so far; a process that was restarted meanwhile is left out."""
    used: dict[str, float] = {}
    for name, process in processes.items():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used[name] = times.user + times.system
    return used
