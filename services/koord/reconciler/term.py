"""One term of leadership: fold, sweep, audit; have the ledger rebuilt when it is closed or damaged.

A call that fails is repeated with the same observations: all of them are idempotent and carry the objects' versions,
so lateness only delays freeing and never double-books.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence

from koord.accounting.takes import BUDGET, NODE
from koord.ledger.client import Ledger
from koord.ledger.model import (
    ItemClosed,
    LedgerDamaged,
    LedgerUnavailable,
    Observation,
    ObserveAnswer,
)
from koord.reconciler import metrics
from koord.reconciler.auditing import Auditor
from koord.reconciler.hints import Hints
from koord.reconciler.observing import BATCH, Observing, count
from koord.reconciler.rebuilding import AskingBarrier, Rebuilding, Superseded
from koord.reconciler.settings import ReconcilerSettings
from koord.reconciler.settling import Asking, Settling
from koord.reconciler.world import World
from koord.runtime.ending import end
from koord.telemetry.logs import get_logger

log = get_logger("koord.reconciler")

DAMAGED_S = 600.0
"""How long after a rebuild because of damage the next one must wait: if it did not help, it is no help."""


def forget_frames(error: BaseException) -> None:
    """Let go what was at hand where ``error`` came from.

    A task keeps the error that ended it, the error its frames, and they all that was being told: at 50,000 pods tens of
    MiB for each lost lease, in cycles that a service, which collects rarely, would not come to for hours.
    """
    traceback.clear_frames(error.__traceback__)


class Term:
    """``await run()`` until Superseded or cancelled."""

    def __init__(
        self,
        ledger: Ledger,
        world: World,
        hints: Hints,
        ask: Asking,
        ask_barrier: AskingBarrier,
        role_epoch: int,
        settings: ReconcilerSettings,
        on_open: Callable[[bool], None],
    ) -> None:
        self._ledger = ledger
        self._world = world
        self._hints = hints
        self._role_epoch = role_epoch
        self._settings = settings
        self._on_open = on_open
        self._observing = Observing(ledger, world, role_epoch)
        self._rebuilding = Rebuilding(ledger, world, self._observing, ask_barrier, role_epoch)
        self._auditor = Auditor(ledger, world, self._tell, audit_s=settings.audit_s, suspect_s=settings.suspect_s)
        self._damage = ""
        self._damaged_s = float("-inf")
        self._settling = Settling(ledger, world, ask, settings.binding_s)

    async def run(self) -> None:
        """Bring the ledger to what the API shows, then keep it there."""
        settling = asyncio.create_task(self._settling.run(), name="reconciler-settling")
        try:
            await self._persist(self._take_over)
            next_sweep = next_audit = 0.0
            while True:
                now = time.monotonic()
                if now >= next_sweep:
                    next_sweep = now + self._settings.sweep_s
                    self._world.late()
                    await self._persist(self._sweep)
                if now >= next_audit or self._world.audit_soon:
                    self._world.audit_soon = False
                    await self._persist(self._audit)
                    next_audit = time.monotonic() + self._auditor.wait_s
                if self._world.overflowed:
                    await self._persist(self._take_over)
                await self._wait(next_sweep - time.monotonic())
                await self._persist(self._fold)
                if settling.done():
                    settling.result()
        except BaseException as error:
            forget_frames(error)
            raise
        finally:
            self._world.rest()  # before anything is awaited: whoever ends this may cancel it there
            await end(settling)

    async def _wait(self, most_s: float) -> None:
        self._world.wake.clear()
        if not self._world.pending:
            try:
                async with asyncio.timeout(max(0.0, most_s)):
                    await self._world.wake.wait()
            except TimeoutError:
                return
        # What comes in the next moment shares the call.
        await asyncio.sleep(self._settings.fold_delay_s)

    async def _persist(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do one step, however long Redis is away; where it cannot be read, have it rebuilt before the next try."""
        delay = 0.1
        while True:
            try:
                if self._damage and step != self._audit:
                    await self._audit()
                await step()
                return
            except LedgerDamaged as error:
                forget_frames(error)
                metrics.DRIFT.labels("unreadable").inc()
                log.error("the ledger cannot be read", error=str(error))
                self._damage = self._damage or f"unreadable: {error}"
                await asyncio.sleep(delay)
                delay = min(5.0, delay * 2.0)
            except LedgerUnavailable as error:
                forget_frames(error)
                self._on_open(False)
                metrics.LEDGER_OPEN.set(0)
                log.warning("the ledger cannot be reached", error=str(error))
                await asyncio.sleep(delay)
                delay = min(0.5, delay * 2.0)

    # Taking over, rebuilding --------------------------------------------------------------------------------------

    async def _take_over(self) -> None:
        status = await self._ledger.status()
        if not status.open:
            await self._rebuild(new=not status.epoch)
        elif not await self._world.catch_up(status.folded):
            await self._rebuild()
        else:
            if await self._tell(self._world.collect_anew()):
                await self._close_vanished()
                self._auditor.level()
            self._opened()

    async def _close_vanished(self) -> None:
        """Close the items of nodes and disruption budgets that went while nobody reconciled."""
        gone: list[str] = []
        for prefix, cache in ((NODE, self._world.nodes), (BUDGET, self._world.budgets)):
            if cache.is_synced:
                items = await self._ledger.items(prefix)
                gone += [
                    name for name, one in items.items() if one.open and name.removeprefix(prefix) not in cache.items
                ]
        if gone:
            log.warning("nodes or disruption budgets went unseen", items=len(gone))
            await self._tell([ItemClosed(item) for item in gone])

    async def _rebuild(self, *, new: bool = False) -> None:
        """Have the ledger filled from what the API shows and opened under a new epoch. ``new``: it never held any."""
        if new:
            log.info("the ledger is new; filling it")
        else:
            log.warning("the ledger is closed; filling it anew")
        self._on_open(False)
        metrics.LEDGER_OPEN.set(0)
        epoch = await self._rebuilding.run()
        self._auditor.forget()
        self._opened()
        self._hints.opened(epoch)

    async def _audit(self) -> None:
        # Kept until it is seen to: an audit that is repeated because Redis went away would not look again so soon.
        self._damage = self._damage or await self._auditor.audit()
        if not self._damage:
            metrics.DAMAGED.set(0)
            return
        metrics.DAMAGED.set(1)
        if time.monotonic() - self._damaged_s < DAMAGED_S:
            log.error("the ledger is damaged although it was rebuilt not long ago", damage=self._damage)
            self._damage = ""
            return
        log.error("the ledger is damaged, it is shut and rebuilt", damage=self._damage)
        await self._rebuild()
        self._damaged_s = time.monotonic()
        self._damage = ""
        metrics.DAMAGED.set(0)

    def _opened(self) -> None:
        self._on_open(True)
        metrics.LEDGER_OPEN.set(1)

    # Folding ------------------------------------------------------------------------------------------------------

    async def _fold(self) -> None:
        pending = self._world.pending
        while pending:
            # They stay in the queue until the ledger has them.
            batch = [pending[index] for index in range(min(BATCH, len(pending)))]
            if not await self._tell(batch):
                return  # rebuilt: the queue was emptied and filled with what came since
            for _ in batch:
                pending.popleft()
            metrics.PENDING.set(len(pending))

    async def _tell(self, batch: Sequence[Observation]) -> bool:
        """Fold one batch; False if the ledger had to be filled anew instead."""
        for first in range(0, len(batch), BATCH):
            answer = await self._observing.tell(batch[first : first + BATCH])
            if not self._usable(answer):
                await self._rebuild()
                return False
            self._hints.told(answer)
        count(batch)
        return True

    def _usable(self, answer: ObserveAnswer) -> bool:
        """Whether the call counted; False if the ledger is that of another life of Redis."""
        if answer.status == "stale":
            raise Superseded
        return answer.status == "ok"

    async def _sweep(self) -> None:
        answer = await self._ledger.sweep(self._role_epoch)
        if not self._usable(answer):
            await self._rebuild()
            return
        metrics.EXPIRED.inc(sum(ended.reason == "expired" for ended in answer.expired))
        self._hints.told(answer)
