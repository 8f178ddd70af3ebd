"""The client against real servers that die, restart, fill up, hang and are shared by many callers."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable

import pytest
import redis.asyncio

from koord.ledger.batching import Batcher
from koord.ledger.client import Ledger
from koord.ledger.model import Advance, ClaimRequest, LedgerError, LedgerRefused, LedgerUnavailable, NodeSeen, Release
from koord.ledger.replies import refusal
from koord.localcluster.servers import RedisServer
from tests.ledger.world import World, connected, pod


async def until(what: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "did not happen in time"
        await asyncio.sleep(0.01)


def request(number: int, cpu: int = 1, node: str = "n1") -> ClaimRequest:
    return ClaimRequest(f"x-{number}", (pod(f"p{number}", node, cpu),))


# ---- opening and losing ----------------------------------------------------------------------------------------------


async def test_fresh_ledger_is_closed_until_it_is_opened(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        status = await world.s1.status()
        assert (status.open, status.epoch) == (False, 0)
        await world.node("n1", 4000)
        assert (await world.claim(pod("p", "n1", 1))).answer.status == "closed"
        [advance] = await world.g.advance([Advance("x", 1, 0, "d", ("p",))], world.gateway_epoch)
        assert (advance.status, advance.gone) == ("closed", ("p",))
        [release] = await world.s1.release([Release("x", 1)])
        assert release.status == "closed"
        assert (await world.r.sweep(world.reconciler_epoch)).status == "closed"
        assert await world.s1.renew() == 0
        epoch = await world.r.open(world.reconciler_epoch)
        assert await world.r.open(world.reconciler_epoch) == epoch
        # The first call of one who has not heard is refused, and tells.
        first = await world.claim(pod("p", "n1", 1))
        assert (first.answer.status, first.answer.epoch) == ("epoch", epoch)
        assert (await world.claim(pod("p", "n1", 1))).answer.status == "ok"


async def test_begin_voids_everything_under_a_new_epoch(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1000))
    old = world.s1.epoch
    new = await world.r.begin(world.reconciler_epoch)
    assert new > old
    assert (await world.claim(pod("q", "n1", 1))).answer.status == "closed"
    assert (await world.advance(held)).status == "closed"
    await world.node("n1", 2000)
    assert await world.r.open(world.reconciler_epoch) == new
    assert (await world.advance(held)).status == "epoch"
    assert await world.s1.record("p") is None
    answer = await world.release(held)
    assert (answer.status, answer.released) == ("ok", ())
    held = await world.claim(pod("p", "n1", 2000))
    assert held.answer.status == "ok"
    assert held.answer.token > 1
    assert world.gateway_epoch == await world.g.lead("gateway")


@pytest.mark.parametrize("empty", [True, False])
async def test_restarted_redis_takes_nothing_until_rebuilt(own_redis: RedisServer, cluster: str, empty: bool) -> None:
    async with connected(own_redis.url, cluster) as world:
        await world.node("n1", 4000)
        old = await world.open()
        held = await world.claim(pod("p", "n1", 1000))
        await own_redis.restart(empty=empty)
        for client in (world.s1, world.g):
            await until(lambda client=client: client.connected)  # type: ignore[misc]
        assert (await world.claim(pod("q", "n1", 1))).answer.status == "closed"
        [answer] = await world.g.advance([Advance(held.request.id, 1, old, "d", ("p",))], world.gateway_epoch)
        assert answer.status == "closed"
        # What the reconciler would add as if nothing had happened is refused, it must begin again.
        seen = [NodeSeen("node/n1", {"cpu": 4000, "pods": 9}, "1")]
        missed = await world.r.observe(seen, role_epoch=world.reconciler_epoch)
        assert missed.status == ("epoch" if empty else "closed")
        if not empty:
            with pytest.raises(LedgerError, match="closed"):
                await world.r.open(world.reconciler_epoch)
        new = await world.r.begin(world.reconciler_epoch)
        assert new > old
        await world.see(*seen)
        await world.open()
        assert await world.r.record("p") is None
        # The roles' epochs were not restarted either.
        assert await world.s2.lead("gateway") > world.gateway_epoch - 1
        [answer] = await world.g.advance([Advance(held.request.id, 1, old, "d", ("p",))], await world.g.lead("gateway"))
        assert answer.status == "epoch"
        assert (await world.claim(pod("p", "n1", 4000))).answer.status == "ok"


async def test_dead_redis_fails_closed_and_comes_back(own_redis: RedisServer, cluster: str) -> None:
    async with connected(own_redis.url, cluster) as world:
        await world.node("n1", 4000)
        await world.open()
        await own_redis.kill()
        await until(lambda: not world.s1.connected)
        for call in (
            world.s1.claim([request(1)]),
            world.g.advance([Advance("x-1", 1, 1, "d", ("p1",))], 1),
            world.s1.release([Release("x-1", 1)]),
            world.s1.renew(),
            world.s1.status(),
        ):
            with pytest.raises(LedgerUnavailable):
                await call
        with pytest.raises(LedgerUnavailable):
            await Ledger.connect(own_redis.url, cluster, "late", wait_s=0.2)
        await own_redis.start()
        await until(lambda: world.s1.connected)
        assert (await world.s1.claim([request(1)]))[0].status == "closed"
        assert not (await world.s1.status()).open


async def test_hanging_redis_is_as_good_as_dead(own_redis: RedisServer, cluster: str) -> None:
    async with await Ledger.connect(own_redis.url, cluster, "s", timeout_s=1.0) as ledger:
        assert own_redis.pid is not None
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            with pytest.raises(LedgerUnavailable):  # there is no answer until it goes on
                await asyncio.wait_for(ledger.claim([request(1)]), 60)
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)

        async def answered() -> str:
            while True:
                await until(lambda: ledger.connected)
                with contextlib.suppress(LedgerUnavailable):
                    return (await ledger.claim([request(1)]))[0].status

        assert await asyncio.wait_for(answered(), 60) == "closed"


async def test_lost_library_is_loaded_again(own_redis: RedisServer, cluster: str) -> None:
    async with connected(own_redis.url, cluster) as world:
        await world.node("n1", 4000)
        await world.open()
        await world.raw.function_flush()
        assert (await world.claim(pod("p", "n1", 1))).answer.status == "closed"
        await until(lambda: world.s1.connected)
        assert (await world.claim(pod("p", "n1", 1))).answer.status == "ok"


async def test_out_of_memory_takes_nothing_but_lets_work_end(own_redis: RedisServer, cluster: str) -> None:
    async with connected(own_redis.url, cluster) as world:
        await world.node("n1", 4000)
        await world.open()
        held = await world.claim(pod("p", "n1", 1000))
        other = await world.claim(pod("q", "n1", 1000))
        await world.raw.config_set("maxmemory", 1)
        with pytest.raises(LedgerUnavailable, match="OOM"):
            await world.claim(pod("r", "n1", 1))
        assert (await world.advance(held)).status == "ok"
        assert (await world.bound(held.request.members[0])).observed == ("p",)
        assert (await world.release(other)).released == ("q",)
        assert await world.s1.renew() == 0
        assert await world.g.lead("gateway") == world.gateway_epoch
        await world.raw.config_set("maxmemory", 0)
        assert (await world.claim(pod("r", "n1", 1))).answer.status == "ok"


async def test_with_replicas_a_move_counts_once_one_has_it(own_redis: RedisServer, cluster: str) -> None:
    replica = RedisServer()
    await replica.start()
    try:
        async with (
            redis.asyncio.Redis.from_url(replica.url) as raw,
            redis.asyncio.Redis.from_url(own_redis.url) as primary,
        ):
            await primary.config_set("repl-diskless-sync-delay", 0)
            await raw.execute_command("REPLICAOF", "127.0.0.1", str(own_redis.port))  # type: ignore[no-untyped-call]
            deadline = time.monotonic() + 60
            while (await raw.info("replication"))["master_link_status"] != "up":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            async with connected(own_redis.url, cluster) as world:
                await world.node("n1", 4000)
                await world.open()
                held = await world.claim(pod("p", "n1", 1))
                assert (await world.advance(held)).attempt == 1
                # It got there with the sums, and a replica that was asked by mistake takes nothing.
                assert await raw.hexists(world.key + ":records", "p")
                with pytest.raises(LedgerUnavailable):
                    async with await Ledger.connect(replica.url, cluster, "lost") as lost:
                        await lost.claim([request(1)])
                await replica.kill()
                with pytest.raises(LedgerUnavailable, match="no replica confirmed"):
                    await world.advance(held)
    finally:
        await replica.stop()


async def test_redis_that_evicts_is_refused(own_redis: RedisServer, cluster: str) -> None:
    async with redis.asyncio.Redis.from_url(own_redis.url) as raw:
        await raw.config_set("maxmemory", 10**9)
        await raw.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(LedgerRefused, match="allkeys-lru, must be noeviction"):
            await Ledger.connect(own_redis.url, cluster, "s")


async def test_clusters_share_a_redis(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as one, connected(redis_url, cluster + "-b") as two:
        await one.node("n1", 1000)
        await one.open()
        await two.node("n1", 1000)
        await two.open()
        assert (await one.claim(pod("p", "n1", 1000))).answer.status == "ok"
        assert (await two.claim(pod("p", "n1", 1000))).answer.status == "ok"
        assert all(one.key in str(key) for key in await one.raw.keys(f"*{cluster}}}*"))


async def test_database_and_password_of_the_url(own_redis: RedisServer, cluster: str) -> None:
    async with redis.asyncio.Redis.from_url(own_redis.url) as raw:
        await raw.config_set("requirepass", "s3cret/@")
        url = f"redis://:s3cret%2F%40@127.0.0.1:{own_redis.port}/3"
        async with connected(url, cluster) as world:
            await world.node("n1", 1000)
            await world.open()
            assert (await world.claim(pod("p", "n1", 1000))).answer.status == "ok"
            assert await world.raw.exists(world.key + ":records") == 1
        with pytest.raises(LedgerUnavailable, match="NOAUTH"):
            await Ledger.connect(own_redis.url, cluster, "s", wait_s=0.2)


def test_error_replies_are_told_apart() -> None:
    assert type(refusal("REFUSED claim x: no")) is LedgerRefused
    assert type(refusal("READONLY You can't write")) is LedgerUnavailable
    assert type(refusal("ERR user_function:1: boom")) is LedgerError


# ---- many callers ----------------------------------------------------------------------------------------------------


async def test_concurrent_callers_get_their_own_answers(world: World) -> None:
    await world.node("n1", 10**6, version="2", gpu=1)
    await world.see(NodeSeen("node/n1", {"cpu": 10**6, "pods": 10**4}, "3"))

    async def caller(first: int) -> list[int]:
        answers = await world.s1.claim([request(first + i) for i in range(1 + first % 7)])
        return [answer.token for answer in answers]

    tokens = await asyncio.gather(*(caller(1000 + 10 * i) for i in range(200)))
    flat = [token for part in tokens for token in part]
    assert len(set(flat)) == len(flat) == sum(1 + (1000 + 10 * i) % 7 for i in range(200))
    for i in (0, 77, 199):
        record = await world.s1.record(f"p{1000 + 10 * i}")
        assert record is not None
        assert record.token == tokens[i][0]


async def test_more_callers_than_connections_wait_for_their_turn(world: World) -> None:
    answers = await asyncio.gather(*(world.s1.release([Release(f"c{number}", 1)]) for number in range(300)))
    assert [answer.released for [answer] in answers] == [()] * 300


async def test_cancelled_callers_do_not_shift_answers(world: World) -> None:
    await world.see(NodeSeen("node/n1", {"cpu": 10**6, "pods": 10**4}, "3"))
    tasks = [asyncio.create_task(world.s1.claim([request(i, cpu=1 + i)])) for i in range(300)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    await asyncio.sleep(0.001)
    for task in tasks[1::3]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    # Sent or not, each of the others has the token of its own record; then a fresh round is in order too.
    for i, answers in enumerate(done):
        if isinstance(answers, list):
            record = await world.s1.record(f"p{i}")
            assert record is not None
            assert (record.claim, record.token) == (f"x-{i}", answers[0].token)
    again = await world.s1.claim([request(i, cpu=1 + i) for i in range(300)])
    assert {answer.status for answer in again} == {"ok"}
    assert await world.amounts("node/n1") == (0, sum(range(1, 301)))


async def test_advances_of_an_older_leadership_are_not_lifted(world: World) -> None:
    first = await world.claim(pod("p", "n1", 1))
    second = await world.claim(pod("q", "n1", 1))
    await world.s2.lead("gateway")
    newer = await world.g.lead("gateway")
    old, new = await asyncio.gather(world.advance(first), world.advance(second, role_epoch=newer))
    assert (old.status, old.gone, new.status) == ("stale", ("p",), "ok")


async def test_two_schedulers_never_take_the_same_room(world: World) -> None:
    """Contending for 20 places of 100 pods each; then everything is given back."""
    await world.see(NodeSeen("node/n1", {"cpu": 20, "pods": 10**4}, "3"))
    answers = await asyncio.gather(
        *(
            s.claim([ClaimRequest(f"{s.incarnation}-{i}", (pod(f"{s.incarnation}-p{i}", "n1", 1),))])
            for i in range(50)
            for s in (world.s1, world.s2)
        )
    )
    won = [answer for [answer] in answers if answer.status == "ok"]
    assert len(won) == 20
    assert len({answer.token for answer in won}) == 20
    assert await world.amounts("node/n1") == (0, 20)
    await asyncio.gather(
        *(
            s.release([Release(f"{s.incarnation}-{i}", answers[2 * i + k][0].token)])
            for i in range(50)
            for k, s in enumerate((world.s1, world.s2))
        )
    )
    assert await world.amounts("node/n1") == (0, 0)


async def test_gangs_never_hold_a_part(world: World) -> None:
    for i in range(10):
        await world.node(f"g{i}", 1)

    async def gang(ledger: Ledger, number: int) -> str:
        members = tuple(pod(f"{ledger.incarnation}-{number}-{i}", f"g{(number + i) % 10}", 1) for i in range(4))
        [answer] = await ledger.claim([ClaimRequest(f"{ledger.incarnation}-{number}", members)])
        return answer.status

    statuses = await asyncio.gather(*(gang(s, i) for i in range(10) for s in (world.s1, world.s2)))
    held = statuses.count("ok")
    assert 1 <= held <= 2
    status = await world.s1.status()
    assert status.held == 4 * held


async def test_batcher_fills_calls_and_passes_errors_on() -> None:
    calls: list[list[int]] = []
    gate = asyncio.Event()

    async def send(batch: list[int]) -> list[int]:
        calls.append(batch)
        await gate.wait()
        if 13 in batch:
            raise LedgerUnavailable("thirteen")
        return [number * 2 for number in batch]

    batcher: Batcher[int, int] = Batcher(send, weight=lambda number: number, limit=10, in_flight=2)
    good = asyncio.create_task(batcher.ask([1, 2, 3, 4, 5]))
    bad = asyncio.create_task(batcher.ask([13]))
    last = asyncio.create_task(batcher.ask([6]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.set()
    assert await good == [2, 4, 6, 8, 10]
    with pytest.raises(LedgerUnavailable, match="thirteen"):
        await bad
    assert await last == [12]
    assert calls == [[1, 2, 3, 4], [5], [13], [6]]
    assert await batcher.ask([]) == []


# ---- reading ---------------------------------------------------------------------------------------------------------


async def test_scans_see_everything(world: World) -> None:
    await world.see(*(NodeSeen(f"node/m{i}", {"cpu": 5, "pods": 9}, "1") for i in range(3000)))
    await world.s1.claim([request(i, node=f"m{i}") for i in range(2500)])
    assert len(await world.s1.items("node/m")) == 3000
    assert len(await world.s1.items("node/m299")) == 11
    everything = await world.s1.items()
    wanted = [f"node/m{i}" for i in range(0, 6000, 2)]
    named = await world.s1.items_named(wanted)
    assert named == {name: everything[name] for name in wanted if name in everything}
    assert len(named) == 1500
    assert await world.s1.items_named(()) == {}
    assert sorted([record.uid async for record in world.s1.records()]) == sorted(f"p{i}" for i in range(2500))
