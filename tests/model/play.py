"""The actors and their outside together: what may happen next, what may go wrong, and how everything comes to rest."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import redis

from koord.bus.errors import AskRefused, BusTimeout
from koord.contracts.asks import BarrierRaised, BindingsSettled, RaiseBarrier, SettleBindings
from koord.kube.resources import PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable, LimitSet
from koord.localcluster.servers import RedisServer
from tests.model import checks
from tests.model.actors import Gateway, Reconciler, Scheduler, SteppedLedger, Surroundings
from tests.model.judging import Judge
from tests.model.outside import REQUEST_TIMEOUT_S, ApiServer, Core, Message
from tests.model.stepping import Actor, Gates, SteppedLoop
from tests.model.unitqueue import UnitQueue

QUOTA = "team"
CLUSTER = "model"
KEY = f"{{koord:{CLUSTER}}}"
LEASE_S = 30.0
ROUNDS = 150

T = TypeVar("T")


class Move(NamedTuple):
    """One thing that may happen; its action is a plain call or a coroutine function."""

    label: str
    action: Callable[[], Any]


class Play:
    """One run. Everybody stands still between two of its methods."""

    def __init__(self, loop: SteppedLoop, server: RedisServer, quota_cpu: int, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.loop = loop
        self.server = server
        self.raw = redis.Redis.from_url(server.url, decode_responses=False)
        self.names = itertools.count(1)
        self.gates = Gates(loop)
        self.api = ApiServer()
        self.around = Surroundings(self.gates, self.api, server.url, CLUSTER)
        self.schedulers: list[Scheduler] = []
        self.gateways: list[Gateway] = []
        self.reconcilers: list[Reconciler] = []
        self.queues: list[UnitQueue] = []
        self.quota_cpu = quota_cpu
        self.spectator: Ledger
        self._spectators: list[Ledger] = []
        self.judge: Judge
        self.calming = False
        self._quota_told = (0, 0)

    async def start(self) -> None:
        """One of each actor, on a ledger that was never opened."""
        with self.loop.real():
            self.spectator = await Ledger.connect(self.server.url, CLUSTER, "spectator", timeout_s=1e9)
        self._spectators.append(self.spectator)
        self.judge = Judge(self.api, self.spectator, self.raw, KEY, self.loop)
        self.around.before_call, self.around.after_call = self.judge.before_call, self.judge.after_call
        self.api.on_done = self.judge.done
        for role in ("gateway", "reconciler", "scheduler", "queue"):
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
    def _owners(self) -> tuple[Scheduler | UnitQueue, ...]:
        """Those who claim."""
        return (*self.schedulers, *self.queues)

    @property
    def everybody(self) -> tuple[Any, ...]:
        return (*self.schedulers, *self.gateways, *self.reconcilers, *self.queues)

    def lives(self, role: str) -> list[Any]:
        """All lives of a role, the dead included."""
        found: dict[str, list[Any]] = {
            "scheduler": self.schedulers,
            "gateway": self.gateways,
            "reconciler": self.reconcilers,
            "queue": self.queues,
        }
        return found[role]

    async def start_anew(self, role: str, late: int, *, strict_audit: bool = False) -> None:
        """A new life. ``late``: how many changes of pods its first picture lacks."""
        actor = Actor(f"{role[0]}{next(self.names)}")
        ledger: SteppedLedger = await self.around.ledger(actor)
        around = self.around
        if role == "scheduler":
            self.schedulers.append(Scheduler(around, actor, ledger, late))
        elif role == "gateway":
            self.gateways.append(Gateway(around, actor, ledger))
        elif role == "reconciler":
            asks = (self._ask_settle, self._ask_barrier)
            self.reconcilers.append(Reconciler(around, actor, ledger, *asks, late, strict_audit=strict_audit))
        else:
            self.queues.append(UnitQueue(around, actor, ledger))
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

    # What may happen ------------------------------------------------------------------------------------------------

    async def make(self, move: Move) -> None:
        """Let it happen, and judge."""
        self.tell(move.label)
        made = move.action()
        if asyncio.iscoroutine(made):
            await made
        await self.loop.settle()
        for one in self.everybody:
            if one.actor.alive and one.actor.errors:
                raise AssertionError(f"{one.actor.name} crashed") from one.actor.errors[0]
        if move.label.endswith(" is sent") or move.label.startswith("execute"):
            await self.judge.judge()

    def moves(self) -> list[Move]:
        """What may happen next when nothing goes wrong, in a fixed order."""
        return [*self._calls(), *self._messages(), *self._looks(), *self._terms(), *self._admissions()]

    def _calls(self) -> Iterator[Move]:
        for gate in self.gates.shut:
            yield Move(repr(gate), partial(self.gates.open, gate))
        for sent in self.api.under_way:
            if sent.response is None:
                # A request that nobody waits for any more is nobody's next step.
                label = f"execute {sent}" if sent.awaited else f"execute late {sent.method} {sent.path}"
                yield Move(label, partial(self.api.execute, sent))
            elif sent.awaited:
                yield Move(f"answer {sent}", partial(self.api.answer, sent))

    def _messages(self) -> Iterator[Move]:
        decisions = self.around.decisions
        for message in decisions.on_the_way:
            yield Move(f"publish {message}", partial(decisions.arrive, message))
        for message in decisions.held:
            if not message.out and self._takes_decisions:
                yield Move(f"hand out {message}", partial(self._hand_out, message))
        for core in self.around.messages[: None if self.calming else 4]:
            yield Move(f"hear {core}", partial(self._hear, core))

    def _looks(self) -> Iterator[Move]:
        gateway = self.gateways[-1]
        if gateway.actor.alive and gateway.seen < len(self.api.changes(PODS, 0)):
            yield Move(f"{gateway.actor.name} watches", partial(gateway.watch, 100))
        seers: tuple[Scheduler | Reconciler, ...] = (*self.schedulers, *self.reconcilers)
        for one in seers:
            for feed in one.feeds:
                if one.actor.alive and feed.behind:
                    yield Move(f"{one.actor.name} sees {feed.token}", partial(feed.deliver, 1))
                    yield Move(f"{one.actor.name} sees all {feed.token}", partial(feed.deliver, 100))
        for scheduler in self.schedulers:
            name, service = scheduler.actor.name, scheduler.service
            if not scheduler.actor.alive:
                continue
            if not service._driver.ledger_open.is_set():
                yield Move(f"{name} looks", scheduler.look)
            elif not scheduler.planning and len(service._world.pending):
                yield Move(f"{name} plans", partial(scheduler.plan, 0.0))
                yield Move(f"{name} plans later", partial(scheduler.plan, 20.0))
            if service._binds.releasing.is_set():
                yield Move(f"{name} gives back", partial(scheduler.upkeep, 0.0))

    def _terms(self) -> Iterator[Move]:
        """Who learns that a newer one leads gives up its term, and stands for election again."""
        gateway, reconciler = self.gateways[-1], self.reconcilers[-1]
        fenced = gateway.executor is not None and gateway.executor.not_leading.is_set()
        if gateway.actor.alive and fenced:
            yield Move(f"{gateway.actor.name} gives up its term", partial(self._next_term, "gateway"))
        if reconciler.actor.alive and reconciler.superseded:
            yield Move(f"{reconciler.actor.name} gives up its term", partial(self._next_term, "reconciler"))

    async def _next_term(self, role: str) -> None:
        actor = self.lives(role)[-1].actor
        if actor.alive:
            await actor.die()
            await self.start_anew(role, 0, strict_audit=self.calming)

    def _admissions(self) -> Iterator[Move]:
        if self._quota_told != (self.spectator.epoch, self.quota_cpu):
            yield Move("the quota is told", self._tell_quota)
        queue = self.queues[-1]
        for unit in self.api.objects(QUEUE_UNITS).values():
            if checks.admits(unit):
                queue.forget(unit["metadata"]["uid"])
            elif queue.actor.alive:
                yield Move(
                    f"admit {unit['metadata']['name']}", partial(queue.admit, unit, checks.unit_cpu(unit), QUOTA)
                )

    @property
    def _takes_decisions(self) -> bool:
        return self.gateways[-1].actor.alive and self.gateways[-1].executor is not None

    async def _hand_out(self, message: Message) -> None:
        gateway = self.gateways[-1]
        if message in self.around.decisions.held and self._takes_decisions:
            await gateway.actor.run(gateway.take(self.around.decisions.hand_out(message, gateway.bus)))

    def _hear(self, core: Core, *, again: bool = False) -> None:
        if core in self.around.messages:
            if not again:
                self.around.messages.remove(core)
            for one in self._owners:
                if one.actor.alive:
                    one.hear(core)

    async def _tell_quota(self) -> None:
        """The quota leader writes the limits that the API shows."""
        with self.loop.real():
            role_epoch = await self.spectator.lead("quota")
            told = ((await self.spectator.status()).epoch, self.quota_cpu)
            limits = {"cpu": 1000 * self.quota_cpu}
            observations = [LimitSet(f"quota/{QUOTA}", limits), LimitSet(f"admitted/{QUOTA}", limits)]
            answer = await self.spectator.observe(observations, role="quota", role_epoch=role_epoch)
            if answer.status == "ok":
                self._quota_told = told

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
        return [move for move in self.moves() if f"{name}: " in move.label or move.label.startswith(f"{name} ")]

    # What may go wrong ----------------------------------------------------------------------------------------------

    def faults(self) -> list[Move]:
        """What may go wrong on the way, in a fixed order."""
        return [*self._call_faults(), *self._message_faults(), *self._silences()]

    def _call_faults(self) -> Iterator[Move]:
        away = LedgerUnavailable("as the model wants it")
        for gate in self.gates.shut:
            if "_v1 " in gate.label:
                yield Move(f"unavailable: {gate!r}", partial(self.gates.open, gate, away))
        for sent in self.api.under_way:
            yield Move(f"lost: {sent}", partial(self.api.lose, sent))
            if sent.response is None:
                yield Move(f"not sent: {sent}", partial(self.api.lose, sent, certainly_unsent=True))
                for status in (429, 500, 422):
                    if status != 422 or sent.binds:
                        yield Move(f"{status}: {sent}", partial(self.api.refuse, sent, status))

    def _message_faults(self) -> Iterator[Move]:
        decisions = self.around.decisions
        for message in decisions.on_the_way:
            yield Move(f"lost: {message}", partial(decisions.arrive, message, lost=True))
            yield Move(f"twice: {message}", partial(decisions.arrive, message, twice=True))
        for message in decisions.held:
            if message.out and self._takes_decisions:
                yield Move(f"again: {message}", partial(self._hand_out, message))
        for message in decisions.acknowledged[-3:]:
            yield Move(f"unacknowledged: {message}", partial(decisions.again, message))
        for core in self.around.messages[:3]:
            yield Move(f"lost: {core}", partial(self.around.messages.remove, core))
            yield Move(f"heard twice: {core}", partial(self._hear, core, again=True))

    def _silences(self) -> Iterator[Move]:
        for scheduler in self.schedulers:
            name = scheduler.actor.name
            if scheduler.actor.alive:
                yield Move(f"{name} repeats", partial(scheduler.upkeep, 31.0))
                yield Move(f"{name} gives up", partial(scheduler.plan, 700.0))
                dead = [one.actor.name for one in self.schedulers if not one.actor.alive]
                if dead:
                    yield Move(f"{name} retires {dead}", partial(scheduler.retire, dead))
        for one in self._owners:
            yield Move(f"{one.actor.name} was silent", partial(self.lapse, one.actor.name))

    def lapse(self, owner: str, since_s: float | None = None) -> None:
        """The leases of its claims are over: of all, or of those not younger than that."""
        for id_ in self.judge.leased():
            young = since_s is not None and self.judge.claimed_s.get(id_, since_s) > since_s
            if id_.rsplit("-", 1)[0] == owner and not young:
                self.raw.zadd(f"{KEY}:leases", {id_: 1}, xx=True)
        self.raw.zrem(f"{KEY}:renewals", owner)

    async def time_passes(self, seconds: float) -> None:
        """Sleepers wake, leases that nobody renewed end, and so does the server's patience with requests."""
        await asyncio.sleep(seconds)
        await self.loop.settle()
        now = self.loop.time()
        for one in self._owners:
            if one.ledger.renewed_s < now - LEASE_S:
                self.lapse(one.actor.name, now - LEASE_S)
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

    async def calm(self, why: Callable[[], Awaitable[str]]) -> None:
        """Nothing goes wrong any more and everybody goes on, until ``why`` names nothing that is still to come."""
        said, self.calming = "", True
        for round_ in range(ROUNDS):
            for move in self.moves():
                await self.make(move)
            for scheduler in self.schedulers:
                if scheduler.actor.alive and not scheduler.planning:
                    if round_ % 5 == 0:
                        scheduler.look()
                    scheduler.plan(700.0 if round_ % 10 == 9 else 20.0)
                    if round_ % 3 == 2:
                        scheduler.upkeep(31.0)
            if round_ % 3 == 2:
                self.around.decisions.all_back()
            await self.time_passes(1.0)
            said = await why()
            if not said:
                self.calming = False
                return
        raise AssertionError(f"stuck: {said}")

    async def closed(self) -> str:
        """Whether the ledger is still to be opened, or the quota to be told."""
        with self.loop.real():
            status = await self.spectator.status()
        return "" if status.open and self._quota_told[0] == status.epoch else "the ledger is closed"

    async def restless(self) -> str:
        """What is not as it must be in the end."""
        if why := await self.closed():
            return why
        with self.loop.real():
            items, records = await checks.everything(self.spectator)
        decisions, requests = self.around.decisions, [sent for sent in self.api.under_way if sent.matters]
        if requests or decisions.held or decisions.on_the_way or self.around.messages:
            return f"on the way: {requests} {decisions.held} {decisions.on_the_way} {self.around.messages}"
        return checks.unlike(self.api, items, records) or checks.unplaced(self.api, self.quota_cpu)

    async def amounts(self) -> dict[str, Any]:
        """All items; the limits of a closed one mean nothing (a rebuild has no object to take them from)."""
        with self.loop.real():
            items = await self.spectator.items()
        return {
            name: (item.open, item.limits if item.open else {}, item.used, item.held, item.refs)
            for name, item in items.items()
        }
