"""Extenders that tests run: an HTTP server each, whose answers the test decides and whose questions it keeps."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

Answer = Callable[[dict[str, Any]], Any]


class ExtenderServer:
    """Answers verbs by ``answers``: what they return is sent as JSON (bytes and responses as they are)."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.traces: list[str] = []
        self.delay_s = 0.0
        self.port = 0
        self.at_once = self.most_at_once = 0
        self._runner: web.AppRunner | None = None
        self._answering: set[asyncio.Task[Any]] = set()
        self._ssl: ssl.SSLContext | None = None

    def url(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}/scheduler"

    def of(self, verb: str) -> list[dict[str, Any]]:
        """What was asked under one verb."""
        return [question for name, question in self.asked if name == verb]

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Serve; on the port from before, if there was one."""
        self._ssl = tls or self._ssl
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/scheduler/{verb}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._ssl, reuse_address=True)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]

    async def kill(self) -> None:
        """Nobody answers from here on; what was being answered is cut off."""
        runner, self._runner = self._runner, None
        for task in self._answering:
            task.cancel()
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        verb, question = request.match_info["verb"], json.loads(await request.read())
        self.asked.append((verb, question))
        self.traces.append(request.headers.get("traceparent", ""))
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            found = self.answers[verb](question)
            if isinstance(found, Awaitable):
                found = await found
        finally:
            self.at_once -= 1
            self._answering.discard(task)
        if isinstance(found, web.StreamResponse):
            return found
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        return web.Response(body=body, content_type="application/json")


@contextlib.asynccontextmanager
async def extender(tls: ssl.SSLContext | None = None, **answers: Answer) -> AsyncIterator[ExtenderServer]:
    """A running extender."""
    server = ExtenderServer()
    server.answers.update(answers)
    await server.start(tls)
    try:
        yield server
    finally:
        await server.kill()


def names(question: dict[str, Any]) -> list[str]:
    """The nodes that a question shows, however it does."""
    if question["NodeNames"] is not None:
        return list(question["NodeNames"])
    return [node["metadata"]["name"] for node in question["Nodes"]["items"]]


def only(*allowed: str) -> Answer:
    """A filter that lets these nodes pass and says why it refuses others."""

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        shown = names(question)
        failed = {name: "no such thing here" for name in shown if name not in allowed}
        return {"NodeNames": [name for name in shown if name in allowed], "FailedNodes": failed}

    return answer


def rating(**scores: int) -> Answer:
    """A rater."""
    return lambda question: [{"Host": name, "Score": scores.get(name, 0)} for name in names(question)]
