"""What every actor is given: a ledger whose calls stand at gates, a bus, and the surroundings that they lead to."""

import itertools
import re
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from koord.bus.leases import KvLease
from koord.ledger import library, wire
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimAnswer, ClaimRequest
from koord.runtime.host import Host
from koord.runtime.settings import CommonSettings
from koord.telemetry.setup import Telemetry
from koord.telemetry.spans import Spans
from tests.model.apiserver import ApiServer
from tests.model.stepping import Actor, Gates
from tests.model.streams import Network, SteppedBus

NEVER_S = 1e9
Claimed = list[tuple[ClaimRequest, ClaimAnswer]]
_REQUESTS: ContextVar[list[ClaimRequest]] = ContextVar("_REQUESTS")
READS = frozenset(re.findall(r"register\('(\w+)', \w+, 'no-writes'\)", library.source()[0].decode()))
"""Functions that change nothing: whether they were asked or only not answered makes no difference."""


class SteppedLedger(Ledger):
    """The real client; each of its calls stands at a gate before it is sent and before its answer is heard."""

    gates: Gates
    actor: Actor
    renewed_s = 0.0
    before_call: Callable[[str], Awaitable[None]]
    after_call: Callable[[str, Claimed], Awaitable[None]]

    async def _claim_batch(self, requests: list[ClaimRequest]) -> Sequence[ClaimAnswer]:
        token = _REQUESTS.set(requests)
        try:
            return await super()._claim_batch(requests)
        finally:
            _REQUESTS.reset(token)

    async def _hot(self, function: bytes, *arguments: bytes, wait: bool = False) -> list[Any] | None:
        send = super()._hot
        rows: list[Any] | None = await self._stepped(function.decode(), lambda: send(function, *arguments, wait=wait))
        return rows

    async def _call(self, function: str, *arguments: bytes) -> Any:
        send = super()._call
        return await self._stepped(function, lambda: send(function, *arguments))

    async def _stepped(self, function: str, send: Callable[[], Awaitable[Any]]) -> Any:
        async def judged() -> Any:
            await self.before_call(function)
            if function == "renew_v1":
                self.renewed_s = self.gates.loop.time()
            claimed: Claimed = []
            try:
                answer = await send()
                if function == "claim_v1" and answer is not None:
                    requests = _REQUESTS.get()
                    # What others placed before may follow the answers.
                    statuses = [wire.claim_answer(row, self.epoch) for row in answer[: len(requests)]]
                    claimed = list(zip(requests, statuses, strict=True))
                return answer
            finally:
                await self.after_call(function, claimed)

        return await self.gates.call(self.actor, function, judged, reads=function in READS)


class Surroundings:
    """What the actors share."""

    def __init__(self, gates: Gates, api: ApiServer, redis_url: str, cluster: str) -> None:
        self.gates = gates
        self.api = api
        self.redis_url = redis_url
        self.cluster = cluster
        self.network = Network(api.state_life)
        self.ledgers: list[Ledger] = []
        self.numbers = itertools.count(1)
        self.before_call: Callable[[str], Awaitable[None]]
        self.after_call: Callable[[str, Claimed], Awaitable[None]]

    async def ledger(self, actor: Actor) -> SteppedLedger:
        """A connection of its own."""
        with self.gates.loop.real():
            ledger = await SteppedLedger.connect(self.redis_url, self.cluster, actor.name, timeout_s=NEVER_S)
        ledger.gates, ledger.actor = self.gates, actor
        ledger.before_call, ledger.after_call = self.before_call, self.after_call
        self.ledgers.append(ledger)
        return ledger

    def bus(self, actor: Actor) -> Any:
        """In the place of a connection to NATS."""
        return SteppedBus(actor, self.network)


class Lease(KvLease):
    """A lease that is there for whoever asks: more than one may believe to lead. The machine takes it away."""

    async def acquire(self) -> None:
        self.lost.clear()
        self._taken = True

    async def release(self) -> None:
        self.lost.set()

    @property
    def held(self) -> bool:
        return getattr(self, "_taken", False) and not self.lost.is_set()


class SteppedHost(Host):
    """A service's surroundings in the model."""

    def __init__(self, name: str, actor: Actor, bus: Any, ledger: SteppedLedger) -> None:
        super().__init__(
            name,
            CommonSettings(cluster="model"),
            Telemetry(Spans(enabled=False), None),
            bus=bus,
            ledger=ledger,
            incarnation=actor.name,
        )
        self.leases: list[Lease] = []

    def lease(self, role: str) -> Lease:
        lease = Lease(self.bus, role, self.incarnation)
        self.leases.append(lease)
        return lease
