"""The small HTTP server of every service: liveness, readiness, metrics, and the pages that the service adds."""

import msgspec
from aiohttp import web

from koord.runtime.host import Host
from koord.runtime.pages import message_page
from koord.telemetry.metrics import exposition

MOST_BODY = 1 << 14
"""Bytes of a request's body."""


class Health:
    """Serves ``/healthz``, ``/readyz``, ``/metrics`` and the pages of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        application = web.Application(client_max_size=MOST_BODY)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_route("*", "/{path:.*}", self._page)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)

    async def start(self) -> int:
        """Listen; returns the port. OSError when it is taken."""
        settings = self._host.common.http
        await self._runner.setup()
        site = web.TCPSite(self._runner, settings.host, settings.port)
        await site.start()
        port = int(self._runner.addresses[0][1])
        self._host.http_port = port
        return port

    async def stop(self) -> None:
        """Close the server."""
        await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        if self._host.failed.done():
            return web.Response(status=503, text="failed\n")
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        waiting = self._host.ready.waiting
        told = {"service": self._host.name, "ready": not waiting, "waiting": waiting, "leads": self._host.leads}
        body = msgspec.json.encode(told)
        return web.Response(status=503 if waiting else 200, body=body, content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.Response:
        body, kind = exposition(", ".join(request.headers.getall("Accept", ())))
        return web.Response(body=body, headers={"Content-Type": kind})

    async def _page(self, request: web.Request) -> web.Response:
        body = await request.read() if request.body_exists else b""
        try:
            page = await self._host.pages.answer(request.method, request.path, dict(request.query), body)
        except Exception:
            self._host.log.exception("a page failed", method=request.method, path=request.path)
            page = message_page(500, "the page failed, the log of the service says why")
        if page is None:
            return web.Response(status=404, text="404: Not Found")
        return web.Response(status=page.status, body=page.body, content_type=page.content_type)
