"""Gaps of every kind: the stream ends equal to the API server's state."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from koord.bus.connection import Bus
from koord.bus.statecache import StateCache
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient
from koord.kube.resources import PODS
from koord.localcluster.servers import NatsServer
from tests.gateway.conftest import ApiProcess, Kube, until
from tests.gateway.test_reflector import following


@asynccontextmanager
async def watching(bus: Bus) -> AsyncIterator["StateCache[msgspec.Raw]"]:
    cache = StateCache(bus, PODS, msgspec.Raw)
    await cache.start()
    try:
        yield cache
    finally:
        await cache.close()


async def test_a_nats_that_lost_its_store_gets_everything_again(
    own_nats: NatsServer, cluster: str, access: ApiAccess, kube: Kube
) -> None:
    await kube.pod("before")
    async with (
        await Bus.connect(own_nats.url, cluster, "test") as bus,
        following(bus, access) as (reflector, _),
        watching(bus) as cache,
    ):
        await asyncio.wait_for(cache.synced(), 60)
        await own_nats.kill()
        await kube.pod("meanwhile")
        await own_nats.restart(empty=True)
        async with await Bus.connect(own_nats.url, cluster, "late") as other, watching(other) as late:
            await asyncio.wait_for(late.synced(), 60)
            names = {key.split("/")[1] for key in late.items if key.startswith(f"{kube.namespace}/")}
            assert names == {"before", "meanwhile"}
        await until(lambda: reflector.state == "synced", "synced again")


async def test_an_api_server_that_lost_its_state_is_followed(nats_url: str, cluster: str, tmp_path: Path) -> None:
    process = ApiProcess(tmp_path)
    await asyncio.to_thread(process.start)
    access = await load_access(process.kubeconfig)
    client = LeanClient(access)
    try:
        kube = Kube(Api(client, access), "default")
        old = await kube.pod("a")
        await kube.pod("b")
        async with (
            await Bus.connect(nats_url, cluster, "test") as bus,
            following(bus, access) as (_, pods),
            watching(bus) as cache,
        ):
            await until(lambda: len(cache.items) == 2, "both pods")
            process.kill()
            await asyncio.to_thread(process.start)
            # The new server has a certificate and a token of its own, as a rebuilt cluster has.
            fresh = await load_access(process.kubeconfig)
            new_client = LeanClient(fresh)
            new = await Kube(Api(new_client, fresh), "default").pod("a")
            await new_client.close()
            async with following(bus, fresh) as (_, pods):
                await until(lambda: set(cache.items) == {"default/a"}, "what the new server has")
                assert json.loads(bytes(cache.items["default/a"]))["metadata"]["uid"] == new["metadata"]["uid"]
                assert pods.get("default", "a", old["metadata"]["uid"]) is None
    finally:
        await client.close()
        process.kill()


class Scripted:
    """An API server of which a test says every word: a real one sends no malformed lines."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 10
        self.watches: list[list[bytes]] = []
        self.lists = 0
        self.asked: list[str] = []

    def put(self, name: str) -> bytes:
        self.version += 1
        metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(self.version)}
        self.objects[name] = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {}}
        return json.dumps({"type": "ADDED", "object": self.objects[name]}).encode()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            body = {"metadata": {"resourceVersion": str(self.version)}, "items": list(self.objects.values())}
            return web.json_response(body)
        self.asked.append(request.query["resourceVersion"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        for line in self.watches.pop(0) if self.watches else []:
            await answer.write(line)
        if not self.watches:
            await asyncio.sleep(30)
        return answer


@pytest.fixture
async def scripted() -> AsyncIterator[tuple[Scripted, ApiAccess]]:
    server = Scripted()
    app = web.Application()
    app.router.add_get("/api/v1/pods", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield server, ApiAccess(f"http://127.0.0.1:{port}")
    await runner.cleanup()


EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


@pytest.mark.parametrize(
    "bad",
    [b'{"type":"ADDED","object":{"metadata":{"name":"x"\n', b"\xff\xfe\n", b'{"type":"ADDED","object":{}}\n', EXPIRED],
)
async def test_an_unreadable_line_or_an_expired_watch_lists_again(
    nats_url: str, cluster: str, scripted: tuple[Scripted, ApiAccess], bad: bytes
) -> None:
    server, access = scripted
    server.put("first")
    server.watches = [[bad], []]
    async with await Bus.connect(nats_url, cluster, "test") as bus, following(bus, access), watching(bus) as cache:
        await until(lambda: "n/first" in cache.items, "the listed pod")
        server.put("missed")
        await until(lambda: "n/missed" in cache.items, "what the second list shows")
        assert server.lists >= 2


async def test_a_watch_that_ends_resumes_from_the_last_version_and_bookmarks_count(
    nats_url: str, cluster: str, scripted: tuple[Scripted, ApiAccess]
) -> None:
    server, access = scripted
    server.put("first")
    line = server.put("second")
    del server.objects["second"]
    bookmark = b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"99"}}}'
    # Lines come in pieces, several in one piece, and with an empty line between them.
    server.watches = [[line[:20], line[20:] + b"\n\n" + bookmark[:5], bookmark[5:] + b"\n"], []]
    async with await Bus.connect(nats_url, cluster, "test") as bus, following(bus, access), watching(bus) as cache:
        await until(lambda: "n/second" in cache.items, "the watched pod")
        await until(lambda: len(server.asked) == 2, "the second watch")
        assert (server.lists, server.asked) == (1, ["12", "99"])
