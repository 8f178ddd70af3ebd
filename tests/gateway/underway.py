"""A request whose sender is dead by the time at which the API server gets it."""

import asyncio

from koord.gateway.leanclient import LeanClient, Response
from tests.gateway.test_lost_decisions import Wire


class UnderWay:
    """The request of a gateway, which takes it and dies; the API server gets it when the test says so."""

    def __init__(self, wire: Wire, ending: str) -> None:
        self._wire = wire
        self._ending = ending
        self._sent: tuple[str, str, bytes, str] | None = None
        self.reached = asyncio.Event()

    async def hold(self, method: str, path: str, body: bytes, content_type: str) -> None:
        if self._sent is None and path.endswith(self._ending) and method != "GET":
            self._sent = method, path, body, content_type
            self.reached.set()
            await asyncio.Event().wait()

    async def arrive(self) -> int:
        assert self._sent is not None
        return (await self._wire.client.request(*self._sent)).status


class HoldingWire(Wire):
    """A gateway's connections, on which one request stands still."""

    def __init__(self, client: LeanClient, ending: str) -> None:
        super().__init__(client)
        self.under_way = UnderWay(self, ending)

    async def _answer(self, method: str, path: str, body: bytes, content_type: str, lane: int) -> Response:
        await self.under_way.hold(method, path, body, content_type)
        return await super()._answer(method, path, body, content_type, lane)
