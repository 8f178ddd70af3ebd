"""A standby on a real API server and bus: it publishes nothing, knows everything, and takes over without a new list."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from koord.bus.connection import Bus
from koord.bus.statecache import StateCache
from koord.gateway import following as module
from koord.gateway import metrics
from koord.gateway.access import ApiAccess
from koord.gateway.following import Following
from koord.gateway.reflector import Reflector
from koord.kube.resources import PODS
from koord.runtime.ending import end
from tests.gateway.conftest import Kube, until


@asynccontextmanager
async def standing_by(bus: Bus, access: ApiAccess, **more: Any) -> AsyncIterator[Following]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.ssl or False)) as http:
        made = Following(bus, access, http, resources=[PODS], **more)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


@asynccontextmanager
async def leading(made: Following) -> AsyncIterator[None]:
    task = asyncio.create_task(made.lead())
    try:
        yield
    finally:
        await end(task)
        await made.stand_by()


def pods_of(made: Following) -> Reflector:
    return made.reflectors[0]


def relists() -> float:
    return float(metrics.RELISTS.labels(PODS.token)._value.get())


async def sequence(bus: Bus) -> int:
    return (await bus.js.stream_info(bus.subjects.state_stream)).state.last_seq


async def test_a_standby_takes_over_with_exactly_what_the_stream_lacks(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube
) -> None:
    stays, goes = await kube.pod("stays"), await kube.pod("goes")
    async with (
        await Bus.connect(nats_url, cluster, "one") as bus,
        await Bus.connect(nats_url, cluster, "two") as other,
        standing_by(bus, access) as first,
        standing_by(other, access) as second,
    ):
        seen: list[Any] = []
        cache = StateCache(bus, PODS, msgspec.Raw, on_change=seen.append)
        await cache.start()
        async with leading(first):
            await asyncio.wait_for(cache.synced(), 60)
            await until(lambda: pods_of(second).state == "synced", "the standby is warm")
        # Nobody leads now: a pod goes, one comes, one changes.
        before, lists = await sequence(bus), relists()
        seen.clear()
        await kube.call("delete", PODS.path(kube.namespace, "goes"), {"gracePeriodSeconds": 0})
        comes = await kube.pod("comes")
        body = {"metadata": {"labels": {"changed": "yes"}}}
        path = PODS.path(kube.namespace, "stays")
        changed = await kube.call("patch", path, body, "application/merge-patch+json")

        def knows() -> bool:
            index = second.pods
            sight = index.get(kube.namespace, "stays", stays["metadata"]["uid"])
            return (
                index.get(kube.namespace, "goes", goes["metadata"]["uid"]) is None
                and index.get(kube.namespace, "comes", comes["metadata"]["uid"]) is not None
                and sight is not None
                and sight.resource_version == changed["metadata"]["resourceVersion"]
            )

        await until(knows, "the standby sees all of it")
        assert await sequence(bus) == before, "a standby published"
        async with leading(second):
            await until(lambda: len([c for c in seen if c.key.startswith(kube.namespace)]) >= 3, "the differences")
            ours = {(c.kind, c.key.split("/")[1]) for c in seen if c.key.startswith(kube.namespace)}
            assert ours == {("DELETED", "goes"), ("ADDED", "comes"), ("MODIFIED", "stays")}
            assert json.loads(bytes(cache.items[f"{kube.namespace}/stays"])) == changed
            assert relists() == lists, "what it knows need not be listed again"
            # Three changes and the marker; and what happens from now on.
            await until(lambda: _at_least(bus, before + 4), "the marker")
            await kube.pod("later")
            await until(lambda: f"{kube.namespace}/later" in cache.items, "it follows on")
        await cache.close()


async def _at_least(bus: Bus, wanted: int) -> bool:
    return await sequence(bus) >= wanted


async def test_what_is_not_recent_any_more_is_listed(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube
) -> None:
    async with await Bus.connect(nats_url, cluster, "one") as bus, standing_by(bus, access) as made:
        await until(lambda: pods_of(made).state == "synced", "warm")
        await kube.pod("old")
        await until(lambda: len(pods_of(made)._recent) > 0, "the change arrives")
        pods_of(made)._recent.clear()  # as time does
        cache = StateCache(bus, PODS, msgspec.Raw)
        await cache.start()
        async with leading(made):
            await asyncio.wait_for(cache.synced(), 60)
            assert f"{kube.namespace}/old" in cache.items
        await cache.close()


async def test_a_leader_whose_time_is_over_publishes_nothing_more(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube
) -> None:
    over = False
    async with (
        await Bus.connect(nats_url, cluster, "one") as bus,
        standing_by(bus, access, may_publish=lambda: not over) as made,
    ):
        cache = StateCache(bus, PODS, msgspec.Raw)
        await cache.start()
        async with leading(made):
            await asyncio.wait_for(cache.synced(), 60)
            over = True
            before = await sequence(bus)
            late = await kube.pod("late")
            await until(
                lambda: made.pods.get(kube.namespace, "late", late["metadata"]["uid"]) is not None, "it is seen"
            )
            assert await sequence(bus) == before
        await cache.close()


async def test_what_a_predecessor_wrote_over_newer_states_is_put_right(
    nats_url: str, cluster: str, access: ApiAccess, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.1)
    old = await kube.pod("pod")
    states: list[Any] = []
    async with await Bus.connect(nats_url, cluster, "one") as bus, standing_by(bus, access) as made:
        path, key = PODS.path(kube.namespace, "pod"), f"{kube.namespace}/pod"

        def see(change: Any) -> None:
            if change.key == key:
                states.append(json.loads(bytes(change.new)))

        cache = StateCache(bus, PODS, msgspec.Raw, on_change=see)
        await cache.start()
        async with leading(made):
            await asyncio.wait_for(cache.synced(), 60)
            body = {"metadata": {"labels": {"changed": "yes"}}}
            new = await kube.call("patch", path, body, "application/merge-patch+json")
            await until(lambda: states[-1] == new, "the new state")
            # A gateway that slept goes on and publishes what it had read before.
            epoch = made._publisher.epoch
            subject = bus.subjects.state(PODS.token, kube.namespace, "pod")
            header = ("Koord", f"MODIFIED {old['metadata']['resourceVersion']} {epoch}")
            await bus.publish_acked(subject, json.dumps(old).encode(), header)
            await until(lambda: states[-2:] == [old, new], "the old state, and the new one again")
        await cache.close()
