"""The leader notices what others write to the state stream, also if they write on, and mends what they broke."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from koord.bus.connection import Bus
from koord.bus.statecache import StateCache
from koord.bus.statepublisher import StatePublisher
from koord.gateway import following as module
from koord.gateway.access import ApiAccess
from koord.gateway.following import Following
from koord.gateway.stream import StateStream
from koord.kube.resources import PODS
from koord.runtime.ending import end
from tests.gateway.conftest import Kube, until


@asynccontextmanager
async def leading(bus: Bus, access: ApiAccess) -> AsyncIterator[Following]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.ssl or False)) as http:
        following = Following(bus, access, http, resources=(PODS,))
        await following.start()
        task = asyncio.create_task(following.lead())
        try:
            await until(lambda: following.reflectors[0].state == "synced", "pods are listed")
            yield following
        finally:
            await end(task)
            await following.stand_by()
            await following.stop()


async def test_somebody_who_keeps_writing_is_noticed(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A predecessor that was stopped goes on with old states; each look finds more of them than the last one."""
    monkeypatch.setattr(module, "LOOK_S", 0.1)
    made = await kube.pod("p")
    key, meta = f"{kube.namespace}/p", made["metadata"]
    async with (
        await Bus.connect(nats_url, cluster, "gateway") as bus,
        await Bus.connect(nats_url, cluster, "former") as other,
        leading(bus, access),
    ):
        cache = StateCache(bus, PODS, msgspec.Raw)
        await cache.start()
        await asyncio.wait_for(cache.synced(), 60)
        assert key in cache.items
        former = StatePublisher(other)
        await former.start()

        async def write() -> None:
            body = msgspec.json.encode(made)
            await former.publish(PODS, "DELETED", meta["namespace"], "p", meta["resourceVersion"], body)
            for number in itertools.count():
                name = f"ghost{number % 50}"
                await former.publish(PODS, "DELETED", meta["namespace"], name, meta["resourceVersion"], b"{}")

        task = asyncio.create_task(write())
        try:
            await until(lambda: key not in cache.items, "the old state in the stream")
            await until(lambda: key in cache.items, "the pod in the stream again, while others write on")
            assert not task.done()
        finally:
            await end(task)


async def test_own_answers_under_way_are_nobody_elses(nats_url: str, cluster: str) -> None:
    async with await Bus.connect(nats_url, cluster, "gateway") as bus:
        publisher = StatePublisher(bus)
        await publisher.start()
        stream = StateStream(bus, publisher)
        await stream.begin()
        looks = []
        for number in range(20):
            futures = [publisher.publish(PODS, "ADDED", "ns", f"p{n}", str(1 + number), b"{}") for n in range(50)]
            for future in futures:
                future.add_done_callback(lambda done: stream.stored(done.result()))
            looks.append(await stream.foreign())
            await asyncio.gather(*futures)
        assert await stream.foreign() == 0
        assert not any(one > 0 and two > 0 for one, two in itertools.pairwise(looks)), looks
        await publisher.publish(PODS, "ADDED", "ns", "p", "1", b"{}")  # as another would: not counted as ours
        assert await stream.foreign() == 1


async def test_somebody_who_writes_is_noticed_after_an_outage_too(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent again may have two places in the stream or one: afterwards places alone tell nothing."""
    monkeypatch.setattr(module, "LOOK_S", 0.1)
    made = await kube.pod("p")
    key, meta = f"{kube.namespace}/p", made["metadata"]
    async with (
        await Bus.connect(nats_url, cluster, "gateway") as bus,
        await Bus.connect(nats_url, cluster, "former") as other,
        leading(bus, access),
    ):
        cache = StateCache(bus, PODS, msgspec.Raw)
        await cache.start()
        await asyncio.wait_for(cache.synced(), 60)
        former = StatePublisher(other)
        await former.start()
        bus.acks._resends.count += 500  # as an election leaves it: refused again and again, stored once
        body = msgspec.json.encode(made)
        await former.publish(PODS, "DELETED", meta["namespace"], "p", meta["resourceVersion"], body)
        await until(lambda: key not in cache.items, "the old state in the stream")
        await until(lambda: key in cache.items, "the pod in the stream again")
