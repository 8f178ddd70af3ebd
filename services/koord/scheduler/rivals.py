"""Pods that other schedulers placed and the API does not show yet: they count here, and what we plan leaves them room.

The ledger tells them with the answers to our claims (:mod:`koord.ledger.placements`). Each counts on its node like any
pod until the API shows it there, it ends, or the ledger has no record of it any more (its claim was given back, or its
lease is over). Only what it takes of the node's amounts is left out: that is the ledger's to judge. What counts came
before our own claim in the ledger's order, so a claim of ours whose placement is against a rule beside them is taken
back, and never one of theirs for ours.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable, Record
from koord.ledger.placements import Placement
from koord.scheduler import metrics
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.podview import PodShapeError, PodView
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.world import World
from koord.telemetry.logs import Logger

EVERY_S = 1.0
INTERESTED_S = 60.0
FOLLOW_S = 60.0
WAIT_S, POLL_S = 2.0, 0.005
STRANGE_S = 10.0
_GIVEN = msgspec.json.Decoder(dict[str, str])


class Rivals:
    """``view`` answers the pod of a key (``namespace/name``) as the API shows it."""

    def __init__(
        self,
        world: World,
        queue: SchedulingQueue,
        ledger: Ledger,
        view: Callable[[str], PodView | None],
        log: Logger,
    ) -> None:
        self._world = world
        self._queue = queue
        self._ledger = ledger
        self._view = view
        self._log = log
        self._nothing = world.engine.cluster.footprint({}, (0, 0))
        self._counted: dict[str, Placement] = {}
        self._strange: dict[str, tuple[Placement, float]] = {}
        self._doubted: set[str] = set()
        self._look = asyncio.Event()
        self._following = False
        self._interested = self._asked = float("-inf")
        self.came = 0
        """How many came to light since the start: whoever planned at another number has not seen all of them."""

    # Learning -------------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Before anything is read from the API: from here on nothing that others place is missed. What cannot be had
        because the ledger is away is made up for with the next look."""
        try:
            await self._ledger.follow_placements()
            found = [record async for record in self._ledger.flights()]
        except LedgerUnavailable:
            return
        self._following = True
        self._expect(found)

    def interested(self, now: float) -> None:
        """Something is claimed by rules about other pods: follow what they do for a while."""
        self._interested = now

    def absorb(self) -> None:
        """Count what was told since the last time, and what was told before its pod was known."""
        for placement in self._ledger.placements.take():
            self._place(placement)
        for placement, since in list(self._strange.values()) if self._strange else ():
            self._place(placement, since)

    @property
    def missing(self) -> bool:
        """Whether pods were placed that the API has yet to show."""
        return bool(self._strange)

    @property
    def missing_repels(self) -> bool:
        """Whether any of those may keep off pods that have no rule themselves."""
        return any(placement.repels for placement, _ in self._strange.values())

    @property
    def lost(self) -> bool:
        """Whether anything may have been placed of which nothing was told."""
        return not self._following or self._ledger.placements.lost

    async def known(self) -> bool:
        """Everything that was placed before the last answer counts. Waits a moment for pods that the API has yet to
        show; False: some are still missing, and what depends on them cannot be judged."""
        if not self._following or self._ledger.placements.lost:
            try:
                await self._read_all()
            except LedgerUnavailable:
                return False
        self.absorb()
        deadline = time.monotonic() + WAIT_S
        while self._strange and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
            self.absorb()
        if not self._strange:
            return True
        try:
            records = await self._ledger.records_of(list(self._strange))
        except LedgerUnavailable:
            return False
        now = time.monotonic()
        for uid, (placement, since) in list(self._strange.items()):
            if uid not in records:
                del self._strange[uid]
            elif now - since >= STRANGE_S:
                del self._strange[uid]
                self._log.warning("a pod that was placed is not in the API", pod=uid, node=placement.node)
        return not self._strange

    async def _read_all(self) -> None:
        """More was placed than the ledger kept of it, or it was away at the start: every record is looked at."""
        placements = self._ledger.placements
        placements.lost = False
        try:
            await self._ledger.follow_placements()
            placements.lost = False
            found = [record async for record in self._ledger.records()]
        except LedgerUnavailable:
            placements.lost = True
            raise
        self._following = True
        self._expect(found)

    def _expect(self, records: Iterable[Record]) -> None:
        now, ours = time.monotonic(), self._ledger.incarnation
        for record in records:
            uid = record.uid
            if record.node and record.owner != ours and uid not in self._counted:
                placement = Placement(record.owner, uid, record.node, record.namespace, record.name)
                self._strange.setdefault(uid, (placement, now))

    def _place(self, placement: Placement, since: float | None = None) -> None:
        uid, engine = placement.uid, self._world.engine
        before = engine.counted(uid)
        if before is not None and uid not in self._counted:
            # The API shows where it is; or we plan it ourselves, and the ledger tells us that we may not.
            self._strange.pop(uid, None)
            if engine.assumed(uid):
                self._counted[uid] = placement
            else:
                self.came += 1  # it may be there only since our claim was planned
            return
        view = self._view(f"{placement.namespace}/{placement.name}")
        if view is None or view.uid != uid:
            self._strange.setdefault(uid, (placement, time.monotonic() if since is None else since))
            return
        self._strange.pop(uid, None)
        if view.terminal or (view.spec.node_name and view.spec.node_name != placement.node):
            return
        self._count(view, placement)

    def _count(self, view: PodView, placement: Placement) -> None:
        uid = placement.uid
        try:
            pod = self._world.catalogue.assigned(view, placement.node)
        except PodShapeError as error:
            self._log.warning("a pod that another scheduler placed is not valid", pod=uid, error=str(error))
            return
        # Amounts are the ledger's to judge: a gang of higher rank may have what a claim only holds.
        pod = msgspec.structs.replace(pod, footprint=self._nothing)
        if placement.given:
            ref = pod.ref._replace(annotations={**pod.ref.annotations, **_GIVEN.decode(placement.given)})
            pod = msgspec.structs.replace(pod, ref=ref)
        if not pod.since:
            pod = msgspec.structs.replace(pod, since=time.time())
        self._counted[uid] = placement
        self._world.engine.count(pod)
        self.came += 1

    # Leaving --------------------------------------------------------------------------------------------------------

    def settled(self, uid: str) -> None:
        """The API shows the pod on a node, or it is gone: the world counts it, or not."""
        self._counted.pop(uid, None)
        if self._strange.pop(uid, None) is not None:
            self.came += 1  # claims that wait for it were planned without it

    def restore(self, uids: Iterable[str]) -> None:
        """We gave up plans for pods that others place: theirs count again."""
        for uid in uids:
            placement = self._counted.get(uid)
            if placement is not None and self._world.engine.counted(uid) is None:
                del self._counted[uid]
                self._place(placement)

    def doubt(self, uids: Iterable[str]) -> None:
        """Claims of these pods may have ended: ask the ledger at once."""
        doubted = self._counted.keys() & uids
        if doubted:
            self._doubted |= doubted
            self._look.set()

    def leave_alone(self, units: Sequence[Unit], now: float) -> Sequence[Unit]:
        """The units without those that another scheduler is placing; they are tried again when it gives them up."""
        if not self._counted:
            return units
        left: list[Unit] = []
        for unit in units:
            if self._counted.keys().isdisjoint(unit.pods):
                left.append(unit)
            else:
                self._queue.fail(unit, now, "another scheduler is placing it", counted=False)
        return left

    async def run(self) -> None:
        """Each second, and at once where there is doubt: what the ledger has no record of counts no longer."""
        while True:
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._look.wait()
            except TimeoutError:
                self._doubted |= self._counted.keys()
            self._look.clear()
            await self.look(time.monotonic())
            metrics.rivals.set(len(self._counted))

    async def look(self, now: float) -> None:
        """Follow what others do, if that is of interest or was not done for long, and ask about those in doubt."""
        interested = now - self._interested < INTERESTED_S
        try:
            if self._following and (interested or now - self._asked >= FOLLOW_S):
                self._asked = now
                await self._ledger.follow_placements(sees=interested)
            self.absorb()
            await self._review()
        except LedgerUnavailable:
            pass  # who watches the ledger says so

    async def _review(self) -> None:
        """Ask the ledger about those in doubt."""
        asked = {uid: self._counted[uid] for uid in self._doubted if uid in self._counted}
        self._doubted.clear()
        if not asked:
            return
        records = await self._ledger.records_of(list(asked))
        for uid, placement in asked.items():
            if self._counted.get(uid) is not placement:
                continue  # it was placed anew meanwhile
            record = records.get(uid)
            if record is None:
                self._end(uid)
            elif record.owner == self._ledger.incarnation:
                del self._counted[uid]  # they gave it up and we have it
            elif record.node != placement.node:
                self._counted.pop(uid)
                self._world.engine.uncount(uid)
                self._place(Placement(record.owner, uid, record.node, record.namespace, record.name))
            else:
                view = self._view(f"{placement.namespace}/{placement.name}")
                if view is not None and view.uid == uid and view.spec.node_name == placement.node:
                    del self._counted[uid]

    def _end(self, uid: str) -> None:
        del self._counted[uid]
        world, now = self._world, time.monotonic()
        if world.engine.assumed(uid):
            return
        gone = world.engine.uncount(uid)
        if gone is not None:
            world.events.add(ClusterEvent.POD_DELETE, gone)
        unit = world.unit_of(uid)
        if unit is not None and unit.state == "backoff":
            self._queue.activate(unit, now, ClusterEvent.LEDGER_RELEASE.value)
