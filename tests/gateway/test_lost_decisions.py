"""Decisions lost with their stream: the room comes back, and nothing is bound on room that was given away.

A gateway's term and a reconciler's on real servers. A lost decision is one whose record was advanced and which no queue
holds any more: a predecessor's, or one that was purged.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import msgspec
import pytest

from koord.accounting.takes import pod_takes, unit_takes
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import AskRefused, BusTimeout
from koord.bus.livedecisions import LiveDecisions
from koord.bus.questions import ask
from koord.bus.queued import unacknowledged
from koord.bus.streams import ensure_streams
from koord.contracts.asks import BarrierRaised, BindingRecord, BindingsSettled, RaiseBarrier, SettleBindings
from koord.contracts.decisions import Bind, BindMember, ClaimRef, Decision, ObjectRef, Patch
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.following import Following
from koord.gateway.leanclient import LeanClient, Response
from koord.gateway.session import Session
from koord.gateway.settings import GatewaySettings
from koord.gateway.settling import MOST_RECORDS, SETTLED, Settler
from koord.kube.resources import NODES, PODS, QUEUE_UNITS, Resource
from koord.ledger.client import Ledger
from koord.ledger.model import Advance, ClaimRequest, LimitSet, Member
from koord.reconciler.hints import Hints
from koord.reconciler.settings import ReconcilerSettings
from koord.reconciler.term import Term
from koord.reconciler.world import World
from koord.runtime.ending import end
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans
from tests.gateway.conftest import Kube, until

BINDING_S = 0.4
FAST = ReconcilerSettings(sweep_s=0.1, binding_s=BINDING_S)
MERGE = "application/merge-patch+json"

_numbers = itertools.count(1)


class Wire:
    """A lean client that lets a test in before and after requests."""

    def __init__(self, client: LeanClient) -> None:
        self.client = client
        self.before: Callable[[str, str], Awaitable[None]] | None = None

    def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json", *, lane: int = 0
    ) -> "asyncio.Future[Response]":
        return asyncio.ensure_future(self._answer(method, path, body, content_type, lane))

    async def _answer(self, method: str, path: str, body: bytes, content_type: str, lane: int) -> Response:
        if self.before is not None:
            await self.before(method, path)
        return await self.client.request(method, path, body, content_type, lane=lane)


class Bed:
    """One node of this test, a scheduler, and the gateway and the reconciler under test."""

    def __init__(self, bus: Bus, kube: Kube, access: ApiAccess, wire: Wire) -> None:
        self.bus = bus
        self.kube = kube
        self.access = access
        self.wire = wire
        self.node = f"n-{kube.namespace}"
        self.asked = 0
        self.around: Callable[[SettleBindings], Awaitable[BindingsSettled]] = self.settle
        self.publisher = DecisionPublisher(bus, "scheduler")
        # The ledger's Lease is one for each API server, which the tests share.
        self.settings = GatewaySettings(lease_namespace=kube.namespace)
        self.live: LiveDecisions | None = None
        self.scheduler: Ledger
        self.gateway: Ledger
        self._running: asyncio.Task[None] | None = None

    # What the scheduler and the queue do ---------------------------------------------------------------------------

    async def claim(self, pod: dict[str, Any]) -> ClaimRef:
        meta = pod["metadata"]
        takes = pod_takes({"cpu": 1000}, self.node, (), unit_owned=False)
        return await self._claim(Member(meta["uid"], meta["namespace"], meta["name"], self.node, takes))

    async def claim_unit(self, unit: dict[str, Any]) -> ClaimRef:
        meta = unit["metadata"]
        takes = unit_takes({"cpu": 2000}, ("q",))
        return await self._claim(Member(meta["uid"], meta["namespace"], meta["name"], "", takes))

    async def _claim(self, member: Member) -> ClaimRef:
        request = ClaimRequest(f"s-{next(_numbers)}", (member,))
        [answer] = await self.scheduler.claim([request])
        assert answer.status == "ok", answer
        return ClaimRef(request.id, answer.token, answer.epoch)

    def decision(self, pod: dict[str, Any], claim: ClaimRef) -> Bind:
        meta = pod["metadata"]
        return Bind(claim.claim, claim, [BindMember(meta["uid"], meta["namespace"], meta["name"], self.node)])

    async def unit(self, name: str) -> dict[str, Any]:
        body = {"apiVersion": QUEUE_UNITS.api_version, "kind": "QueueUnit", "metadata": {"name": name}, "spec": {}}
        made: dict[str, Any] = await self.kube.call("create", QUEUE_UNITS.path(self.kube.namespace), body)
        return made

    # What the gateway does -----------------------------------------------------------------------------------------

    async def advance(self, body: dict[str, Any], claim: ClaimRef) -> None:
        """What the gateway did before the decision was lost."""
        item = Advance(claim.claim, claim.token, claim.epoch, claim.claim, (body["metadata"]["uid"],))
        [answer] = await self.gateway.advance([item], await self.gateway.lead("gateway"))
        assert answer.status == "ok", answer

    async def lost(self, name: str) -> tuple[dict[str, Any], ClaimRef]:
        """A pod whose record is BINDING and whose decision nobody has."""
        pod = await self.kube.pod(name)
        claim = await self.claim(pod)
        await self.advance(pod, claim)
        return pod, claim

    def start_gateway(self) -> None:
        api = Api(self.wire, ApiAccess("http://unused"), patience_s=5.0)  # type: ignore[arg-type]

        async def run() -> None:
            connector = aiohttp.TCPConnector(ssl=self.access.ssl or False)
            async with aiohttp.ClientSession(connector=connector) as http:
                following = Following(self.bus, self.access, http)
                await following.start()
                try:
                    session = Session(self.bus, self.gateway, api, following, Spans(), self.settings, self.live)
                    await session.run(asyncio.Event())
                finally:
                    await following.stop()

        self._running = asyncio.create_task(run())

    async def kill_gateway(self) -> None:
        await end(self._running)

    async def settle(self, question: SettleBindings) -> BindingsSettled:
        self.asked += 1
        return await ask(self.bus, "gateway", "settle", question, BindingsSettled, timeout=5)

    async def settle_one(self, resource: Resource, body: dict[str, Any], claim: str) -> tuple[str, str]:
        meta = body["metadata"]
        target = ObjectRef(resource.token, meta["namespace"], meta["name"], meta["uid"])
        [answer] = (await self.settle(SettleBindings([BindingRecord(target, claim)]))).records
        return answer.state, answer.node

    # What is there -------------------------------------------------------------------------------------------------

    async def amounts(self) -> tuple[int, int]:
        item = (await self.scheduler.items_named([f"node/{self.node}"])).get(f"node/{self.node}")
        return (item.used.get("cpu", 0), item.held.get("cpu", 0)) if item is not None else (0, 0)

    async def record(self, body: dict[str, Any]) -> tuple[str, str]:
        record = await self.scheduler.record(body["metadata"]["uid"])
        return (record.state, record.claim) if record is not None else ("none", "")

    async def shown(self, name: str) -> tuple[str, bool]:
        """The pod's node, and whether its version was settled."""
        pod = await self.kube.get_pod(name)
        assert pod is not None
        return pod["spec"].get("nodeName", ""), SETTLED in pod["metadata"].get("annotations", {})

    async def is_(self, amounts: tuple[int, int]) -> bool:
        return await self.amounts() == amounts


@asynccontextmanager
async def reconciling(bed: Bed, ledger: Ledger) -> AsyncIterator[None]:
    world = World(bed.bus, Spans())
    await asyncio.wait_for(world.start(lambda token: None), 60)

    async def asking(question: SettleBindings) -> BindingsSettled:
        return await bed.around(question)

    async def barrier(question: RaiseBarrier) -> BarrierRaised:
        return await ask(bed.bus, "gateway", "barrier", question, BarrierRaised, timeout=5)

    epoch = await ledger.lead("reconciler")
    term = Term(ledger, world, Hints(bed.bus), asking, barrier, epoch, FAST, lambda is_open: None)
    task = asyncio.create_task(term.run())
    try:
        yield
    finally:
        await end(task)
        await world.close()


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str, access: ApiAccess, kube: Kube) -> AsyncIterator[Bed]:
    client = LeanClient(access, connections=8, timeout_s=10)
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(await Bus.connect(nats_url, cluster, "test"))
        await ensure_streams(bus)
        bed = Bed(bus, kube, access, Wire(client))
        await kube.node(bed.node)
        bed.scheduler, bed.gateway, reconciler = [
            await stack.enter_async_context(await Ledger.connect(redis_url, cluster, name, lease_s=3600.0))
            for name in ("s", "g", "r")
        ]
        bed.start_gateway()
        stack.push_async_callback(bed.kill_gateway)
        await stack.enter_async_context(reconciling(bed, reconciler))

        async def opened() -> bool:
            ready = (await bed.scheduler.status()).open
            await bed.gateway.status()
            return ready

        await until(opened, "the ledger to open")
        yield bed
    await kube.call("delete", NODES.path("", bed.node))
    await client.close()


async def test_a_lost_decision_gives_its_room_back_and_the_pod_is_bound_anew(bed: Bed) -> None:
    begun = asyncio.get_running_loop().time()
    pod, _ = await bed.lost("a")
    await until(lambda: bed.is_((0, 0)), "the room")
    assert asyncio.get_running_loop().time() - begun >= BINDING_S
    assert await bed.record(pod) == ("none", "")
    assert await bed.shown("a") == ("", True)
    # The lost write comes after all: its version is an old one.
    late = {
        "metadata": {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]},
        "target": {"name": bed.node},
    }
    answer = await bed.kube.api.call("create", PODS.path(bed.kube.namespace, "a", "binding"), json.dumps(late).encode())
    assert answer.status == 409
    claim = await bed.claim(pod)
    result = await bed.publisher.settle(bed.decision(pod, claim), TraceContext.new(), timeout=60)
    assert result.outcome == "done", result
    await until(lambda: bed.is_((1000, 0)), "the charge")


async def test_a_gateway_killed_before_the_write_and_a_purged_stream(bed: Bed, redis_url: str) -> None:
    pod = await bed.kube.pod("a")
    claim = await bed.claim(pod)
    reached = asyncio.Event()

    async def hang(method: str, path: str) -> None:
        if path.endswith("/binding"):
            reached.set()
            await asyncio.Event().wait()

    bed.wire.before = hang
    await bed.publisher.publish(bed.decision(pod, claim), TraceContext.new())
    await asyncio.wait_for(reached.wait(), 60)
    await bed.kill_gateway()
    await bed.bus.js.purge_stream(bed.bus.subjects.decisions_stream)
    bed.wire.before = None
    assert await bed.record(pod) == ("BINDING", claim.claim)
    async with await Ledger.connect(redis_url, bed.bus.subjects.cluster, "g2") as bed.gateway:
        bed.start_gateway()
        await until(lambda: bed.is_((0, 0)), "the room")
        assert await bed.shown("a") == ("", True)
        await bed.kill_gateway()


async def test_a_decision_that_is_merely_slow_is_never_settled(bed: Bed) -> None:
    pod = await bed.kube.pod("a")
    claim = await bed.claim(pod)
    goes_on = asyncio.Event()

    async def hold(method: str, path: str) -> None:
        if path.endswith("/binding"):
            await goes_on.wait()

    bed.wire.before = hold
    settling = asyncio.create_task(bed.publisher.settle(bed.decision(pod, claim), TraceContext.new(), timeout=60))
    await until(lambda: bed.asked >= 3, "the reconciler to ask again and again")
    assert await bed.record(pod) == ("BINDING", claim.claim)
    goes_on.set()
    assert (await settling).outcome == "done"
    assert await bed.shown("a") == (bed.node, False)
    await until(lambda: bed.is_((1000, 0)), "the charge")
    assert (await bed.record(pod))[1] == claim.claim  # it was never given back in between


async def test_a_decision_that_waits_for_its_next_delivery_is_never_settled(bed: Bed) -> None:
    # In the stream and in nobody's hands, as after "not now".
    await bed.kill_gateway()
    pod, claim = await bed.lost("a")
    await bed.publisher.publish(bed.decision(pod, claim), TraceContext.new())
    api = Api(bed.wire, ApiAccess("http://unused"))  # type: ignore[arg-type]
    target = ObjectRef(PODS.token, bed.kube.namespace, "a", pod["metadata"]["uid"])
    question = SettleBindings([BindingRecord(target, claim.claim)])
    queued = partial(unacknowledged, bed.bus)
    for in_hand in (set[str](), {claim.claim}):
        [answer] = (await Settler(api, lambda held=in_hand: held, queued).answer(question)).records  # type: ignore[misc]
        assert answer.state == "busy"
    assert await bed.shown("a") == ("", False)
    bed.start_gateway()
    await until(lambda: bed.is_((1000, 0)), "the charge")
    assert await bed.record(pod) == ("OBSERVED", claim.claim)


async def test_a_long_queue_is_looked_through_to_its_end(bed: Bed) -> None:
    """With thousands of decisions waiting, what waits is told from what is lost, by one look for several questions."""
    await bed.kill_gateway()  # it is asked by this test alone
    pod, claim = await bed.lost("a")
    lost, gone = await bed.lost("b")
    other = bed.decision(pod, ClaimRef("other", 1, 1))
    many = [(msgspec.structs.replace(other, id=f"o-{n}"), TraceContext.new()) for n in range(2500)]
    await bed.publisher.publish_many([*many, (bed.decision(pod, claim), TraceContext.new())])
    looks = 0

    async def queued() -> AsyncIterator[list[Decision]]:
        nonlocal looks
        looks += 1
        async for page in unacknowledged(bed.bus):
            yield page

    settler = Settler(Api(bed.wire, ApiAccess("http://unused")), set, queued)  # type: ignore[arg-type]
    for body, of, expected in ((pod, claim, "busy"), (lost, gone, "unbound")):
        meta = body["metadata"]
        target = ObjectRef(PODS.token, meta["namespace"], meta["name"], meta["uid"])
        [answer] = (await settler.answer(SettleBindings([BindingRecord(target, of.claim)]))).records
        assert answer.state == expected
    assert looks == 1


async def test_a_pod_that_becomes_bound_while_it_is_settled_keeps_its_room(bed: Bed) -> None:
    states: list[str] = []

    async def bound_by_a_late_write(method: str, path: str) -> None:
        if method == "PATCH" and path.endswith("/pods/a"):
            bed.wire.before = None
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "target": {"name": bed.node}}
            await bed.kube.call("create", PODS.path(bed.kube.namespace, "a", "binding"), body)

    async def told(question: SettleBindings) -> BindingsSettled:
        answer = await bed.settle(question)
        states.extend(one.state for one in answer.records)
        return answer

    bed.wire.before, bed.around = bound_by_a_late_write, told
    pod, claim = await bed.lost("a")
    await until(lambda: bed.is_((1000, 0)), "the charge")
    assert await bed.record(pod) == ("OBSERVED", claim.claim)
    await until(lambda: states, "the answer")
    assert set(states) == {"bound"}


async def test_a_record_that_is_advanced_after_the_settling_stays(bed: Bed) -> None:
    answered = []

    async def advanced_meanwhile(question: SettleBindings) -> BindingsSettled:
        answer = await bed.settle(question)
        answered.append((answer.records[0].state, await bed.record(pod)))
        if len(answered) == 1:  # the decision comes after all
            await bed.advance(pod, claim)
        return answer

    bed.around = advanced_meanwhile
    pod, claim = await bed.lost("a")
    await until(lambda: bed.is_((0, 0)), "the room")
    # The first answer did not count, so it was asked a second time for the same record.
    assert answered == [("unbound", ("BINDING", claim.claim))] * 2


async def test_a_gateway_that_dies_between_the_settling_and_its_answer(bed: Bed, redis_url: str) -> None:
    async with await Ledger.connect(redis_url, bed.bus.subjects.cluster, "g2") as second:

        async def dies(question: SettleBindings) -> BindingsSettled:
            await bed.settle(question)
            bed.around = bed.settle
            await bed.kill_gateway()
            bed.gateway = second
            bed.start_gateway()
            raise BusTimeout("no answer")

        bed.around = dies
        await bed.lost("a")
        await until(lambda: bed.is_((0, 0)), "the room")
        assert bed.asked >= 2
        await bed.kill_gateway()


async def test_an_admission_whose_decision_was_lost_gives_its_room_back(bed: Bed) -> None:
    limit = [LimitSet("admitted/q", {"cpu": 4000})]
    await bed.scheduler.observe(limit, role="quota", role_epoch=await bed.scheduler.lead("quota"))
    unit = await bed.unit("u")
    claim = await bed.claim_unit(unit)
    await bed.advance(unit, claim)
    await until(lambda: _ended(bed, unit), "the record to end")
    path = QUEUE_UNITS.path(bed.kube.namespace, "u")
    late = {
        "metadata": {"resourceVersion": unit["metadata"]["resourceVersion"]},
        "status": {"admissions": [{"name": "main"}]},
    }
    answer = await bed.kube.api.call("patch", path + "/status", json.dumps(late).encode(), MERGE)
    assert answer.status == 409
    again = await bed.claim_unit(unit)
    meta = unit["metadata"]
    target = ObjectRef(QUEUE_UNITS.token, meta["namespace"], meta["name"], meta["uid"])
    body = b'{"status":{"admissions":[{"name":"main","replicas":1}]}}'
    decision = Patch(again.claim, target, body, subresource="status", claim=again)
    queue = DecisionPublisher(bed.bus, "queue")
    assert (await queue.settle(decision, TraceContext.new(), timeout=60)).outcome == "done"

    async def observed() -> bool:
        return await bed.record(unit) == ("OBSERVED", again.claim)

    await until(observed, "the admission to be seen")
    assert await bed.settle_one(QUEUE_UNITS, unit, "s-x") == ("bound", "")


async def _ended(bed: Bed, body: dict[str, Any]) -> bool:
    return await bed.record(body) == ("none", "")


async def test_what_the_api_shows_is_answered(bed: Bed) -> None:
    pod = await bed.kube.pod("a")
    body = {"target": {"name": bed.node}}
    await bed.kube.call("create", PODS.path(bed.kube.namespace, "a", "binding"), body)
    assert await bed.settle_one(PODS, pod, "s-x") == ("bound", bed.node)
    replaced = {"metadata": {**pod["metadata"], "uid": "another"}}
    assert await bed.settle_one(PODS, replaced, "s-x") == ("gone", "")
    assert await bed.settle_one(PODS, {"metadata": {**pod["metadata"], "name": "b"}}, "s-x") == ("gone", "")


async def test_questions_that_make_no_sense_are_refused_by_name(bed: Bed) -> None:
    fine = BindingRecord(ObjectRef(PODS.token, "ns", "a", "u"), "s-1")
    for records, why in (
        ([fine] * (MOST_RECORDS + 1), r"records: 257 at once, at most 256"),
        (
            [BindingRecord(ObjectRef(NODES.token, "", "n", "u"), "s-1")],
            r"target\.resource: neither pods nor queueunits",
        ),
        ([BindingRecord(ObjectRef(PODS.token, "ns", "a"), "s-1")], r"pods_core ns/a: .*target\.uid .*required"),
    ):
        with pytest.raises(AskRefused, match=why):
            await bed.settle(SettleBindings(records))
