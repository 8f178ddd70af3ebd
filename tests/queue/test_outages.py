"""The queue service dies, or NATS or Redis do: what was begun is finished by whoever is there."""

import asyncio
import time
from typing import Any

import pytest

from koord.accounting.takes import unit_takes
from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS, TFJOBS
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member
from koord.localcluster.servers import NatsServer, RedisServer
from koord.queue import service
from koord.quota.service import QuotaService
from koord.quota.settings import QuotaSettings
from tests.queue.harness import MiniCluster, node, quota, running, tfjob, until
from tests.queue.looking import TF, phase, reserved, resumed, start_queue, status, unit_of


async def test_a_queue_killed_at_any_step_is_continued_by_the_next(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "40"))
    first = await start_queue(mini)
    for number in range(20):
        await mini.put(TFJOBS, tfjob(f"j{number}", "q"))
    await until(lambda: sum(resumed(mini, f"j{n}") is not None for n in range(20)) >= 3, "some are through")
    await mini.kill(first._host)
    await asyncio.sleep(0)
    await start_queue(mini)
    await until(lambda: all(resumed(mini, f"j{n}") is not None for n in range(20)), "all resumed", timeout=60)
    item = (await mini.ledger.items("admitted/"))["admitted/q"]
    assert item.used.get("cpu", 0) + item.held.get("cpu", 0) == 40000


async def test_what_a_dead_queue_only_held_is_given_back_by_the_next(mini: MiniCluster) -> None:
    """Not when the lease of its claim is over: it lasts longer than this test may."""
    await mini.put(ELASTIC_QUOTAS, quota("q", "1"))
    first = await start_queue(mini)
    await mini.put(TFJOBS, tfjob("b", "q"))
    await until(lambda: phase(mini, "b" + TF) != "none", "b has a unit")
    await mini.kill(first._host)
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    meta = unit_of(mini, "b" + TF)["metadata"]
    async with await Ledger.connect(mini.redis_url, mini.cluster, "queue-dead", lease_s=3600.0) as dead:
        takes = unit_takes({"cpu": 2000}, ("q",))
        member = Member(meta["uid"], "team", "b" + TF, "", takes)

        async def held() -> bool:
            [answer] = await dead.claim([ClaimRequest("queue-dead-1", (member,))])
            return answer.status == "ok"

        await until(held, "the quota's limit is raised")
    await start_queue(mini)
    await until(lambda: resumed(mini, "b"), "b goes on")


async def test_a_bus_outage_is_sat_out(own_nats: NatsServer, redis_url: str, cluster: str) -> None:
    async with running(own_nats.url, redis_url, cluster) as mini:
        await mini.put(NODES, node("n"))
        await QuotaService(await mini.host("quota"), QuotaSettings()).start()
        await mini.put(ELASTIC_QUOTAS, quota("q", "8"))
        queue = await start_queue(mini)
        await mini.put(TFJOBS, tfjob("a", "q"))
        await until(lambda: resumed(mini, "a"), "before")
        await own_nats.kill()
        await until(lambda: not queue._lease.held, "the lease is over", timeout=60)
        await own_nats.restart(empty=False)
        await until(lambda: mini.bus.connected, "reconnected")
        await mini.put(TFJOBS, tfjob("b", "q"))
        await until(lambda: resumed(mini, "b"), "after", timeout=60)
        await status(mini, "a", "Succeeded")
        await until(lambda: phase(mini, "a" + TF) == "Succeed", "a ends")
        assert all(not task.done() for host in mini._hosts for task in host._tasks)


async def test_a_lost_ledger_is_waited_for(nats_url: str, own_redis: RedisServer, cluster: str) -> None:
    async with running(nats_url, own_redis.url, cluster) as mini:
        await mini.put(NODES, node("n"))
        await QuotaService(await mini.host("quota"), QuotaSettings()).start()
        await mini.put(ELASTIC_QUOTAS, quota("q", "4"))
        await start_queue(mini)
        await mini.put(TFJOBS, tfjob("a", "q", workers=3))
        await until(lambda: resumed(mini, "a"), "before")
        await own_redis.kill()
        await mini.put(TFJOBS, tfjob("b", "q", workers=1))
        await until(lambda: phase(mini, "b" + TF) != "none", "b has a unit")
        await own_redis.restart(empty=True)
        await mini.rebuild()
        await until(lambda: resumed(mini, "b"), "after", timeout=60)
        await mini.put(TFJOBS, tfjob("c", "q", workers=1))
        await until(lambda: "cpu" in reserved(mini, "c" + TF).get("message", ""), "c does not fit beside a and b")
        item = (await mini.ledger.items("admitted/"))["admitted/q"]
        assert item.used.get("cpu", 0) + item.held.get("cpu", 0) == 4000


async def test_a_clock_that_is_set_back_holds_nobody_up(mini: MiniCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        back_s = 0

        def time(self) -> float:
            return time.time() - self.back_s

        def time_ns(self) -> int:
            return time.time_ns() - self.back_s * 10**9

        def __getattr__(self, name: str) -> Any:
            return getattr(time, name)

    clock = Clock()
    monkeypatch.setattr(service, "time", clock)
    await mini.put(ELASTIC_QUOTAS, quota("q", "4"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: resumed(mini, "a"), "before")
    clock.back_s = 3600
    await mini.put(TFJOBS, tfjob("b", "q"))
    await until(lambda: resumed(mini, "b"), "after")
    await mini.put(TFJOBS, tfjob("c", "q"))
    await until(lambda: "cpu" in reserved(mini, "c" + TF).get("message", ""), "c says why it waits")
    await mini.delete(TFJOBS, "team/a")
    await until(lambda: resumed(mini, "c"), "room came free")


async def test_a_list_made_anew_is_complete_too(mini: MiniCluster) -> None:
    """After a rebuild of the ledger the lists' markers carry a word: a queue that starts then must know them."""
    await mini.publisher.listed(PODS, "2", mark="rebuilt-after-a-loss")
    queue = await start_queue(mini)
    await until(lambda: queue._host.ready.ready)
