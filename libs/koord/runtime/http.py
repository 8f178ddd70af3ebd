"""The small HTTP server of every service: liveness, readiness, metrics."""

import msgspec
from aiohttp import web

from koord.runtime.host import Host
from koord.telemetry.metrics import exposition


class Health:
    """Serves ``/healthz``, ``/readyz`` and ``/metrics`` of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
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
