"""What is asked of the API server about one resource: its list, page by page, and its changes, line by line."""

import random
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

import aiohttp

from koord.gateway.access import ApiAccess
from koord.gateway.objects import ObjectError, Page, read_page, read_status
from koord.kube.resources import Resource

PAGE = 500
MAX_LINE = 32 * 1024 * 1024
_WATCH_S = 300
_QUIET_S = 90.0


class Expired(Exception):
    """The server can no longer continue the watch, or the list, from the version asked for."""


class Refused(Exception):
    """The server refused to list or watch; ``code`` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class ApiFeed:
    """Lists and watches. Raises Expired, Refused, ObjectError and what aiohttp raises."""

    def __init__(self, resource: Resource, access: ApiAccess, session: aiohttp.ClientSession) -> None:
        self._resource = resource
        self._access = access
        self._session = session

    async def pages(self) -> AsyncGenerator[Page, None]:
        """One consistent list."""
        token = ""
        while True:
            query = {"limit": str(PAGE)}
            if token:
                query["continue"] = token
            async with self._get(query) as answer:
                body = await answer.read()
                await self._check(answer.status, body)
            page = read_page(body)
            yield page
            token = page.token
            if not token:
                return

    async def changes(self, version: str) -> AsyncGenerator[list[bytes], None]:
        """The watch from ``version`` on, whole lines as they come; first an empty batch when the server follows."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(_WATCH_S * random.uniform(0.8, 1.2))),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=_QUIET_S)
        async with self._get(query, timeout=timeout) as answer:
            if answer.status != 200:
                await self._check(answer.status, await answer.read())
            yield []
            rest = b""
            async for chunk in answer.content.iter_any():
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                if len(rest) > MAX_LINE:
                    raise ObjectError(f"watch line: longer than {MAX_LINE} bytes")
                yield lines

    async def _check(self, status: int, body: bytes) -> None:
        if status == 410:
            raise Expired
        if status != 200:
            if status == 401 and self._access.renewable:
                await self._access.renew()
            raise Refused(status, read_status(body).message)

    def _get(
        self, query: dict[str, str], *, timeout: aiohttp.ClientTimeout | None = None
    ) -> "AbstractAsyncContextManager[aiohttp.ClientResponse]":
        access = self._access
        headers = {"Accept": "application/json"}
        if access.authorization:
            headers["Authorization"] = access.authorization
        return self._session.get(
            f"{access.url}{self._resource.path()}",
            params=query,
            headers=headers,
            server_hostname=access.server_name or None,
            timeout=timeout or aiohttp.ClientTimeout(total=120.0, sock_connect=10.0),
        )
