"""Rates and memory of the embedded API server, over TLS: `python -m tests.localcluster.api.bench_api --pods 50000`.

Prints one JSON object. The client is one process with raw connections; where the cores are shared with it, read the
server's CPU per operation rather than the rates.
"""

import argparse
import asyncio
import json
import ssl
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import uvloop

from tests.localcluster.api.rig import Server

CONNECTIONS = 32
MERGE = "application/merge-patch+json"
JSON = "application/json"
PODS = "/api/v1/namespaces/default/pods"


class Call(NamedTuple):
    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON


def pod(name: str) -> bytes:
    """A pod as a training operator makes it, 2.5 KB once defaulted and running."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {f"training.kubeflow.org/label-{i}": f"value-{i}" for i in range(4)},
            "annotations": {"koord.sh/traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
            "ownerReferences": [
                {
                    "apiVersion": "bench.koord.sh/v1",  # no operator's: it would tidy up after a job that is not there
                    "kind": "BenchJob",
                    "name": "j1",
                    "uid": "123e4567-e89b-12d3-a456-426614174000",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry/train:1.2",
                    "command": ["python", "train.py"],
                    "env": [{"name": f"V{i}", "value": f"some value {i}"} for i in range(8)],
                    "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}},
                    "ports": [{"containerPort": 2222}],
                }
            ],
            "restartPolicy": "Never",
            "schedulerName": "koord-scheduler",
        },
    }
    return json.dumps(body).encode()


RUNNING = {
    "phase": "Running",
    "podIP": "10.0.0.1",
    "startTime": "2026-01-01T00:00:00Z",
    "conditions": [
        {"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for name in ("PodScheduled", "Initialized", "Ready", "ContainersReady")
    ],
    "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "state": {"running": {}}}],
}


class Bench:
    def __init__(self, ready: dict[str, Any], nodes: int) -> None:
        host, port = ready["url"].removeprefix("https://").rsplit(":", 1)
        self._where = (host, int(port))
        self._tls = ssl.create_default_context(cafile=ready["ca"])
        self._token = ready["token"]
        self._process = psutil.Process(ready["pid"])
        self.nodes = nodes

    def cpu(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> int:
        return int(self._process.memory_info().rss / 2**20)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._where, ssl=self._tls, limit=1 << 22)

    def head(self, call: Call) -> bytes:
        return (
            f"{call.method} {call.path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: {call.content_type}\r\nContent-Length: {len(call.body)}\r\n\r\n"
        ).encode()

    async def phase(self, calls: Iterable[Call], expected: int) -> dict[str, float]:
        """Send all calls over some connections, each one after the other."""
        source = iter(calls)
        took: list[float] = []

        async def work() -> None:
            reader, writer = await self.connect()
            for call in source:
                start = time.perf_counter()
                writer.write(self.head(call) + call.body)
                head = await reader.readuntil(b"\r\n\r\n")
                at = head.lower().index(b"content-length:") + 15
                body = await reader.readexactly(int(head[at : head.index(b"\r", at)]))
                if int(head[9:12]) != expected:
                    raise SystemExit(f"{call.method} {call.path}: {head[9:12]!r} {body[:500]!r}")
                took.append(time.perf_counter() - start)
            writer.close()

        cpu, start = self.cpu(), time.perf_counter()
        await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
        seconds, cpu = time.perf_counter() - start, self.cpu() - cpu
        took.sort()
        return {
            "per_s": round(len(took) / seconds),
            "server_cpu_us": round(cpu / len(took) * 1e6),
            "p50_ms": round(took[len(took) // 2] * 1e3, 2),
            "p99_ms": round(took[int(len(took) * 0.99)] * 1e3, 2),
            "server_rss_mib": self.memory(),
        }

    async def count_events(self, path: str, kind: bytes, wanted: int) -> None:
        reader, writer = await self.connect()
        writer.write(self.head(Call("GET", path)))
        mark, tail, seen = b'{"type":"' + kind + b'"', b"", 0
        while seen < wanted:
            data = tail + await reader.read(1 << 20)
            seen += data.count(mark)
            tail = data[1 - len(mark) :]
        writer.close()

    async def watched(self, calls: list[Call], watchers: int) -> dict[str, float]:
        """The calls while watchers follow; every event must reach every watcher."""
        path = "/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        following = [asyncio.create_task(self.count_events(path, b"MODIFIED", len(calls))) for _ in range(watchers)]
        await asyncio.sleep(0.5)
        cpu, start = self.cpu(), time.perf_counter()
        await self.phase(calls, 200)
        await asyncio.gather(*following)
        seconds = time.perf_counter() - start
        return {
            "watchers": watchers,
            "events_per_s": round(len(calls) * watchers / seconds),
            "server_cpu_us_per_change": round((self.cpu() - cpu) / len(calls) * 1e6),
        }

    async def run(self, pods: int) -> dict[str, Any]:
        def bind(i: int) -> Call:
            node = f"node-{i % (self.nodes or 1000) + 1:05}"
            target = {"target": {"name": node}, "metadata": {"annotations": {"koord.sh/x": "y"}}}
            return Call("POST", f"{PODS}/pod-{i}/binding", json.dumps(target).encode())

        status = json.dumps({"status": RUNNING}).encode()
        figures: dict[str, Any] = {"pods": pods, "nodes": self.nodes, "rss_mib_before": self.memory()}
        figures["create"] = await self.phase((Call("POST", PODS, pod(f"pod-{i}")) for i in range(pods)), 201)
        figures["bind"] = await self.phase((bind(i) for i in range(pods)), 201)
        paths = [f"{PODS}/pod-{i}" for i in range(pods)]
        figures["status_patch"] = await self.phase((Call("PATCH", f"{p}/status", status, MERGE) for p in paths), 200)
        figures["get"] = await self.phase((Call("GET", path) for path in paths[:20_000]), 200)
        start, cpu = time.perf_counter(), self.cpu()
        await self.count_events("/api/v1/pods?watch=1", b"ADDED", pods)
        seconds = time.perf_counter() - start
        figures["watch_start"] = {
            "events_per_s": round(pods / seconds),
            "server_cpu_us_per_event": round((self.cpu() - cpu) / pods * 1e6, 1),
        }
        label = b'{"metadata":{"labels":{"bench":"yes"}}}'
        calls = [Call("PATCH", path, label, MERGE) for path in paths[:20_000]]
        figures["watched_patch"] = await self.watched(calls, 10)
        figures["rss_mib_after"] = self.memory()
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--nodes", type=int, default=0, help="fake nodes in the server's process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--nodes", str(options.nodes)] if options.nodes else []
        server = Server(Path(folder), *arguments)
        try:
            figures = uvloop.run(Bench(server.ready, options.nodes).run(options.pods))
        finally:
            server.stop()
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
