"""The reflector against the real API server and a real nats-server: every gap ends in an equal stream."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from koord.bus.connection import Bus
from koord.bus.statecache import StateCache
from koord.bus.statepublisher import StatePublisher
from koord.gateway import metrics
from koord.gateway.access import ApiAccess
from koord.gateway.podindex import PodIndex
from koord.gateway.reflector import Reflector
from koord.gateway.stream import StateStream
from koord.kube.resources import PODS, Resource
from koord.runtime.ending import end
from tests.gateway.conftest import Kube, until

MERGE = "application/merge-patch+json"
UNKNOWN = Resource("example.org", "v1", "gizmos", "Gizmo")


@asynccontextmanager
async def following(
    bus: Bus, access: ApiAccess, resource: Resource = PODS
) -> AsyncIterator[tuple[Reflector, PodIndex]]:
    publisher = StatePublisher(bus, on_epoch=lambda epoch: reflector.reset())
    await publisher.start()
    pods = PodIndex()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.ssl or False)) as http:
        watcher = pods if resource == PODS else None
        reflector = Reflector(resource, access, http, StateStream(bus, publisher), watcher=watcher)
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, pods
        finally:
            await end(task)


async def test_objects_come_through_as_the_server_sent_them(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube
) -> None:
    await kube.pod("before", annotations={"text": 'a "managedFields" word'})
    async with await Bus.connect(nats_url, cluster, "test") as bus, following(bus, access) as (reflector, pods):
        cache = StateCache(bus, PODS, msgspec.Raw)
        await cache.start()
        await asyncio.wait_for(cache.synced(), 60)
        made = await kube.pod("after")
        key = f"{kube.namespace}/after"
        await until(lambda: key in cache.items, "the new pod in the stream")
        assert json.loads(bytes(cache.items[key])) == made
        assert f"{kube.namespace}/before" in cache.items
        await kube.call("delete", PODS.path(kube.namespace, "after"), {"gracePeriodSeconds": 0})
        await until(lambda: key not in cache.items, "the tombstone")
        assert reflector.state == "synced"
        uid = made["metadata"]["uid"]
        await until(lambda: pods.get(kube.namespace, "after", uid) is None, "the index to forget it")
        await cache.close()


async def test_a_new_reflector_publishes_only_differences(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube
) -> None:
    await kube.pod("stays")
    await kube.pod("goes")
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        cache = StateCache(bus, PODS, msgspec.Raw)
        await cache.start()
        async with following(bus, access):
            await asyncio.wait_for(cache.synced(), 60)
        gone = json.loads(bytes(cache.items[f"{kube.namespace}/goes"]))
        before = await sequence(bus)
        # While nobody watches one pod goes, one is made anew under its name, one is added.
        await kube.call("delete", PODS.path(kube.namespace, "goes"), {"gracePeriodSeconds": 0})
        await kube.pod("new")
        seen: list[Any] = []
        other = StateCache(bus, PODS, msgspec.Raw, on_change=seen.append)
        await other.start()
        await asyncio.wait_for(other.synced(), 60)
        seen.clear()
        async with following(bus, access) as (reflector, pods):
            await until(lambda: f"{kube.namespace}/new" in cache.items, "the added pod")
            await until(lambda: f"{kube.namespace}/goes" not in cache.items, "the tombstone")
            await until(lambda: reflector.state == "synced", "synced")
            assert pods.get(kube.namespace, "goes", gone["metadata"]["uid"]) is None
        ours = [change for change in seen if change.key.startswith(f"{kube.namespace}/")]
        assert {(change.kind, change.key.split("/")[1]) for change in ours} == {("ADDED", "new"), ("DELETED", "goes")}
        assert json.loads(bytes(next(c.old for c in ours if c.kind == "DELETED"))) == gone
        # two changes and the marker that the list is complete
        assert await sequence(bus) - before <= 3
        for cache_ in (cache, other):
            await cache_.close()


async def sequence(bus: Bus) -> int:
    return (await bus.js.stream_info(bus.subjects.state_stream)).state.last_seq


async def test_a_missing_resource_is_a_note_and_readers_do_not_wait(
    nats_url: str, cluster: str, access: ApiAccess
) -> None:
    async with await Bus.connect(nats_url, cluster, "test") as bus, following(bus, access, UNKNOWN) as (reflector, _):
        cache = StateCache(bus, UNKNOWN, msgspec.Raw)
        await cache.start()
        await asyncio.wait_for(cache.synced(), 60)
        assert (reflector.state, cache.items) == ("absent", {})
        assert "CRD" in reflector.note
        await cache.close()


async def test_a_list_made_anew_ends_with_its_mark(nats_url: str, cluster: str, access: ApiAccess, kube: Kube) -> None:
    async with await Bus.connect(nats_url, cluster, "test") as bus, following(bus, access) as (reflector, _):
        cache = StateCache(bus, PODS, msgspec.Raw)
        await cache.start()
        await asyncio.wait_for(cache.synced(), 60)
        await kube.pod("a")
        await asyncio.wait_for(reflector.list_anew("first"), 60)
        await asyncio.wait_for(cache.marked("first"), 60)
        assert f"{kube.namespace}/a" in cache.items
        # The mark stays with later lists, so a reader that replays still finds it.
        await asyncio.wait_for(reflector.list_anew("second"), 60)
        reflector.reset()
        await kube.pod("b")
        late = StateCache(bus, PODS, msgspec.Raw)
        await late.start()
        await asyncio.wait_for(late.marked("second"), 60)
        await until(lambda: f"{kube.namespace}/b" in late.items, "the watch to go on")
        for cache_ in (cache, late):
            await cache_.close()


async def test_a_missing_resource_is_marked_as_well(nats_url: str, cluster: str, access: ApiAccess) -> None:
    async with await Bus.connect(nats_url, cluster, "test") as bus, following(bus, access, UNKNOWN) as (reflector, _):
        await until(lambda: reflector.state == "absent", "absent")
        cache = StateCache(bus, UNKNOWN, msgspec.Raw)
        await cache.start()
        await asyncio.wait_for(reflector.list_anew("m"), 60)
        await asyncio.wait_for(cache.marked("m"), 60)
        await cache.close()


async def test_an_object_too_large_for_the_bus_is_left_out_and_holds_up_nothing(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube
) -> None:
    """Its last version that fitted stays until it is deleted."""
    large = {"text": "x" * 20_000}
    await kube.pod("large", annotations=large)
    await kube.pod("grows")
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        bus.nc._max_payload = 16_384
        before = metrics.BAD_OBJECTS.labels(PODS.token)._value.get()
        async with following(bus, access) as (reflector, _):
            cache = StateCache(bus, PODS, msgspec.Raw)
            await cache.start()
            await asyncio.wait_for(cache.synced(), 60)
            assert f"{kube.namespace}/grows" in cache.items
            assert f"{kube.namespace}/large" not in cache.items
            grown = {"metadata": {"annotations": large}}
            await kube.call("patch", PODS.path(kube.namespace, "grows"), grown, MERGE)
            await kube.pod("small")
            await until(lambda: f"{kube.namespace}/small" in cache.items, "what came behind it")
            assert b"xxx" not in bytes(cache.items[f"{kube.namespace}/grows"])
            assert metrics.BAD_OBJECTS.labels(PODS.token)._value.get() == before + 2
            for name in ("grows", "large"):
                await kube.call("delete", PODS.path(kube.namespace, name), {"gracePeriodSeconds": 0})
            await until(lambda: f"{kube.namespace}/grows" not in cache.items, "its tombstone")
            assert reflector.state == "synced"
            await cache.close()
