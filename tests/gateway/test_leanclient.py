"""The lean client against a server that answers byte by byte as a test says."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from koord.gateway.access import AccessError, ApiAccess
from koord.gateway.lanes import BIND, EVENT, STATUS
from koord.gateway.leanclient import LeanClient, NotSent, OutcomeUnknown
from tests.gateway.conftest import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Runs `handler` for each connection; notes request heads and counts connections."""

    def __init__(self) -> None:
        self.handler: Handler = self.always(OK)
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def next(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        request = head + await reader.readexactly(length)
        self.requests.append(request)
        return request

    def always(self, answer: bytes, *, close: bool = False) -> Handler:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await self.next(reader)
                writer.write(answer)
                if close:
                    return

        return handle

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[LeanClient]:
    access = ApiAccess(f"http://127.0.0.1:{server.port}/base/", authorization="Bearer t")
    made = LeanClient(access, connections=2, timeout_s=2.0)
    yield made
    await made.close()


async def test_one_request_as_bytes(server: Server, client: LeanClient) -> None:
    answer = await client.request("POST", "/api/v1/x?a=b", b"{}", "application/json-patch+json")
    assert (answer.status, answer.body, answer.retry_after) == (200, b"ok", 0.0)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /base/api/v1/x?a=b HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}".encode() in lines
    assert b"Content-Type: application/json-patch+json" in lines
    assert b"Authorization: Bearer t" in lines
    assert (b"Content-Length: 2" in lines, body) == (True, b"{}")


async def test_connections_are_kept_and_bounded(server: Server, client: LeanClient) -> None:
    answers = await asyncio.gather(*(client.request("GET", f"/{i}") for i in range(50)))
    assert {answer.status for answer in answers} == {200}
    assert (len(server.requests), server.connections, client.waiting, client.under_way) == (50, 2, 0, 0)


@pytest.fixture
async def wide(server: Server) -> AsyncIterator[LeanClient]:
    made = LeanClient(ApiAccess(f"http://127.0.0.1:{server.port}"), connections=8, timeout_s=30.0)
    yield made
    await made.close()


async def test_a_server_that_is_slow_with_status_and_events_is_free_for_binds(server: Server, wide: LeanClient) -> None:
    slow = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            if b"/slow" in await server.next(reader):
                await slow.wait()
            writer.write(OK)

    server.handler = handle
    held = [wide.request("GET", "/slow", lane=lane) for lane in (EVENT, STATUS) * 10]
    await until(lambda: wide.under_way == 6, "six requests are under way, two of them Events")
    for _ in range(20):
        assert (await wide.request("GET", "/", lane=BIND)).status == 200
    assert (wide.under_way, wide.waiting) == (6, 14)
    slow.set()
    assert {answer.status for answer in await asyncio.gather(*held)} == {200}
    assert (wide.under_way, wide.waiting) == (0, 0)


async def test_429_halves_what_less_urgent_lanes_send_and_good_answers_give_it_back(
    server: Server, wide: LeanClient
) -> None:
    go, throttle, most, now = asyncio.Event(), True, 0, 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now
        while True:
            await server.next(reader)
            if throttle:
                writer.write(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n")
                continue
            now += 1
            most = max(most, now)
            await go.wait()
            now -= 1
            writer.write(OK)

    server.handler = handle
    assert (await wide.request("GET", "/", lane=STATUS)).status == 429
    throttle = False
    held = [wide.request("GET", "/", lane=STATUS) for _ in range(30)]
    await until(lambda: most == 3, "half of the share is under way")
    assert (wide.under_way, wide.waiting) == (3, 27)
    go.set()
    await asyncio.gather(*held)
    go.clear()
    held = [wide.request("GET", "/", lane=STATUS) for _ in range(30)]
    await until(lambda: now == 6, "the whole share is under way")
    go.set()
    await asyncio.gather(*held)


async def test_chunks_and_pieces_make_one_body(server: Server, client: LeanClient) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.next(reader)
            answer = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            for at in range(0, len(answer), 7):
                writer.write(answer[at : at + 7])
                await writer.drain()
                await asyncio.sleep(0)

    server.handler = handle
    for _ in range(2):
        answer = await client.request("GET", "/")
        assert (answer.status, answer.body) == (201, b"abcde")


async def test_an_interim_answer_is_not_the_answer(server: Server, client: LeanClient) -> None:
    server.handler = server.always(b"HTTP/1.1 102 Processing\r\n\r\n" + OK)
    assert (await client.request("GET", "/")).status == 200


async def test_retry_after_is_told(server: Server, client: LeanClient) -> None:
    server.handler = server.always(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\nContent-Length: 0\r\n\r\n")
    answer = await client.request("GET", "/")
    assert (answer.status, answer.body, answer.retry_after) == (429, b"", 3.0)


async def test_a_server_that_closes_after_each_answer(server: Server, client: LeanClient) -> None:
    server.handler = server.always(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", close=True)
    answers = await asyncio.gather(*(client.request("GET", f"/{i}") for i in range(6)))
    assert [answer.body for answer in answers] == [b"ok"] * 6
    assert server.connections == 6


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"HTTP/1.1 2"])
async def test_a_connection_that_breaks_leaves_the_outcome_unknown(
    server: Server, client: LeanClient, sent: bytes
) -> None:
    server.handler = server.always(sent, close=True)
    with pytest.raises(OutcomeUnknown):
        await client.request("POST", "/")
    server.handler = server.always(OK)
    assert (await client.request("GET", "/")).status == 200


async def test_an_unreadable_answer_leaves_the_outcome_unknown(server: Server, client: LeanClient) -> None:
    server.handler = server.always(b"SMTP ready\r\n\r\n")
    with pytest.raises(OutcomeUnknown, match="unreadable"):
        await client.request("GET", "/")


async def test_bytes_nobody_asked_for_are_not_the_next_answer(server: Server, client: LeanClient) -> None:
    server.handler = server.always(OK + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
    assert (await client.request("GET", "/")).status == 200
    server.handler = server.always(OK)
    for _ in range(4):
        try:
            assert (await client.request("GET", "/")).status == 200
        except OutcomeUnknown:
            continue  # the connection was given up: right, what was read of it cannot be trusted


async def test_no_answer_in_time_is_unknown_and_a_late_one_is_not_mixed_up(server: Server) -> None:
    late = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.next(reader)
        await late.wait()
        writer.write(b"HTTP/1.1 500 Late\r\nContent-Length: 0\r\n\r\n")

    server.handler = handle
    client = LeanClient(ApiAccess(f"http://127.0.0.1:{server.port}"), connections=1, timeout_s=0.3)
    with pytest.raises(OutcomeUnknown, match="in time"):  # there is no answer until it is let go
        await asyncio.wait_for(client.request("POST", "/"), 60)
    server.handler = server.always(OK)
    late.set()
    assert (await client.request("GET", "/")).status == 200
    await client.close()


async def test_no_server_means_not_sent_and_heals() -> None:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    client = LeanClient(ApiAccess(f"http://127.0.0.1:{port}"), timeout_s=2.0)
    for _ in range(3):
        with pytest.raises(NotSent):
            await client.request("POST", "/")
    listening = await asyncio.start_server(server.serve, "127.0.0.1", port)
    deadline = time.monotonic() + 60
    while True:
        try:
            assert (await client.request("GET", "/")).status == 200
            break
        except NotSent:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
    await client.close()
    listening.close()


async def test_binds_overtake_status_writes_that_wait(server: Server) -> None:
    release = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.next(reader)
            await release.wait()
            writer.write(OK)

    server.handler = handle
    client = LeanClient(ApiAccess(f"http://127.0.0.1:{server.port}"), connections=1)
    calls = [client.request("GET", f"/{lane}", lane=lane) for lane in (2, 2, 1, 0, 1, 0)]
    await until(lambda: server.requests, "the first request")
    release.set()
    await asyncio.gather(*calls)
    assert [request.split()[1].decode() for request in server.requests] == ["/0", "/0", "/1", "/1", "/2", "/2"]
    await client.close()


async def test_closing_fails_what_is_under_way(server: Server) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.next(reader)
        await reader.read()

    server.handler = handle
    client = LeanClient(ApiAccess(f"http://127.0.0.1:{server.port}"), connections=1)
    sent, waits = client.request("GET", "/"), client.request("GET", "/")
    await until(lambda: server.requests, "the first request")
    await client.close()
    with pytest.raises(OutcomeUnknown):
        await sent
    with pytest.raises(NotSent):
        await waits
    with pytest.raises(NotSent):
        await client.request("GET", "/")


async def test_renewed_credentials_take_effect_with_the_next_request(server: Server) -> None:
    tokens = iter(("Bearer two",))

    async def renew() -> str:
        return next(tokens)

    access = ApiAccess(f"http://127.0.0.1:{server.port}", authorization="Bearer one", renew=renew)
    client = LeanClient(access)
    await client.request("GET", "/")
    assert await access.renew()
    await client.request("GET", "/")
    assert [b"Bearer one" in request for request in server.requests] == [True, False]
    assert b"Authorization: Bearer two\r\n" in server.requests[1]
    await client.close()


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(AccessError, match="must be http"):
        ApiAccess(url)


async def test_who_slept_sends_nothing_whose_time_is_up(server: Server) -> None:
    """A stopped process that goes on finds the answer before its timers have run: a line that waited is not sent."""
    goes_on = asyncio.Event()

    async def when_told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.next(reader)
            await goes_on.wait()
            writer.write(OK)

    server.handler = when_told
    client = LeanClient(ApiAccess(f"http://127.0.0.1:{server.port}/"), connections=1, timeout_s=1.0)
    try:
        first, second = client.request("POST", "/first"), client.request("POST", "/second")
        await until(lambda: server.requests, "the first request")
        [connection] = client._open
        time.sleep(1.1)  # noqa: ASYNC251  nothing of this process runs
        connection.data_received(OK)
        assert (await first).status == 200
        with pytest.raises(NotSent):
            await second
        goes_on.set()
        assert (await client.request("GET", "/third")).status == 200
        assert not [request for request in server.requests if b"/second" in request]
    finally:
        await client.close()
