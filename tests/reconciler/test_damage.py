"""Damage that no sum shows, and data that nobody can read: found, told and mended by a rebuild; the service goes on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
import redis.asyncio

from koord.bus.connection import Bus
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, LedgerDamaged, LedgerUnavailable, Member, Slot
from koord.reconciler import metrics
from koord.reconciler.auditing import Auditor
from koord.telemetry.spans import Spans
from tests.reconciler.test_auditing import right, underneath
from tests.reconciler.test_term import Bed, Cluster, opened, reconciling, until

Damaging = Callable[[redis.asyncio.Redis, str], Awaitable[object]]
pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        made = await Cluster.start(bus)
        async with await Ledger.connect(redis_url, cluster, "s", lease_s=3600.0) as ledger:
            yield Bed(made, ledger, Spans())


async def bytes_at(raw: redis.asyncio.Redis, key: str, field: str) -> bytes:
    found = await raw.hget(key, field)
    assert isinstance(found, bytes)
    return found


async def bytes_of_a_record(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.hset(key + ":records", "uid-a", b"\xc1 no MessagePack")


async def bytes_of_an_item(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.hset(key + ":items", "node/n1", b"\x00" * 13)


async def no_number_in_an_item(raw: redis.asyncio.Redis, key: str) -> None:
    packed = await bytes_at(raw, key + ":items", "node/n1")
    await raw.hset(key + ":items", "node/n1", packed[:40] + b"\xff" * 8 + packed[48:])


async def another_type_of_items(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.delete(key + ":items")
    await raw.set(key + ":items", "somebody else's")


async def another_type_of_meta(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.delete(key + ":meta")
    await raw.lpush(key + ":meta", "somebody else's")


async def roles_of_nobody(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.hset(key + ":roles", "reconciler", b"\xc1")


async def a_slot_of_nobody(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.hset(key + ":slots", "gang/ns/g", "claim:gone")


async def a_count(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.hincrby(key + ":meta", "binding", 1)


async def a_record_without_its_claim(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.hdel(key + ":claims", "c1")


async def a_claim_that_miscounts(raw: redis.asyncio.Redis, key: str) -> None:
    entry = unpack(await bytes_at(raw, key + ":claims", "c1"))
    entry[6] += 1
    await raw.hset(key + ":claims", "c1", pack(entry))


async def a_claim_without_a_lease(raw: redis.asyncio.Redis, key: str) -> None:
    await raw.zrem(key + ":leases", "c1")


@pytest.mark.parametrize(
    "damage",
    [
        bytes_of_a_record,
        bytes_of_an_item,
        no_number_in_an_item,
        another_type_of_items,
        another_type_of_meta,
        roles_of_nobody,
        a_slot_of_nobody,
        a_count,
        a_record_without_its_claim,
        a_claim_that_miscounts,
        a_claim_without_a_lease,
    ],
)
async def test_damage_is_found_and_rebuilt(bed: Bed, redis_url: str, damage: Damaging) -> None:
    await bed.cluster.node()
    await bed.cluster.pod("a", node="n1", phase="Running")
    async with reconciling(bed.cluster.bus, redis_url, "r") as term:
        await opened(bed)
        member = Member("uid-h", "ns", "h", "n1", ())
        [answer] = await bed.ledger.claim([ClaimRequest("c1", (member,), slots=(Slot("gang/ns/h"),))])
        assert answer.status == "ok"
        assert [fault async for fault in bed.ledger.faults()] == []
        before, items = (await bed.ledger.status()).epoch, await bed.ledger.items()
        async with underneath(redis_url) as raw:
            await damage(raw, f"{{koord:{bed.cluster.bus.subjects.cluster}}}")

        async def rebuilt() -> bool:
            assert not term.done(), term.exception()
            try:
                status = await bed.ledger.status()
            except LedgerUnavailable:
                return False
            return status.open and status.epoch > before

        await until(rebuilt, "the rebuild", 60)
        assert await bed.ledger.items() == items
        assert [fault async for fault in bed.ledger.faults()] == []
        assert await right(bed)


async def test_what_cannot_be_read_is_as_good_as_away_for_everybody_else(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    async with reconciling(bed.cluster.bus, redis_url, "r"):
        await opened(bed)
    async with underneath(redis_url) as raw:
        await bytes_of_an_item(raw, f"{{koord:{bed.cluster.bus.subjects.cluster}}}")
    with pytest.raises(LedgerDamaged, match="claim_v1"):
        await bed.claim(await bed.cluster.pod("a"))


async def test_damage_that_comes_back_is_told_and_waits(
    bed: Bed, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild that did not help is not repeated for ten minutes; until then the gauge says so, each audit looks."""
    audits, looked_at = 0, asyncio.Event()
    audit = Auditor.audit

    async def damaged(self: Auditor) -> str:
        nonlocal audits
        audits += 1
        if audits == 4:
            await looked_at.wait()
        return await audit(self) or ("as damaged as before" if audits < 4 else "")

    monkeypatch.setattr(Auditor, "audit", damaged)
    await bed.cluster.node()
    async with reconciling(bed.cluster.bus, redis_url, "r"):
        await opened(bed)

        async def audited() -> bool:
            return audits == 4

        async def mended() -> bool:
            return audits > 4

        await until(audited, "the fourth audit, after the third", 60)
        assert metrics.DAMAGED._value.get() == 1
        looked_at.set()
        await until(mended, "an audit that finds nothing", 60)
        assert metrics.DAMAGED._value.get() == 0
    assert bed.cluster.barriers == 2
