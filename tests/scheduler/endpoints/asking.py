"""A running scheduler with its HTTP server, asked as users ask it."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from koord.runtime.http import Health
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.service import SchedulerService
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import scheduler

SETTINGS = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))


class Site:
    """The pages of one service."""

    def __init__(self, service: SchedulerService, port: int, session: aiohttp.ClientSession) -> None:
        self.service = service
        self._url = f"http://127.0.0.1:{port}"
        self._session = session

    async def ask(self, path: str, method: str = "GET", body: str | None = None) -> tuple[int, str]:
        async with self._session.request(method, self._url + path, data=body) as answer:
            return answer.status, await answer.text()

    async def json(self, path: str, status: int = 200) -> Any:
        got, text = await self.ask(path)
        assert got == status, (path, got, text)
        return msgspec.json.decode(text)


@contextlib.asynccontextmanager
async def site(
    nats_url: str, redis_url: str, cluster: str, settings: SchedulerSettings = SETTINGS
) -> AsyncIterator[Site]:
    """A scheduler that is ready, and its pages."""
    async with scheduler(nats_url, redis_url, cluster, settings) as service, aiohttp.ClientSession() as session:
        health = Health(service._host)
        port = await health.start()
        try:
            yield Site(service, port, session)
        finally:
            await health.stop()
