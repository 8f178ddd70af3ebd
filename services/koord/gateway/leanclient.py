"""A lean HTTP/1.1 client for the gateway's writes (docs/decisions/004-lean-write-client.md).

Binding a pod is one small request; a general client spends several times the server's work on it. This one keeps a
pool of connections with one request under way on each, writes head and body as one segment and lets httptools parse
the answer. It promises no redirects, proxies, compression, streaming or cookies: list, watch and rare calls go
elsewhere.

What a failure says about the request matters more than why it failed: :class:`NotSent` means that the server never
saw it, :class:`OutcomeUnknown` that it may have been executed (the caller has to read before it decides).
"""

import asyncio
import time
from collections import deque
from typing import NamedTuple, cast

import httptools

from koord.gateway.access import ApiAccess
from koord.gateway.lanes import BIND, LANES, shares

JSON = "application/json"
_IDLE_LIMIT_S = 45.0
_SWEEP_S = 0.25
_CUT_S = 0.25


class RequestFailed(Exception):
    """A request without an answer."""


class NotSent(RequestFailed):
    """The server never saw the request: no connection could be made, or the client is closed."""


class OutcomeUnknown(RequestFailed):
    """The request was sent, the answer did not come: it may or may not have been executed."""


class Response(NamedTuple):
    """An answer. ``retry_after`` in seconds, 0 if the server named none."""

    status: int
    body: bytes
    retry_after: float


class _Request:
    __slots__ = ("body", "content_type", "deadline", "future", "lane", "method", "path")

    def __init__(self, method: str, path: str, body: bytes, content_type: str, deadline: float, lane: int) -> None:
        self.method = method
        self.path = path
        self.body = body
        self.content_type = content_type
        self.deadline = deadline
        self.lane = lane
        self.future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()


class _Connection(asyncio.Protocol):
    """One connection: sends one request, collects its answer, takes the next."""

    __slots__ = ("_body", "_client", "_parser", "_retry_after", "_transport", "idle_since", "request")

    def __init__(self, client: "LeanClient") -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._body: list[bytes] = []
        self._retry_after = 0.0
        self.request: _Request | None = None
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        self._client.connected(self)

    def send(self, request: _Request) -> None:
        """Write one request; the connection must be free."""
        assert self._transport is not None
        self.request = request
        self._body = []
        self._retry_after = 0.0
        # A new parser costs less than a microsecond and forgets whatever the last answer left behind.
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(self._client.head(request) + request.body)

    @property
    def usable(self) -> bool:
        """Whether a request can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self.request is None or self._parser is None:
            self.abort()  # bytes that nobody asked for
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(OutcomeUnknown(f"unreadable answer: {error}"))
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 11 and name.lower() == b"retry-after" and value.isdigit():
            self._retry_after = float(value)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        parser, request = self._parser, self.request
        assert parser is not None and request is not None
        status = parser.get_status_code()
        if status < 200:  # an interim answer: the final one follows
            self._body = []
            return
        keep = parser.should_keep_alive()
        self.request = None
        self._client.ended(request.lane)
        # That a disruption budget refuses an eviction (429) says nothing of how busy the server is.
        if not request.path.endswith("/eviction"):
            self._client.told(status, request.lane)
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if not request.future.done():
            request.future.set_result(Response(status, body, self._retry_after))
        if keep and self.usable:
            self._client.released(self)
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(OutcomeUnknown(f"connection lost: {exc or 'closed by the server'}"))
        self._client.lost(self)

    def expire(self) -> None:
        """The request's time is up: nobody may read a late answer as that of the next request."""
        self._fail(OutcomeUnknown("no answer in time"))
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: RequestFailed) -> None:
        request, self.request = self.request, None
        if request is None:
            return
        self._client.ended(request.lane)
        if not request.future.done():
            request.future.set_exception(error)


class LeanClient:
    """A pool of at most ``connections`` connections; what exceeds it waits, ``lane`` 0 before 1 before 2.

    Less urgent lanes never have all connections (:func:`koord.gateway.lanes.shares`): one that a slow server holds for
    seconds must not be a bind's. A server that answers 429 has no room for all: they then have half of what they had,
    and with each answer that is none a little more again, so that what room there is goes to binds.
    ``timeout_s`` runs from the call, waiting included.
    """

    def __init__(self, access: ApiAccess, *, connections: int = 16, timeout_s: float = 15.0) -> None:
        self._access = access
        self._limit = connections
        self._shares = shares(connections)
        # What of its share a lane has now, and its requests under way, each with the lanes below it.
        self._allowed = [float(share) for share in self._shares]
        self._cut_at = 0.0
        self._busy = [0] * len(LANES)
        self._timeout_s = timeout_s
        self._waiting: tuple[deque[_Request], ...] = tuple(deque() for _ in LANES)
        self._free: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._retry_connect_at = 0.0
        self._connect_failures = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._heads: dict[tuple[str, str], str] = {}
        self._heads_for = ""

    # What callers use ---------------------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = JSON, *, lane: int = 0
    ) -> "asyncio.Future[Response]":
        """Send ``method path``; the future holds the Response whatever its status, or a RequestFailed."""
        request = _Request(method, path, body, content_type, time.monotonic() + self._timeout_s, lane)
        if self._closed:
            request.future.set_exception(NotSent("the client is closed"))
            return request.future
        self._waiting[lane].append(request)
        self._dispatch()
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return request.future

    @property
    def under_way(self) -> int:
        """Requests sent and not answered."""
        return self._busy[BIND]

    @property
    def waiting(self) -> int:
        """Requests that wait for a connection."""
        return sum(map(len, self._waiting))

    async def close(self) -> None:
        """Fail what is under way and close every connection."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._fail_waiting(NotSent("the client is closed"))
        for task in list(self._connecting):
            task.cancel()
        for connection in list(self._open):
            connection.abort()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    # What connections report --------------------------------------------------------------------------------------

    def head(self, request: _Request) -> bytes:
        """Request line and header fields; all but path and length are kept from call to call."""
        access = self._access
        if access.authorization != self._heads_for:
            self._heads_for = access.authorization
            self._heads.clear()
        rest = self._heads.get((request.method, request.content_type))
        if rest is None:
            authorization = f"Authorization: {access.authorization}\r\n" if access.authorization else ""
            rest = (
                f" HTTP/1.1\r\nHost: {access.authority}\r\nUser-Agent: koord-gateway\r\nAccept: {JSON}\r\n"
                f"Content-Type: {request.content_type}\r\n{authorization}Content-Length: "
            )
            self._heads[(request.method, request.content_type)] = rest
        return f"{request.method} {access.prefix}{request.path}{rest}{len(request.body)}\r\n\r\n".encode("ascii")

    def connected(self, connection: _Connection) -> None:
        """A new connection is ready."""
        self._open.add(connection)
        self._connect_failures = 0
        self.released(connection)

    def released(self, connection: _Connection) -> None:
        """A connection has its answer and takes the next request."""
        connection.idle_since = time.monotonic()
        self._free.append(connection)
        self._dispatch()

    def ended(self, lane: int) -> None:
        """A request of that lane is under way no more."""
        for each in range(lane + 1):
            self._busy[each] -= 1

    def told(self, status: int, lane: int) -> None:
        """An answer came: how much may the lanes below binds send?"""
        if status == 429:
            now = time.monotonic()
            if now - self._cut_at >= _CUT_S:  # of the answers to what was sent together only the first counts
                self._cut_at = now
                for each in range(BIND + 1, len(LANES)):
                    self._allowed[each] = max(1.0, self._allowed[each] / 2)
        elif lane > BIND:
            allowed = self._allowed[lane]
            self._allowed[lane] = min(self._shares[lane], allowed + 1 / allowed)

    def lost(self, connection: _Connection) -> None:
        """A connection ended."""
        self._open.discard(connection)
        if connection in self._free:
            self._free.remove(connection)
        if not self._closed:
            self._dispatch()

    # Inside -------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give connections to what waits, the most urgent first."""
        while (queue := self._next()) is not None:
            while self._free:
                connection = self._free.pop()
                if connection.usable:
                    break
            else:
                self._grow()
                return
            request = queue.popleft()
            for each in range(request.lane + 1):
                self._busy[each] += 1
            connection.send(request)

    def _next(self) -> deque[_Request] | None:
        """The line of the next request that may have a connection."""
        now = time.monotonic()
        for lane, queue in enumerate(self._waiting):
            if self._busy[lane] + 1 > self._allowed[lane]:
                return None
            while queue and (queue[0].future.done() or queue[0].deadline < now):
                # A process that slept, too, sends nothing whose time is up: others rely on it.
                future = queue.popleft().future
                if not future.done():
                    future.set_exception(NotSent("no free connection in time"))
            if queue:
                return queue
        return None

    def _grow(self) -> None:
        if len(self._open) + len(self._connecting) >= self._limit or len(self._connecting) >= self.waiting:
            return
        if time.monotonic() < self._retry_connect_at:
            if not self._open and not self._connecting:
                self._fail_waiting(NotSent("the API server cannot be reached"))
            return
        task = asyncio.get_running_loop().create_task(self._connect())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self) -> None:
        access = self._access
        try:
            await asyncio.wait_for(
                asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self),
                    access.host,
                    access.port,
                    ssl=access.ssl,
                    server_hostname=(access.server_name or access.host) if access.ssl else None,
                ),
                timeout=min(10.0, self._timeout_s),
            )
        except (OSError, TimeoutError) as error:
            self._connect_failures += 1
            self._retry_connect_at = time.monotonic() + min(2.0, 0.05 * 2**self._connect_failures)
            if not self._open:
                self._fail_waiting(NotSent(f"{access.url}: {error or 'no connection in time'}"))

    def _fail_waiting(self, error: RequestFailed) -> None:
        for queue in self._waiting:
            while queue:
                future = queue.popleft().future
                if not future.done():
                    future.set_exception(error)

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in [c for c in self._open if c.request is not None and c.request.deadline < now]:
            connection.expire()
        for queue in self._waiting:
            while queue and queue[0].deadline < now:
                future = queue.popleft().future
                if not future.done():
                    future.set_exception(NotSent("no free connection in time"))
        for connection in [c for c in self._free if c.idle_since + _IDLE_LIMIT_S < now]:
            self._free.remove(connection)
            connection.abort()
        busy = self._open or self._connecting or self.waiting
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep) if busy else None
