"""Is the ledger what it should be? Records against objects, and what items say against the sums over records.

A record without an object is ended and an object without a record told, once they stay so for a while: state of
different sources travels side by side. Sums that do not agree cannot be put right record by record, and neither can a
record that stays wrong although it was put right: then the ledger is *damaged*, and only a rebuild helps.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from koord.ledger.client import Ledger
from koord.ledger.model import MAX_AMOUNT, SHARED, Item, Observation, PodGone, Record, UnitGone, UnitUnbound
from koord.ledger.reader import PARTS, Part
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
        return self.refs == item.refs and all(
            _listed(ours, says) == says for ours, says in ((self.used, item.used), (self.held, item.held))
        )


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
        self._level = False

    def level(self) -> None:
        """The caches hold all that can have been folded, and only what was folded is OBSERVED: a record of that kind
        without an object is of one that went while nobody reconciled, and the next audit ends it without waiting."""
        self._level = True

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
        damage = await self._faults(COUNTS)
        due = self._level or now >= self._next_look_s  # what the caches hold is level only now, so it is looked at now
        if not damage and status.observed == live and not self._suspects and not due:
            return ""
        # First what can be read at all: what follows reads it.
        damage = damage or await self._faults() or await self._look_closer()
        took = time.monotonic() - now
        self._next_look_s = now + max(self._audit_s, took / SHARE)
        return damage

    async def _look_closer(self) -> str:
        now = time.monotonic()
        level, self._level = self._level, False
        before = await self._ledger.items()
        recorded: set[str] = set()
        claimed: set[str] = set()
        suspects: dict[str, float] = {}
        orphans: list[Record] = []
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
            if self._orphaned(record):
                suspects[record.uid] = self._suspects.get(record.uid, now)
                if now - suspects[record.uid] >= self._suspect_s or (level and record.state == "OBSERVED"):
                    orphans.append(record)
            elif record.state == "OBSERVED" and self._world.folder.astray(record.uid, record.takes):
                astray.append(record.uid)
        after = await self._ledger.items()
        missing = [uid for uid in self._world.folder.charged_uids() if uid not in recorded]
        for uid in missing:
            suspects[uid] = self._suspects.get(uid, now)
        again = [uid for uid in missing if now - suspects[uid] >= self._suspect_s]
        self._suspects = suspects
        if astray:
            log.warning("charged elsewhere than where they belong in the tree now, moved", count=len(astray))
            metrics.DRIFT.labels("charged elsewhere").inc(len(astray))
            await self._tell(self._world.recharged(astray))
        stubborn = await self._put_in_order(orphans, again)
        return await self._sums(before, sums, after) or stubborn

    def _orphaned(self, record: Record) -> bool:
        """Whether there is no object that the record could stand for."""
        key = f"{record.namespace}/{record.name}" if record.namespace else record.name
        if record.state == "OBSERVED":
            return not self._world.live(record.uid, key)
        return not self._world.exists(record.uid, key)

    async def _put_in_order(self, orphans: Sequence[Record], again: Sequence[str]) -> str:
        """End the records without an object, and tell the objects without a record; what does not help, or nothing."""
        if not orphans and not again:
            self._put_right.clear()
            return ""
        # Who reads late knows less objects than there are; whose record ended is not charged again for a while.
        if not await self._world.level():
            log.warning("records do not match the objects, but state is late: not judged", records=len(orphans))
            return ""
        ended = [self._end_of(record) for record in orphans if self._orphaned(record)]
        due = [*again, *(one.uid for one in ended)]
        stubborn = {uid for uid in due if self._put_right[uid] >= PUT_RIGHT}
        if due:
            log.warning("records did not match the objects", ended=len(ended), missing=len(again))
            metrics.DRIFT.labels("record without object").inc(len(ended))
            metrics.DRIFT.labels("object without record").inc(len(again))
            await self._tell([*ended, *self._world.again(again)])
        self._put_right = Counter({uid: self._put_right[uid] + 1 for uid in due})
        return f"{len(stubborn)} records stay wrong, one of {min(stubborn)}" if stubborn else ""

    def _end_of(self, record: Record) -> PodGone | UnitGone | UnitUnbound:
        namespace, name = record.namespace, record.name
        if record.node:
            return PodGone(record.uid, namespace, name)
        if self._world.exists(record.uid, f"{namespace}/{name}"):
            return UnitUnbound(record.uid, namespace, name)
        return UnitGone(record.uid, namespace, name)

    async def _faults(self, of: Collection[Part] = PARTS) -> str:
        """What no sum shows: claims that do not agree with their records, slots that nobody can give back, counts."""
        found = [fault async for fault in self._ledger.faults(of)]
        if not found:
            return ""
        for fault in found:
            metrics.DRIFT.labels(fault.kind).inc()
        return f"{len(found)} faults, one of {found[0].kind} {found[0].name}: {found[0].text}"

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


COUNTS: Final[tuple[Part, ...]] = ("counts",)
_EMPTY: Final = _Sum()


def _listed(sums: Mapping[str, int], says: Mapping[str, int]) -> dict[str, int]:
    """``sums`` as an item keeps them that ``says``: names without a column in one."""
    found = {key: amount for key, amount in sums.items() if amount}
    if SHARED in says:
        odd = [key for key in found if key not in says]
        found[SHARED] = sum(found.pop(key) for key in odd)
    return found


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
