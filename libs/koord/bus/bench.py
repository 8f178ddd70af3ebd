"""Benchmark ``bus``: how fast a reader rebuilds its picture, and how fast decisions are stored and consumed.

It starts nothing: without ``url`` it looks for the packaged nats-server on its own loopback port. One process publishes
and reads, so the figures are those of one core for the client and the rest for the server.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, DecisionPublisher
from koord.bus.errors import BusUnavailable
from koord.bus.statecache import StateCache
from koord.bus.statepublisher import StatePublisher
from koord.bus.streams import ensure_streams
from koord.contracts.bench import BenchResult, Scenario
from koord.contracts.decisions import Bind, BindMember, ClaimRef
from koord.kube.resources import PODS
from koord.telemetry.context import TraceContext

DEFAULTS: dict[str, object] = {"objects": 50_000, "object_bytes": 3200, "decisions": 30_000, "rounds": 3, "url": ""}
# Thresholds of issue 2: a replay of 50,000 objects in about 2 s, at least 20,000 acknowledged publishes a second.
REPLAY_PER_S = 25_000.0
DECISIONS_PER_S = 20_000.0


class _Meta(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Spec(msgspec.Struct):
    node_name: str = msgspec.field(name="nodeName", default="")
    scheduler_name: str = msgspec.field(name="schedulerName", default="")


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


def _body(number: int, size: int) -> bytes:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "bench",
            "uid": f"{number:036d}",
            "resourceVersion": str(number),
            "labels": {"app": "bench", "tier": "batch"},
        },
        "spec": {"nodeName": "", "schedulerName": "koord-scheduler", "containers": []},
        "status": {"phase": "Pending"},
    }
    # Fill up with containers' environment, which no reader declares: it must be skipped, as in real pods.
    env: list[dict[str, str]] = []
    while len(json.dumps(pod)) + sum(len(json.dumps(item)) + 2 for item in env) < size - 60:
        env.append({"name": f"VARIABLE_{len(env)}", "value": "x" * 40})
    pod["spec"]["containers"] = [{"name": "main", "image": "bench", "env": env}]  # type: ignore[index]
    return json.dumps(pod, separators=(",", ":")).encode()


@contextlib.asynccontextmanager
async def _server(url: str) -> AsyncIterator[str]:
    """The given server, or one of our own until the end."""
    if url:
        yield url
        return
    binary = shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if binary is None:
        raise BusUnavailable("no nats-server found: install koord[local] or set the parameter url")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as directory:
        config = Path(directory) / "nats.conf"
        config.write_text(
            json.dumps(
                {
                    "listen": f"127.0.0.1:{port}",
                    "max_payload": 8 << 20,
                    "jetstream": {"store_dir": str(Path(directory) / "js")},
                }
            )
        )
        process = await asyncio.create_subprocess_exec(
            binary, "-c", str(config), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.kill()
            await process.wait()


async def _connect(url: str, cluster: str, name: str) -> Bus:
    deadline = time.monotonic() + 10
    while True:
        try:
            bus = await Bus.connect(url, cluster, name)
            await ensure_streams(bus)
            return bus
        except BusUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def _replay(writer: Bus, reader: Bus, objects: int, size: int, rounds: int) -> dict[str, float]:
    publisher = StatePublisher(writer)
    await publisher.start()
    bodies = [_body(number, size) for number in range(16)]
    begun = time.perf_counter()
    for number in range(objects):
        await publisher.room()
        publisher.publish(PODS, "ADDED", "bench", f"pod-{number}", str(number + 1), bodies[number % 16])
    await publisher.listed(PODS, str(objects))
    published = objects / (time.perf_counter() - begun)
    seconds = []
    for _ in range(rounds):
        cache = StateCache(reader, PODS, _Pod)
        begun = time.perf_counter()
        await cache.start()
        await asyncio.wait_for(cache.synced(), 120)
        seconds.append(time.perf_counter() - begun)
        if len(cache.items) != objects:
            raise RuntimeError(f"the replay brought {len(cache.items)} of {objects} objects")
        await cache.close()
    begun = time.perf_counter()
    await publisher.held(PODS, timeout=120)
    held = time.perf_counter() - begun
    replay = statistics.median(seconds)
    return {
        "state_published_per_s": published,
        "replay_s": replay,
        "replay_objects_per_s": objects / replay,
        "read_back_s": held,
    }


async def _decisions(writer: Bus, reader: Bus, count: int, rounds: int) -> dict[str, float]:
    publisher = DecisionPublisher(writer, "bench")
    consumer = DecisionConsumer(reader)
    trace = TraceContext.new()
    done = 0
    published, consumed = [], []

    async def execute() -> None:
        nonlocal done
        async for batch in consumer.batches():
            for delivery in batch:
                if delivery.error is not None:
                    raise delivery.error
                delivery.ack()
            done += len(batch)

    task: asyncio.Task[None] | None = None
    for turn in range(rounds):
        work = [
            (
                Bind(
                    f"{turn}-{number}",
                    ClaimRef(f"{turn}-{number}", number, 1),
                    [BindMember(f"{number:036d}", "bench", f"pod-{number}", f"node-{number % 5000}")],
                ),
                trace,
            )
            for number in range(count)
        ]
        begun = time.perf_counter()
        await publisher.publish_many(work)
        published.append(count / (time.perf_counter() - begun))
        if task is None:
            begun = time.perf_counter()
            await consumer.start()
            task = asyncio.create_task(execute())
        while done < count * (turn + 1):
            await asyncio.sleep(0.002)
            if task.done():
                task.result()
        if turn == 0:
            consumed.append(count / (time.perf_counter() - begun))
    assert task is not None
    await consumer.close()
    await task
    return {"decisions_per_s": statistics.median(published), "decisions_consumed_per_s": statistics.median(consumed)}


async def run(parameters: Mapping[str, object]) -> BenchResult:
    """Run it. ValueError for a parameter that is unknown or not a number of at least 1."""
    chosen = dict(DEFAULTS)
    for key, value in parameters.items():
        if key not in DEFAULTS:
            raise ValueError(f"parameter {key}: unknown; known are {', '.join(DEFAULTS)}")
        if isinstance(DEFAULTS[key], int) and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ValueError(f"parameter {key}: must be an integer of at least 1, got {value!r}")
        chosen[key] = value
    numbers = {key: value for key, value in chosen.items() if isinstance(value, int)}
    cluster = f"bench-{secrets.token_hex(4)}"
    async with _server(str(chosen["url"])) as url:
        writer, reader = await _connect(url, cluster, "writer"), await _connect(url, cluster, "reader")
        cpu = time.process_time()
        begun = time.perf_counter()
        try:
            figures = await _replay(writer, reader, numbers["objects"], numbers["object_bytes"], numbers["rounds"])
            figures |= await _decisions(writer, reader, numbers["decisions"], numbers["rounds"])
            busy = (time.process_time() - cpu) / (time.perf_counter() - begun)
        finally:
            for stream in (
                writer.subjects.state_stream,
                writer.subjects.decisions_stream,
                writer.subjects.quota_stream,
            ):
                await writer.js.delete_stream(stream)
            await writer.js.delete_stream(f"KV_{writer.subjects.leases_bucket}")
            await reader.close()
            await writer.close()
    ratios = {
        "replay_objects_per_s": figures["replay_objects_per_s"] / REPLAY_PER_S,
        "decisions_per_s": figures["decisions_per_s"] / DECISIONS_PER_S,
    }
    return BenchResult(
        scenario="bus",
        parameters=chosen,
        figures={key: round(value, 3) for key, value in figures.items()},
        ratios={key: round(value, 3) for key, value in ratios.items()},
        bound_by=f"CPU of the client: {busy:.2f} of one core busy",
        ok=all(ratio >= 1 for ratio in ratios.values()),
    )


SCENARIO = Scenario("bus", "replay of the state stream, and acknowledged decisions a second", run, DEFAULTS)
