"""The gateway's part of a ledger rebuild (spec 20 section 3.12, "Loss and rebuild", step 1).

A ledger that lost what it held is filled from what the API shows. That is right only if no write of before can still
succeed unseen, so first: nothing is bound any more; the objects of all decisions that nobody acknowledged get a new
version, which makes every older request fail; the ledger's epoch goes up, in the API, where no loss of Redis reaches
it; and only then everything is listed, with a mark in the state stream behind it.

The question is asked again and again until the barrier is done. A gateway that dies in between is followed by one that
has not heard of it and begins afresh; a reconciler that dies is followed by one that asks with another id. Every step
may be done twice.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from koord.bus.errors import BusError
from koord.contracts.asks import BarrierRaised, RaiseBarrier
from koord.contracts.decisions import Bind, Decision, ObjectRef, Patch
from koord.gateway import metrics
from koord.gateway.advancing import Advancer
from koord.gateway.allow import describe
from koord.gateway.api import Api
from koord.gateway.guarantees import Guarantees
from koord.gateway.ledgerlease import LEASE, LedgerLease, notes_of
from koord.gateway.livemark import LIVE, LiveMark
from koord.gateway.persisting import AGAIN_S, persist
from koord.gateway.podindex import PodIndex
from koord.gateway.settling import Unsettleable, settle
from koord.gateway.unbound import settle_unbound
from koord.kube.resources import BY_TOKEN, PODS
from koord.runtime.ending import end, finish
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.barrier")

EPOCH: Final = "koord.sh/ledger-epoch"
"""Annotation of the Lease: the highest epoch that a ledger of this cluster has had."""
QUEUE: Final = "koord.sh/decisions-stream"
"""Annotation of the Lease: the life of the decisions' stream when the epoch was raised."""
MAX_EPOCH: Final = 2**52
"""Numbers of the ledger are exact up to twice this."""
_ANSWER_S: Final = 2.0
_TELL_S: Final = 5.0
_AT_A_TIME: Final = 64
_AWAY_S: Final = 5.0
"""An API server that takes longer for one Lease did not work on anything just now."""


class Lister(Protocol):
    """One resource that is followed."""

    async def list_anew(self, mark: str) -> None:
        """List with a consistent read, publish the differences and then the mark."""
        ...


class Barrier:
    """Answers :class:`RaiseBarrier` for one term of leadership. ``step`` says where the present one is.

    ``queued`` pages through the decisions that nobody acknowledged, ``queue_made`` says when that queue was made (RFC
    3339), ``in_hand`` are the decisions that this gateway has, ``listers`` follow the resources, by token; ``mark`` is
    that of the term, if it executes decisions that no queue holds.
    """

    def __init__(
        self,
        api: Api,
        pods: PodIndex,
        advancer: Advancer,
        queued: Callable[[], AsyncIterator[list[Decision]]],
        queue_made: Callable[[], Awaitable[str]],
        in_hand: Callable[[], Iterable[Decision]],
        listers: Mapping[str, Lister],
        incarnation: str,
        *,
        mark: LiveMark | None = None,
        namespace: str = "koord-system",
        api_timeout_s: float = 60.0,
        guarantees: Guarantees | None = None,
    ) -> None:
        self._guarantees = guarantees or Guarantees.full()
        self.step = "done"
        self._api = api
        self._pods = pods
        self._advancer = advancer
        self._queued = queued
        self._queue_made = queue_made
        self._in_hand = in_hand
        self._listers = listers
        self._incarnation = incarnation
        self._lease = LedgerLease(api, namespace)
        self._mark = mark or LiveMark(self._lease)
        self._api_timeout_s = api_timeout_s
        self._began_s = time.monotonic()
        self._newest = 0
        self._id = ""
        self._running: asyncio.Task[BarrierRaised] | None = None
        self._closed = False

    async def answer(self, question: RaiseBarrier) -> BarrierRaised:
        """How far the barrier of the question is; it is begun if it is another than the present one.

        ValueError names what is wrong with the question.
        """
        if self._closed:
            raise ValueError(f"barrier {question.id!r}: this gateway does not lead any more")
        unknown = [token for token in question.resources if token not in self._listers]
        if unknown or not question.id:
            raise ValueError(f"barrier {question.id!r}: resources: not known: {unknown}")
        if question.role_epoch < self._newest:
            raise ValueError(f"barrier {question.id!r}: role_epoch: a newer reconciler has asked")
        self._newest = question.role_epoch
        if self._running is None or question.id != self._id:
            # In one step: questions are answered side by side, and of two barriers one would end the other's stop.
            self._id, before = question.id, self._running
            self._running = asyncio.create_task(self._run_after(before, question), name="gateway-barrier")
        running = self._running
        await asyncio.wait((running,), timeout=_ANSWER_S)
        if not running.done() or running.cancelled():
            return BarrierRaised(question.id, self.step)
        if (error := running.exception()) is not None:
            log.error("the barrier failed, it begins afresh when it is asked for again", id=question.id, exc_info=error)
            self._running = None
        return running.result()

    async def close(self) -> None:
        """End what is under way; the term is over, and another gateway raises barriers from now on."""
        self._closed = True
        await end(self._running)
        self._running = None

    async def _run_after(self, before: "asyncio.Task[BarrierRaised] | None", question: RaiseBarrier) -> BarrierRaised:
        await finish(end(before))
        return await self._run(question)

    async def _run(self, question: RaiseBarrier) -> BarrierRaised:
        began = time.monotonic()
        log.info("barrier: no claim is spent until it is done", id=question.id)
        self._advancer.stopped = True
        try:
            settled = 0
            while True:
                self.step = "settling"
                life = await persist(self._queue_made)
                if not await self._guarantees.outlived():
                    try:
                        settled += await self._unknown(life)
                    finally:
                        self.step = "settling"
                        metrics.UNSETTLED.set(0)
                settled += await self._settle()
                self.step = "raising"
                epoch = await persist(partial(self._raise, question.epoch, life))
                if await persist(self._queue_made) == life:
                    break
                log.warning("barrier: the decisions were lost meanwhile, once more")
            listing = time.monotonic()
            self.step = "listing"
            await asyncio.gather(*(self._listers[token].list_anew(question.id) for token in question.resources))
        finally:
            self._advancer.stopped = False
        self.step = "done"
        done = time.monotonic()
        metrics.BARRIERS.inc()
        metrics.BARRIER_SECONDS.observe(done - began)
        log.info(
            "barrier done",
            id=question.id,
            epoch=epoch,
            settled=settled,
            seconds=round(done - began, 3),
            listing_s=round(done - listing, 3),
        )
        return BarrierRaised(question.id, "done", epoch, self._advancer.role_epoch, self._incarnation, settled)

    # Settling -----------------------------------------------------------------------------------------------------

    async def _unknown(self, life: str) -> int:
        """See that no request of an earlier gateway can succeed that this one cannot name; how many objects that took.

        Those of this gateway are known. An earlier one may have sent some on a decision of a stream that was lost, or
        on one that no stream held yet; and where nothing is noted nobody knows that there was none. Each would write
        something that is still unbound: all of that is settled, or the requests are outlived, whichever is sooner.
        """
        notes = notes_of(await persist(self._lease.read))
        left = max(self._lost(notes.get(QUEUE, ""), life), self._live(notes.get(LIVE, "")))
        if left <= 0:
            return 0
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(left):
                    settled, refused = await settle_unbound(self._api, self._progress())
                break
            except TimeoutError:
                asked = time.monotonic()
                await persist(self._lease.read)
                if time.monotonic() - asked < _AWAY_S:
                    log.info("barrier: what an earlier gateway may have sent is outlived")
                    return 0
                # It did not work on those requests meanwhile, and may do so now.
                log.warning("barrier: the API server was away, once more")
        log.info("barrier: what an earlier gateway may have sent is settled", objects=settled)
        if refused:
            self._tell_refused(refused)
            await asyncio.sleep(max(0.0, left - (time.monotonic() - began)))
        return settled

    def _progress(self) -> Callable[[int, int], None]:
        """Tells now and then how far it is: of ten thousand pods it may take a minute."""
        told_s = time.monotonic()

        def tell(done: int, of: int) -> None:
            nonlocal told_s
            metrics.UNSETTLED.set(of - done)
            self.step = f"settling, {done:,} of {of:,} unbound objects"
            if time.monotonic() - told_s > _TELL_S:
                told_s = time.monotonic()
                log.warning("barrier: what an earlier gateway may have sent is being settled", done=done, of=of)

        return tell

    def _lost(self, before: str, life: str) -> float:
        """How long requests of decisions that are not in this queue may still be under way: ``before`` is noted.

        Without a note nobody was here, or somebody deleted the Lease. How old this term and this stream are tells
        nothing: a decision that this gateway had when its stream was lost is retried for longer than a minute and
        then in no queue, and a gateway before it may have been stopped and go on at any time.
        """
        return 0.0 if before == life else self._api_timeout_s

    def _live(self, noted: str) -> float:
        until = self._mark.earlier(noted)
        if not until:
            return 0.0
        # An earlier gateway spends no claim any more since this one leads, whatever its clock says.
        return self._api_timeout_s - max(time.time() - until, time.monotonic() - self._began_s)

    async def _settle(self) -> int:
        """Settle what unacknowledged decisions would write with a claim; answers how many objects that is."""
        seen: set[str] = set()
        refused: list[str] = []
        gate = asyncio.Semaphore(_AT_A_TIME)

        async def one(target: ObjectRef) -> None:
            resource = BY_TOKEN[target.resource]
            async with gate:
                try:
                    await persist(lambda: settle(self._api, resource, target.namespace, target.name, target.uid))
                except Unsettleable as error:
                    refused.append(f"{describe(target)}: {error}")

        async def these(decisions: Iterable[Decision]) -> None:
            targets = [target for decision in decisions for target in _targets(decision) if target.uid not in seen]
            seen.update(target.uid for target in targets)
            await asyncio.gather(*map(one, filter(self._unbound, targets)))

        await these(list(self._in_hand()))  # first: what ends meanwhile is acknowledged, and in no page
        while True:
            try:
                async for page in self._queued():
                    await these(page)
                break
            except BusError as error:
                log.warning("barrier: the decisions cannot be read", error=str(error))
                await asyncio.sleep(AGAIN_S)
        if refused:
            # One object that cannot be written must not keep the ledger closed: what was sent for it ends in time.
            self._tell_refused(refused)
            await asyncio.sleep(self._api_timeout_s)
        return len(seen)

    @staticmethod
    def _tell_refused(refused: Sequence[str]) -> None:
        log.error("barrier: not settled, waiting for old requests", objects=refused[:10], count=len(refused))

    def _unbound(self, target: ObjectRef) -> bool:
        """Whether it may still be written: a node that the watch has shown never goes back."""
        if target.resource != PODS.token:
            return True
        sight = self._pods.get(target.namespace, target.name, target.uid)
        return sight is None or not sight.node

    # The epoch ----------------------------------------------------------------------------------------------------

    async def _raise(self, at_least: int, life: str) -> int:
        """Raise the counter in the Lease by compare-and-set; it never goes back, whatever Redis remembers."""
        while True:
            lease = await self._lease.read()
            counter = _counter(lease)
            # From the clock, as the ledger's own epochs, so that a Lease that somebody deleted does not begin anew.
            epoch = max(counter + 1, at_least, time.time_ns() // 1_000_000)
            if await self._lease.write(lease, {EPOCH: str(epoch), QUEUE: life}):
                return epoch


def _counter(lease: dict[str, Any] | None) -> int:
    text = notes_of(lease).get(EPOCH, "")
    if not text:
        return 0
    counter = int(text) if text.isdecimal() and len(text) < 18 else MAX_EPOCH
    if counter >= MAX_EPOCH:
        log.error("no epoch, counting from the clock", lease=LEASE, annotation=EPOCH, value=text[:40])
        return 0
    return counter


def _targets(decision: Decision) -> Sequence[ObjectRef]:
    """What a decision writes by spending a claim."""
    if isinstance(decision, Bind):
        return [ObjectRef(PODS.token, one.namespace, one.name, one.uid) for one in decision.members]
    if isinstance(decision, Patch) and decision.claim is not None and decision.target.resource in BY_TOKEN:
        return [decision.target]
    return ()
