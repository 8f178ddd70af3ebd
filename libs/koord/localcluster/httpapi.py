"""`ClusterApi` over HTTP: what fake kubelets, job operators, the CLI's submit and the demo's checker use on a server.

Lean on purpose (an aiohttp session and msgspec): it decodes nothing but metadata, so a checker can follow 50,000 pods.
How to reach the server (URL, TLS, header) is the caller's business.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import aiohttp
import msgspec

from koord.localcluster.clusterapi import (
    ApiError,
    EventType,
    Object,
    Objects,
    PatchKind,
    PropagationPolicy,
    WatchEvent,
    WatchEvents,
)

_PATCH_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_PAGE = 500
# Kubernetes 1.24.0 to 1.24.2 lose objects of smaller pages with a selector (docs/compatibility.md).
_SELECTING_PAGE = 2048
_MAX_LINE = 16 * 1024 * 1024
_TYPES: dict[str, EventType] = {"ADDED": "ADDED", "MODIFIED": "MODIFIED", "DELETED": "DELETED", "BOOKMARK": "BOOKMARK"}


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Brief(msgspec.Struct):
    metadata: _Meta


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    resource_version: str = ""
    continue_: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_RawObjects = list[msgspec.Raw]

_brief = msgspec.json.Decoder(_Brief)
_list = msgspec.json.Decoder(_List)
_line = msgspec.json.Decoder(_Line)


class ResourcePath(NamedTuple):
    """Where a resource lives: ``/api/v1`` or ``/apis/<group>/<version>``, its plural, and whether it has namespaces."""

    prefix: str
    plural: str
    namespaced: bool
    kind: str


class HttpClusterApi:
    """One API server over HTTP; an async context manager."""

    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._tls: ssl.SSLContext | bool = tls if tls is not None else True
        self._headers = {"User-Agent": "koord-localcluster", **(headers or {})}
        self._session: aiohttp.ClientSession | None = None
        self._resources: dict[str, ResourcePath] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=64, ssl=self._tls),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=None),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    # Where things are ---------------------------------------------------------------------------------------------

    async def resource(self, resource: str) -> ResourcePath:
        """The path of ``plural[.group]``, from discovery; 404 `NotFound` if the server does not serve it."""
        known = self._resources.get(resource)
        if known is None:
            plural, _, group = resource.partition(".")
            if group:
                found: Any = json.loads(await self._request("GET", f"/apis/{quote(group)}"))
                version = found["preferredVersion"]["groupVersion"]
                known = await self._find(f"/apis/{version}", plural=plural)
            else:
                known = await self._find("/api/v1", plural=plural)
            self._resources[resource] = known
        return known

    async def resource_of_kind(self, api_version: str, kind: str) -> ResourcePath:
        """The path of an object's ``apiVersion`` and ``kind``; 404 `NotFound` if the server does not serve it."""
        prefix = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        return await self._find(prefix, kind=kind)

    async def _find(self, prefix: str, *, plural: str = "", kind: str = "") -> ResourcePath:
        served: Any = json.loads(await self._request("GET", prefix))
        for entry in served["resources"]:
            if "/" not in entry["name"] and (entry["name"] == plural or entry["kind"] == kind):
                return ResourcePath(prefix, entry["name"], bool(entry["namespaced"]), entry["kind"])
        raise ApiError(404, "NotFound", f"the server does not serve {plural or kind} in {prefix}")

    async def _path(self, resource: str, namespace: str | None, name: str = "", subresource: str | None = None) -> str:
        return object_path(await self.resource(resource), namespace, name, subresource)

    # Requests -----------------------------------------------------------------------------------------------------

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        assert self._session is not None, "use it as an async context manager"
        try:
            async with self._session.request(
                method,
                self._url + path,
                data=body,
                params=query,
                headers={"Content-Type": content_type, "Accept": "application/json"},
                timeout=aiohttp.ClientTimeout(total=60),
            ) as answer:
                payload = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(503, "ServiceUnavailable", f"{method} {path}: {error or type(error).__name__}") from error
        if answer.status >= 400:
            raise api_error(answer.status, payload)
        return payload

    async def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """See `ClusterApi.list`."""
        items, version = await self._list(resource, namespace, label_selector, field_selector)
        return [msgspec.json.decode(item) for item in items], version

    async def _list(
        self, resource: str, namespace: str | None, label_selector: str | None, field_selector: str | None
    ) -> tuple[_RawObjects, str]:
        path = await self._path(resource, namespace)
        query = _query(label_selector, field_selector)
        query["limit"] = str(_SELECTING_PAGE if query else _PAGE)
        items: _RawObjects = []
        while True:
            page = _list.decode(await self._request("GET", path, query=query))
            items.extend(page.items or ())
            if not page.metadata.continue_:
                return items, page.metadata.resource_version
            query["continue"] = page.metadata.continue_

    async def watch(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> AsyncIterator[WatchEvents]:
        """See `ClusterApi.watch`."""
        if resource_version is None:
            items, resource_version = await self._list(resource, namespace, label_selector, field_selector)
            for start in range(0, len(items), _PAGE):
                yield [_event("ADDED", item) for item in items[start : start + _PAGE]]
            yield [WatchEvent("BOOKMARK", "", "", int(resource_version), b"{}")]
        query = _query(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
        }
        path = await self._path(resource, namespace)
        assert self._session is not None
        try:
            async with self._session.get(
                self._url + path, params=query, headers={"Accept": "application/json"}
            ) as answer:
                if answer.status >= 400:
                    raise api_error(answer.status, await answer.read())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > _MAX_LINE:
                        raise ApiError(502, "BadGateway", f"watch {path}: a line of more than {_MAX_LINE} bytes")
                    events = [_watched(line) for line in lines if line]
                    if events:
                        yield events
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise ApiError(503, "ServiceUnavailable", f"watch {path}: {error or type(error).__name__}") from error

    async def get(self, resource: str, namespace: str | None, name: str) -> Object:
        """See `ClusterApi.get`."""
        body: Object = json.loads(await self._request("GET", await self._path(resource, namespace, name)))
        return body

    async def create(self, resource: str, namespace: str | None, body: Object) -> bytes:
        """See `ClusterApi.create`."""
        path = await self._path(resource, namespace)
        return await self._request("POST", path, body=msgspec.json.encode(body))

    async def create_at(self, path: str, body: Object) -> bytes:
        """Create at a collection's path, for objects whose resource was found by kind."""
        return await self._request("POST", path, body=msgspec.json.encode(body))

    async def replace(
        self, resource: str, namespace: str | None, name: str, body: Object, *, subresource: str | None = None
    ) -> bytes:
        """See `ClusterApi.replace`."""
        path = await self._path(resource, namespace, name, subresource)
        return await self._request("PUT", path, body=msgspec.json.encode(body))

    async def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        patch: Object | Objects | bytes,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
    ) -> bytes:
        """See `ClusterApi.patch`."""
        path = await self._path(resource, namespace, name, subresource)
        body = patch if isinstance(patch, bytes) else msgspec.json.encode(patch)
        return await self._request("PATCH", path, body=body, content_type=_PATCH_TYPES[kind])

    async def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation_policy: PropagationPolicy | None = None,
    ) -> None:
        """See `ClusterApi.delete`."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {key: value for key, value in preconditions.items() if value}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation_policy is not None:
            options["propagationPolicy"] = propagation_policy
        path = await self._path(resource, namespace, name)
        await self._request("DELETE", path, body=msgspec.json.encode(options))

    async def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until the server answers ``/readyz``; the last ApiError if it does not in time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                await self._request("GET", "/readyz")
                return
            except ApiError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.05)


def object_path(resource: ResourcePath, namespace: str | None, name: str = "", subresource: str | None = None) -> str:
    """The REST path of a collection, an object or its sub-resource."""
    scope = f"/namespaces/{quote(namespace)}" if namespace and resource.namespaced else ""
    path = f"{resource.prefix}{scope}/{resource.plural}"
    if name:
        path += f"/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def api_error(code: int, payload: bytes) -> ApiError:
    """The error in a Status body, or the bare code if the body is none."""
    try:
        status = json.loads(payload)
        message = str(status["message"])
    except (ValueError, KeyError, TypeError):
        text = " ".join(payload[:200].decode(errors="replace").split())
        return ApiError(code, "Unknown", text or f"HTTP {code}")
    return ApiError(code, str(status.get("reason") or "Unknown"), message, status.get("details"))


def _query(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in query.items() if value}


def _event(kind: EventType, raw: msgspec.Raw) -> WatchEvent:
    meta = _brief.decode(raw).metadata
    return WatchEvent(kind, meta.namespace, meta.name, int(meta.resource_version or 0), bytes(raw))


def _watched(line: bytes) -> WatchEvent:
    decoded = _line.decode(line)
    kind = _TYPES.get(decoded.type)
    if kind is None:
        raise api_error(410 if b'"code":410' in line else 500, bytes(decoded.object))
    return _event(kind, decoded.object)
