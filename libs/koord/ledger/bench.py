"""``koord bench ledger``: how many placements a second one Redis takes, from a real client over a real socket.

A placement is what the design counts: four resources of a node, a four-level quota chain, and the record. Figures are
of claims pipelined by one client (the scheduler's way), of single ones one after the other (latency), of gangs claimed
whole, and of the other calls that each pod passes through.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

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


async def measure(url: str, *, claims: int, nodes: int, singles: int, gangs: int, gang_size: int) -> dict[str, float]:
    """All figures against the Redis at ``url``, under a cluster name of its own; the rates are per second."""
    async with await Ledger.connect(url, f"bench-{time.time_ns()}", "bench") as ledger:
        reconciler, gateway = await _fill(ledger, nodes)
        figures: dict[str, float] = {}
        members = [_member(i, nodes) for i in range(claims)]
        requests = [ClaimRequest(f"bench-{i}", (member,)) for i, member in enumerate(members)]
        answers: list[ClaimAnswer] = []

        async def claim_all() -> None:
            answers.extend(_all_ok(await ledger.claim(requests)))

        busy = time.process_time()
        figures["claims_per_s"] = await _rate(claims, claim_all)
        figures["client_cpu_us_per_claim"] = (time.process_time() - busy) / claims * 1e6
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
            request = ClaimRequest(f"single-{i}", (_member(claims + i, nodes),))
            began = time.perf_counter()
            _all_ok(await ledger.claim([request]))
            latencies.append((time.perf_counter() - began) * 1e3)
        cuts = statistics.quantiles(latencies, n=100)
        figures["claim_p50_ms"], figures["claim_p99_ms"] = cuts[49], cuts[98]

        first = claims + singles
        groups = [
            ClaimRequest(f"gang-{i}", tuple(_member(first + i * gang_size + j, nodes) for j in range(gang_size)))
            for i in range(gangs)
        ]

        async def claim_gangs() -> None:
            _all_ok(await ledger.claim(groups))

        figures["gang_pods_per_s"] = await _rate(gangs * gang_size, claim_gangs)
        return figures


async def run(parameters: Parameters) -> BenchResult:
    """The scenario; starts a redis-server of its own unless ``url`` names one."""
    # Only the benchmark needs a server; the layer above is not the ledger's to import at load time.
    from importlib import import_module

    numbers = {name: int(str(parameters[name])) for name in ("claims", "nodes", "singles", "gangs", "gang_size")}
    url = str(parameters.get("url", ""))
    if url:
        figures = await measure(url, **numbers)
    else:
        server = import_module("koord.localcluster.servers").RedisServer()
        try:
            figures = await measure(await server.start(), **numbers)
        finally:
            await server.stop()
    return BenchResult(
        "ledger",
        dict(parameters),
        {name: round(value, 3) for name, value in figures.items()},
        ratios={"claims_per_s / required": round(figures["claims_per_s"] / REQUIRED_CLAIMS_PER_S, 3)},
        bound_by="redis-server's one thread",
        ok=figures["claims_per_s"] >= REQUIRED_CLAIMS_PER_S,
    )


SCENARIO = Scenario(
    "ledger",
    "claims a second: four node resources, a four-level quota chain and the record; gangs; latency",
    run,
    {"claims": 20_000, "nodes": 1_000, "singles": 2_000, "gangs": 100, "gang_size": 100, "url": ""},
)
