"""What a Redis may be made to do: fill up, become a replica, be promoted, set its clock, hold nonsense."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio

from koord.accounting.takes import Take
from koord.ledger.client import Ledger
from koord.ledger.model import (
    Advance,
    ClaimRequest,
    LedgerDamaged,
    LedgerUnavailable,
    Member,
    NodeSeen,
    PodSeen,
    Release,
)
from koord.ledger.nominations import NominateRequest
from koord.localcluster.servers import RedisServer
from tests.ledger.world import World, connected, pod

NAMES = 1500


async def ready(ledger: Ledger, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not ledger.connected:
        assert time.monotonic() < deadline, "not connected in time"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def replica_of(primary: RedisServer) -> AsyncIterator[tuple[RedisServer, redis.asyncio.Redis]]:
    server = RedisServer()
    await server.start()
    try:
        async with (
            redis.asyncio.Redis.from_url(server.url) as raw,
            redis.asyncio.Redis.from_url(primary.url) as other,
        ):
            await other.config_set("repl-diskless-sync-delay", 0)
            await raw.execute_command("REPLICAOF", "127.0.0.1", str(primary.port))  # type: ignore[no-untyped-call]
            deadline = time.monotonic() + 60
            while (await raw.info("replication"))["master_link_status"] != "up":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            yield server, raw
    finally:
        await server.stop()


# ---- memory ----------------------------------------------------------------------------------------------------------


async def test_out_of_memory_is_unavailable_on_every_way(own_redis: RedisServer, cluster: str) -> None:
    """Also for what goes through redis-py, which takes the word OOM out of the reply."""
    async with connected(own_redis.url, cluster) as world:
        await world.node("n1", 4000)
        await world.open()
        await world.raw.config_set("maxmemory", 1)
        with pytest.raises(LedgerUnavailable, match="OOM"):
            await world.s1.nominate([NominateRequest("o", (pod("n", "n1", 1),), 1)])
        # A rebuild must run then, too: without it nothing would ever end.
        await world.r.shut(world.reconciler_epoch)
        epoch = await world.r.rebuild(world.reconciler_epoch, world.r.epoch + 1)
        await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 100}, "1"))
        assert await world.r.open(world.reconciler_epoch, epoch=epoch) == epoch


# ---- replicas --------------------------------------------------------------------------------------------------------


async def test_a_replica_is_no_ledger_and_says_so(own_redis: RedisServer, cluster: str) -> None:
    async with replica_of(own_redis) as (replica, _):
        with pytest.raises(LedgerUnavailable, match="read-only replica"):
            await Ledger.connect(replica.url, cluster, "s", wait_s=1.0)


async def test_a_primary_that_is_made_a_replica_is_left_and_a_promoted_one_is_closed(
    own_redis: RedisServer, cluster: str
) -> None:
    async with replica_of(own_redis) as (replica, raw):
        async with connected(own_redis.url, cluster) as world:
            await world.node("n1", 4000)
            await world.open()
            held = await world.claim(pod("p", "n1", 1000))
            assert (await world.advance(held)).status == "ok"
            await raw.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
            await world.raw.execute_command("REPLICAOF", "127.0.0.1", str(replica.port))  # type: ignore[no-untyped-call]
            for call in (
                world.claim(pod("q", "n1", 1)),
                world.s1.renew(),
                world.g.lead("gateway"),
                world.advance(held),
            ):
                with pytest.raises(LedgerUnavailable):
                    await call
            assert not world.s1.connected, "it is asked anew who the primary is"
        # What the promoted one has is a copy of the data, but it has another life: nothing counts before a rebuild.
        async with connected(replica.url, cluster) as promoted:
            status = await promoted.r.status()
            assert (status.open, status.binding) == (False, 1)
            assert (await promoted.claim(pod("q", "n1", 1))).answer.status == "closed"
            [late] = await promoted.g.advance(
                [Advance(held.request.id, held.answer.token, held.answer.epoch, "d", ("p",))], promoted.gateway_epoch
            )
            assert late.status == "closed"
            epoch = await promoted.r.rebuild(promoted.reconciler_epoch, status.epoch + 1)
            await promoted.node("n1", 4000)
            await promoted.r.open(promoted.reconciler_epoch, epoch=epoch)
            [late] = await promoted.g.advance(
                [Advance(held.request.id, held.answer.token, held.answer.epoch, "d", ("p",))], promoted.gateway_epoch
            )
            assert late.status == "epoch"


@pytest.mark.parametrize("guarded", [False, True])
async def test_a_primary_parted_from_its_replicas_confirms_nothing(
    own_redis: RedisServer, cluster: str, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """However long it is parted: it has been replaced, perhaps. With min-replicas-to-write Redis refuses by itself."""
    monkeypatch.setattr("koord.ledger.replicas.BELIEVED_S", 0.0)
    async with replica_of(own_redis) as (replica, _), connected(own_redis.url, cluster) as world:
        await world.node("n1", 4000)
        await world.open()
        held = await world.claim(pod("p", "n1", 1))
        assert (await world.advance(held)).attempt == 1
        if guarded:
            await world.raw.config_set("min-replicas-to-write", 1)
        await replica.kill()
        deadline = time.monotonic() + 60
        while (await world.raw.info("replication"))["connected_slaves"]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        for _ in range(3):
            with pytest.raises(LedgerUnavailable, match="NOREPLICAS" if guarded else "no replica confirmed"):
                await world.advance(held)
        if guarded:  # an operator who gives the replica up says so to Redis
            await world.raw.config_set("min-replicas-to-write", 0)
            assert (await world.advance(held)).status == "ok"


# ---- functions -------------------------------------------------------------------------------------------------------


async def test_the_library_is_loaded_again_whoever_flushed_it(own_redis: RedisServer, cluster: str) -> None:
    async with connected(own_redis.url, cluster) as world:
        await world.node("n1", 4000)
        await world.open()
        held = await world.claim(pod("p", "n1", 1))
        await world.raw.script_flush()
        assert (await world.advance(held)).status == "ok"
        await world.raw.function_flush()
        with pytest.raises(LedgerUnavailable, match="lost the function library"):
            await world.r.sweep(world.reconciler_epoch)
        await ready(world.r)
        assert (await world.r.sweep(world.reconciler_epoch)).status == "ok"
        assert await world.state(held.request.members[0]) == "BINDING"
        assert await world.amounts("node/n1") == (0, 1)


# ---- the clock -------------------------------------------------------------------------------------------------------


async def ahead(world: World, *suffixes: str, hours: float) -> None:
    """As if Redis' clock had been ahead when these were written."""
    for suffix in suffixes:
        rows: Any = await world.raw.zrange(world.key + suffix, 0, -1, withscores=True)
        for name, score in rows:
            await world.raw.zadd(world.key + suffix, {name: score + hours * 3_600_000})


async def left_ms(world: World, suffix: str, name: str) -> float:
    seconds, micros = await world.raw.time()
    score: Any = await world.raw.zscore(world.key + suffix, name)
    return float(score) - (seconds * 1000 + micros // 1000)


async def test_a_clock_that_was_set_back_holds_no_room_for_hours(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1000))
    await world.s1.renew()
    await world.deleted(pod("gone", "n1", 1))
    await world.s1.nominate([NominateRequest("o", (pod("n", "n1", 500),), 1)])
    await ahead(world, ":leases", ":renewals", ":offers", ":gone", hours=5)
    assert (await world.r.sweep(world.reconciler_epoch)).status == "ok"
    assert 0 < await left_ms(world, ":leases", held.request.id) <= 30_000
    assert 0 < await left_ms(world, ":renewals", world.s1.incarnation) <= 30_000
    assert 0 < await left_ms(world, ":offers", "o") <= 60_000
    assert 0 < await left_ms(world, ":gone", "gone") <= 600_000
    assert await world.state(held.request.members[0]) == "HELD"
    # A living owner goes on renewing, a dead one's room comes back.
    await world.s1.renew()
    assert (await world.r.sweep(world.reconciler_epoch)).expired == ()
    await world.lapse(held)
    assert [ended.claim for ended in (await world.r.sweep(world.reconciler_epoch)).expired] == [held.request.id]


async def test_a_clock_that_was_set_forward_ends_leases_and_nothing_else(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1000))
    binding = await world.claim(pod("q", "n1", 1000))
    observed = pod("r", "n1", 500)
    await world.claim(observed)
    await world.bound(observed)
    assert (await world.advance(binding)).status == "ok"
    await ahead(world, ":leases", ":renewals", ":gone", hours=-5)
    assert (await world.advance(held)).gone == ("p",)
    assert (await world.advance(binding)).attempt == 2
    assert await world.amounts("node/n1") == (500, 1000)


# ---- nonsense --------------------------------------------------------------------------------------------------------


async def test_somebody_elses_keys_do_not_matter(world: World) -> None:
    await world.raw.set(world.key, "x")
    await world.raw.set(world.key + ":elsewhere", "x")
    await world.raw.set("{koord:}:items", "x")
    assert (await world.claim(pod("p", "n1", 1))).answer.status == "ok"
    assert [fault async for fault in world.r.faults()] == []


async def test_damaged_bytes_change_nothing_and_name_the_function(world: World) -> None:
    held = await world.claim(pod("p", "n1", 1000))
    await world.raw.hset(world.key + ":items", "node/n2", b"\x01\x02\x03")
    await world.raw.hset(world.key + ":records", "x", b"\xc1")
    with pytest.raises(LedgerDamaged, match="claim_v1"):
        await world.s1.claim([ClaimRequest("c", (pod("y", "n1", 1), pod("z", "n2", 1)))])
    with pytest.raises(LedgerDamaged, match="items_v1"):
        await world.r.items()
    with pytest.raises(LedgerDamaged, match="scan_records_v1"):
        [record async for record in world.r.records()]
    assert await world.r.record("y") is None
    assert [(fault.kind, fault.name) async for fault in world.r.faults(("records", "items"))] == [
        ("record", "x"),
        ("item", "node/n2"),
    ]
    # What does not touch them goes on.
    assert (await world.advance(held)).status == "ok"
    [released] = await world.g.release(
        [Release(held.request.id, held.answer.token, ("p",), "gateway", world.gateway_epoch)]
    )
    assert released.released == ("p",)


async def test_names_that_nobody_offers_are_given_no_column(world: World) -> None:
    """Whoever may create a pod may have it ask for what nobody has heard of: it is counted, and nobody else suffers."""
    odd = {f"example.com/r{number}": 1 for number in range(NAMES)}
    seen = PodSeen("odd", "ns", "odd", "n1", (Take("node/n1", {"cpu": 1000, **odd}),), "5")
    assert (await world.see(seen)).observed == ("odd",)
    assert (await world.claim(pod("p", "n1", 3000))).answer.status == "ok"
    item = (await world.r.items_named(["node/n1"]))["node/n1"]
    assert (item.used["cpu"], item.used["*"]) == (1000, NAMES)
    assert await world.raw.hlen(world.key + ":columns") < 10
    # A quota does not limit them, a node has no room for them, and the answer names what was asked for.
    takes = (Take("node/n2", {"example.com/r1": 1, "example.com/new": 2}),)
    [answer] = await world.s1.claim([ClaimRequest("odd-1", (Member("q", "ns", "q", "n2", takes),))])
    assert [(short.key, short.needed, short.available) for short in answer.shorts] == [
        ("example.com/new", 2, 0),
        ("example.com/r1", 1, 0),
    ]
    await world.quota("admitted/q", cpu=1000)
    [answer] = await world.s1.claim([ClaimRequest("odd-2", (Member("u", "ns", "u", "", (Take("admitted/q", odd),)),))])
    assert answer.status == "ok"
    assert await world.amounts("admitted/q", "*") == (0, NAMES)
    assert (await world.r.sums(["node/n1", "admitted/q"]))["node/n1"].right
    assert [fault async for fault in world.r.faults()] == []
    await world.deleted(pod("odd", "n1", 1))
    assert await world.amounts("node/n1", "*") == (0, 0)
    assert await world.raw.smembers(world.key + ":strangers") == {b"u"}
    # A rebuild forgets all of it.
    await world.r.begin(world.reconciler_epoch)
    assert not await world.raw.exists(world.key + ":columns", world.key + ":strangers")


async def test_what_is_held_of_a_name_moves_into_its_column(world: World) -> None:
    """A node begins to offer what pods have asked for: the sums are as if it always had."""
    x, y = "example.com/x", "example.com/y"
    await world.see(PodSeen("a", "ns", "a", "n1", (Take("node/n1", {"cpu": 1, x: 3, y: 2**60}),), "5"))
    await world.see(PodSeen("b", "ns", "b", "n2", (Take("node/n2", {"cpu": 1, x: 1}),), "5"))
    await world.quota("admitted/q", cpu=1000)
    unit = Member("u", "ns", "u", "", (Take("admitted/q", {x: 7}),))
    [held] = await world.s1.claim([ClaimRequest("c", (unit,))])
    assert held.status == "ok"
    answer = await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 9, x: 4}, "9"))
    # Elsewhere nobody has more or less room by it.
    assert answer.changed == ("node/n1",)
    assert await world.amounts("node/n1", x) == (3, 0)
    assert await world.amounts("node/n2", x) == (1, 0)
    assert await world.amounts("admitted/q", x) == (0, 7)
    assert await world.amounts("node/n1", "*") == (2**53, 0)
    assert await world.amounts("admitted/q", "*") == (0, 0)
    assert await world.raw.smembers(world.key + ":strangers") == {b"a"}
    for name in ("node/n1", "node/n2", "admitted/q"):
        assert (await world.r.sums([name]))[name].right
    for number, wanted in ((1, "ok"), (2, "conflict")):
        takes = (Take("node/n1", {x: 1}),)
        [answer_] = await world.s1.claim([ClaimRequest(f"d{number}", (Member(f"d{number}", "ns", "d", "n1", takes),))])
        assert answer_.status == wanted
    await world.deleted(pod("a", "n1", 1))
    await world.deleted(pod("b", "n2", 1))
    assert await world.amounts("node/n1", x) == (0, 1)
    assert await world.amounts("node/n1", "*") == await world.amounts("node/n2", x) == (0, 0)


async def test_more_names_offered_than_the_table_holds(world: World) -> None:
    """Columns run out only by what nodes offer and quotas limit; then it is told which names were left out."""
    many = {f"example.com/r{number:04}": 1 for number in range(NAMES)}
    answer = await world.see(NodeSeen("node/n1", {"cpu": 4000, "pods": 9, **many}, "8"))
    assert await world.raw.hlen(world.key + ":columns") in (999, 1000)
    [nameless] = answer.nameless
    assert nameless.item == "node/n1" and nameless.name in many and NAMES - 999 <= nameless.count <= NAMES - 995
    answer = await world.see(NodeSeen("node/n2", {"cpu": 4000, "pods": 9, "example.com/late": 8}, "9"))
    assert [(one.item, one.count, one.name) for one in answer.nameless] == [("node/n2", 1, "example.com/late")]
    # There is no room for a name that shares its column, whatever a node says; all else goes on.
    takes = (Take("node/n2", {"example.com/late": 1}),)
    [late] = await world.s1.claim([ClaimRequest("late", (Member("q", "ns", "q", "n2", takes),))])
    assert late.status == "conflict"
    assert (await world.claim(pod("p", "n2", 3000))).answer.status == "ok"
    assert [fault async for fault in world.r.faults()] == []


# ---- leaders ---------------------------------------------------------------------------------------------------------


async def test_a_paused_reconciler_cannot_go_on_with_its_rebuild(world: World) -> None:
    """It slept between two steps; another one has led, rebuilt and opened meanwhile."""
    await world.r.shut(world.reconciler_epoch)
    target = world.r.epoch + 1
    await world.r.rebuild(world.reconciler_epoch, target)
    newer = await world.s2.lead("reconciler")
    await world.s2.shut(newer)
    epoch = await world.s2.rebuild(newer, target + 1)
    await world.s2.observe([NodeSeen("node/n1", {"cpu": 4000, "pods": 100}, "1")], role_epoch=newer)
    await world.s2.open(newer, epoch=epoch)
    for call in (
        world.r.rebuild(world.reconciler_epoch, target),
        world.r.open(world.reconciler_epoch, epoch=target),
        world.r.shut(world.reconciler_epoch),
    ):
        with pytest.raises(Exception, match="stale"):
            await call
    seen = await world.r.observe([NodeSeen("node/n1", {"cpu": 1}, "2")], role_epoch=world.reconciler_epoch)
    assert seen.status in ("stale", "epoch")
    assert (await world.r.status()).open
    assert (await world.r.items())["node/n1"].limits["cpu"] == 4000


@pytest.mark.parametrize("key", [":columns", ":records"])
async def test_a_leader_that_finds_nonsense_leaves_no_open_ledger_without_what_it_dropped(
    world: World, key: str
) -> None:
    """Numbers of columns that are given out anew would read one resource's room as another's."""
    await world.see(PodSeen("p", "ns", "p", "n1", pod("p", "n1", 3000).takes, "5"))
    if key == ":columns":
        await world.raw.hset(world.key + key, "nonsense", "x")
    else:
        await world.raw.unlink(world.key + key)
        await world.raw.set(world.key + key, "nonsense")
    await world.s2.lead("quota")
    assert not (await world.r.status()).open
    assert (await world.claim(pod("q", "n1", 3000))).answer.status == "closed"
    assert (await world.r.sweep(world.reconciler_epoch)).status == "closed"


async def test_a_leader_leaves_open_what_can_be_read(world: World) -> None:
    await world.s2.lead("quota")
    assert (await world.r.status()).open


async def test_the_largest_gang_goes_all_its_way_in_single_steps(world: World) -> None:
    await world.see(NodeSeen("node/big", {"cpu": 10**6, "pods": 5000}, "1"))
    held = await world.claim(*(pod(f"p{i}", "big", 3) for i in range(4096)))
    assert held.answer.status == "ok"
    moved = await world.advance(held)
    assert (moved.status, moved.attempt, moved.gone) == ("ok", 1, ())
    assert (await world.advance(held)).attempt == 2
    seen = [PodSeen(m.uid, "ns", m.name, "big", m.takes, "7") for m in held.request.members]
    assert len((await world.see(*seen)).observed) == 4096
    assert await world.amounts("node/big") == (3 * 4096, 0)
    assert [fault async for fault in world.r.faults()] == []
