"""Filling a ledger that lost what it held (spec 20 section 3.12, "Loss and rebuild").

The ledger is shut, the gateway raises its barrier, and once the caches hold what was listed behind it, everything is
told to the ledger under the new epoch, in chunks; then it opens in one step. What dies or is lost in between is found
by the next attempt, which begins from the start with a barrier of its own: until the last step nothing can be claimed.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Final

from koord.bus.errors import BusError
from koord.contracts.asks import BarrierRaised, RaiseBarrier
from koord.contracts.codec import ContractError
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerReset, LedgerStale, LedgerUnavailable, ObserveAnswer
from koord.reconciler import metrics
from koord.reconciler.observing import BATCH, Observing, count
from koord.reconciler.world import World
from koord.telemetry.logs import get_logger

log = get_logger("koord.reconciler.rebuilding")

TIMEOUT_S: Final = 5.0
"""One question for the barrier; the gateway answers within two seconds, finished or not."""
MARK_S: Final = 10.0
"""How long the mark of a finished barrier may take to arrive before another one is asked for."""
_AGAIN_S: Final = 0.1
_COMPLAIN_S: Final = 5.0

AskingBarrier = Callable[[RaiseBarrier], Awaitable[BarrierRaised]]


class Superseded(Exception):
    """A newer reconciler has called the ledger: this term is over."""


class Rebuilding:
    """``await run()`` until the ledger is open; answers its epoch. LedgerUnavailable: begin again from the start."""

    def __init__(self, ledger: Ledger, world: World, observing: Observing, ask: AskingBarrier, role_epoch: int) -> None:
        self._ledger = ledger
        self._world = world
        self._observing = observing
        self._ask = ask
        self._role_epoch = role_epoch
        self._numbers = itertools.count(1)
        self._complained_s = 0.0

    async def run(self) -> int:
        """Shut, wait for the barrier, fill, open. Superseded when a newer reconciler leads."""
        began = time.monotonic()
        metrics.REBUILDS.inc()
        await self._lifecycle(self._ledger.shut(self._role_epoch))
        barrier = await self._barrier()
        behind = time.monotonic()
        everything = self._world.collect_anew()
        leader = [("gateway", barrier.role_epoch, barrier.incarnation)]
        await self._lifecycle(self._ledger.rebuild(self._role_epoch, barrier.epoch, leader))
        for first in range(0, len(everything), BATCH):
            _check(await self._observing.tell(everything[first : first + BATCH]))
        count(everything)
        epoch = await self._lifecycle(self._ledger.open(self._role_epoch, epoch=barrier.epoch))
        done = time.monotonic()
        metrics.REBUILD_SECONDS.observe(done - began)
        log.info(
            "the ledger is open",
            epoch=epoch,
            observations=len(everything),
            barrier_s=round(behind - began, 3),
            filling_s=round(done - behind, 3),
        )
        return epoch

    async def _barrier(self) -> BarrierRaised:
        """A finished barrier whose lists the caches hold."""
        while True:
            id_ = f"{self._ledger.incarnation}-{next(self._numbers)}"
            epoch = max((await self._ledger.status()).epoch, self._ledger.epoch) + 1
            barrier = await self._asked(RaiseBarrier(id_, self._role_epoch, epoch, self._world.tokens))
            try:
                async with asyncio.timeout(MARK_S):
                    await self._world.marked(id_)
                return barrier
            except TimeoutError:
                log.warning("the mark of the barrier did not arrive, another one is needed", id=id_)

    async def _asked(self, question: RaiseBarrier) -> BarrierRaised:
        """Ask until it is done: a gateway that follows a dead one begins afresh."""
        while True:
            try:
                answer = await self._ask(question)
            except (BusError, ContractError) as error:
                if time.monotonic() - self._complained_s > _COMPLAIN_S:
                    self._complained_s = time.monotonic()
                    log.warning("the ledger waits for the gateway's barrier", error=str(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            if answer.step == "done":
                return answer
            if time.monotonic() - self._complained_s > _COMPLAIN_S:
                self._complained_s = time.monotonic()
                log.info("the ledger waits for the gateway's barrier", step=answer.step)

    async def _lifecycle(self, call: Awaitable[int]) -> int:
        try:
            return await call
        except LedgerReset as error:
            raise LedgerUnavailable(str(error)) from error
        except LedgerStale as error:
            raise Superseded(str(error)) from error


def _check(answer: ObserveAnswer) -> None:
    if answer.status == "stale":
        raise Superseded
    if answer.status != "ok":
        # It was emptied again while it was being filled: begin from the start.
        raise LedgerUnavailable(f"observe: {answer.status}")
