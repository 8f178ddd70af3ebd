"""A reconciler on real NATS and Redis: the ledger follows the objects, whatever dies in between."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from koord.accounting.takes import pod_takes
from koord.bus.connection import Bus
from koord.bus.errors import NobodyThere
from koord.bus.questions import ask, serve
from koord.bus.statepublisher import StatePublisher
from koord.contracts.asks import BarrierRaised, BindingsSettled, RaiseBarrier, SettleBindings
from koord.contracts.codec import decode
from koord.contracts.ledger import EpochHint, LedgerHint
from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS, QUEUE_UNITS, Resource
from koord.ledger.client import Ledger
from koord.ledger.model import Advance, ClaimRequest, Item, LedgerUnavailable, Member
from koord.localcluster.servers import RedisServer
from koord.reconciler import metrics
from koord.reconciler.hints import Hints
from koord.reconciler.rebuilding import Superseded
from koord.reconciler.settings import ReconcilerSettings
from koord.reconciler.term import Term
from koord.reconciler.world import World
from koord.runtime.ending import end
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans

FAST = ReconcilerSettings(sweep_s=0.05, audit_s=0.2, suspect_s=0.2)


class Cluster:
    """Publishes objects as the gateway does."""

    def __init__(self, bus: Bus, publisher: StatePublisher) -> None:
        self.bus = bus
        self._publisher = publisher
        self._versions = itertools.count(1)
        self.barriers = 0
        self.epoch = 100

    @classmethod
    async def start(cls, bus: Bus) -> "Cluster":
        publisher = StatePublisher(bus)
        await publisher.start()
        for resource in (NODES, PODS, ELASTIC_QUOTAS, QUEUE_UNITS):
            await publisher.listed(resource, "1")
        made = cls(bus, publisher)
        await serve(bus, "gateway", "barrier", RaiseBarrier, made.barrier)
        return made

    async def barrier(self, question: RaiseBarrier) -> BarrierRaised:
        """What the gateway answers when nothing is under way: the stream holds everything already."""
        self.barriers += 1
        self.epoch = max(self.epoch + 1, question.epoch)
        for token in question.resources:
            await self._publisher.listed(token, "1", question.id)
        return BarrierRaised(question.id, "done", self.epoch, 7, "g")

    async def put(self, resource: Resource, body: dict[str, Any], *, gone: bool = False) -> dict[str, Any]:
        meta = body["metadata"]
        meta["resourceVersion"] = str(next(self._versions))
        type_ = "DELETED" if gone else "MODIFIED"
        raw = json.dumps(body).encode()
        namespace = meta.get("namespace", "")
        await self._publisher.publish(resource, type_, namespace, meta["name"], meta["resourceVersion"], raw)  # type: ignore[arg-type]
        return body

    async def node(self, name: str = "n1", cpu: str = "8") -> dict[str, Any]:
        allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        return await self.put(NODES, {"metadata": {"name": name, "uid": name}, "status": {"allocatable": allocatable}})

    async def pod(
        self, name: str, node: str = "", phase: str = "Pending", trace: str = "", cpu: str = "1"
    ) -> dict[str, Any]:
        annotations = {"koord.sh/traceparent": trace} if trace else {}
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        body = {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": phase},
        }
        return await self.put(PODS, body)


async def nobody(question: SettleBindings) -> BindingsSettled:
    raise NobodyThere("no gateway in this test")


class Bed:
    def __init__(self, cluster: Cluster, ledger: Ledger, spans: Spans) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.spans = spans

    async def item(self, name: str) -> Item | None:
        return (await self.ledger.items(name)).get(name)

    async def amounts(self, name: str = "node/n1", key: str = "cpu") -> tuple[int, int]:
        item = await self.item(name)
        return (item.used.get(key, 0), item.held.get(key, 0)) if item is not None else (0, 0)

    async def claim(self, pod: dict[str, Any], node: str = "n1") -> tuple[str, int]:
        meta = pod["metadata"]
        member = Member(meta["uid"], "ns", meta["name"], node, pod_takes({"cpu": 1000}, node, (), unit_owned=False))
        id_ = f"s-{meta['uid']}"
        answer = (await self.ledger.claim([ClaimRequest(id_, (member,))]))[0]
        assert answer.status == "ok", answer
        return id_, answer.token


@asynccontextmanager
async def reconciling(
    bus: Bus, url: str, name: str, spans: Spans | None = None, settings: ReconcilerSettings = FAST
) -> AsyncIterator["asyncio.Task[None]"]:
    ledger = await Ledger.connect(url, bus.subjects.cluster, name)
    world = World(bus, spans or Spans())
    await asyncio.wait_for(world.start(lambda token: None), 60)

    async def barrier(question: RaiseBarrier) -> BarrierRaised:
        return await ask(bus, "gateway", "barrier", question, BarrierRaised)

    epoch = await ledger.lead("reconciler")
    term = Term(ledger, world, Hints(bus), nobody, barrier, epoch, settings, lambda is_open: None)
    task = asyncio.create_task(term.run())
    try:
        yield task
    finally:
        await end(task)
        await world.close()
        await ledger.close()


async def until(condition: Callable[[], Any], what: str, timeout: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.01)


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        made = await Cluster.start(bus)
        async with await Ledger.connect(redis_url, cluster, "s", lease_s=3600.0) as ledger:
            yield Bed(made, ledger, Spans())


async def opened(bed: Bed) -> None:
    async def is_open() -> bool:
        return (await bed.ledger.status()).open

    await until(is_open, "the ledger to open")


async def test_a_fresh_ledger_is_filled_and_opened(bed: Bed, redis_url: str) -> None:
    heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    bus = bed.cluster.bus
    bus.subscribe_raw(
        bus.subjects.ledger_all, lambda subject, reply, headers, data: heard.put_nowait((subject.decode(), data))
    )
    await bed.cluster.node()
    await bed.cluster.pod("a", node="n1", phase="Running")
    async with reconciling(bus, redis_url, "r"):
        await opened(bed)
        assert await bed.amounts() == (1000, 0)
        hint = None
        while hint is None:
            subject, data = await asyncio.wait_for(heard.get(), 60)
            hint = decode(EpochHint, data) if subject.endswith("ledger.epoch") else None
        assert hint.epoch == bed.ledger.epoch


async def test_a_pod_passes_from_held_to_observed_to_gone(bed: Bed, redis_url: str) -> None:
    heard: list[LedgerHint] = []
    bus = bed.cluster.bus
    bus.subscribe_raw(
        bus.subjects.ledger("claim.*"), lambda subject, reply, headers, data: heard.append(decode(LedgerHint, data))
    )
    await bed.cluster.node()
    async with reconciling(bus, redis_url, "r", bed.spans):
        await opened(bed)
        trace = TraceContext.new()
        pod = await bed.cluster.pod("a", trace=trace.traceparent)
        id_, token = await bed.claim(pod)
        assert await bed.amounts() == (0, 1000)
        async with await Ledger.connect(redis_url, bus.subjects.cluster, "g") as gateway:
            epoch = await gateway.lead("gateway")
            await gateway.advance([Advance(id_, token, bed.ledger.epoch, "d", ("uid-a",))], epoch)
        await bed.cluster.pod("a", node="n1", trace=trace.traceparent)
        await until(lambda: _is(bed, (1000, 0)), "the charge")
        await bed.cluster.pod("a", node="n1", phase="Running", trace=trace.traceparent)

        async def spanned() -> Any:
            return bed.spans.take(time.time_ns(), final=True)

        (span,) = await until(spanned, "the span")
        assert (span.name, span.parent) == ("pod.running", trace)
        await bed.cluster.pod("a", node="n1", phase="Succeeded")
        await until(lambda: _is(bed, (0, 0)), "the end of the charge")
        assert await bed.ledger.record("uid-a") is None

        async def told() -> bool:
            return [hint.event for hint in heard if "uid-a" in hint.uids] == ["observed", "released"]

        await until(told, "both hints")


async def _is(bed: Bed, wanted: tuple[int, int]) -> bool:
    return await bed.amounts() == wanted


async def test_a_deleted_pod_gives_its_held_room_back(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    async with reconciling(bed.cluster.bus, redis_url, "r"):
        await opened(bed)
        pod = await bed.cluster.pod("a")
        await bed.claim(pod)
        await bed.cluster.put(PODS, pod, gone=True)
        await until(lambda: _is(bed, (0, 0)), "the room")


async def test_a_node_that_goes_takes_nothing_any_more(bed: Bed, redis_url: str) -> None:
    node = await bed.cluster.node()
    async with reconciling(bed.cluster.bus, redis_url, "r"):
        await opened(bed)
        await bed.claim(await bed.cluster.pod("a"))
        await bed.cluster.put(NODES, node, gone=True)

        async def closed() -> bool:
            item = await bed.item("node/n1")
            return item is None or not item.open

        await until(closed, "the node's item to close")
        assert await bed.ledger.record("uid-a") is None


async def test_what_happened_while_nobody_reconciled_is_made_up_for(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    vanishes = await bed.cluster.node("n2")
    stays = await bed.cluster.pod("stays", node="n1", phase="Running")
    goes = await bed.cluster.pod("goes", node="n1", phase="Running")
    async with reconciling(bed.cluster.bus, redis_url, "r1"):
        await opened(bed)
        assert await bed.amounts() == (2000, 0)
    epoch = bed.ledger.epoch
    await bed.cluster.put(PODS, goes, gone=True)
    await bed.cluster.put(NODES, vanishes, gone=True)
    await bed.cluster.pod("new", node="n1", phase="Running")
    # What was observed went for certain: the stream is read up to its end. It is not suspected for a while first.
    patient = ReconcilerSettings(sweep_s=0.05, audit_s=0.2, suspect_s=3600.0)
    async with reconciling(bed.cluster.bus, redis_url, "r2", settings=patient):

        async def right() -> bool:
            return (await bed.ledger.record("uid-goes"), await bed.amounts()) == (None, (2000, 0))

        await until(right, "the record without a pod to end")
        assert await bed.ledger.record("uid-new") is not None
        vanished = await bed.item("node/n2")
        assert vanished is None or not vanished.open
        assert await bed.ledger.record(stays["metadata"]["uid"]) is not None
    await bed.ledger.status()
    assert bed.ledger.epoch == epoch  # an open ledger is not emptied


async def test_what_is_too_much_to_remember_is_told_anew(
    bed: Bed, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the ledger is away, what waits for it stays bounded."""
    monkeypatch.setattr("koord.reconciler.world.MOST_PENDING", 3)
    away, asked = False, 0
    observe = Ledger.observe

    async def sometimes(self: Ledger, observations: Any, **named: Any) -> Any:
        nonlocal asked
        if away:
            asked += 1
            raise LedgerUnavailable("away")
        return await observe(self, observations, **named)

    monkeypatch.setattr(Ledger, "observe", sometimes)
    await bed.cluster.node(cpu="64")
    goes = await bed.cluster.pod("goes", node="n1", phase="Running")
    async with reconciling(bed.cluster.bus, redis_url, "r"):
        await opened(bed)
        away = True
        for number in range(20):
            await bed.cluster.pod(f"p{number}", node="n1", phase="Running")
        await bed.cluster.put(PODS, goes, gone=True)
        await until(lambda: _asked(asked), "the ledger to be asked", 60)
        away = False
        await until(lambda: _is(bed, (20000, 0)), "everybody but the one that went", 60)
    assert bed.cluster.barriers == 1


async def _asked(times: int) -> bool:
    return times > 0


async def test_the_older_of_two_reconcilers_gives_up(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    async with reconciling(bed.cluster.bus, redis_url, "r1") as older:
        await opened(bed)
        async with reconciling(bed.cluster.bus, redis_url, "r2") as newer:
            with pytest.raises(Superseded):
                await asyncio.wait_for(asyncio.shield(older), 60)
            await bed.cluster.pod("a", node="n1")
            await until(lambda: _is(bed, (1000, 0)), "the newer one to fold")
            assert not newer.done()


@pytest.mark.parametrize("empty", [True, False])
async def test_a_redis_that_comes_back_is_filled_and_opened_again(
    nats_url: str, cluster: str, own_redis: RedisServer, empty: bool
) -> None:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        made = await Cluster.start(bus)
        await made.node()
        await made.pod("a", node="n1", phase="Running")
        async with (
            await Ledger.connect(own_redis.url, cluster, "s", lease_s=3600.0) as ledger,
            reconciling(bus, own_redis.url, "r"),
        ):
            bed = Bed(made, ledger, Spans())
            await opened(bed)
            before = ledger.epoch
            await own_redis.kill()
            await made.pod("b", node="n1", phase="Running")
            await own_redis.restart(empty=empty)

            async def again() -> bool:
                try:
                    status = await ledger.status()
                except Exception:
                    return False
                return status.open and status.epoch > before

            await until(again, "the ledger to open under a new epoch", 60)
            await until(lambda: _is(bed, (2000, 0)), "both pods")


async def _is_one(number: Callable[[], float]) -> bool:
    return number() == 1


async def test_an_object_that_cannot_be_told_keeps_nobody_else_from_it(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()

    async def odd(name: str) -> None:
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "v1.0"}
        body = json.dumps({"metadata": meta, "spec": {"nodeName": "n1", "containers": []}}).encode()
        await bed.cluster._publisher.publish(PODS, "ADDED", "ns", name, "v1.0", body)

    await odd("x")
    async with reconciling(bed.cluster.bus, redis_url, "r") as term:
        await opened(bed)
        await odd("y")
        await bed.cluster.pod("a", node="n1", phase="Running")
        await until(lambda: _is(bed, (1000, 0)), "the other pod", 60)
        audits = metrics.LIVE._value.get
        await until(lambda: _is_one(audits), "an audit that does not count them", 60)
        assert not term.done()
    assert bed.cluster.barriers == 1
