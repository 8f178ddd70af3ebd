"""The actors and their outside together: who is there, how time passes, and how everything comes to rest."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import redis

from koord.bus.errors import AskRefused, BusTimeout
from koord.contracts.asks import BarrierRaised, BindingsSettled, RaiseBarrier, SettleBindings
from koord.kube.resources import QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.localcluster.servers import RedisServer
from tests.model import checks
from tests.model.actors import Gateway, Reconciler, Scheduler
from tests.model.apiserver import REQUEST_TIMEOUT_S, ApiServer
from tests.model.calls import SteppedLedger, Surroundings
from tests.model.cluster import Cluster
from tests.model.faults import Faults
from tests.model.judging import Judge
from tests.model.keepers import Queue, Quota
from tests.model.moves import Move, Moves
from tests.model.objects import Object
from tests.model.preemptor import Preemptor
from tests.model.stepping import Actor, Gates, SteppedLoop

CLUSTER = "model"
KEY = f"{{koord:{CLUSTER}}}"
LEASE_S = 30.0
MOMENT_S = 0.02
"""What the queue waits for, between two looks at its work; it passes with each move."""
ROUNDS = 150
STILL_ROUNDS = 3
"""Limits that follow what is asked for are there a little later."""
OFFER_S = 60.0
ROLES = ("gateway", "reconciler", "quota", "queue", "scheduler", "preemptor")

T = TypeVar("T")


class Play:
    """One run. Everybody stands still between two of its methods."""

    def __init__(
        self, loop: SteppedLoop, server: RedisServer, quota_cpu: int, tell: Callable[[str], None], wrong: list[str]
    ) -> None:
        self.tell = tell
        self.loop = loop
        self.server = server
        self.raw = redis.Redis.from_url(server.url, decode_responses=False)
        self.gates = Gates(loop)
        self.api = ApiServer()
        self.cluster = Cluster(self.api)
        self.around = Surroundings(self.gates, self.api, server.url, CLUSTER)
        self.schedulers: list[Scheduler] = []
        self.gateways: list[Gateway] = []
        self.reconcilers: list[Reconciler] = []
        self.queues: list[Queue] = []
        self.quotas: list[Quota] = []
        self.preemptors: list[Preemptor] = []
        self.quota_cpu = quota_cpu
        self.wrong = wrong
        self.happened: Counter[str] = Counter()
        self.spectator: Ledger
        self.judge: Judge
        self.calming = False
        self.moves = Moves(self)
        self.faults = Faults(self)
        self._spectators: list[Ledger] = []

    async def start(self) -> None:
        """One of each actor, on a ledger that was never opened."""
        with self.loop.real():
            self.spectator = await Ledger.connect(self.server.url, CLUSTER, "spectator", timeout_s=1e9)
        self._spectators.append(self.spectator)
        decisions = self.around.network.decisions
        self.judge = Judge(self.api, self.spectator, self.raw, KEY, self.loop, decisions, self.wrong, self.happened)
        self.judge.most_cpu = self.quota_cpu
        self.around.before_call, self.around.after_call = self.judge.before_call, self.judge.after_call
        self.api.on_sent, self.api.on_done = self.judge.sent, self.judge.done
        for role in ROLES:
            await self.start_anew(role, 0)

    async def close(self) -> None:
        for one in self.everybody:
            if one.actor.alive:
                await one.actor.die()
        with self.loop.real():
            for ledger in (*self.around.ledgers, *self._spectators):
                await ledger.close()
        self.raw.close()

    # Who is there ---------------------------------------------------------------------------------------------------

    @property
    def owners(self) -> tuple[Scheduler | Queue, ...]:
        """Those who claim."""
        return (*self.schedulers, *self.queues)

    @property
    def readers(self) -> tuple[Scheduler | Reconciler | Queue | Quota, ...]:
        """Those who read the state stream."""
        return (*self.schedulers, *self.reconcilers, *self.queues, *self.quotas)

    @property
    def hearers(self) -> tuple[Scheduler | Queue | Quota, ...]:
        """Those who hear core messages."""
        return (*self.schedulers, *self.queues, *self.quotas)

    @property
    def everybody(self) -> tuple[Any, ...]:
        return (*self.schedulers, *self.gateways, *self.reconcilers, *self.queues, *self.quotas, *self.preemptors)

    def lives(self, role: str) -> list[Any]:
        """All lives of a role, the dead included."""
        found: dict[str, list[Any]] = {
            "scheduler": self.schedulers,
            "gateway": self.gateways,
            "reconciler": self.reconcilers,
            "queue": self.queues,
            "quota": self.quotas,
            "preemptor": self.preemptors,
        }
        return found[role]

    def units(self) -> list[Object]:
        """All QueueUnits."""
        return list(self.api.objects(QUEUE_UNITS).values())

    async def start_anew(self, role: str, late: int, *, strict_audit: bool = False) -> None:
        """A new life. ``late``: how many changes of pods its first picture lacks."""
        actor = Actor(f"{role}-{next(self.cluster.names)}")
        ledger: SteppedLedger = await self.around.ledger(actor)
        around = self.around
        if role == "scheduler":
            self.schedulers.append(Scheduler(around, actor, ledger, late))
        elif role == "gateway":
            self.gateways.append(Gateway(around, actor, ledger))
        elif role == "reconciler":
            asks = (self._ask_settle, self._ask_barrier)
            self.reconcilers.append(Reconciler(around, actor, ledger, *asks, late, strict_audit=strict_audit))
        elif role == "queue":
            self.queues.append(Queue(around, actor, ledger, late))
        elif role == "quota":
            self.quotas.append(Quota(around, actor, ledger, late))
        else:
            self.preemptors.append(Preemptor(around, actor, ledger))
        await self.loop.settle()

    async def _ask_settle(self, question: SettleBindings) -> BindingsSettled:
        return await self._asked(lambda gateway: gateway.settle(question))

    async def _ask_barrier(self, question: RaiseBarrier) -> BarrierRaised:
        return await self._asked(lambda gateway: gateway.raise_barrier(question))

    async def _asked(self, ask: Callable[[Gateway], Coroutine[Any, Any, T | AskRefused]]) -> T:
        """The reconciler's question to whichever gateway leads."""
        gateway = self.gateways[-1]
        if gateway.barrier is None or not gateway.actor.alive:
            await asyncio.sleep(0.5)
            raise BusTimeout("no gateway answers")
        answering = asyncio.ensure_future(ask(gateway))
        await asyncio.wait({answering}, timeout=LEASE_S)
        if not answering.done() or answering.cancelled():
            answering.cancel()
            raise BusTimeout("the gateway does not answer")
        answer = answering.result()
        if isinstance(answer, AskRefused):
            raise answer
        return answer

    # How it goes on -------------------------------------------------------------------------------------------------

    async def make(self, move: Move) -> None:
        """Let it happen, and judge."""
        self.tell(move.label)
        self.happened["move"] += not self.calming
        made = move.action()
        if asyncio.iscoroutine(made):
            await made
        await self.loop.settle()
        await asyncio.sleep(MOMENT_S)
        await self.loop.settle()
        assert not self.wrong, self.wrong
        for one in self.everybody:
            if one.actor.alive and one.actor.errors:
                raise AssertionError(f"{one.actor.name} crashed") from one.actor.errors[0]
        if move.label.endswith(" is sent") or move.label.startswith("execute"):
            await self.judge.judge()

    async def one_goes_on(self, role: str, most: int) -> None:
        """The newest of a role goes on while the others stand; where it only sleeps, time passes.

        It stops before a Binding takes effect, where most can go wrong.
        """
        for step in range(most):
            own = self.own_moves(role)
            if not own:
                await self.time_passes(1.0)
            elif step and own[0].label.startswith("execute ") and "/binding" in own[0].label:
                return
            else:
                await self.make(own[0])

    def own_moves(self, role: str) -> list[Move]:
        """The moves of the newest of a role."""
        name = self.lives(role)[-1].actor.name
        return [move for move in self.moves.all() if f"{name}: " in move.label or move.label.startswith(f"{name} ")]

    # Time and other things that only pass -----------------------------------------------------------------------------

    def lapse(self, owner: str, since_s: float | None = None) -> None:
        """The leases of its claims are over: of all, or of those not younger than that."""
        for id_ in self.judge.leased():
            young = since_s is not None and self.judge.claimed_s.get(id_, since_s) > since_s
            if id_.rsplit("-", 1)[0] == owner and not young:
                self.raw.zadd(f"{KEY}:leases", {id_: 1}, xx=True)
        self.raw.zrem(f"{KEY}:renewals", owner)

    def offers_lapse(self, since_s: float | None = None) -> None:
        """The time of offers is over: of all, or of those that are not younger than that."""
        for id_, at_s in self.judge.offered_s.items():
            if since_s is None or at_s <= since_s:
                self.raw.zadd(f"{KEY}:offers", {id_: 1}, xx=True)

    async def time_passes(self, seconds: float) -> None:
        """Sleepers wake, leases that nobody renewed end, and so does the server's patience with requests."""
        await asyncio.sleep(seconds)
        await self.loop.settle()
        now = self.loop.time()
        self.around.network.decisions.give_up(now)
        for one in self.owners:
            if one.ledger.renewed_s < now - LEASE_S:
                self.lapse(one.actor.name, now - LEASE_S)
        self.offers_lapse(now - OFFER_S)
        for sent in list(self.api.under_way):
            if now - sent.at_s > REQUEST_TIMEOUT_S and sent.response is None:
                self.api.lose(sent, certainly_unsent=True)
        await self.loop.settle()

    def restart_redis(self) -> None:
        """A crash; it comes back with what it saved last. Called between two runs of the loop."""
        plain = asyncio.new_event_loop()
        plain.run_until_complete(self.server.kill())
        plain.run_until_complete(self.server.start())
        plain.close()
        self.loop.run_until_complete(self._reconnect())

    async def _reconnect(self) -> None:
        end = self.loop.time() + LEASE_S
        living = [one.ledger for one in self.everybody if one.actor.alive]
        while not all(ledger.connected for ledger in (*living, self.spectator)):
            assert self.loop.time() < end, "not connected again"
            time.sleep(0.001)  # noqa: ASYNC251  # the server's own time; here it costs none
            await asyncio.sleep(0.01)
        await self.time_passes(max(0.0, end - self.loop.time()))

    # Rest -----------------------------------------------------------------------------------------------------------

    async def calm(self, why: Callable[[], Awaitable[str]], *, rounds: int = 1) -> None:
        """Nothing goes wrong any more and everybody goes on, until ``why`` names nothing that is still to come."""
        said, still, self.calming = "", 0, True
        for round_ in range(ROUNDS):
            for move in self.moves.all():
                await self.make(move)
            for scheduler in self.schedulers:
                if scheduler.actor.alive and not scheduler.planning:
                    if round_ % 5 == 0:
                        scheduler.look()
                    scheduler.plan(700.0 if round_ % 10 == 9 else 20.0)
                    if round_ % 3 == 2:
                        scheduler.upkeep(31.0)
            if round_ % 3 == 2:
                self.around.network.decisions.all_back()
            await self.time_passes(1.0)
            said = await why()
            still = 0 if said else still + 1
            if still == rounds:
                self.calming = False
                return
        raise AssertionError(f"stuck: {said}")

    async def closed(self) -> str:
        """Whether the ledger is still to be opened, or the quota to be told."""
        with self.loop.real():
            status = await self.spectator.status()
            quotas = await self.spectator.items("quota/")
        if not status.open:
            return "the ledger is closed"
        return "" if any(item.open for item in quotas.values()) else "the quota is not told"

    async def restless(self) -> str:
        """What is not as it must be in the end."""
        if why := await self.closed():
            return why
        with self.loop.real():
            items, records = await checks.everything(self.spectator)
            nominations = [one async for one in self.spectator.nominations()]
        if nominations:
            return f"nominated: {nominations}"
        if unseen := [feed.token for one in self.readers if one.actor.alive for feed in one.feeds if feed.behind]:
            return f"not seen yet: {unseen}"
        network, requests = self.around.network, [sent for sent in self.api.under_way if sent.matters]
        decisions = network.decisions
        on_the_way = [*decisions.held, *decisions.on_the_way, *decisions.unconfirmed, *decisions.copies, *network.core]
        if requests or on_the_way:
            return f"on the way: {requests} {on_the_way}"
        return checks.unlike(self.api, items, records) or checks.unplaced(self.api, items)

    async def amounts(self) -> dict[str, Any]:
        """All items; the limits of a closed one mean nothing (a rebuild has no object to take them from)."""
        with self.loop.real():
            items = await self.spectator.items()
        return {
            name: (item.open, item.limits if item.open else {}, item.used, item.held, item.refs)
            for name, item in items.items()
        }
