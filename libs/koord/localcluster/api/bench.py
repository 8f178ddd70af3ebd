"""``koord bench apiserver``: what the embedded API server holds and how fast it is, over TLS, from another process.

It is filled with nodes and pods as a training operator makes them, then every pod is bound and its status patched, then
some are changed again while ten watchers follow. The client is one process with raw connections; on few cores it takes
its share of them, so the server's CPU time per operation says more than the rates.
"""

import asyncio
import json
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.localcluster.process import spawn

PROTOTYPE: Final = {
    "creates_per_s": 3_400.0,
    "binds_per_s": 4_700.0,
    "merge_patches_per_s": 3_500.0,
    "watch_events_per_s": 28_000.0,
}
"""What the prototype did that chose this server's HTTP stack, with two cores to itself."""
LEAST: Final = 0.5
"""The part of it that must be reached: the machine may be shared."""
MOST_MIB: Final = 1024.0
WATCHERS: Final = 10
WATCHED: Final = 20_000
"""Pods that are changed while watchers follow: below what the server remembers for slow ones."""
_CONNECTIONS: Final = 32
_START_S: Final = 60.0
_MERGE: Final = "application/merge-patch+json"
_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/namespaces/default/pods"
_RESOURCES: Final = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}


class _Call(NamedTuple):
    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"


class _Phase(NamedTuple):
    """Rate, the server's CPU time per call, and how long all but one in a hundred calls took."""

    per_s: float
    server_cpu_us: float
    p99_ms: float


def _node(name: str) -> bytes:
    room = {"cpu": "64", "memory": "256Gi", "pods": "256", "ephemeral-storage": "1Ti"}
    conditions = [
        {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": f"Kubelet{kind}", "message": kind}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "z1"}
    status = {"allocatable": room, "capacity": room, "conditions": conditions}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
    ).encode()


def _pod(name: str) -> bytes:
    """A pod as a training operator makes it, 2.5 KB once defaulted and running."""
    owner = {
        "apiVersion": "bench.koord.sh/v1",  # no operator's: it would tidy up after a job that is not there
        "kind": "BenchJob",
        "name": "j1",
        "uid": "123e4567-e89b-12d3-a456-426614174000",
        "controller": True,
    }
    container = {
        "name": "main",
        "image": "registry/train:1.2",
        "command": ["python", "train.py"],
        "env": [{"name": f"V{i}", "value": f"some value {i}"} for i in range(8)],
        "resources": _RESOURCES,
        "ports": [{"containerPort": 2222}],
    }
    metadata = {
        "name": name,
        "labels": {f"training.kubeflow.org/label-{i}": f"value-{i}" for i in range(4)},
        "annotations": {"koord.sh/traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        "ownerReferences": [owner],
    }
    spec = {"containers": [container], "restartPolicy": "Never", "schedulerName": "koord-scheduler"}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).encode()


def _running() -> bytes:
    """The status that a kubelet writes."""
    began = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": began}
        for kind in ("PodScheduled", "Initialized", "Ready", "ContainersReady")
    ]
    container = {"name": "main", "ready": True, "restartCount": 0, "state": {"running": {}}}
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "startTime": began,
        "conditions": conditions,
        "containerStatuses": [container],
    }
    return json.dumps({"status": status}).encode()


class _Client:
    """Raw HTTP/1.1 over TLS: what is measured is the server. RuntimeError names a request that was refused."""

    def __init__(self, ready: dict[str, Any]) -> None:
        host, port = ready["url"].removeprefix("https://").rsplit(":", 1)
        self._where = (host, int(port))
        self._tls = ssl.create_default_context(cafile=ready["ca"])
        self._token = ready["token"]
        self._server = psutil.Process(ready["pid"])

    def rss_mib(self) -> float:
        """The server's resident memory."""
        return float(self._server.memory_info().rss) / 2**20

    async def phase(self, calls: Iterable[_Call], expected: int) -> _Phase:
        """Send all calls over some connections, on each one after the other."""
        source, took = iter(calls), list[float]()

        async def work() -> None:
            reader, writer = await self._connect()
            for call in source:
                begun = time.perf_counter()
                status, body = await self._exchange(reader, writer, call)
                if status != expected:
                    raise RuntimeError(f"{call.method} {call.path}: answer {status}: {body[:300]!r}")
                took.append(time.perf_counter() - begun)
            writer.close()

        cpu, begun = self._cpu_s(), time.perf_counter()
        await _together([work() for _ in range(_CONNECTIONS)])
        seconds, cpu = time.perf_counter() - begun, self._cpu_s() - cpu
        took.sort()
        return _Phase(len(took) / seconds, cpu / len(took) * 1e6, took[len(took) * 99 // 100] * 1e3)

    async def initial(self, pods: int) -> float:
        """How fast a new watcher is told what is there, events a second."""
        begun = time.perf_counter()
        await self._follow(f"{_PODS}?watch=1", b"ADDED", pods)
        return pods / (time.perf_counter() - begun)

    async def watched(self, calls: list[_Call]) -> _Phase:
        """The calls while watchers follow: events a second over all of them, each event seen by each watcher."""
        reader, writer = await self._connect()
        _, body = await self._exchange(reader, writer, _Call("GET", f"{_PODS}?limit=1"))
        writer.close()
        path = f"{_PODS}?watch=1&resourceVersion={json.loads(body)['metadata']['resourceVersion']}"
        cpu, begun = self._cpu_s(), time.perf_counter()
        await _together([self._change(calls), *(self._follow(path, b"MODIFIED", len(calls)) for _ in range(WATCHERS))])
        seconds, cpu = time.perf_counter() - begun, self._cpu_s() - cpu
        return _Phase(len(calls) * WATCHERS / seconds, cpu / len(calls) * 1e6, 0.0)

    async def _change(self, calls: list[_Call]) -> None:
        await self.phase(calls, 200)

    async def _follow(self, path: str, kind: bytes, wanted: int) -> None:
        reader, writer = await self._connect()
        writer.write(self._head(_Call("GET", path)))
        mark, tail, seen = b'{"type":"' + kind + b'"', b"", 0
        while seen < wanted:
            read = await reader.read(1 << 20)
            data = tail + read
            if not read or b'{"type":"ERROR"' in data:
                raise RuntimeError(f"watch {path}: ended after {seen} of {wanted} events: {data[-300:]!r}")
            seen += data.count(mark)
            tail = data[1 - len(mark) :]
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._where, ssl=self._tls, limit=1 << 22)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: _Call
    ) -> tuple[int, bytes]:
        writer.write(self._head(call) + call.body)
        head = await reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        return int(head[9:12]), await reader.readexactly(int(head[at : head.index(b"\r", at)]))

    def _head(self, call: _Call) -> bytes:
        return (
            f"{call.method} {call.path} HTTP/1.1\r\nHost: bench\r\nUser-Agent: koord-bench\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Type: {call.content_type}\r\n"
            f"Content-Length: {len(call.body)}\r\n\r\n"
        ).encode()

    def _cpu_s(self) -> float:
        times = self._server.cpu_times()
        return float(times.user + times.system)


async def _together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all to their end; the first failure ends the others and is raised as a RuntimeError."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as failures:
        raise RuntimeError(str(failures.exceptions[0])) from failures


@asynccontextmanager
async def _server() -> AsyncIterator[dict[str, Any]]:
    """An API server in a process of its own; what its ready file says."""
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "koord.localcluster.api", "--dir", folder, "--ready-file", str(ready)]
        process = spawn(command)
        try:
            deadline = time.monotonic() + _START_S
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the API server does not start")
                await asyncio.sleep(0.02)
            yield json.loads(ready.read_text())
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)


async def measure(nodes: int, pods: int) -> dict[str, float]:
    """The figures by name; RuntimeError names a request that was refused."""
    async with _server() as ready:
        client = _Client(ready)
        figures = {"empty_rss_mib": client.rss_mib()}
        await client.phase((_Call("POST", _NODES, _node(f"node-{i}")) for i in range(nodes)), 201)
        paths = [f"{_PODS}/pod-{i}" for i in range(pods)]
        creates = (_Call("POST", _PODS, _pod(f"pod-{i}")) for i in range(pods))
        binds = (_Call("POST", f"{path}/binding", _binding(i % nodes)) for i, path in enumerate(paths))
        status = _running()
        patches = (_Call("PATCH", f"{path}/status", status, _MERGE) for path in paths)
        gets = (_Call("GET", path) for path in paths[:WATCHED])
        label = b'{"metadata":{"labels":{"bench":"yes"}}}'
        for one, many, calls, expected in (
            ("create", "creates", creates, 201),
            ("bind", "binds", binds, 201),
            ("merge_patch", "merge_patches", patches, 200),
            ("get", "gets", gets, 200),
        ):
            phase = await client.phase(calls, expected)
            figures[f"{many}_per_s"] = phase.per_s
            figures[f"server_cpu_us_per_{one}"] = phase.server_cpu_us
            figures[f"{one}_p99_ms"] = phase.p99_ms
        figures["initial_events_per_s"] = await client.initial(pods)
        watched = await client.watched([_Call("PATCH", path, label, _MERGE) for path in paths[:WATCHED]])
        figures["watch_events_per_s"] = watched.per_s
        figures["server_cpu_us_per_watched_change"] = watched.server_cpu_us
        figures["rss_mib"] = client.rss_mib()
        return figures


def _binding(node: int) -> bytes:
    return json.dumps({"target": {"name": f"node-{node}"}, "metadata": {"annotations": {"koord.sh/x": "y"}}}).encode()


async def run(parameters: Parameters) -> BenchResult:
    """The scenario."""
    figures = await measure(int(str(parameters["nodes"])), int(str(parameters["pods"])))
    ratios = {name: figures[name] / prototype for name, prototype in PROTOTYPE.items()}
    return BenchResult(
        "apiserver",
        dict(parameters),
        {name: round(value, 2) for name, value in figures.items()},
        ratios={name: round(ratio, 3) for name, ratio in ratios.items()}
        | {"rss_mib": round(figures["rss_mib"] / MOST_MIB, 3)},
        bound_by="CPU: the server's one event loop; its TLS shares the other cores with the client",
        ok=min(ratios.values()) >= LEAST and figures["rss_mib"] < MOST_MIB,
    )


SCENARIO = Scenario(
    "apiserver",
    "the embedded API server over TLS: creates, binds, merge patches, watch events a second, and memory",
    run,
    {"nodes": 5_000, "pods": 50_000},
)
