"""A load of plain pods on a cluster, timed from each create call to the binding seen in a watch.

The generator shares the two cores with everything it measures, so it is as cheap as the gateway's own writer.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import psutil

from koord.cli.local import LocalCluster, LocalOptions
from koord.gateway.access import ApiAccess
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient
from koord.localcluster.httpapi import HttpClusterApi
from koord.runtime.ending import end

NAMESPACE = "load"
_AT_ONCE = 32
_STALL_S = 60.0


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Brief(msgspec.Struct):
    spec: _Spec


_brief = msgspec.json.Decoder(_Brief)


class Load(NamedTuple):
    """What one run showed. Seconds.

    ``binding_s`` runs from the first create call to the last binding, ``draining_s`` from the first binding to the
    last; ``bound_at`` is on the monotonic clock; ``cpu_ms`` is CPU milliseconds per pod by process, the generator's
    included, spent in ``measured_s``: from the first create call to the last binding, or, where a scheduler finds the
    pods waiting, from its start on.
    """

    pods: int
    bound: int
    creating_s: float
    binding_s: float
    draining_s: float
    waits_s: list[float]
    bound_at: dict[str, float]
    cpu_ms: dict[str, float]
    measured_s: float

    @property
    def cores_busy(self) -> float:
        """How many cores all that is counted kept busy together."""
        return sum(self.cpu_ms.values()) * self.pods / 1000 / self.measured_s

    def quantile(self, share: float) -> float:
        """A quantile of the seconds from create to nodeName."""
        ordered = sorted(self.waits_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("inf")


async def run_load(nodes: int, pods: int, rate: float | None, log: list[str]) -> Load:
    """Start a cluster of ``nodes``, create ``pods`` at ``rate`` per second (None: as fast as it goes), wait for all."""
    options = LocalOptions(cluster="bench", nodes=nodes)
    async with LocalCluster(options, sink=log.append) as cluster:
        access = await load_access(cluster.kubeconfig)
        async with api_of(access) as api:
            await api.create("namespaces", None, {"metadata": {"name": NAMESPACE}})
            return await load_pods(access, lambda: cluster.pids, pods, rate)


def api_of(access: ApiAccess) -> HttpClusterApi:
    """A client for what is done once."""
    headers = {"Authorization": access.authorization} if access.authorization else {}
    return HttpClusterApi(access.url, tls=access.ssl, headers=headers)


async def load_pods(
    access: ApiAccess,
    pids: Callable[[], Mapping[str, int]],
    pods: int,
    rate: float | None,
    *,
    scheduler: str = "koord-scheduler",
    prefix: str = "pod",
    began: Callable[[], Awaitable[None]] | None = None,
) -> Load:
    """Create pods in NAMESPACE for ``scheduler`` and wait until all are bound, or nothing was for half a minute.

    ``pids`` are the processes whose CPU counts, by name. ``began`` is called when all pods are there: a scheduler that
    it starts finds them waiting.
    """
    client = LeanClient(access, connections=_AT_ONCE, timeout_s=_STALL_S)
    try:
        async with api_of(access) as api:
            return await _measure(api, client, pids, pods, rate, (prefix, scheduler), began)
    finally:
        await client.close()


async def _measure(
    api: HttpClusterApi,
    client: LeanClient,
    pids: Callable[[], Mapping[str, int]],
    pods: int,
    rate: float | None,
    kind: tuple[str, str],
    began: Callable[[], Awaitable[None]] | None,
) -> Load:
    created: dict[str, float] = {}
    bound: dict[str, float] = {}
    synced, done = asyncio.Event(), asyncio.Event()

    async def follow() -> None:
        while True:  # a server that is busy drops watchers that are slow to read, and then everything is listed again
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
    try:
        await synced.wait()
        processes = {name: psutil.Process(pid) for name, pid in pids().items()}
        before = _cpu(processes)
        started = time.monotonic()
        await _create(client, pods, rate, created, started, kind)
        creating_s = time.monotonic() - started
        measuring = started
        if began is not None:
            measuring, before = time.monotonic(), _cpu(processes)
            await began()
            processes |= {name: psutil.Process(pid) for name, pid in pids().items() if name not in processes}
        seen = -1
        while not done.is_set() and len(bound) > seen:
            seen = len(bound)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STALL_S):
                    await done.wait()
        after = _cpu(processes)
        measured_s = time.monotonic() - measuring
    finally:
        await end(watching)
    times = sorted(bound.values())
    return Load(
        pods=pods,
        bound=len(bound),
        creating_s=creating_s,
        binding_s=times[-1] - started if times else float("inf"),
        draining_s=times[-1] - times[0] if times else float("inf"),
        waits_s=[bound[name] - created[name] for name in bound],
        bound_at=bound,
        cpu_ms={name: (after[name] - before.get(name, 0.0)) * 1000 / pods for name in after},
        measured_s=measured_s,
    )


async def _create(
    client: LeanClient, pods: int, rate: float | None, created: dict[str, float], started: float, kind: tuple[str, str]
) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    prefix, scheduler = kind
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
            name = f"{prefix}-{number:05d}"
            group.create_task(one(name, msgspec.json.encode(_pod(name, scheduler))))
            if rate is None and number % _AT_ONCE == 0:
                await asyncio.sleep(0)


def _pod(name: str, scheduler: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "load"}},
        "spec": {
            "schedulerName": scheduler,
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
