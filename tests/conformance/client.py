"""A plain HTTP client for an API server: what was answered, status and headers included, and watches line by line.

It knows nothing of Kubernetes beyond JSON and the line format of watches, so that tests see what a server really says.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from tests.conformance.servers import DEADLINE, Server

T = TypeVar("T")
Params = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Answer(NamedTuple):
    """`body` is decoded JSON (of a watch that ended, its events), or text when it is none; `raw` are the bytes."""

    status: int
    body: Any
    headers: CIMultiDictProxy[str]
    raw: bytes

    @property
    def reason(self) -> str:
        """The reason of a Status."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The message of a Status."""
        return str(self.body.get("message", ""))

    @property
    def warnings(self) -> list[str]:
        """The Warning headers."""
        return list(self.headers.getall("Warning", []))


class Watch:
    """An open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.headers = response.headers

    async def next(self, timeout: float = DEADLINE) -> dict[str, Any]:
        """The next event; `StopAsyncIteration` at the end of the stream, `TimeoutError` when none comes."""
        async with asyncio.timeout(timeout):
            line = await self._response.content.readline()
        if not line:
            raise StopAsyncIteration
        event: dict[str, Any] = json.loads(line)
        return event

    async def take(self, count: int) -> list[dict[str, Any]]:
        """So many events, bookmarks left out."""
        events: list[dict[str, Any]] = []
        while len(events) < count:
            event = await self.next()
            if event["type"] != "BOOKMARK":
                events.append(event)
        return events

    async def rest(self) -> list[dict[str, Any]]:
        """All events until the server ends the stream."""
        events = []
        while True:
            try:
                events.append(await self.next())
            except StopAsyncIteration:
                return events


class Client:
    """Requests to one server. A body that is bytes goes as it is, everything else as JSON."""

    def __init__(self, server: Server, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session

    def _url(self, path: str, params: Params | None) -> URL:
        text = self.server.url + path
        if params:
            text += ("&" if "?" in path else "?") + urlencode(params)
        return URL(text, encoded=True)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str | None = None,
        params: Params | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request; no status is an error."""
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **self.server.headers, **(headers or {})}
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent["Content-Type"] = content_type or "application/json"
        async with self._session.request(
            method, self._url(path, params), data=data, headers=sent, allow_redirects=False
        ) as response:
            raw = await response.read()
            return Answer(response.status, _decoded(raw, response), response.headers, raw)

    async def get(self, path: str, **params: Any) -> Answer:
        """GET with these query parameters."""
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Any, **params: Any) -> Answer:
        """POST as JSON."""
        return await self.request("POST", path, body, params=params)

    async def put(self, path: str, body: Any, **params: Any) -> Answer:
        """PUT as JSON."""
        return await self.request("PUT", path, body, params=params)

    async def patch(self, path: str, body: Any, kind: str = MERGE, **params: Any) -> Answer:
        """PATCH of a kind, by default a merge patch."""
        return await self.request("PATCH", path, body, content_type=kind, params=params)

    async def delete(self, path: str, body: Any = None, **params: Any) -> Answer:
        """DELETE, with DeleteOptions if there is a body."""
        return await self.request("DELETE", path, body, params=params)

    @asynccontextmanager
    async def watch(self, path: str, *, headers: dict[str, str] | None = None, **params: Any) -> AsyncIterator[Watch]:
        """A watch that the server answered with 200 (an `AssertionError` with its answer otherwise)."""
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **self.server.headers, **(headers or {})}
        url = self._url(path, {"watch": "1", **params})
        response = await self._session.get(url, headers=sent)
        try:
            assert response.status == 200, f"{response.status}: {await response.text()}"
            yield Watch(response)
        finally:
            response.close()


def _decoded(raw: bytes, response: aiohttp.ClientResponse) -> Any:
    if not raw or not response.headers.get("Content-Type", "").startswith("application/json"):
        return raw.decode(errors="replace")
    try:
        return json.loads(raw)
    except json.JSONDecodeError:
        return [json.loads(line) for line in raw.splitlines()]


async def until(condition: Callable[[], Awaitable[T]], seconds: float = DEADLINE) -> T:
    """Poll until `condition` answers something true; that answer."""
    async with asyncio.timeout(seconds):
        while not (value := await condition()):  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.02)
        return value
