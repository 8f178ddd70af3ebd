"""Spec 20 section 3.12, table of failures: reconcilers, nodes, quotas, foreign schedulers, a ledger that is away."""

import asyncio
from typing import Any

from koord.ledger.model import LimitSet
from koord.localcluster.clusterapi import Object
from koord.localcluster.servers import RedisServer
from koord.telemetry.context import TraceContext
from tests.failures.bed import NAMESPACE, Bed, made, until, untouched

QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"


async def test_r_dead_only_delays_freeing(bed: Bed) -> None:
    """R slow, dead, or two | Lateness only delays freeing, it never double-books koord's pods."""
    async with bed.scheduling():
        first = [f"a{number}" for number in range(8)]
        for name in first:
            await bed.pod(name)
        await bed.bound(*first)
        pods = [await bed.api.get("pods", NAMESPACE, name) for name in first]
        await bed.become("OBSERVED", *pods)
        await bed.kill("reconciler")
        for name in first[:4]:
            await bed.delete("pods", name)
        for number in range(4):
            await bed.pod(f"b{number}")

        async def tried() -> bool:
            events, _ = await bed.api.list("events", NAMESPACE)
            return any(event["involvedObject"]["name"] == "b0" for event in events)

        await until(tried, "b0 is tried")
        # There is room by the API, none by the ledger: nobody has seen the deletions.
        assert await bed.nodes_of("b0", "b1", "b2", "b3") == [""] * 4
        await bed.start("reconciler")
        await bed.bound("b0", "b1", "b2", "b3")
    for node in ("n1", "n2"):
        await bed.amounts_become(node, 4000, 0)


async def test_node_deleted_under_a_held_gang(bed: Bed) -> None:
    """Node deleted | items closed. HELD: row 5, gang replans whole."""
    gang = [await bed.pod(f"a{number}", gang=("a", 3)) for number in range(3)]
    await bed.claim("n1", *gang)
    await bed.delete("nodes", "n1")
    await bed.become("-", *gang)
    async with bed.scheduling():
        await bed.bound("a0", "a1", "a2", to="n2")
    item = (await bed.ledger.items("node/n1")).get("node/n1")
    assert item is None, "nobody refers to the closed item"


async def test_node_deleted_while_binding(bed: Bed) -> None:
    """Node deleted | BINDING: rows 8-10; a pod bound to a missing node lives until the cluster's pod GC, then 13."""
    pod = await bed.pod("a")
    goes_on = asyncio.Event()

    async def hold(call: Any) -> Any:
        bed.stands.set()
        await goes_on.wait()
        return await call()

    bed.request = hold
    settling = asyncio.create_task(bed.publisher.settle(await bed.claim("n1", pod), TraceContext.new(), timeout=60))
    await asyncio.wait_for(bed.stands.wait(), 60)
    await bed.delete("nodes", "n1")

    async def closed() -> bool:
        item = (await bed.ledger.items("node/n1")).get("node/n1")
        return item is not None and not item.open

    await until(closed, "the item is closed")
    assert await bed.states(pod) == ["BINDING"]
    goes_on.set()
    assert (await settling).outcome == "done"
    await bed.become("OBSERVED", pod)
    assert await bed.amounts("n1") == (1000, 0)
    await bed.delete("pods", "a")  # as the pod garbage collector does
    await bed.become("-", pod)

    async def gone() -> bool:
        return "node/n1" not in await bed.ledger.items("node/n1")

    await until(gone, "the closed item goes with its last record")


async def test_quota_lowered(bed: Bed) -> None:
    """Quota lowered or closed | a claim sees the old or the new limit; records stand; free < 0 only stops new takes;
    release uses stored takes."""
    spec = {"min": {"cpu": "0"}, "max": {"cpu": "8"}}
    body: Object = {"kind": "ElasticQuota", "metadata": {"name": "team"}, "spec": spec}
    body["apiVersion"] = "scheduling.sigs.k8s.io/v1alpha1"
    await bed.api.create("elasticquotas.scheduling.sigs.k8s.io", NAMESPACE, body)
    role_epoch = await bed.ledger.lead("quota")

    async def limit(cpu: int) -> None:
        limits = [LimitSet("quota/team", {"cpu": cpu}), LimitSet("admitted/team", {"cpu": cpu})]
        assert (await bed.ledger.observe(limits, role="quota", role_epoch=role_epoch)).status == "ok"

    async def used() -> int:
        items = await bed.ledger.items_named(["quota/team"])
        return items["quota/team"].used.get("cpu", 0) + items["quota/team"].held.get("cpu", 0)

    await limit(3000)
    async with bed.scheduling():
        for name in ("a0", "a1", "a2"):
            await bed.pod(name, labels={QUOTA_LABEL: "team"})
        await bed.bound("a0", "a1", "a2")
        await limit(1000)
        await bed.pod("b", labels={QUOTA_LABEL: "team"})
        await bed.pod("c")
        await bed.bound("c")  # planned after b: b was tried
        assert await bed.nodes_of("b") == [""]
        assert all(await bed.nodes_of("a0", "a1", "a2")), "what runs is not touched"
        assert await used() == 3000
        await bed.delete("pods", "a0")
        await bed.delete("pods", "a1")
        await until(lambda: _is(used, 1000), "what was stored is given back")
        assert await bed.nodes_of("b") == [""]
        await bed.delete("pods", "a2")
        await bed.bound("b")
        assert await used() == 1000


async def _is(amount: Any, wanted: int) -> bool:
    return bool(await amount() == wanted)


async def test_foreign_scheduler_binds(bed: Bed) -> None:
    """Foreign scheduler binds | row 11. If limit - used - held < 0 on a node item: HELD claims on it go (row 5), newest
    token first, until >= 0, BINDING stays."""
    bed.request = bed.stand
    binding, older, newer = [await bed.pod(name) for name in ("binding", "older", "newer")]
    await bed.publish(await bed.claim("n1", binding))
    await asyncio.wait_for(bed.stands.wait(), 60)
    await bed.claim("n1", older)
    await bed.claim("n1", newer)
    for number in range(2):
        await bed.pod(f"foreign{number}", scheduler="other")
        await bed.bind_foreign(f"foreign{number}", "n1")
    await bed.become("-", newer)
    await bed.amounts_become("n1", 2000, 2000)
    assert await bed.states(binding, older) == ["BINDING", "HELD"]
    for number in range(2, 4):
        await bed.pod(f"foreign{number}", scheduler="other")
        await bed.bind_foreign(f"foreign{number}", "n1")
    await bed.become("-", older)
    await bed.amounts_become("n1", 4000, 1000)  # below zero: nobody can pay
    assert await bed.states(binding) == ["BINDING"]
    bed.request = untouched
    async with bed.scheduling():
        await bed.bound("older", "newer", to="n2")


async def test_redis_writes_lost(nats_url: str, own_redis: RedisServer, cluster: str, tmp_path: Any) -> None:
    """Redis ... writes lost | fail closed: pods stay queued, G binds nothing, running work untouched; then rebuild."""
    async with made(nats_url, own_redis.url, cluster, tmp_path / "api") as bed:
        await bed.node("n1", 4)
        await bed.start("gateway", "reconciler")
        await bed.opened()
        async with bed.scheduling():
            await bed.pod("a")
            await bed.bound("a")
            epoch = (await bed.ledger.status()).epoch
            await bed.kill("reconciler")  # nobody opens it again
            await own_redis.restart(empty=False)  # with a copy of a moment ago: its run_id tells

            async def shut() -> bool:
                return not (await bed.ledger.status()).open

            await until(shut, "the ledger is closed")
            await bed.pod("b")
            await bed.pod("c")
            sent = list(bed.bindings)
            late = asyncio.create_task(asyncio.sleep(0.5))
            while not late.done():  # a while in which nothing may happen
                assert await bed.nodes_of("b", "c") == ["", ""]
                await asyncio.sleep(0.02)
            assert bed.bindings == sent
            assert await bed.nodes_of("a") == ["n1"]
            await bed.start("reconciler")
            await bed.bound("b", "c")
        assert (await bed.ledger.status()).epoch > epoch
        await bed.amounts_become("n1", 3000, 0)
