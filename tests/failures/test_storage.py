"""Spec 20 section 3.12, table of failures: Redis without memory or with nonsense in it, NATS without its store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from koord.localcluster.servers import RedisServer
from tests.failures.bed import NAMESPACE, Bed, made, until


async def test_redis_out_of_memory(nats_url: str, own_redis: RedisServer, cluster: str, tmp_path: Path) -> None:
    """Redis out of memory | fail closed: pods stay queued, running work untouched; what ends or settles goes on."""
    async with made(nats_url, own_redis.url, cluster, tmp_path / "api") as bed:
        await bed.node("n1", 4)
        await bed.start("gateway", "reconciler")
        await bed.opened()
        async with bed.scheduling(), redis.asyncio.Redis.from_url(own_redis.url) as raw:
            await bed.pod("a")
            await bed.pod("b")
            await bed.bound("a", "b")
            await bed.amounts_become("n1", 2000, 0)
            epoch = (await bed.ledger.status()).epoch
            await raw.config_set("maxmemory", 1)
            await bed.pod("c")
            await bed.delete("pods", "a")
            await bed.amounts_become("n1", 1000, 0)  # an end is folded all the same
            late = asyncio.create_task(asyncio.sleep(0.5))
            while not late.done():  # a while in which nothing may be bound
                assert await bed.nodes_of("c") == [""]
                await asyncio.sleep(0.02)
            assert bed.bindings == ["a", "b"]
            await raw.config_set("maxmemory", 0)
            await bed.bound("c")
        assert (await bed.ledger.status()).epoch == epoch, "nothing was lost: no rebuild"
        await bed.amounts_become("n1", 2000, 0)


async def test_nonsense_in_the_ledger(nats_url: str, own_redis: RedisServer, cluster: str, tmp_path: Path) -> None:
    """Redis ... | fail closed; then rebuild: somebody wrote into the node's item, and nobody can read it any more."""
    async with made(nats_url, own_redis.url, cluster, tmp_path / "api") as bed:
        await bed.node("n1", 4)
        await bed.start("gateway", "reconciler")
        await bed.opened()
        async with bed.scheduling(), redis.asyncio.Redis.from_url(own_redis.url) as raw:
            await bed.pod("a")
            await bed.bound("a")
            await bed.amounts_become("n1", 1000, 0)
            epoch = (await bed.ledger.status()).epoch
            await raw.hset(f"{{koord:{cluster}}}:items", "node/n1", "mine")
            await bed.pod("b")
            await bed.delete("pods", "a")  # told of it, the reconciler meets the item; else its audit would
            await bed.bound("b")
        assert (await bed.ledger.status()).epoch > epoch
        assert bed.bindings == ["a", "b"]
        await bed.amounts_become("n1", 1000, 0)


@pytest.mark.parametrize("reconciler", ["sits", "takes over"])
async def test_nats_store_lost(bed: Bed, reconciler: str) -> None:
    """Decision lost with its stream | BINDING > 60 s, unbound and not in G's hands: R has G settle, then 9.

    The state went with it, and objects meanwhile: what the gateway lists is caught up with, the ledger stays open.
    """
    running, goes, binding, held = [await bed.pod(name) for name in ("running", "goes", "binding", "held")]
    for name, node in (("running", "n1"), ("goes", "n2")):
        await bed.publish(await bed.claim(node, {"running": running, "goes": goes}[name]))
        await bed.bound(name, to=node)
    await bed.become("OBSERVED", running, goes)
    bed.request = bed.stand
    await bed.publish(await bed.claim("n1", binding))
    await asyncio.wait_for(bed.stands.wait(), 60)
    await bed.claim("n1", held)
    before = await bed.ledger.status()
    await bed.kill(*(["gateway", "reconciler"] if reconciler == "takes over" else ["gateway"]))
    for stream in (bed.bus.subjects.state_stream, bed.bus.subjects.decisions_stream):
        await bed.bus.js.delete_stream(stream)
    await bed.delete("pods", "goes")
    await bed.pod("young")
    await bed.start("gateway")
    if reconciler == "takes over":
        await bed.start("reconciler")
    await bed.become("-", binding, goes)
    assert await bed.states(running, held) == ["OBSERVED", "HELD"]
    await bed.amounts_become("n1", 1000, 1000)
    await bed.amounts_become("n2", 0, 0)

    async def folded() -> bool:
        return (await bed.ledger.status()).folded.epoch not in ("", before.folded.epoch)

    await until(folded, "the new stream is folded")
    async with bed.scheduling():
        await bed.bound("binding", "young")
    status = await bed.ledger.status()
    assert (status.open, status.epoch) == (True, before.epoch), "there was no rebuild"
    pods: Any
    pods, _ = await bed.api.list("pods", NAMESPACE)
    assert {pod["metadata"]["name"] for pod in pods} == {"running", "binding", "held", "young"}
    assert sorted(bed.bindings) == ["binding", "binding", "goes", "running", "young"]
