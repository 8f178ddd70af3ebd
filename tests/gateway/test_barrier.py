"""A ledger that lost everything is rebuilt behind the gateway's barrier, whatever else dies meanwhile.

A gateway's term and a reconciler's on real servers. At the end of each story the ledger is open, its counters are the
sums over its records, and they are what the API shows.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from koord.bus.connection import Bus
from koord.bus.errors import AskRefused, BusError
from koord.bus.questions import ask
from koord.bus.streams import ensure_streams
from koord.contracts.asks import BarrierRaised, BindingsSettled, RaiseBarrier, SettleBindings
from koord.contracts.decisions import ClaimRef
from koord.contracts.results import Result
from koord.gateway.access import ApiAccess
from koord.gateway.barrier import EPOCH, Barrier
from koord.gateway.leanclient import LeanClient, Response
from koord.gateway.ledgerlease import LEASE
from koord.gateway.reflector import Reflector
from koord.gateway.settings import GatewaySettings
from koord.kube.resources import LEASES, NODES, PODS
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable
from koord.localcluster.servers import RedisServer
from koord.reconciler.hints import Hints
from koord.reconciler.settings import ReconcilerSettings
from koord.reconciler.term import Term
from koord.reconciler.world import World
from koord.runtime.ending import end
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans
from tests.gateway.conftest import Kube, until
from tests.gateway.test_lost_decisions import Bed, Wire

FAST = ReconcilerSettings(sweep_s=0.05, audit_s=600.0)
API_TIMEOUT_S = 1.5

_numbers = itertools.count(1)


class Cluster(Bed):
    """Redis (and NATS) of this test alone; the gateway and the reconciler can be killed and followed by others."""

    def __init__(self, bus: Bus, kube: Kube, access: ApiAccess, wire: Wire, redis: RedisServer) -> None:
        super().__init__(bus, kube, access, wire)
        self.redis = redis
        self.reconciler: Ledger
        self.settings = GatewaySettings(lease_namespace=kube.namespace, api_timeout_s=API_TIMEOUT_S)
        self._stack = AsyncExitStack()
        self._term: asyncio.Task[None] | None = None
        self._world: World | None = None

    async def connect(self, name: str) -> Ledger:
        url, cluster = self.redis.url, self.bus.subjects.cluster
        return await self._stack.enter_async_context(
            await Ledger.connect(url, cluster, f"{name}{next(_numbers)}", lease_s=3600.0)
        )

    async def follow_gateway(self) -> None:
        """Another gateway leads."""
        self.gateway = await self.connect("g")
        self.start_gateway()

    async def start_reconciler(self) -> None:
        ledger = self.reconciler = await self.connect("r")
        world = self._world = World(self.bus, Spans())
        await asyncio.wait_for(world.start(lambda token: None), 60)

        async def settle(question: SettleBindings) -> BindingsSettled:
            return await ask(self.bus, "gateway", "settle", question, BindingsSettled, timeout=5)

        async def barrier(question: RaiseBarrier) -> BarrierRaised:
            return await ask(self.bus, "gateway", "barrier", question, BarrierRaised, timeout=5)

        async def run() -> None:
            epoch = await ledger.lead("reconciler")
            hints = Hints(self.bus)
            await Term(ledger, world, hints, settle, barrier, epoch, FAST, lambda is_open: None).run()

        self._term = asyncio.create_task(run())

    async def kill_reconciler(self) -> None:
        await end(self._term)
        if self._world is not None:
            await self._world.close()

    async def stop(self) -> None:
        await self.kill_reconciler()
        await self.kill_gateway()
        await self._stack.aclose()

    async def opened(self, above: int = 0) -> int:
        """Wait until the ledger is open under a later epoch; that epoch."""

        async def check() -> int:
            try:
                status = await self.scheduler.status()
                await self.gateway.status()
            except LedgerUnavailable:
                return 0
            return status.epoch if status.open and status.epoch > above else 0

        epoch: int = await until(check, "the ledger to open", 60)
        return epoch

    async def lose_redis(self) -> None:
        await self.redis.kill()
        await self.redis.restart(empty=True)

    async def annotation(self) -> int:
        lease = await self.kube.get(LEASES.path(self.kube.namespace, LEASE))
        assert lease is not None
        return int(lease["metadata"]["annotations"][EPOCH])

    async def bind(self, pod: dict[str, Any], claim: ClaimRef) -> Result:
        return await self.publisher.settle(self.decision(pod, claim), TraceContext.new(), timeout=60)

    async def is_right(self) -> None:
        """Counters are the sums over records, and those are the pods that the API shows on the node."""
        name = f"node/{self.node}"

        async def check() -> bool:
            sums = (await self.scheduler.sums([name]))[name]
            listing = await self.kube.get(PODS.path(self.kube.namespace))
            assert listing is not None
            bound = [pod for pod in listing["items"] if pod["spec"].get("nodeName") == self.node]
            assert sums.right, sums
            return sums.refs == len(bound) and sums.used.get("cpu", 0) == 1000 * len(bound) and not sums.held

        await until(check, "the ledger to be what the API shows", 60)


@pytest.fixture
async def made(
    nats_url: str, own_redis: RedisServer, cluster: str, access: ApiAccess, kube: Kube
) -> AsyncIterator[Cluster]:
    async with OnServers(nats_url, own_redis, cluster, access, kube) as made:
        yield made


class OnServers:
    """A cluster that has a node and an open ledger."""

    def __init__(self, nats_url: str, redis: RedisServer, name: str, access: ApiAccess, kube: Kube) -> None:
        self._arguments = nats_url, redis, name, access, kube

    async def __aenter__(self) -> Cluster:
        nats_url, redis, name, access, kube = self._arguments
        self._bus = await Bus.connect(nats_url, name, "test")
        await ensure_streams(self._bus)
        self._client = LeanClient(access, connections=8, timeout_s=10)
        made = self._made = Cluster(self._bus, kube, access, Wire(self._client), redis)
        await kube.node(made.node)
        made.scheduler = await made.connect("s")
        await made.follow_gateway()
        await made.start_reconciler()
        await made.opened()
        return made

    async def __aexit__(self, *_: object) -> None:
        await self._made.stop()
        await self._made.kube.call("delete", NODES.path("", self._made.node))
        await self._bus.close()
        await self._client.close()


class Hanging:
    """Something that, once armed, stands still the next time it is called: before it does anything, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False) -> None:
        self.reached = asyncio.Event()
        original = getattr(owner, name)
        armed = True

        async def instead(*arguments: Any, **named: Any) -> Any:
            nonlocal armed
            hangs, armed = armed, False
            if hangs and not after:
                await self._hang()
            answer = await original(*arguments, **named)
            if hangs and after:
                await self._hang()
            return answer

        monkeypatch.setattr(owner, name, instead)

    async def _hang(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


async def test_redis_restarts_empty(made: Cluster) -> None:
    """Spec 20 section 6, G35: p1 bound, p2 being bound with its request under way, p3 held."""
    names = ("p1", "p2", "p3")
    pods = [await made.kube.pod(name) for name in names]
    claims = [await made.claim(pod) for pod in pods]
    assert (await made.bind(pods[0], claims[0])).outcome == "done"
    await until(lambda: made.is_((1000, 2000)), "p1 to be seen")
    before = await made.opened()
    answers: list[int] = []
    goes_on = asyncio.Event()
    reached = asyncio.Event()
    wire = made.wire

    class Late(Wire):
        async def _answer(self, method: str, path: str, body: bytes, content_type: str, lane: int) -> Response:
            if path.endswith("/p2/binding") and not answers:
                reached.set()
                await goes_on.wait()
                answer = await self.client.request(method, path, body, content_type, lane=lane)
                answers.append(answer.status)
                return answer
            return await self.client.request(method, path, body, content_type, lane=lane)

    await made.kill_gateway()
    made.wire = Late(wire.client)
    await made.follow_gateway()
    waiting = asyncio.create_task(made.bind(pods[1], claims[1]))
    await asyncio.wait_for(reached.wait(), 60)
    await made.lose_redis()
    epoch = await made.opened(before)
    goes_on.set()
    late = await made.bind(pods[2], claims[2])
    for result in (await waiting, late):
        assert (result.outcome, result.members[0].reason.split(":")[0]) == ("rejected", "claim gone"), result
    assert answers == [409]  # what was under way is refused by the API
    assert await made.record(pods[0]) == ("OBSERVED", "")
    assert {await made.record(pod) for pod in pods[1:]} == {("none", "")}
    assert epoch == await made.annotation()
    await made.is_right()
    again = await made.claim(pods[1])
    assert (await made.bind(pods[1], again)).outcome == "done"
    await until(lambda: made.is_((2000, 0)), "p2 to be seen")


GATEWAY_STEPS = {
    "settling": (Barrier, "_settle", False),
    "settled": (Barrier, "_settle", True),
    "raised": (Barrier, "_raise", True),
    "listing": (Reflector, "list_anew", False),
    "listed": (Reflector, "list_anew", True),
    "answering": (Barrier, "_run", True),
}


@pytest.mark.parametrize("step", GATEWAY_STEPS)
async def test_the_gateway_dies_inside_the_barrier(made: Cluster, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    bound, waits = await made.kube.pod("a"), await made.kube.pod("b")
    assert (await made.bind(bound, await made.claim(bound))).outcome == "done"
    old = await made.claim(waits)
    before = await made.opened()
    owner, name, after = GATEWAY_STEPS[step]
    hanging = Hanging(monkeypatch, owner, name, after=after)
    await made.lose_redis()
    await asyncio.wait_for(hanging.reached.wait(), 60)
    assert not (await made.scheduler.status()).open
    raised = step in ("raised", "listing", "listed", "answering") and await made.annotation()
    await made.kill_gateway()
    await made.follow_gateway()
    epoch = await made.opened(max(before, raised))
    assert epoch == await made.annotation()
    assert (await made.bind(waits, old)).outcome == "rejected"
    await made.is_right()


RECONCILER_STEPS = {
    "asking": ("shut", True),
    "with the barrier": ("rebuild", False),
    "emptied": ("rebuild", True),
    "filled": ("open", False),
    "opened": ("open", True),
}


@pytest.mark.parametrize("step", RECONCILER_STEPS)
async def test_the_reconciler_dies_inside_the_rebuild(
    made: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    pods = [await made.kube.pod(name) for name in ("a", "b")]
    assert (await made.bind(pods[0], await made.claim(pods[0]))).outcome == "done"
    before = await made.opened()
    name, after = RECONCILER_STEPS[step]
    hanging = Hanging(monkeypatch, made.reconciler, name, after=after)
    await made.lose_redis()
    await asyncio.wait_for(hanging.reached.wait(), 60)
    await made.kill_reconciler()
    await made.start_reconciler()
    epoch = await made.opened(before)
    assert epoch == await made.annotation()
    assert (await made.bind(pods[1], await made.claim(pods[1]))).outcome == "done"
    await made.is_right()


@pytest.mark.parametrize("step", ["asking", "emptied", "filled"])
async def test_redis_is_lost_again_during_the_rebuild(
    made: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    pod = await made.kube.pod("a")
    assert (await made.bind(pod, await made.claim(pod))).outcome == "done"
    before = await made.opened()
    name, after = RECONCILER_STEPS[step]
    original = getattr(made.reconciler, name)
    lost = False

    async def and_lost(*arguments: Any, **named: Any) -> Any:
        nonlocal lost
        first, lost = not lost, True
        if first and not after:
            await made.lose_redis()
        answer = await original(*arguments, **named)
        if first and after:
            await made.lose_redis()
        return answer

    monkeypatch.setattr(made.reconciler, name, and_lost)
    await made.lose_redis()
    await until(lambda: lost, "the second loss", 60)
    await made.opened(before)
    await made.is_right()
    assert await made.record(pod) == ("OBSERVED", "")


@pytest.mark.parametrize("status", [403, 500])
async def test_an_object_that_cannot_be_settled_does_not_keep_the_ledger_closed(made: Cluster, status: int) -> None:
    """Forbidden, or judged by a webhook that fails: its own pod may wait to be bound."""
    pod = await made.kube.pod("a")
    claim = await made.claim(pod)
    before = await made.opened()
    refused = 0

    class Refusing(Wire):
        async def _answer(self, method: str, path: str, body: bytes, content_type: str, lane: int) -> Response:
            nonlocal refused
            if method == "PATCH" and path.endswith("/pods/a"):
                refused += 1
                return Response(status, b'{"message":"no"}', 0.0)
            return await self.client.request(method, path, body, content_type, lane=lane)

    await made.kill_gateway()
    made.wire = Refusing(made.wire.client)
    await made.publisher.publish(made.decision(pod, claim), TraceContext.new())
    await made.lose_redis()
    await made.follow_gateway()
    await made.opened(before)
    assert refused
    await made.is_right()


async def test_one_barrier_is_asked_for_until_it_is_done(made: Cluster) -> None:
    await made.kill_reconciler()

    async def asked(question: RaiseBarrier) -> BarrierRaised:
        return await ask(made.bus, "gateway", "barrier", question, BarrierRaised, timeout=5)

    first = RaiseBarrier("x-1", 2**60, 5, [PODS.token])
    answer = await _done(asked, first)
    assert answer.epoch == await made.annotation()
    assert (answer.role_epoch > 0, answer.incarnation) == (True, made.gateway.incarnation)
    assert await asked(first) == answer
    other = await _done(asked, RaiseBarrier("x-2", 2**60, answer.epoch + 1000, [PODS.token]))
    assert other.epoch == answer.epoch + 1000
    # What somebody else wrote there is no counter.
    path = LEASES.path(made.kube.namespace, LEASE)
    for number, junk in enumerate(("soon", "-7", "9" * 30, str(2**60))):
        body = {"metadata": {"annotations": {EPOCH: junk}}}
        await made.kube.call("patch", path, body, "application/merge-patch+json")
        again = await _done(asked, RaiseBarrier(f"x-junk-{number}", 2**60, 1, []))
        assert answer.epoch < again.epoch == await made.annotation() < 2**52
    # The counter outlives its Lease: it never goes back.
    await made.kube.call("delete", LEASES.path(made.kube.namespace, LEASE))
    assert (await _done(asked, RaiseBarrier("x-3", 2**60, 1, []))).epoch > answer.epoch
    for question, why in (
        (RaiseBarrier("x-4", 2**60 - 1, 1, []), "a newer reconciler has asked"),
        (RaiseBarrier("x-5", 2**60, 1, ["gizmos"]), "resources: not known: .'gizmos'."),
        (RaiseBarrier("", 2**60, 1, []), "barrier ''"),
    ):
        with pytest.raises(AskRefused, match=why):
            await asked(question)


async def _done(asked: Callable[[RaiseBarrier], Awaitable[BarrierRaised]], question: RaiseBarrier) -> BarrierRaised:
    async def check() -> BarrierRaised | None:
        try:
            answer = await asked(question)
        except AskRefused:
            raise
        except BusError:
            return None
        return answer if answer.step == "done" else None

    answer: BarrierRaised = await until(check, "the barrier", 60)
    return answer
