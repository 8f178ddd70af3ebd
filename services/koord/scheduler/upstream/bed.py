"""The scheduler without API and bus: queue, engine, loop and claim rounds as the service runs them, on a real Redis.

What the benchmarks time begins where a decoded pod is handed in and ends where its bind decision is ready to be
published: queueing, finding its class, every filter and score of the profile over all nodes, the choice, and the claim
that the ledger accepted. What comes before (decoding) and after (publishing, the API's write, its echo) is left out.
"""

import asyncio
import copy
import gc
import itertools
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
import structlog

from koord.bus.connection import Bus
from koord.bus.decisions import DecisionPublisher
from koord.contracts.decisions import Delete
from koord.contracts.results import Result
from koord.kube.resources import Resource
from koord.ledger.client import Ledger
from koord.ledger.model import NodeSeen, PodGone, PodSeen
from koord.localcluster.servers import NatsServer, RedisServer
from koord.scheduler.catalogue import Catalogue
from koord.scheduler.claiming import Claims
from koord.scheduler.driver import Driver
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, Placed, PodInfo
from koord.scheduler.flights import Flight
from koord.scheduler.framework.contract import WatchPlugin
from koord.scheduler.gang.news import GangNews
from koord.scheduler.monitor import Monitor
from koord.scheduler.nodeview import NodeView
from koord.scheduler.notices import Notices
from koord.scheduler.planning import Planner
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.podview import PodView
from koord.scheduler.preempting import Preempting
from koord.scheduler.queueing.hints import Hints
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.settings import SchedulerSettings
from koord.scheduler.upstream.objects import SCHEDULER
from koord.scheduler.upstream.outlets import Decided, Kept
from koord.scheduler.world import World
from koord.telemetry.logs import Logger
from koord.telemetry.spans import Spans

_PART = 1000
_STALLED_S = 30.0
_POLL_S = 0.25
_numbers = itertools.count(1)


class Rate(NamedTuple):
    """How many pods were decided, in how many seconds, of which this process computed ``cpu_s``."""

    pods: int
    wall_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        """Decisions a second."""
        return self.pods / self.wall_s

    @property
    def per_cpu_s(self) -> float:
        """Decisions a second of this process's CPU, whoever else computes."""
        return self.pods / self.cpu_s


class Bed:
    """One scheduler with an empty cluster and an open, empty ledger. Made by :func:`new_bed`."""

    def __init__(self, ledger: Ledger, bus: Bus, role_epoch: int, settings: SchedulerSettings) -> None:
        profile, coscheduling = settings.profile()
        self.cluster = Cluster(settings.seed)
        self.engine = Engine(self.cluster, profile)
        self.views: dict[str, PodView] = {}
        """Pods by ``ns/name``, as the service's cache holds them."""
        self.nodes: dict[str, NodeView] = {}
        """Nodes by name, too."""
        self.refused = ""
        """What the last pod that found no place was told."""
        self.misfits = 0
        """How many pods found no place, counted each time they were tried."""
        self.deleted = 0
        """How many pods were preempted."""
        self._ledger = ledger
        self._epoch = role_epoch
        self._quota = next((plugin for plugin in profile.plugins if isinstance(plugin, ElasticQuota)), None)
        hints = Hints(self.engine.profiles)
        self._queue = SchedulingQueue(hints.events, settings.queue, hints)
        # Standard output is for the result.
        log: Logger = structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr), wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
        )
        spans = Spans(ratio=0.01)
        publisher = DecisionPublisher(bus, "scheduler")
        self._notices = Notices(ledger.incarnation, SCHEDULER, self.views.get)
        self._claims = claims = Claims(ledger.incarnation, self._quota, coscheduling.book, spans)
        news = GangNews(coscheduling.book, self._queue, self._notices, 60.0)
        outgoing = Kept(bus, publisher, self._notices, news, spans, log)
        outgoing.on_delete = self._delete
        self._world = World(
            self.engine,
            Catalogue(self.cluster, profile),
            self._queue,
            coscheduling,
            self._quota,
            frozenset((SCHEDULER,)),
            on_bound=self._on_bound,
            on_ended=self._on_ended,
            on_invalid=self._invalid,
            on_gang_problem=self._invalid,
            on_gated=news.gated,
            on_let_go=news.let_go,
        )
        self._binds = Decided(
            self._world,
            self._queue,
            claims,
            self._notices,
            ledger=ledger,
            publisher=publisher,
            log=log,
            scheduled_events=True,
            kick=self._kick,
            on_gang=news.tell,
            on_unavailable=self._fail,
            monitor=Monitor(log, SCHEDULER),
        )
        self._binds.on_decided = self._decided
        self._preempting = Preempting(
            self.engine,
            ledger=ledger,
            outgoing=outgoing,
            notices=self._notices,
            member=claims.member,
            waits=lambda uid: uid in self._world.pending,
            log=log,
            incarnation=ledger.incarnation,
            scheduler=SCHEDULER,
            unavailable=self._fail,
            let_go=self._let_go,
        )
        self._driver = Driver(
            self._world,
            self._queue,
            Planner(self.engine, self._queue, self._world, self._tell, SCHEDULER, news.tell, self._preempting),
            claims,
            self._binds,
            self._notices,
            bus=bus,
            ledger=ledger,
            outgoing=outgoing,
            spans=spans,
            log=log,
            batch=settings.batch,
            profile=SCHEDULER,
            on_crash=lambda error: self._fail(f"{type(error).__name__}: {error}"),
        )
        self._driver.ledger_open.set()
        self._left: set[str] = set()
        self._finished = asyncio.Event()
        self._failure = ""
        self._fresh: list[tuple[PodInfo, Placed]] = []
        self._tasks: set[asyncio.Task[object]] = set()
        self._step: Callable[[], None] | None = None
        self._every = 0
        self._due = 0

    # The cluster ----------------------------------------------------------------------------------------------------

    async def add_nodes(self, views: Iterable[NodeView]) -> None:
        """Nodes, in the engine and in the ledger."""
        seen: list[NodeSeen] = []
        for view in views:
            self.nodes[view.metadata.name] = view
            self._world.apply_node(None, view)
            info = view.info()
            seen.append(NodeSeen(f"node/{info.name}", dict(info.allocatable), "1"))
        for first in range(0, len(seen), _PART):
            await self._ledger.observe(seen[first : first + _PART], role_epoch=self._epoch)

    def add_object(self, resource: Resource, key: str, body: Mapping[str, object]) -> None:
        """Another object comes: whichever plugins read its kind learn of it."""
        text = json.dumps(body)
        for plugin in self.engine.plugins:
            if not isinstance(plugin, WatchPlugin):
                continue
            for watch in plugin.watches():
                if watch.resource == resource:
                    new = msgspec.json.decode(text, type=watch.type)
                    for event in plugin.changed(resource, key, None, new):
                        self._world.events.add(event, new)

    def change_node(self, old: NodeView | None, new: NodeView | None) -> None:
        """A node that the ledger need not know, since no pod can go there, comes or goes."""
        self._world.apply_node(old, new)

    def add_pod(self, view: PodView) -> None:
        """A pod that nobody waits for comes."""
        self.views[view.key] = view
        self._world.apply_pod(None, view, time.monotonic())
        self._driver.kick()

    def remove_pod(self, view: PodView) -> None:
        """A pod goes, wherever it is."""
        self._world.apply_pod(self.views.pop(view.key), None, time.monotonic())
        self._driver.kick()

    def each(self, decisions: int, step: Callable[[], None]) -> None:
        """Call ``step`` after each so many decisions from now on: what churns does so as fast as pods are placed."""
        self._every, self._step = decisions, step
        self._due = decisions

    # The run --------------------------------------------------------------------------------------------------------

    async def place(self, views: Sequence[PodView]) -> Rate:
        """Hand in all pods at once and wait until each is decided. RuntimeError: some find no place."""
        # As koord.runtime.run sets it for every service.
        gc.set_threshold(50_000, 50, 100)
        gc.collect()
        gc.freeze()
        self._left = {view.uid for view in views}
        self._finished.clear()
        self._driver.kick()
        loop = asyncio.create_task(self._driver.run())
        await asyncio.sleep(0)
        began, cpu = time.perf_counter(), time.process_time()
        try:
            now = time.monotonic()
            for view in views:
                self.views[view.key] = view
                self._world.apply_pod(None, view, now)
            self._driver.kick()
            await self._wait()
            wall, used = time.perf_counter() - began, time.process_time() - cpu
        finally:
            self._left = set()
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
            gc.unfreeze()
        await self._settle()
        return Rate(len(views), wall, used)

    async def _settle(self) -> None:
        """The API shows the pods on their nodes, and the ledger has seen that: they are there to stay."""
        seen: list[PodSeen] = []
        now = time.monotonic()
        for pod, placed in self._fresh:
            member = self._claims.member(pod, placed)
            seen.append(PodSeen(member.uid, member.namespace, member.name, member.node, member.takes, "2"))
            key = f"{member.namespace}/{member.name}"
            old = self.views.get(key)
            if old is not None:
                new = copy.copy(old)
                new.spec = copy.copy(old.spec)
                new.spec.node_name = placed.node
                self.views[key] = new
                self._world.apply_pod(old, new, now)
        self._fresh.clear()
        for first in range(0, len(seen), _PART):
            await self._ledger.observe(seen[first : first + _PART], role_epoch=self._epoch)

    async def _wait(self) -> None:
        last, since = -1, time.monotonic()
        while not self._finished.is_set():
            try:
                async with asyncio.timeout(_POLL_S):
                    await self._finished.wait()
            except TimeoutError:
                left = len(self._left)
                if left != last:
                    last, since = left, time.monotonic()
                elif time.monotonic() - since > _STALLED_S:
                    counts = {state: count for state, count in self._queue.counts.items() if count}
                    raise RuntimeError(f"{left} pods wait for ever: {counts}; {self.refused}") from None
        if self._failure:
            raise RuntimeError(self._failure)

    def _decided(self, flight: Flight) -> None:
        self._fresh.extend(flight.members.values())
        for uid in flight.members:
            self._left.discard(uid)
        if not self._left:
            self._finished.set()
        elif self._step is not None:
            self._due -= len(flight.members)
            if self._due <= 0:
                self._due += self._every
                self._step()

    def _tell(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        ref = pod.ref
        self.refused = diagnosis.message
        self.misfits += 1
        self._notices.failed(
            ref.uid, ref.namespace, ref.name, diagnosis.message, time.monotonic(), error=diagnosis.error
        )
        self._notices.take()
        if ref.uid in self._left and diagnosis.error:
            self._fail(diagnosis.message)

    def _delete(self, decision: Delete) -> None:
        """What a victim is asked for is done: it is gone, and so the ledger sees it."""
        target = decision.target
        view = self.views.get(f"{target.namespace}/{target.name}")
        if view is None or view.uid != target.uid:
            return
        self.deleted += 1
        gone = PodGone(target.uid, target.namespace, target.name)
        task: asyncio.Task[object] = asyncio.create_task(self._ledger.observe([gone], role_epoch=self._epoch))
        self._tasks.add(task)

        def seen(done: asyncio.Task[object]) -> None:
            self._tasks.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None:
                self._fail(f"{type(error).__name__}: {error}")
                return
            self.remove_pod(view)
            self._preempting.on_result(Result(decision.id, "done"))

        task.add_done_callback(seen)

    # World and binds come before the driver, and tell it through these.

    def _on_bound(self, view: PodView) -> None:
        self._binds.on_bound(view)
        self._preempting.ended(view.uid)

    def _on_ended(self, uid: str) -> None:
        self._binds.on_ended(uid)
        self._preempting.ended(uid)

    def _let_go(self, uid: str, at_once: bool) -> None:
        self._world.waiting.let_go(uid, time.monotonic(), at_once=at_once)
        self._driver.kick()

    def _kick(self) -> None:
        self._driver.kick()

    def _invalid(self, view: PodView, message: str) -> None:
        self._fail(f"{view.key}: {message}")

    def _fail(self, why: str) -> None:
        self._failure = why
        self._finished.set()


class Servers(NamedTuple):
    """Where the ledgers of beds are, and a bus that they have and send nothing on."""

    redis: str
    bus: Bus


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    """A redis-server and a nats-server of our own, for as long as it lasts."""
    redis, nats = RedisServer(), NatsServer()
    try:
        url = await redis.start()
        bus = await Bus.connect(await nats.start(), "bench", "bench")
        try:
            yield Servers(url, bus)
        finally:
            await bus.close()
    finally:
        await nats.stop()
        await redis.stop()


@asynccontextmanager
async def new_bed(on: Servers, settings: SchedulerSettings | None = None) -> AsyncIterator[Bed]:
    """A bed with a ledger of its own."""
    name = f"bench-{next(_numbers)}"
    async with await Ledger.connect(on.redis, name, name, timeout_s=30.0) as ledger:
        epoch = await ledger.lead("reconciler")
        await ledger.begin(epoch)
        await ledger.open(epoch)
        yield Bed(ledger, on.bus, epoch, settings or SchedulerSettings())
