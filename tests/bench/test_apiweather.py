"""The weather proxy: what it refuses and stalls, what it passes on, and what it does not take."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import msgspec
import pytest
from aiohttp import web

from koord.cli.benchmarks.apiweather import Proxy, Sky, Weather, kind_of
from koord.gateway.access import ApiAccess


@dataclass
class Bed:
    """A server behind the proxy, which answers with what it was asked."""

    url: str
    token: str
    session: aiohttp.ClientSession
    sky: Sky
    held: asyncio.Event

    async def ask(self, method: str, path: str, body: bytes = b"", token: str | None = None) -> tuple[int, bytes, str]:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with self.session.request(method, self.url + path, data=body, headers=headers) as answer:
            return answer.status, await answer.read(), answer.headers.get("Retry-After", "")


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    held = asyncio.Event()

    async def echo(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            stream = web.StreamResponse()
            await stream.prepare(request)
            await stream.write(b"first\n")
            await held.wait()
            await stream.write(b"second\n")
            return stream
        body = await request.read()
        told = {"method": request.method, "path": request.path_qs, "bytes": len(body)}
        return web.json_response(told | {"authorization": request.headers.get("Authorization", "")})

    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{rest:.*}", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sky = Sky(seed=1)
    proxy = Proxy(ApiAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", authorization="Bearer theirs"), sky)
    await proxy.start()
    token = json.loads(proxy.kubeconfig())["users"][0]["user"]["token"]
    async with aiohttp.ClientSession() as session:
        yield Bed(proxy.url, token, session, sky, held)
    await proxy.stop()
    await runner.cleanup()


async def test_requests_pass_with_the_credentials_of_the_kubeconfig(bed: Bed) -> None:
    status, body, _ = await bed.ask("POST", "/api/v1/pods?a=b", b"x" * 3_000_000)
    assert status == 200
    expected = {"method": "POST", "path": "/api/v1/pods?a=b", "bytes": 3_000_000, "authorization": "Bearer theirs"}
    assert json.loads(body) == expected


async def test_answers_stream(bed: Bed) -> None:
    headers = {"Authorization": f"Bearer {bed.token}"}
    async with bed.session.get(f"{bed.url}/api/v1/pods?watch=true", headers=headers) as answer:
        assert await answer.content.readline() == b"first\n"
        bed.held.set()
        assert await answer.content.readline() == b"second\n"


async def test_another_token_is_refused(bed: Bed) -> None:
    assert (await bed.ask("GET", "/api/v1/pods", token="guess"))[0] == 401
    assert (await bed.ask("PUT", "/-/weather", b'{"refused": 1}', token="guess"))[0] == 401
    assert bed.sky.weather == Weather()


async def test_all_writes_but_those_of_leases_are_refused_in_a_storm(bed: Bed) -> None:
    weather = msgspec.json.encode(Weather(refused=1.0, retry_after=7))
    assert (await bed.ask("PUT", "/-/weather", weather))[0] == 200
    status, body, retry = await bed.ask("POST", "/api/v1/namespaces/a/pods/b/binding", b"{}")
    assert (status, json.loads(body)["reason"], retry) == (429, "TooManyRequests", "7")
    assert (await bed.ask("GET", "/api/v1/pods"))[0] == 200
    assert (await bed.ask("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", b"{}"))[0] == 200
    told = json.loads((await bed.ask("GET", "/-/weather"))[1])
    assert told == {"passed": {"read": 1, "lease": 1}, "refused": {"bind": 1}, "stalled": {}}


async def test_weather_that_does_not_parse_changes_nothing(bed: Bed) -> None:
    for body, field in ((b'{"refused": "x"}', "refused"), (b'{"sun": 1}', "sun"), (b"{", "")):
        status, answer, _ = await bed.ask("PUT", "/-/weather", body)
        assert status == 422
        assert field in json.loads(answer)["message"]
    assert bed.sky.weather == Weather()


async def test_what_is_no_http_ends_the_connection_alone(bed: Bed) -> None:
    host, _, port = bed.url.removeprefix("http://").partition(":")
    for noise in (b"\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"\xff" * 400_000):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(noise)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
    assert (await bed.ask("GET", "/api/v1/pods"))[0] == 200


def test_a_limit_of_writes_a_second() -> None:
    sky = Sky(seed=1)
    sky.change(Weather(per_s=50.0), now=0.0)
    refused = sum(sky.strike("POST", "/api/v1/pods", number / 100)[0] for number in range(1000))
    assert 490 <= refused <= 510


def test_stalled_and_refused_are_shares() -> None:
    sky = Sky(seed=1)
    sky.change(Weather(refused=0.2, stalled=0.5, stall_s=2.0), now=0.0)
    answers = [sky.strike("PATCH", "/api/v1/namespaces/a/pods/b/status", 0.0) for _ in range(2000)]
    assert 300 < sum(refused for refused, _ in answers) < 500
    assert 700 < sum(wait_s == 2.0 for _, wait_s in answers) < 900


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/api/v1/namespaces/a/pods/b/status", "read"),
        ("POST", "/api/v1/namespaces/a/pods/b/binding", "bind"),
        ("POST", "/api/v1/namespaces/a/pods/b/eviction", "evict"),
        ("POST", "/api/v1/namespaces/a/events", "event"),
        ("PATCH", "/api/v1/namespaces/a/events/b?x=binding", "event"),
        ("PATCH", "/api/v1/namespaces/a/pods/b/status", "status"),
        ("PATCH", "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/node-1/status", "metric"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "lease"),
        ("PATCH", "/apis/batch/v1/namespaces/a/jobs/b", "other"),
    ],
)
def test_kinds_of_requests(method: str, path: str, kind: str) -> None:
    assert kind_of(method, path) == kind
