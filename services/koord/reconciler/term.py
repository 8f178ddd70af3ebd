"""One term of leadership: fold, sweep, audit; fill and open the ledger when it is closed.

A call that fails is repeated with the same observations: all of them are idempotent and carry the objects' versions,
so lateness only delays freeing and never double-books.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from koord.accounting.takes import NODE
from koord.ledger.client import Ledger
from koord.ledger.model import (
    ItemClosed,
    LedgerError,
    LedgerUnavailable,
    Observation,
    ObserveAnswer,
    PodGone,
    Record,
    UnitGone,
    UnitUnbound,
)
from koord.reconciler import metrics
from koord.reconciler.hints import Hints
from koord.reconciler.settings import ReconcilerSettings
from koord.reconciler.settling import Asking, Settling
from koord.reconciler.world import World
from koord.runtime.ending import end
from koord.telemetry.logs import get_logger

log = get_logger("koord.reconciler")

BATCH = 2048
FULL_LOOK = 10
"""Every so many audits the records are looked at one by one even if their number is right."""


class Superseded(Exception):
    """A newer reconciler has called the ledger: this term is over."""


class Term:
    """``await run()`` until Superseded or cancelled."""

    def __init__(
        self,
        ledger: Ledger,
        world: World,
        hints: Hints,
        ask: Asking,
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
        self._suspects: dict[str, float] = {}
        self._audits = 0
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
                if now >= next_audit:
                    await self._persist(self._audit)
                    wait = self._settings.suspect_s if self._suspects else self._settings.audit_s
                    next_audit = time.monotonic() + wait
                await self._wait(next_sweep - time.monotonic())
                await self._persist(self._fold)
                if settling.done():
                    settling.result()
        finally:
            await end(settling)
            self._world.rest()

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
        """Do one step, however long Redis is away."""
        delay = 0.1
        while True:
            try:
                await step()
                return
            except LedgerUnavailable as error:
                self._on_open(False)
                metrics.LEDGER_OPEN.set(0)
                log.warning("the ledger cannot be reached", error=str(error))
                await asyncio.sleep(delay)
                delay = min(2.0, delay * 2.0)

    # Taking over, rebuilding --------------------------------------------------------------------------------------

    async def _take_over(self) -> None:
        status = await self._ledger.status()
        if status.open:
            if await self._tell(self._world.collect_anew()):
                await self._close_vanished_nodes()
            self._opened()
        else:
            await self._rebuild(new=not status.epoch)

    async def _close_vanished_nodes(self) -> None:
        """Close the items of nodes that went while nobody reconciled."""
        items = await self._ledger.items(NODE)
        nodes = self._world.nodes.items
        gone = [name for name, item in items.items() if item.open and name.removeprefix(NODE) not in nodes]
        if gone:
            log.warning("nodes went unseen", nodes=len(gone))
            await self._tell([ItemClosed(name) for name in gone])

    async def _rebuild(self, *, new: bool = False) -> None:
        """Empty the ledger, tell it everything, open it under a new epoch. ``new``: it never held anything."""
        if new:
            log.info("the ledger is new; filling it")
        else:
            log.warning("the ledger is closed; filling it anew")
        self._on_open(False)
        metrics.LEDGER_OPEN.set(0)
        metrics.REBUILDS.inc()
        await self._lifecycle(self._ledger.begin)
        everything = self._world.collect_anew()
        for first in range(0, len(everything), BATCH):
            answer = await self._ledger.observe(everything[first : first + BATCH], role_epoch=self._role_epoch)
            self._check(answer)
        _count(everything)
        epoch = await self._lifecycle(self._ledger.open)
        log.info("the ledger is open", epoch=epoch, observations=len(everything))
        self._opened()
        self._hints.opened(epoch)

    async def _lifecycle(self, call: Callable[[int], Awaitable[int]]) -> int:
        try:
            return await call(self._role_epoch)
        except LedgerUnavailable:
            raise
        except LedgerError as error:
            raise Superseded(str(error)) from error

    def _opened(self) -> None:
        self._suspects.clear()
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
            begun = time.perf_counter()
            answer = await self._ledger.observe(batch[first : first + BATCH], role_epoch=self._role_epoch)
            metrics.FOLD_SECONDS.observe(time.perf_counter() - begun)
            if not self._usable(answer):
                await self._rebuild()
                return False
            self._hints.told(answer)
            if answer.overcommitted:
                metrics.OVERCOMMITTED.inc(len(answer.overcommitted))
                self._world.overcommitted.update({(short.item, short.key): short for short in answer.overcommitted})
        _count(batch)
        return True

    def _usable(self, answer: ObserveAnswer) -> bool:
        """Whether the call counted; False if the ledger is that of another life of Redis."""
        if answer.status == "stale":
            raise Superseded
        return answer.status == "ok"

    def _check(self, answer: ObserveAnswer) -> None:
        if not self._usable(answer):
            # It was emptied again while it was being filled: begin from the start.
            raise LedgerUnavailable(f"observe: {answer.status}")

    async def _sweep(self) -> None:
        answer = await self._ledger.sweep(self._role_epoch)
        if not self._usable(answer):
            await self._rebuild()
            return
        metrics.EXPIRED.inc(len(answer.expired))
        self._hints.told(answer)

    # Auditing -----------------------------------------------------------------------------------------------------

    async def _audit(self) -> None:
        """Count records against objects; look at each of them when the numbers differ, at first, and now and then."""
        status = await self._ledger.status()
        metrics.LEDGER_OPEN.set(status.open)
        metrics.ITEMS.set(status.items)
        for state, count in (("HELD", status.held), ("BINDING", status.binding), ("OBSERVED", status.observed)):
            metrics.RECORDS.labels(state).set(count)
        live = self._world.folder.charged
        metrics.LIVE.set(live)
        if status.observed != live or self._suspects or self._audits % FULL_LOOK == 0:
            await self._look_closer()
        self._audits += 1

    async def _look_closer(self) -> None:
        """Find records without an object and objects without a record; end or tell them if they stay so."""
        now = time.monotonic()
        recorded: set[str] = set()
        suspects: dict[str, float] = {}
        ended: list[Observation] = []
        async for record in self._ledger.records():
            if record.state != "HELD":  # a HELD record has a lease
                recorded.add(record.uid)
                self._judge(record, now, suspects, ended)
        missing = [uid for uid in self._world.folder.charged_uids() if uid not in recorded]
        for uid in missing:
            suspects[uid] = self._suspects.get(uid, now)
        again = [uid for uid in missing if now - suspects[uid] >= self._settings.suspect_s]
        self._suspects = suspects
        if ended or again:
            log.warning("records did not match the objects", ended=len(ended), missing=len(again))
            metrics.DRIFT.labels("record without object").inc(len(ended))
            metrics.DRIFT.labels("object without record").inc(len(again))
            await self._tell([*ended, *self._world.again(again)])

    def _judge(self, record: Record, now: float, suspects: dict[str, float], ended: list[Observation]) -> None:
        key = f"{record.namespace}/{record.name}" if record.namespace else record.name
        there = self._world.live(record.uid, key) if record.state == "OBSERVED" else self._world.exists(record.uid, key)
        if there:
            return
        since = suspects[record.uid] = self._suspects.get(record.uid, now)
        if now - since < self._settings.suspect_s:
            return
        namespace, name = record.namespace, record.name
        if record.node:
            ended.append(PodGone(record.uid, namespace, name))
        elif self._world.exists(record.uid, key):
            ended.append(UnitUnbound(record.uid, namespace, name))
        else:
            ended.append(UnitGone(record.uid, namespace, name))


def _count(observations: Sequence[Observation]) -> None:
    for kind, count in Counter(type(observation).__name__ for observation in observations).items():
        metrics.OBSERVATIONS.labels(kind).inc(count)
