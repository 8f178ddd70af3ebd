"""HTTP of the trace store: OTLP in (``POST /v1/traces``), traces out (``GET /traces/{id}``)."""

import re

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from koord.localcluster.traces.otlp import OtlpError, spans_of
from koord.localcluster.traces.store import TraceStore

MAX_BODY = 16 * 1024 * 1024
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_STORE = web.AppKey("store", TraceStore)


def application(store: TraceStore) -> web.Application:
    """The application; the store is its only state."""
    app = web.Application(client_max_size=MAX_BODY)
    app[_STORE] = store
    app.router.add_post("/v1/traces", _receive)
    app.router.add_get("/traces/{trace_id}", _trace)
    app.router.add_get("/healthz", _health)
    return app


async def _receive(request: web.Request) -> web.Response:
    try:
        body = await request.read()
    except RequestPayloadError as error:
        return web.json_response({"error": f"body: {error}"}, status=400)
    try:
        spans = spans_of(body)
    except OtlpError as error:
        return web.json_response({"error": f"body: {error}"}, status=400)
    store = request.app[_STORE]
    for span in spans:
        store.add(span)
    return web.Response(body=b"", content_type="application/x-protobuf")


async def _trace(request: web.Request) -> web.Response:
    trace_id = request.match_info["trace_id"]
    if not _TRACE_ID.fullmatch(trace_id):
        return web.json_response({"error": f"trace_id: {trace_id!r} is not 32 hex digits"}, status=400)
    spans = request.app[_STORE].trace(trace_id)
    return web.Response(body=msgspec.json.encode(spans), content_type="application/json")


async def _health(request: web.Request) -> web.Response:
    store = request.app[_STORE]
    return web.json_response({"traces": len(store), "bytes": store.size, "evicted": store.evicted})
