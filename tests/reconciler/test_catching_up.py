"""Who takes over is no older than the ledger; a state stream made anew needs no rebuild, one cut short does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from koord.bus.connection import Bus
from koord.bus.statepublisher import StatePublisher
from koord.bus.streams import ensure_streams, state_life
from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.ledger.model import Advance, Folded, Item, LedgerStatus, NodeSeen, Release
from koord.reconciler.hints import Hints
from koord.reconciler.term import Term
from koord.reconciler.world import World
from koord.runtime.ending import end
from koord.telemetry.spans import Spans
from tests.reconciler.test_auditing import quiet_items, right
from tests.reconciler.test_term import FAST, Bed, Cluster, nobody, opened, reconciling, until


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        made = await Cluster.start(bus)
        async with await Ledger.connect(redis_url, cluster, "s", lease_s=3600.0) as ledger:
            yield Bed(made, ledger, Spans())


class Standby:
    """A reconciler with warm caches on a connection of its own, whose reading can be held up."""

    def __init__(self, bus: Bus, world: World, ledger: Ledger, bed: Bed) -> None:
        self._bus = bus
        self._bed = bed
        self.world = world
        self.ledger = ledger
        self.may_read = asyncio.Event()

    async def hold(self) -> None:
        """From here on nothing that arrives is read, as if the connection hung."""
        held = asyncio.Event()

        def deaf(subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> "asyncio.Task[bool]":
            held.set()
            return asyncio.create_task(self.may_read.wait())

        self._bus.subscribe_raw("hold.me", deaf)  # type: ignore[arg-type]
        await self._bus.barrier()
        await self._bed.cluster.bus.nc.publish("hold.me", b"")
        await asyncio.wait_for(held.wait(), 60)

    @asynccontextmanager
    async def leading(self) -> AsyncIterator["asyncio.Task[None]"]:
        epoch = await self.ledger.lead("reconciler")
        term = Term(
            self.ledger, self.world, Hints(self._bus), nobody, self._bed.cluster.barrier, epoch, FAST, lambda _: None
        )
        task = asyncio.create_task(term.run())
        try:
            yield task
        finally:
            self.may_read.set()
            await end(task)


@asynccontextmanager
async def standing_by(bed: Bed, nats_url: str, redis_url: str) -> AsyncIterator[Standby]:
    cluster = bed.cluster.bus.subjects.cluster
    async with (
        await Bus.connect(nats_url, cluster, "standby") as bus,
        await Ledger.connect(redis_url, cluster, "r2") as ledger,
    ):
        world = World(bus, Spans())
        await asyncio.wait_for(world.start(lambda token: None), 60)
        try:
            yield Standby(bus, world, ledger, bed)
        finally:
            await world.close()


async def list_again(bed: Bed) -> None:
    for resource in (NODES, PODS, ELASTIC_QUOTAS, QUEUE_UNITS):
        await bed.cluster._publisher.listed(resource, "1")


async def lose_the_stream(bed: Bed, *, keep_epoch: bool = False) -> None:
    """The store is gone, and made anew; nobody has listed into it yet."""
    bus = bed.cluster.bus
    stream = await bus.js.stream_info(bus.subjects.state_stream)
    await bus.js.delete_stream(bus.subjects.state_stream)
    if keep_epoch:
        await bus.js.add_stream(stream.config)
    else:
        await ensure_streams(bus)
    bed.cluster._publisher = StatePublisher(bus)
    await bed.cluster._publisher.start()


async def test_the_ledger_keeps_up_to_where_it_was_told(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    async with reconciling(bed.cluster.bus, redis_url, "r1"):
        await opened(bed)
        await bed.cluster.pod("a", node="n1", phase="Running")
        epoch, last = await state_life(bed.cluster.bus)

        async def told() -> bool:
            return (await bed.ledger.status()).folded == Folded(epoch, last)

        await until(told, "the position of the pod", 60)
    # Somebody of before, who does not know of it, leaves it as it is.
    async with await Ledger.connect(redis_url, bed.cluster.bus.subjects.cluster, "older") as older:
        await older.observe([NodeSeen("node/n9", {"cpu": 1}, "99")], role_epoch=await older.lead("reconciler"))
        assert (await older.status()).folded == Folded(epoch, last)


async def test_who_lags_tells_nothing_until_it_has_caught_up(bed: Bed, nats_url: str, redis_url: str) -> None:
    """Else the node would be open again, and the room of the pod that it has not heard of free."""
    await bed.cluster.node()
    vanishes = await bed.cluster.node("n2")
    goes = await bed.cluster.pod("goes", node="n1", phase="Running")
    async with standing_by(bed, nats_url, redis_url) as standby:
        async with reconciling(bed.cluster.bus, redis_url, "r1"):
            await opened(bed)
            await until(lambda: _used(bed, 1000), "the first charge", 60)
            await standby.hold()
            await bed.cluster.put(NODES, vanishes, gone=True)
            await bed.cluster.put(PODS, goes, gone=True)
            for number in range(3):
                await bed.cluster.pod(f"new{number}", node="n1", phase="Running")
            await until(lambda: _used(bed, 3000), "what the first one folds", 60)
        before = await bed.ledger.status()
        assert "node/n2" not in await bed.ledger.items()
        async with standby.leading() as term:
            late = asyncio.create_task(asyncio.sleep(0.7))
            while not late.done():  # a while in which it may do nothing
                items = await bed.ledger.items()
                assert "node/n2" not in items
                assert items["node/n1"].used["cpu"] == 3000
                await asyncio.sleep(0.02)
            assert (await bed.ledger.status()).folded == before.folded
            standby.may_read.set()
            await bed.cluster.pod("last", node="n1", phase="Running")
            await until(lambda: _used(bed, 4000), "the successor to fold", 60)
            assert not term.done()
            items = await bed.ledger.items()
            assert "node/n2" not in items
            assert await right(bed)
    assert bed.cluster.barriers == 1


async def test_an_audit_does_not_judge_by_a_picture_that_is_late(bed: Bed, nats_url: str, redis_url: str) -> None:
    """A pod that it has not heard of yet was claimed and is being bound: its room must stay taken."""
    await bed.cluster.node()
    async with standing_by(bed, nats_url, redis_url) as standby, standby.leading():
        await opened(bed)
        await standby.hold()
        pod = await bed.cluster.pod("young")
        id_, token = await bed.claim(pod)
        async with await Ledger.connect(redis_url, bed.cluster.bus.subjects.cluster, "g") as gateway:
            await gateway.status()
            [moved] = await gateway.advance(
                [Advance(id_, token, gateway.epoch, id_, ("uid-young",))], await gateway.lead("gateway")
            )
            assert moved.status == "ok"
        late = asyncio.create_task(asyncio.sleep(1.5))  # audits come each 0.2 s, and suspect for 0.2 s
        while not late.done():
            record = await bed.ledger.record("uid-young")
            assert record is not None
            assert record.state == "BINDING"
            await asyncio.sleep(0.05)
        standby.may_read.set()
        await bed.cluster.pod("young", node="n1", phase="Running")
        await until(lambda: _used(bed, 1000), "the charge", 60)
    assert bed.cluster.barriers == 1


@pytest.mark.parametrize("who", ["sits", "takes over"])
async def test_a_stream_that_was_made_anew_is_caught_up_with(bed: Bed, nats_url: str, redis_url: str, who: str) -> None:
    """No rebuild: what the gateway lists into the new stream is younger than all that was folded of the old one.

    In the end the items are those that a rebuild makes.
    """
    nodes = [await bed.cluster.node(f"n{number}", cpu="64") for number in range(3)]
    pods = [await bed.cluster.pod(f"p{number}", node=f"n{number % 3}", phase="Running") for number in range(30)]
    waits = await bed.cluster.pod("waits")
    async with standing_by(bed, nats_url, redis_url) as standby:
        async with reconciling(bed.cluster.bus, redis_url, "r1") as first:
            await opened(bed)
            await until(lambda: _used(bed, 10_000), "all charges", 60)
            held, token = await bed.claim(waits)
            before = await bed.ledger.status()
            await lose_the_stream(bed)
            if who == "takes over":
                await end(first)
            # Meanwhile a pod and a node went, and a pod came: the list is all that says so.
            for node in nodes[:2]:
                await bed.cluster.put(NODES, node)
            for pod in (*pods[1:], waits):
                await bed.cluster.put(PODS, pod)
            await bed.cluster.pod("young", node="n1", phase="Running")
            if who == "takes over":
                async with standby.leading() as term:
                    late = asyncio.create_task(asyncio.sleep(0.5))
                    while not late.done():
                        assert (await bed.ledger.status()).folded == before.folded, "nobody has listed yet"
                        await asyncio.sleep(0.05)
                    await list_again(bed)
                    await _is_exact(bed, before)
                    assert not term.done()
            else:
                await list_again(bed)
                await _is_exact(bed, before)
                assert not first.done()
            record = await bed.ledger.record("uid-waits")
            assert record is not None
            assert (record.claim, record.token) == (held, token), "what is held is not touched"
            await bed.ledger.release([Release(held, token)])
        assert bed.cluster.barriers == 1
        async with reconciling(bed.cluster.bus, redis_url, "r3"):
            items = await _counted(bed)
        await standby.ledger.shut(await standby.ledger.lead("reconciler"))
        async with reconciling(bed.cluster.bus, redis_url, "r4"):
            await opened(bed)
            assert await _counted(bed) == items
    assert bed.cluster.barriers == 2


async def _counted(bed: Bed) -> dict[str, Item]:
    """The items; what there was room for on a node that is no more nobody can say, nor need."""
    items = await quiet_items(bed, set())
    return {name: one if one.open else Item({}, one.used, one.held, refs=one.refs) for name, one in items.items()}


async def _is_exact(bed: Bed, before: LedgerStatus) -> None:
    async def exact() -> bool:
        items, status = await bed.ledger.items(), await bed.ledger.status()
        used = {name: item.used.get("cpu", 0) for name, item in items.items() if item.open}
        return used == {"node/n0": 9000, "node/n1": 11_000} and status.folded.epoch not in ("", before.folded.epoch)

    await until(exact, "what was listed", 60)
    status = await bed.ledger.status()
    assert (status.open, status.epoch) == (True, before.epoch)
    assert await right(bed)


async def _used(bed: Bed, cpu: int) -> bool:
    return (await bed.amounts())[0] == cpu


async def test_a_stream_that_lost_what_was_folded_has_the_ledger_rebuilt(
    bed: Bed, nats_url: str, redis_url: str
) -> None:
    """It lives on under its epoch without its last messages: no list says what they were."""
    await bed.cluster.node()
    await bed.cluster.pod("a", node="n1", phase="Running")
    async with standing_by(bed, nats_url, redis_url) as standby:
        async with reconciling(bed.cluster.bus, redis_url, "r1"):
            await opened(bed)
            await until(lambda: _used(bed, 1000), "the charge", 60)
            for number in range(20):
                await bed.cluster.pod(f"b{number}", node="n1", phase="Running", cpu="10m")
            await until(lambda: _used(bed, 1200), "the charges", 60)
        before = await bed.ledger.status()
        await lose_the_stream(bed, keep_epoch=True)
        await bed.cluster.node()
        await bed.cluster.pod("a", node="n1", phase="Running")
        await list_again(bed)
        async with standby.leading():

            async def rebuilt() -> bool:
                status = await bed.ledger.status()
                return status.open and status.epoch > before.epoch

            await until(rebuilt, "the rebuild", 60)
    assert bed.cluster.barriers == 2
