"""Is the ledger what it should be? Records against objects, and what items say against the sums over records.

A record without an object is ended and an object without a record told, once they stay so for a while: state of
different sources travels side by side. Sums that do not agree cannot be put right record by record, and neither can a
record that stays wrong although it was put right: then the ledger is *damaged*, and only a rebuild helps.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from koord.ledger.client import Ledger
from koord.ledger.model import MAX_AMOUNT, Item, Observation, PodGone, Record, UnitGone, UnitUnbound
from koord.reconciler import metrics
from koord.reconciler.world import World
from koord.telemetry.logs import get_logger

log = get_logger("koord.reconciler.auditing")

SHARE: Final = 0.01
"""Looking at everything may take this part of the time, so it is rarer where there is more."""
PUT_RIGHT: Final = 2
"""How often one record is put right before the ledger counts as damaged."""
RESTLESS: Final = 10
"""Looks in a row in which an item changed, before its sums are taken in one step all the same."""
MOST: Final = 256
"""Items whose sums are taken in one step."""


class _Sum:
    __slots__ = ("held", "refs", "used")

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self.refs = 0

    def says(self, item: Item) -> bool:
        used = {key: amount for key, amount in self.used.items() if amount}
        held = {key: amount for key, amount in self.held.items() if amount}
        return (used, held, self.refs) == (item.used, item.held, item.refs)


class Auditor:
    """``await audit()`` now and then; ``tell`` folds observations (False: the ledger was rebuilt instead)."""

    def __init__(
        self,
        ledger: Ledger,
        world: World,
        tell: Callable[[Sequence[Observation]], Awaitable[bool]],
        *,
        audit_s: float,
        suspect_s: float,
    ) -> None:
        self._ledger = ledger
        self._world = world
        self._tell = tell
        self._audit_s = audit_s
        self._suspect_s = suspect_s
        self._suspects: dict[str, float] = {}
        self._put_right: Counter[str] = Counter()
        self._restless: Counter[str] = Counter()
        self._next_look_s = 0.0

    def forget(self) -> None:
        """The ledger was filled anew."""
        self._suspects.clear()
        self._put_right.clear()
        self._restless.clear()

    @property
    def wait_s(self) -> float:
        """When to audit again."""
        return self._suspect_s if self._suspects else self._audit_s

    async def audit(self) -> str:
        """Compare numbers each time, and everything when they differ or it is due. What is damaged, or nothing."""
        status = await self._ledger.status()
        metrics.LEDGER_OPEN.set(status.open)
        metrics.ITEMS.set(status.items)
        for state, count in (("HELD", status.held), ("BINDING", status.binding), ("OBSERVED", status.observed)):
            metrics.RECORDS.labels(state).set(count)
        live = self._world.folder.charged
        metrics.LIVE.set(live)
        now = time.monotonic()
        if status.observed == live and not self._suspects and now < self._next_look_s:
            return ""
        damage = await self._look_closer()
        took = time.monotonic() - now
        self._next_look_s = now + max(self._audit_s, took / SHARE)
        return damage

    async def _look_closer(self) -> str:
        now = time.monotonic()
        before = await self._ledger.items()
        recorded: set[str] = set()
        claimed: set[str] = set()
        suspects: dict[str, float] = {}
        ended: list[PodGone | UnitGone | UnitUnbound] = []
        astray: list[str] = []
        sums: dict[str, _Sum] = {}
        async for record in self._ledger.records():
            if record.uid in recorded or record.uid in claimed:
                continue  # a scan may show one twice
            _add(sums, record)
            if record.state == "HELD":  # it has a lease
                claimed.add(record.uid)
                continue
            recorded.add(record.uid)
            self._judge(record, now, suspects, ended)
            if record.state == "OBSERVED" and self._world.folder.astray(record.uid, record.takes):
                astray.append(record.uid)
        after = await self._ledger.items()
        missing = [uid for uid in self._world.folder.charged_uids() if uid not in recorded]
        for uid in missing:
            suspects[uid] = self._suspects.get(uid, now)
        again = [uid for uid in missing if now - suspects[uid] >= self._suspect_s]
        self._suspects = suspects
        damage = await self._sums(before, sums, after) or self._stubborn([*again, *(one.uid for one in ended)])
        if damage:
            return damage
        if astray:
            log.warning("charged elsewhere before their quota was there, moved", count=len(astray))
            metrics.DRIFT.labels("charged elsewhere").inc(len(astray))
            await self._tell(self._world.again(astray, recharge=True))
        if ended or again:
            log.warning("records did not match the objects", ended=len(ended), missing=len(again))
            metrics.DRIFT.labels("record without object").inc(len(ended))
            metrics.DRIFT.labels("object without record").inc(len(again))
            await self._tell([*ended, *self._world.again(again)])
        return ""

    def _judge(
        self, record: Record, now: float, suspects: dict[str, float], ended: "list[PodGone | UnitGone | UnitUnbound]"
    ) -> None:
        key = f"{record.namespace}/{record.name}" if record.namespace else record.name
        there = self._world.live(record.uid, key) if record.state == "OBSERVED" else self._world.exists(record.uid, key)
        if there:
            return
        since = suspects[record.uid] = self._suspects.get(record.uid, now)
        if now - since < self._suspect_s:
            return
        namespace, name = record.namespace, record.name
        if record.node:
            ended.append(PodGone(record.uid, namespace, name))
        elif self._world.exists(record.uid, key):
            ended.append(UnitUnbound(record.uid, namespace, name))
        else:
            ended.append(UnitGone(record.uid, namespace, name))

    def _stubborn(self, uids: Iterable[str]) -> str:
        """Records that were put right before and are wrong again."""
        self._put_right = Counter({uid: self._put_right[uid] + 1 for uid in uids})
        worst = [uid for uid, times in self._put_right.items() if times > PUT_RIGHT]
        return f"{len(worst)} records stay wrong, one of {worst[0]}" if worst else ""

    async def _sums(self, before: Mapping[str, Item], sums: Mapping[str, _Sum], after: Mapping[str, Item]) -> str:
        """Items that do not say what the records say.

        Items and records are read one after the other. An item that was the same before and after, with other sums, is
        looked at again in one step; so is one that was never the same for many looks.
        """
        doubtful, restless, nothing = list[str](), Counter[str](), Item({}, {}, {})
        for name in {*before, *sums, *after}:
            item = after.get(name, nothing)
            if before.get(name, nothing) != item:
                restless[name] = self._restless[name] + 1
                if restless[name] >= RESTLESS:
                    doubtful.append(name)
            elif not sums.get(name, _EMPTY).says(item):
                doubtful.append(name)
        self._restless = restless
        if not doubtful:
            return ""
        exact = await self._ledger.sums(sorted(doubtful)[:MOST])
        for name in exact:
            self._restless[name] = 0
        wrong = sorted(name for name, found in exact.items() if not found.right)
        if not wrong:
            return ""
        metrics.DRIFT.labels("item").inc(len(wrong))
        first = exact[wrong[0]]
        log.error("an item is not the sum of its records", item=wrong[0], says=repr(first.item), records=repr(first))
        return f"{len(wrong)} items are not the sums of their records, one of {wrong[0]}"


_EMPTY: Final = _Sum()


def _add(sums: dict[str, _Sum], record: Record) -> None:
    observed = record.state == "OBSERVED"
    for take in record.takes:
        total = sums.get(take.item)
        if total is None:
            total = sums[take.item] = _Sum()
        total.refs += 1
        part = total.used if observed else total.held
        for key, amount in take.amounts.items():
            part[key] += max(-MAX_AMOUNT, min(MAX_AMOUNT, amount))
