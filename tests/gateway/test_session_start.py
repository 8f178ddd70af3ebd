"""A term that ends while it is still beginning leaves nothing behind that takes decisions or answers questions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from koord.bus import questions
from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable, NobodyThere
from koord.bus.questions import ask
from koord.contracts.asks import BindingsSettled, SettleBindings
from koord.gateway import session as module
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.following import Following
from koord.gateway.session import CONSUMER, Session
from koord.gateway.settings import GatewaySettings
from koord.ledger.client import Ledger
from koord.telemetry.spans import Spans
from tests.gateway.conftest import Kube, until

Term = AbstractAsyncContextManager[tuple[Bus, Session]]


@pytest.fixture
def term(nats_url: str, redis_url: str, cluster: str, access: ApiAccess, api: Api, kube: Kube) -> Term:
    @asynccontextmanager
    async def made() -> AsyncIterator[tuple[Bus, Session]]:
        async with (
            await Bus.connect(nats_url, cluster, "test") as bus,
            await Ledger.connect(redis_url, cluster, "g") as ledger,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.ssl or False)) as http,
        ):
            following = Following(bus, access, http)
            await following.start()
            settings = GatewaySettings(lease_namespace=kube.namespace)
            yield bus, Session(bus, ledger, api, following, Spans(), settings)
            await following.stop()

    return made()


async def test_nothing_is_taken_after_a_term_that_never_began(term: Term, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, lost = asyncio.Event(), asyncio.Event()

    async def slow(bus: Bus, service: str, verb: str, *rest: Any) -> Any:
        if verb == "settle":
            return await questions.serve(bus, service, verb, *rest)
        reached.set()
        return await asyncio.Event().wait()

    monkeypatch.setattr(module, "serve", slow)
    async with term as (bus, session):
        running = asyncio.create_task(session.run(lost))
        await asyncio.wait_for(reached.wait(), 60)

        async def pulls() -> int:
            info = await bus.js.consumer_info(bus.subjects.decisions_stream, CONSUMER)
            return info.num_waiting or 0

        async def pulled() -> bool:
            return await pulls() > 0

        async def left() -> bool:
            return await pulls() == 0

        await until(pulled, "the consumer", 60)
        lost.set()
        await asyncio.wait_for(running, 60)
        await until(left, "no more asking", 60)
        with pytest.raises(NobodyThere):
            await ask(bus, "gateway", "settle", SettleBindings([]), BindingsSettled)


async def test_a_connection_that_breaks_while_a_term_begins_does_not_end_the_service(
    term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader often begins when a machine just died, and a server of NATS with it."""
    lost = asyncio.Event()
    failures = 2

    async def breaks(*question: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise BusUnavailable("the connection broke")
        return await questions.serve(*question)

    monkeypatch.setattr(module, "serve", breaks)
    async with term as (bus, session):
        running = asyncio.create_task(session.run(lost))

        async def answers() -> bool:
            assert not running.done(), running.exception()
            try:
                await ask(bus, "gateway", "settle", SettleBindings([]), BindingsSettled)
            except NobodyThere:
                return False
            return True

        await until(answers, "questions are answered", 60)
        lost.set()
        await asyncio.wait_for(running, 60)
