"""``upstream-basic-50k-nodes``: ten times the nodes of upstream's largest cluster, and the memory that it takes."""

import gc
import os
from pathlib import Path

import redis.asyncio

from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.scheduler.upstream.bed import Bed, Rate, new_bed, servers
from koord.scheduler.upstream.objects import nodes, pods

SHARE = 1 / 3
"""Of the rate with a tenth of the nodes, by CPU time."""
THRESHOLD, LEAST = 680.0, 3.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


def _resident() -> int:
    """The resident set of our process, in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


async def _stored(url: str) -> int:
    """What Redis holds, in bytes."""
    async with redis.asyncio.Redis.from_url(url) as server:
        return int((await server.info("memory"))["used_memory"])


async def _rate(bed: Bed, count: int, init_pods: int, measured: int) -> Rate:
    await bed.add_nodes(nodes(count))
    await bed.place(pods(init_pods, "init"))
    return await bed.place(pods(measured, "pod"))


async def run(parameters: Parameters) -> BenchResult:
    """The large cluster first, in a process that is small still; then the same pods on a tenth of the nodes."""
    count, init_pods, measured = (int(str(parameters[name])) for name in ("nodes", "init_pods", "pods"))
    async with servers() as on:
        async with new_bed(on) as bed:
            start, stored = _resident(), await _stored(on.redis)
            await bed.add_nodes(nodes(count))
            filled, stored_nodes = _resident(), await _stored(on.redis)
            await bed.place(pods(init_pods, "init"))
            before, stored_before = _resident(), await _stored(on.redis)
            rate = await bed.place(pods(measured, "pod"))
            after, stored_after = _resident(), await _stored(on.redis)
        async with new_bed(on) as bed:
            small = await _rate(bed, max(1, count // 10), init_pods, measured)
    ratio, share = rate.per_s / THRESHOLD, rate.per_cpu_s / small.per_cpu_s
    return BenchResult(
        "upstream-basic-50k-nodes",
        dict(parameters),
        {
            "decisions_per_s": rate.per_s,
            "decisions_per_cpu_s": rate.per_cpu_s,
            "tenth_of_nodes_decisions_per_s": small.per_s,
            "tenth_of_nodes_decisions_per_cpu_s": small.per_cpu_s,
            "bytes_per_node": (filled - start) / count,
            "bytes_per_pod": (after - before) / measured,
            "ledger_bytes_per_node": (stored_nodes - stored) / count,
            "ledger_bytes_per_pod": (stored_after - stored_before) / measured,
        },
        published={"decisions_per_s": THRESHOLD},
        ratios={"decisions_per_s": ratio, "share_of_tenth": share},
        bound_by="one core of the scheduler's process",
        ok=ratio >= LEAST and share >= SHARE,
    )


LARGE = Scenario(
    "upstream-basic-50k-nodes",
    "10,000 equal pods on 50,000 nodes, and the memory of a node and a pod (upstream, 5,000 nodes: 680 pods/s)",
    run,
    {"nodes": 50_000, "init_pods": 5_000, "pods": 10_000},
)
