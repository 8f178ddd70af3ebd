"""Limits on their way to the ledger: what changed at once, everything when the ledger has a new epoch."""

import asyncio
import contextlib
from collections.abc import Sequence

from koord.accounting.takes import ADMITTED, GUARANTEED, QUOTA
from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.contracts.codec import encode
from koord.contracts.ledger import LedgerHint
from koord.ledger.client import Ledger
from koord.ledger.model import ItemClosed, LedgerUnavailable, Observation
from koord.quota.keeper import Keeper
from koord.telemetry.logs import Logger
from koord.telemetry.metrics import counter

BATCH = 2000
FAMILIES = (QUOTA, ADMITTED, GUARANTEED)
LOOK_S = 5.0
"""The ledger's epoch is looked at this often, because hints may be lost."""

_limits = counter("koord_quota_limits_written", "Limits written to the ledger")


class LimitWriter:
    """Writes what :class:`Keeper` finds dirty, under the epoch of the role ``quota``."""

    def __init__(self, keeper: Keeper, bus: Bus, ledger: Ledger, log: Logger) -> None:
        self._keeper = keeper
        self._bus = bus
        self._ledger = ledger
        self._log = log
        self._wake = asyncio.Event()
        self._ledger_epoch = 0
        self._search = False

    def wake(self) -> None:
        """Something is dirty."""
        self._wake.set()

    async def run(self, role_epoch: int) -> None:
        """Until cancelled."""
        self._ledger_epoch = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            self._wake.clear()
            try:
                done = await self._write(role_epoch)
            except LedgerUnavailable as error:
                self._log.warning("the ledger cannot be reached, limits wait", error=str(error))
                done = False
            if not done:
                self._wake.set()
                await asyncio.sleep(0.5)

    async def _write(self, role_epoch: int) -> bool:
        keeper = self._keeper
        status = await self._ledger.status()
        if status.epoch != self._ledger_epoch:
            self._ledger_epoch = status.epoch
            keeper.all_limits_dirty()
            self._search = True
        if self._search:
            await self._find_left_over()
            self._search = False
        names, closed = keeper.limits_dirty, keeper.closed
        if not (names or closed):
            return True
        # Taken before the first await: what is edited while the ledger answers is dirty again and is written again.
        keeper.limits_dirty, keeper.closed = set(), set()
        done = False
        try:
            done = await self._observe(names, closed, role_epoch)
        finally:
            if not done:
                for name in names | closed:
                    (keeper.limits_dirty if name in keeper.tree else keeper.closed).add(name)
        return done

    async def _find_left_over(self) -> None:
        """Quotas that were deleted while nobody led: their items are still open."""
        for item, there in (await self._ledger.items()).items():
            family, _, name = item.partition("/")
            if there.open and f"{family}/" in FAMILIES and name not in self._keeper.tree:
                self._keeper.closed.add(name)

    async def _observe(self, names: set[str], closed: set[str], role_epoch: int) -> bool:
        keeper = self._keeper
        observations: list[Observation] = [
            limit for name in names if name in keeper.tree for limit in keeper.limits(name)
        ]
        gone = [name for name in closed if name not in keeper.tree]
        observations.extend(ItemClosed(item) for name in gone for item in keeper.items_of(name))
        for start in range(0, len(observations), BATCH):
            batch = observations[start : start + BATCH]
            answer = await self._ledger.observe(batch, role="quota", role_epoch=role_epoch)
            if answer.status == "stale":
                self._log.warning("the ledger knows a newer quota leader; this one waits for its lease to end")
                return False
            if answer.status != "ok":
                return False
            _limits.inc(len(batch))
            for one in answer.nameless:
                self._log.warning(
                    "limits left out: too many resource names", name=one.item, resource=one.name, count=one.count
                )
            if answer.freed:
                await self._tell(answer.freed)
        return True

    async def _tell(self, items: Sequence[str]) -> None:
        """There is room again; a hint only, who waits looks for itself sooner or later."""
        try:
            await self._bus.publish(
                self._bus.subjects.ledger("claim.released"), encode(LedgerHint("released", list(items)))
            )
        except BusError as error:
            self._log.warning("a ledger hint was not published", error=str(error))
