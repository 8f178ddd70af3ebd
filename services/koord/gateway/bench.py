"""What a small write costs the gateway: the lean client against the general one it replaces.

Both send the same Binding to the same trivial server in a process of its own, over plain HTTP on loopback, sixteen at
a time. The server does nothing, so what is measured is the client; with a real API server the difference is what the
gateway has left for everything else.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import cast

import aiohttp
import uvloop

from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.gateway.access import ApiAccess
from koord.gateway.leanclient import JSON, LeanClient

LEAST = 2.0
"""The lean client must need at most half of the general one's CPU time, or it is not worth its code."""
_PATH = "/api/v1/namespaces/default/pods/web-0/binding"
_BODY = (
    b'{"metadata":{"name":"web-0","namespace":"default","uid":"8f3d6b0e-0000-4000-8000-000000000000",'
    b'"resourceVersion":"123456"},"target":{"name":"node-1","apiVersion":"v1","kind":"Node"},'
    b'"apiVersion":"v1","kind":"Binding"}'
)
_ANSWER = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
_HEAD = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_ANSWER)

Call = Callable[[], Awaitable[int]]


class _Trivial(asyncio.Protocol):
    """Answers every segment with a success."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._missing = 0

    def data_received(self, data: bytes) -> None:
        # A client may send head and body in two segments: answer when the body is there.
        if self._missing:
            self._missing -= len(data)
        else:
            head, _, body = data.partition(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            self._missing = length - len(body)
        if self._missing <= 0:
            self._missing = 0
            self._transport.write(_HEAD + _ANSWER)


def _serve(pipe: Connection) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Trivial, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


async def _measure(call: Call, calls: int, at_a_time: int) -> tuple[float, float]:
    """Calls per second, and microseconds of CPU time per call."""

    async def worker(count: int) -> None:
        for _ in range(count):
            if await call() != 201:
                raise RuntimeError("the server answered something else than 201")

    await asyncio.gather(*(worker(20) for _ in range(at_a_time)))
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker(calls // at_a_time) for _ in range(at_a_time)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    made = calls // at_a_time * at_a_time
    return made / wall, cpu / made * 1e6


async def run(parameters: Parameters) -> BenchResult:
    """Measure both clients."""
    calls, at_a_time = int(str(parameters["calls"])), int(str(parameters["at_a_time"]))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    try:
        port = await asyncio.to_thread(ours.recv)
        access = ApiAccess(f"http://127.0.0.1:{port}", authorization="Bearer token")
        lean = LeanClient(access, connections=at_a_time)

        async def by_lean() -> int:
            return (await lean.request("POST", _PATH, _BODY)).status

        lean_rate, lean_cpu = await _measure(by_lean, calls, at_a_time)
        await lean.close()
        headers = {"Authorization": access.authorization, "Content-Type": JSON, "Accept": JSON}
        connector = aiohttp.TCPConnector(limit=at_a_time)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

            async def by_aiohttp() -> int:
                async with session.post(access.url + _PATH, data=_BODY) as answer:
                    await answer.read()
                    return answer.status

            general_rate, general_cpu = await _measure(by_aiohttp, max(at_a_time, calls // 4), at_a_time)
    finally:
        server.terminate()
        server.join(5)
    return BenchResult(
        "gateway-writes",
        dict(parameters),
        {
            "calls_per_s": lean_rate,
            "cpu_us_per_call": lean_cpu,
            "aiohttp_calls_per_s": general_rate,
            "aiohttp_cpu_us_per_call": general_cpu,
        },
        ratios={"aiohttp_cpu/lean_cpu": general_cpu / lean_cpu},
        bound_by="one core of the client's process, or of the trivial server",
        ok=general_cpu / lean_cpu >= LEAST,
    )


SCENARIO = Scenario(
    "gateway-writes",
    "the gateway's lean HTTP client against a general one, on a trivial server",
    run,
    {"calls": 20_000, "at_a_time": 16},
)
