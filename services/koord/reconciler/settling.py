"""BINDING records whose decision was lost with its stream (spec 20 section 3.12, failures): settled, then ended.

A BINDING record never ends by time, because a write may be under way. If it stays unbound for long and is not advanced
again, the gateway is asked: it alone knows whether it has a decision for it, and can make sure that no older write
succeeds. The answer counts only if the record is still as it was read before the question (see ``Settled``).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from koord.bus.errors import BusError
from koord.contracts.asks import BindingRecord, BindingsSettled, SettleBindings
from koord.contracts.codec import ContractError
from koord.contracts.decisions import ObjectRef
from koord.kube.resources import PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable, Observation, PodGone, Record, Settled, UnitGone
from koord.reconciler import metrics
from koord.reconciler.world import World
from koord.telemetry.logs import get_logger

log = get_logger("koord.reconciler.settling")

TIMEOUT_S: Final = 30.0
_AT_ONCE: Final = 64
_LOOKS: Final = 4
"""Looks within the time that a record may stay unbound."""
_SHORTEST_S: Final = 0.02

Asking = Callable[[SettleBindings], Awaitable[BindingsSettled]]


class _Since(NamedTuple):
    token: int
    attempts: int
    at_s: float


class Settling:
    """``await run()`` until cancelled; what it finds goes to the world's observations."""

    def __init__(self, ledger: Ledger, world: World, ask: Asking, binding_s: float) -> None:
        self._ledger = ledger
        self._world = world
        self._ask = ask
        self._binding_s = binding_s
        self._since: dict[str, _Since] = {}

    async def run(self) -> None:
        """Look now and then; without the ledger or the gateway, again later."""
        while True:
            await asyncio.sleep(max(_SHORTEST_S, self._binding_s / _LOOKS))
            try:
                late = await self.late(time.monotonic())
                for first in range(0, len(late), _AT_ONCE):
                    await self._settle(late[first : first + _AT_ONCE])
            except (LedgerUnavailable, BusError, ContractError) as error:
                log.warning("records cannot be settled now", error=str(error))

    async def late(self, now_s: float) -> list[Record]:
        """The records that have been BINDING, unbound and untouched for too long."""
        since: dict[str, _Since] = {}
        late = []
        async for record in self._ledger.binding():
            known = self._since.get(record.uid)
            if known is None or (known.token, known.attempts) != (record.token, record.attempts):
                known = _Since(record.token, record.attempts, now_s)
            since[record.uid] = known
            key = f"{record.namespace}/{record.name}"
            if now_s - known.at_s >= self._binding_s and self._world.unbound(record.uid, key):
                late.append(record)
        self._since = since
        return late

    async def _settle(self, records: Sequence[Record]) -> None:
        now_s = time.monotonic()
        answer = await self._ask(SettleBindings([self._question(record, now_s) for record in records]))
        states = {settled.uid: settled for settled in answer.records}
        found: list[Observation] = []
        for record in records:
            settled = states.get(record.uid)
            if settled is None:
                continue
            metrics.SETTLED.labels(settled.state).inc()
            uid, namespace, name = record.uid, record.namespace, record.name
            if settled.state == "unbound":
                log.warning("unbound for good, its decision was lost", object=f"{namespace}/{name}", claim=record.claim)
                found.append(Settled(uid, namespace, name, record.token, record.attempts))
            elif settled.state == "gone":
                found.append((PodGone if record.node else UnitGone)(uid, namespace, name))
        self._world.add(found)

    def _question(self, record: Record, now_s: float) -> BindingRecord:
        resource = PODS if record.node else QUEUE_UNITS
        target = ObjectRef(resource.token, record.namespace, record.name, record.uid)
        since = self._since.get(record.uid)
        age_s = now_s - since.at_s if since is not None else 0.0
        return BindingRecord(target, record.claim, record.decision, age_s)
