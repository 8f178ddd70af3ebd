"""The ASGI application: who asks, what for, and answers that always are Kubernetes objects, errors included."""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from koord.localcluster.api import discovery
from koord.localcluster.api.admission.admission import ADMINISTRATOR
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.errors import (
    PageNotFound,
    bad_request,
    internal,
    method_not_allowed,
    too_large,
    unauthorized,
)
from koord.localcluster.api.objecthandlers import ObjectHandlers
from koord.localcluster.api.openapi import V2_EMPTY, V2_TYPE, OpenApi
from koord.localcluster.api.requests import JSON, Query, Request, Response
from koord.localcluster.api.reviews import Reviews, is_review
from koord.localcluster.api.store import encode
from koord.localcluster.api.yamlanswers import as_yaml, prefers_yaml
from koord.localcluster.clusterapi import ApiError

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_BODY = 3 * 1024 * 1024
_TIDY_SECONDS = 10.0
_TEXT = b"text/plain; charset=utf-8"
_OPEN = ("healthz", "readyz", "livez")
_log = logging.getLogger(__name__)

_MOST_WARNED, _LONGEST_WARNING = 4 * 1024, 256


class App:
    """One embedded API server behind HTTP. `token` is the only credential; `address` is shown to clients."""

    def __init__(self, cluster: Cluster, token: str, address: str) -> None:
        self._cluster = cluster
        self._authorization = b"Bearer " + token.encode()
        self._address = address
        self._objects = ObjectHandlers(cluster)
        self._openapi = OpenApi(cluster.registry)
        self._reviews = Reviews(ADMINISTRATOR.username, list(ADMINISTRATOR.groups), token, cluster.clock.now)

    async def tidy_forever(self) -> None:
        """Let go of what is held for requests that did not come, now and then."""
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            self._objects.tidy()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI request."""
        if scope["type"] != "http":
            return
        warnings: list[str] = []
        wait = 0
        try:
            request = await self._read(scope, receive, warnings)
            response = await self._answer(request)
        except ApiError as error:
            response = _failure(error)
            wait = int((error.details or {}).get("retryAfterSeconds") or 0)
        except RecursionError:
            response = _failure(bad_request("the body of the request is nested too deeply"))
        except Exception as error:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            response = _failure(internal(f"{type(error).__name__}: {error}"))
        await _respond(response, warnings, wait, receive, send)

    async def _read(self, scope: Scope, receive: Receive, warnings: list[str]) -> Request:
        accept = content_type = user_agent = authorization = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"accept":
                # Several headers of one name mean the same as one with commas.
                accept = accept + b"," + value if accept else value
            elif name == b"content-type":
                content_type = value
            elif name == b"user-agent":
                user_agent = value
        path: list[str] = scope["path"].strip("/").split("/")
        if path[0] not in _OPEN and not hmac.compare_digest(authorization, self._authorization):
            raise unauthorized()
        method: str = scope["method"]
        body = b""
        if method != "GET" and method != "HEAD":
            message = await receive()
            body = message.get("body", b"")
            while message.get("more_body"):
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    break
            if len(body) > MAX_BODY:
                raise too_large(MAX_BODY)
        query = Query(scope["query_string"], method)
        return Request(method, path, query, accept, content_type, body, warnings, user_agent, [])

    async def _answer(self, request: Request) -> Response:
        if b"yaml" in request.accept and prefers_yaml(request):
            return await as_yaml(await self._found(request._replace(accept=JSON)))
        return await self._found(request)

    async def _found(self, request: Request) -> Response:
        path = request.path
        if path[0] == "api" and len(path) > 2 and path[1] == "v1":
            return await self._objects.handle(request, self._objects.locate("", "v1", path[2:]))
        if path[0] == "apis" and len(path) > 3:
            if is_review(path):
                return self._reviews.answer(request)
            return await self._objects.handle(request, self._objects.locate(path[1], path[2], path[3:]))
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return self._document(request)

    def _document(self, request: Request) -> Response:
        registry = self._cluster.registry
        match request.path:
            case ["version"]:
                return Response(200, discovery.version_info())
            case ["healthz" | "readyz" | "livez", *_]:
                return Response(200, b"ok", _TEXT)
            case ["api" | "apis" as root] if discovery.wants_aggregated(request.accept):
                body = discovery.aggregated(registry, core=root == "api")
                return Response(200, body, discovery.AGGREGATED)
            case ["api"]:
                return Response(200, discovery.api_versions(self._address))
            case ["apis"]:
                return Response(200, discovery.api_groups(registry))
            case ["api", "v1"]:
                return Response(200, discovery.resource_list(registry, "", "v1"))
            case ["apis", group]:
                return Response(200, discovery.api_group(registry, group))
            case ["apis", group, version]:
                return Response(200, discovery.resource_list(registry, group, version))
            case ["openapi", "v2"]:
                return Response(200, V2_EMPTY, V2_TYPE)
            case ["openapi", "v3"]:
                return Response(200, self._openapi.index())
            case ["openapi", "v3", *rest]:
                return Response(200, self._openapi.document("/".join(rest)))
            case [""]:
                return Response(
                    200, encode({"paths": ["/api", "/apis", "/healthz", "/openapi/v2", "/openapi/v3", "/version"]})
                )
        raise PageNotFound


def _failure(error: ApiError) -> Response:
    if isinstance(error, PageNotFound):
        return Response(error.code, b"404 page not found\n", _TEXT)
    return Response(error.code, encode(error.status()))


_JSON_HEADERS = [(b"content-type", JSON)]


def _warning(text: str) -> bytes:
    """The value of a Warning header: code 299, no agent, the text in quotes."""
    quoted = "".join(char for char in text if char.isprintable()).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'.encode()


def _shortened(warnings: list[str]) -> list[str]:
    """What is told of so many warnings: clients take no answer with thousands of headers. The real server's bounds."""
    found = list(dict.fromkeys(warnings))
    if sum(map(len, found)) <= _MOST_WARNED:
        return found
    written = 0
    for i, text in enumerate(found):
        if written >= _MOST_WARNED:
            return found[:i]
        found[i] = text[:_LONGEST_WARNING]
        written += len(found[i])
    return found


async def _respond(response: Response, warnings: list[str], wait: int, receive: Receive, send: Send) -> None:
    headers = _JSON_HEADERS if response.content_type is JSON else [(b"content-type", response.content_type)]
    if warnings:
        headers = [*headers, *((b"warning", _warning(text)) for text in _shortened(warnings))]
    if wait:
        headers = [*headers, (b"retry-after", str(wait).encode())]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if isinstance(response.body, bytes):
        await send({"type": "http.response.body", "body": response.body})
    else:
        await _stream(response.body, receive, send)


async def _stream(chunks: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Send chunks until they end or the client is gone."""
    task = asyncio.current_task()
    gone = False

    async def watch_client() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        if task is not None:
            task.cancel()

    watcher = asyncio.create_task(watch_client())
    try:
        # An empty first part sends the headers now: a client waits for them before it reads events.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        async with aclosing(chunks) as parts:  # type: ignore[type-var]
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not gone:
            raise
    finally:
        watcher.cancel()
