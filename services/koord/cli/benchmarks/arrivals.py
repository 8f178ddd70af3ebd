"""Work that keeps coming at a steady rate: single pods, gangs of eight, and jobs of four that pass through the queue.

Gangs and jobs are of a quota that borrows all it has, so their way leads through the quota service's runtimes, too.
Open loop: each arrival has its moment, whatever became of the earlier ones. The generator shares the cores with
everything it measures, so it sends bytes made once per kind through the gateway's lean client.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from koord.cli.benchmarks.population import MISFIT, Population
from koord.gateway.leanclient import LeanClient

NAMESPACE = "load"
QUOTA = "borrowing"
GANG_SIZE = 8
JOB_SIZE = 4
_AT_ONCE = 32
_QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
_GANG = "pod-group.scheduling.sigs.k8s.io"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs"
_RUN_S = "1"

Create = Callable[[], Coroutine[Any, Any, None]]


class Arrivals:
    """Creates and deletes; every pod it creates is told to the population first."""

    def __init__(self, client: LeanClient, population: Population) -> None:
        self._client = client
        self._population = population
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._number = 0
        self._steady: asyncio.Task[None] | None = None
        self.jobs: list[str] = []
        """Names of the jobs created so far."""
        self.pods: list[str] = []
        """Names of the pods created and not deleted, the oldest first."""

    async def setup(self) -> None:
        """The namespace, and the quota of gangs and jobs: it borrows all it uses and may have more than there is."""
        await self._send("POST", "/api/v1/namespaces", _encode({"metadata": {"name": NAMESPACE}}))
        limit = {"cpu": "10000000", "memory": "100000Ti"}
        quota = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": QUOTA, "namespace": NAMESPACE},
            "spec": {"min": {}, "max": limit},
        }
        path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{NAMESPACE}/elasticquotas"
        await self._send("POST", path, _encode(quota))

    async def fill(self, pods: int) -> None:
        """Create so many single pods as fast as it goes."""
        async with asyncio.TaskGroup() as group:
            for number in range(pods):
                group.create_task(self._pod(_single()))
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)

    def start(self, rate: int) -> None:
        """Let ``rate`` pods a second come, a job and a gang among them each second, until :meth:`stop`."""
        self._steady = asyncio.create_task(self._come(rate), name="bench arrivals")

    async def stop(self) -> None:
        """No more arrivals; those under way are sent. Raises what went wrong with an arrival."""
        task, self._steady = self._steady, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()

    async def delete(self, names: Sequence[str]) -> None:
        """Delete these pods; returns when all deletions are accepted."""
        gone = set(names)
        self.pods = [name for name in self.pods if name not in gone]
        await self._each("DELETE", (f"{_PODS}/{name}" for name in names))

    async def delete_jobs(self, names: Sequence[str]) -> None:
        """Delete these jobs; the garbage collector and the queue remove what belongs to them."""
        await self._each("DELETE", (f"{_JOBS}/{name}" for name in names))

    async def misfit(self) -> str:
        """Create a pod that no node fits, so that it is told of in events; its name. Nobody waits for it."""
        self._number += 1
        name = f"misfit-{self._number:06d}"
        manifest = _single({MISFIT: "true"})
        manifest["metadata"]["name"] = name
        manifest["spec"]["nodeSelector"] = {"bench": "nowhere"}
        await self._send("POST", _PODS, _encode(manifest))
        return name

    async def _each(self, verb: str, paths: Iterable[str]) -> None:
        async def one(path: str) -> None:
            async with self._gate:  # the client's time limit counts from the call, waiting for a connection included
                await self._send(verb, path)

        async with asyncio.TaskGroup() as group:
            for path in paths:
                group.create_task(one(path))

    async def _come(self, rate: int) -> None:
        started, due = time.monotonic(), 0.0
        sending: set[asyncio.Task[None]] = set()
        try:
            while True:
                for size, work in self._second(rate):
                    ahead = started + due - time.monotonic()
                    if ahead > 0:
                        await asyncio.sleep(ahead)
                    sending.update(asyncio.create_task(create()) for create in work)
                    due += size / rate
                    done = {task for task in sending if task.done()}
                    sending -= done
                    for task in done:
                        task.result()
        finally:
            await asyncio.gather(*sending)

    def _second(self, rate: int) -> Iterator[tuple[int, list[Create]]]:
        """The arrivals of about one second: (pods, what creates them)."""
        singles = max(0, rate - GANG_SIZE - JOB_SIZE)
        for number in range(singles):
            if number == singles // 3:
                yield JOB_SIZE, [self._job]
            if number == singles // 2:
                yield GANG_SIZE, self._gang()
            yield 1, [partial(self._pod, _single())]
        if not singles:
            yield JOB_SIZE + GANG_SIZE, [self._job, *self._gang()]

    async def _pod(self, manifest: dict[str, Any]) -> None:
        self._number += 1
        name = f"pod-{self._number:06d}"
        manifest["metadata"]["name"] = name
        self.pods.append(name)
        body = _encode(manifest)
        async with self._gate:
            self._population.expect(f"{NAMESPACE}/{name}")
            await self._send("POST", _PODS, body)

    async def _job(self) -> None:
        self._number += 1
        name = f"job-{self._number:06d}"
        self.jobs.append(name)
        await self._send("POST", _JOBS, _encode(_pytorch(name)))

    def _gang(self) -> list[Create]:
        name = f"gang-{self._number:06d}"
        labels = {_QUOTA_LABEL: QUOTA, f"{_GANG}/name": name, f"{_GANG}/min-available": str(GANG_SIZE)}
        return [partial(self._pod, _single(labels)) for _ in range(GANG_SIZE)]

    async def _send(self, verb: str, path: str, body: bytes = b"") -> None:
        response = await self._client.request(verb, path, body)
        if response.status not in (200, 201, 202) and not (verb == "DELETE" and response.status == 404):
            raise RuntimeError(f"{verb} {path}: HTTP {response.status} {response.body[:200]!r}")


_encode = msgspec.json.encode


def _single(labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod that runs until it is deleted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"app": "load"} | (labels or {})},
        "spec": {"schedulerName": "koord-scheduler", "containers": [_container("main", "100m", "128Mi")]},
    }


def _pytorch(name: str) -> dict[str, Any]:
    """A suspended job of one master and its workers, each running a second."""
    template = {
        "metadata": {"annotations": {"koord.sh/fake-run-seconds": _RUN_S}},
        "spec": {
            "schedulerName": "koord-scheduler",
            "restartPolicy": "Never",
            "containers": [_container("pytorch", "200m", "256Mi")],
        },
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": {_QUOTA_LABEL: QUOTA}},
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": JOB_SIZE - 1, "template": template},
            },
        },
    }


def _container(name: str, cpu: str, memory: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": "registry.example/pause:3",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
