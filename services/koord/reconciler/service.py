"""The reconciler as a service: caches always, one term of leadership after the other, problems told as Events."""

import asyncio

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.bus.questions import ask
from koord.contracts.asks import BarrierRaised, BindingsSettled, RaiseBarrier, SettleBindings
from koord.contracts.decisions import RecordEvents
from koord.reconciler import metrics
from koord.reconciler.hints import Hints
from koord.reconciler.rebuilding import TIMEOUT_S as BARRIER_S
from koord.reconciler.rebuilding import Superseded
from koord.reconciler.settings import ReconcilerSettings
from koord.reconciler.settling import TIMEOUT_S
from koord.reconciler.telling import take_notes
from koord.reconciler.term import Term
from koord.reconciler.world import World
from koord.runtime.ending import end, finish
from koord.runtime.host import Host, Leadership
from koord.runtime.service import ServiceSpec

ROLE = "reconciler"
_PROBLEMS_S = 1.0


class Reconciler:
    """Leads, or stands by with warm caches."""

    def __init__(self, host: Host, settings: ReconcilerSettings) -> None:
        self._host = host
        self._settings = settings
        self._world = World(host.bus, host.spans, host.common.scheduler_names)
        self._world.folder.tree.default = not host.common.disable_default_quota
        self._hints = Hints(host.bus)
        self._events = DecisionPublisher(host.bus, ROLE)
        self._event_number = 0
        host.ready.require("state")

    async def start(self) -> None:
        """Begin to read state and to stand for election."""
        self._host.spawn(self._run(), "run")
        self._host.spawn(self._tell_problems(), "problems")

    async def drain(self) -> None:
        """Nothing is in flight that could be lost: observations are derived from state."""
        await self._world.close()
        self._events.close()

    async def _run(self) -> None:
        await self._world.start(lambda token: self._host.log.info("synced", resource=token))
        self._host.ready.open("state")
        while True:
            leadership = await self._host.lead(ROLE)
            await self._lead(leadership)

    async def _lead(self, leadership: Leadership) -> None:
        term = Term(
            self._host.ledger,
            self._world,
            self._hints,
            self._settle,
            self._barrier,
            leadership.epoch,
            self._settings,
            self._on_open,
        )
        running = asyncio.create_task(term.run(), name="reconciler-term")
        lost = asyncio.create_task(leadership.lost.wait(), name="reconciler-lost")
        try:
            await asyncio.wait((running, lost), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        except Superseded as error:
            self._host.log.error("a newer reconciler leads, giving up the term", error=str(error))
        finally:

            async def give_up() -> None:
                await end(running, lost)
                await leadership.release()

            await finish(give_up())

    async def _settle(self, question: SettleBindings) -> BindingsSettled:
        return await ask(self._host.bus, "gateway", "settle", question, BindingsSettled, timeout=TIMEOUT_S)

    async def _barrier(self, question: RaiseBarrier) -> BarrierRaised:
        return await ask(self._host.bus, "gateway", "barrier", question, BarrierRaised, timeout=BARRIER_S)

    def _on_open(self, is_open: bool) -> None:
        self._host.log.debug("ledger", open=is_open)

    async def _tell_problems(self) -> None:
        """Events on objects that cannot be charged as written, and on nodes with more on them than they have."""
        while True:
            await asyncio.sleep(_PROBLEMS_S)
            notes = take_notes(self._world)
            if not notes:
                continue
            self._event_number += 1
            decision = RecordEvents(f"{self._host.incarnation}-{self._event_number}", notes)
            try:
                await self._events.publish(decision, self._host.spans.root())
            except BusError as error:
                metrics.EVENTS_DROPPED.labels("bus").inc(len(notes))
                self._host.log.warning("events not published", error=str(error))


def build(host: Host, settings: ReconcilerSettings) -> Reconciler:
    """The service for ``koord run reconciler``."""
    return Reconciler(host, settings)


SPEC = ServiceSpec(
    name="reconciler",
    summary="Folds API objects into the ledger, expires leases, audits records",
    settings=ReconcilerSettings,
    build=build,
)
