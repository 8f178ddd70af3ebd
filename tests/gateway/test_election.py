"""The Lease on a real API server: one leader, taken over in time, given up in time.

Time passes when a test says so: a machine that is held up for seconds makes no Lease run out.
"""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from koord.gateway import election as module
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.election import MARGIN_S, LeaseElection
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient, Response
from koord.kube.resources import LEASES
from koord.runtime.ending import end
from tests.gateway.conftest import ApiProcess, Kube, until

DURATION_S = 60.0


class Clock:
    """In the place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 1e9

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def election(api: Api, kube: Kube, name: str) -> LeaseElection:
    return LeaseElection(api, name, namespace=kube.namespace, duration_s=DURATION_S, renew_s=0.02)


class Asked(Api):
    """Counts what is asked of the API server."""

    def __init__(self, inner: Api) -> None:
        self._inner = inner
        self.count = 0

    async def once(self, *arguments: Any, **named: Any) -> Response:
        answer = await self._inner.once(*arguments, **named)
        self.count += 1
        return answer

    async def more(self, count: int = 4) -> None:
        """Return after so many further answers: two looks, at least, that began later than this."""
        wanted = self.count + count
        await until(lambda: self.count >= wanted, "more to be asked")


async def holder(kube: Kube) -> str:
    lease = await kube.get(LEASES.path(kube.namespace, "koord-gateway"))
    assert lease is not None
    return str(lease["spec"]["holderIdentity"])


async def test_one_leads_and_the_other_takes_over_when_it_is_released(api: Api, kube: Kube, clock: Clock) -> None:
    asked = Asked(api)
    first, second = election(api, kube, "a"), election(asked, kube, "b")
    await asyncio.wait_for(first.acquire(), 60)
    waiting = asyncio.create_task(second.acquire())
    for _ in range(3):  # longer, in all, than the Lease lasts unrenewed
        clock.now += DURATION_S / 2
        await until(lambda: first._renewed == clock.now, "the Lease is renewed")
        await asked.more()
    assert (waiting.done(), first.lost.is_set(), await holder(kube)) == (False, False, "a")
    await first.release()
    await asyncio.wait_for(waiting, 60)  # the clock stands still: it does not wait for the Lease to end
    assert await holder(kube) == "b"
    lease = await kube.get(LEASES.path(kube.namespace, "koord-gateway"))
    assert lease is not None and lease["spec"]["leaseTransitions"] == 1
    await second.release()


async def test_a_leader_that_dies_is_followed_within_the_lease(api: Api, kube: Kube, clock: Clock) -> None:
    asked = Asked(api)
    first, second = election(api, kube, "a"), election(asked, kube, "b")
    await first.acquire()
    assert first._keeper is not None
    await end(first._keeper)  # as SIGKILL does: no renewal, no release
    waiting = asyncio.create_task(second.acquire())
    await asked.more()
    clock.now += DURATION_S - 0.1
    await asked.more()
    assert not waiting.done()
    clock.now += 0.2
    await asyncio.wait_for(waiting, 60)
    await second.release()


async def test_who_can_prove_that_the_leader_died_takes_over_at_once(api: Api, kube: Kube, clock: Clock) -> None:
    dead: set[str] = set()
    told: list[bool] = []
    first = election(api, kube, "a")
    second = LeaseElection(
        api,
        "b",
        namespace=kube.namespace,
        duration_s=DURATION_S,
        renew_s=0.02,
        is_dead=dead.__contains__,
        on_standby=lambda: told.append(True),
    )
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await until(lambda: bool(told), "it stands by")
    assert first._keeper is not None
    first._keeper.cancel()
    assert not waiting.done() and await holder(kube) == "a"
    dead.add("a")
    await asyncio.wait_for(waiting, 60)  # the clock stands still
    assert await holder(kube) == "b"
    held = [second.held]
    await second.release()
    assert [*held, second.held] == [True, False]


async def test_a_leader_that_slept_through_its_lease_knows_at_once(api: Api, kube: Kube, clock: Clock) -> None:
    made = election(api, kube, "a")
    held = [made.held]
    await made.acquire()
    held.append(made.held)
    clock.now += DURATION_S  # as after a sleep: nothing ran, not even the task that renews
    held.append(made.held)
    assert held == [False, True, False]
    assert made.lost.is_set(), "also for whoever waits for the end"
    await made.release()


class Pipe:
    """TCP to the API server; what stands can be made to say nothing any more, as if its server had left the network."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._silent = asyncio.Event()
        self.port = 0
        self.connections = 0

    async def __aenter__(self) -> "Pipe":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def silence(self) -> None:
        self._silent.set()
        self._silent = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent = self._silent
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while chunk := await source.read(65536):
                    if not silent.is_set():
                        sink.write(chunk)

        await asyncio.wait(
            [asyncio.ensure_future(pump(*way)) for way in ((reader, far_writer), (far_reader, writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        writer.close()
        far_writer.close()


async def test_a_connection_that_says_nothing_any_more_does_not_cost_the_role(
    access: ApiAccess, kube: Kube, api_process: ApiProcess
) -> None:
    async with Pipe(api_process.port) as pipe:
        host = access.url.rpartition(":")[0]
        through = ApiAccess(f"{host}:{pipe.port}", ssl=access.ssl, authorization=access.authorization)
        client = LeanClient(through, connections=1, timeout_s=1.0)
        made = election(Api(client, through), kube, "a")
        try:
            await made.acquire()
            pipe.silence()
            silent_since = time.monotonic()
            await until(lambda: made._renewed > silent_since + 1.0, "a renewal on another connection", 50)
            assert made.held and pipe.connections == 2
        finally:
            await made.release()
            await client.close()


async def test_a_missing_namespace_is_made(api: Api, kube: Kube) -> None:
    made = LeaseElection(api, "a", namespace=f"{kube.namespace}-x", duration_s=2.0, renew_s=0.3)
    await asyncio.wait_for(made.acquire(), 60)
    await made.release()


class Forbidden(Asked):
    """Answers as a server that gives the gateway's account no right to write ``kind``."""

    def __init__(self, inner: Api, kind: str) -> None:
        super().__init__(inner)
        self.kind = kind

    async def once(self, verb: Any, path: str, *arguments: Any, **named: Any) -> Response:
        if verb == "get" or not path.partition("?")[0].endswith(self.kind):
            return await super().once(verb, path, *arguments, **named)
        self.count += 1
        return Response(403, b'{"kind":"Status","message":"%s is forbidden"}' % self.kind.encode(), 0.0)


@pytest.mark.parametrize("kind", ["leases", "namespaces"])
async def test_a_right_that_lacks_is_told_once_and_then_now_and_then(
    api: Api, kube: Kube, clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    said: list[str] = []
    monkeypatch.setattr(module.log, "warning", lambda event, error: said.append(error))
    asked = Forbidden(api, kind)
    namespace = kube.namespace if kind == "leases" else f"{kube.namespace}-y"
    made = LeaseElection(asked, "a", namespace=namespace, duration_s=DURATION_S, renew_s=0.02)
    waiting = asyncio.create_task(made.acquire())
    try:
        await asked.more(12)
        assert len(said) == 1 and f"403 {kind} is forbidden" in said[0]
        clock.now += module.REMIND_S
        await asked.more(12)
        assert len(said) == 2
    finally:
        await end(waiting)


async def test_a_leader_whose_lease_was_taken_gives_up(api: Api, kube: Kube) -> None:
    first = election(api, kube, "a")
    await first.acquire()
    path = LEASES.path(kube.namespace, "koord-gateway")
    await kube.call("patch", path, {"spec": {"holderIdentity": "thief"}}, "application/merge-patch+json")
    await asyncio.wait_for(first.lost.wait(), 60)
    await first.release()
    assert await holder(kube) == "thief"


@pytest.fixture
def own_api(tmp_path: Path) -> "ApiProcess":
    return ApiProcess(tmp_path)


async def test_without_the_api_server_the_role_is_given_up_before_it_can_be_taken(
    own_api: ApiProcess, clock: Clock
) -> None:
    await asyncio.to_thread(own_api.start)
    access = await load_access(own_api.kubeconfig)
    client = LeanClient(access, connections=1, timeout_s=1.0)
    made = LeaseElection(Api(client, access), "a", duration_s=DURATION_S, renew_s=0.02)
    try:
        await asyncio.wait_for(made.acquire(), 60)
        own_api.kill()
        clock.now = made._renewed + DURATION_S - MARGIN_S - 0.01
        held = [made.held]
        clock.now += 0.02
        await asyncio.wait_for(made.lost.wait(), 60)
        assert [*held, made.held] == [True, False]
    finally:
        own_api.kill()
        await client.close()
