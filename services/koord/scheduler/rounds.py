"""One round with the ledger: the plans of a batch are claimed in one trip, and each answer has its consequence.

What is accepted is published. What is refused is masked and planned again, three times in a row at most; then the unit
backs off, unless what is left of its plan can be kept for it for a while (:mod:`koord.scheduler.nominating`).
"""

import time
from collections.abc import Callable, Iterable, Sequence

import msgspec
from prometheus_client import Counter

from koord.accounting.takes import NODE
from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.contracts.decisions import ObjectRef
from koord.contracts.ledger import LedgerHint
from koord.kube import resources
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimAnswer, ClaimRequest, LedgerRefused, LedgerUnavailable, Release, Wounded
from koord.ledger.nominations import NominateAnswer, NominateRequest
from koord.ledger.wire import check_claim
from koord.scheduler import metrics
from koord.scheduler.binds import Binds
from koord.scheduler.claiming import GANG_SLOT, Claims, Planned
from koord.scheduler.corrections import Corrections
from koord.scheduler.flights import Flight
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.nominating import KEEP_S, Nominating
from koord.scheduler.notices import Notices
from koord.scheduler.outgoing import Outgoing
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.returning import Returning
from koord.scheduler.withdrawing import Withdrawing
from koord.scheduler.world import World
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import Logger
from koord.telemetry.spans import Spans

CONFLICTS_IN_A_ROW = 3


class _Offer(msgspec.Struct):
    """A nomination to ask for, and what to say of its unit if it is not to be had."""

    plan: Planned
    request: NominateRequest
    message: str
    trace: TraceContext


class ClaimRounds:
    """``claim`` what was planned. ``close`` is told why nothing can be claimed any more."""

    def __init__(
        self,
        world: World,
        queue: SchedulingQueue,
        claims: Claims,
        binds: Binds,
        notices: Notices,
        corrections: Corrections,
        nominating: Nominating,
        *,
        bus: Bus,
        ledger: Ledger,
        outgoing: Outgoing,
        spans: Spans,
        log: Logger,
        profile: str,
        close: Callable[[str], None],
    ) -> None:
        self._world = world
        self._queue = queue
        self._claims = claims
        self._binds = binds
        self._notices = notices
        self._nominating = nominating
        self._returning = Returning(world, queue, notices, corrections, self._restore)
        self._bus = bus
        self._ledger = ledger
        self._outgoing = outgoing
        self._spans = spans
        self._log = log
        self._close = close
        self._profile = profile
        self.withdrawing: Withdrawing | None = None
        """Where others may place pods, too: takes back what their pods forbid."""
        self._scheduled: dict[str, Counter] = {}
        self._unanswered: list[ClaimRequest] = []
        self._counters: dict[tuple[str, str], Counter] = {}

    async def give_back_unanswered(self) -> bool:
        """Give back what claims hold whose answers were lost; False: the ledger is away or closed.

        They may have been accepted. Their pods are planned anew under other claims, which the ledger refuses as long as
        these have them; and they would keep them for good, because renewing our leases renews theirs. Asked again, an
        accepted claim tells its token.
        """
        if not self._unanswered:
            return True
        requests = [msgspec.structs.replace(request, wound=False) for request in self._unanswered]
        try:
            answers = await self._ledger.claim(requests)
            if any(answer.status == "closed" for answer in answers):
                self._close("the ledger is closed")
                return False
            held = [
                Release(request.id, answer.token)
                for request, answer in zip(requests, answers, strict=True)
                if answer.status == "ok"
            ]
            await self._ledger.release(held)
        except LedgerUnavailable as error:
            self._close(f"ledger unavailable: {error}")
            return False
        del self._unanswered[: len(requests)]
        if held:
            self._log.warning("claims whose answers were lost are given back", claims=len(held))
            self._world.events.add(ClusterEvent.LEDGER_RELEASE)
        return True

    @property
    def came(self) -> int:
        """How many pods of others came to light so far."""
        return self.withdrawing.rivals.came if self.withdrawing is not None else 0

    async def claim(self, planned: list[Planned], began_ns: int, planned_ns: int, came: int = 0) -> None:
        """Claim what was planned from ``began_ns`` to ``planned_ns`` (wall clock, nanoseconds), with ``came`` pods of
        others in view."""
        requests: list[ClaimRequest] = []
        sent: list[tuple[Planned, TraceContext, TraceContext]] = []
        spans = self._spans
        for plan in planned:
            many = len(plan.members)
            parent = self._claims.trace(plan)
            context = spans.record(
                "scheduler.plan",
                parent=parent,
                start_ns=began_ns,
                end_ns=planned_ns,
                attributes={"pods": many, "gang": plan.unit.group} if many > 1 else None,
                pod=many == 1,
            )
            claim_context = spans.reserve(context)
            request = self._claims.request(plan, claim_context)
            if self.withdrawing is not None:
                request = self.withdrawing.marked(plan, request, time.monotonic())
            try:
                check_claim(request)
            except LedgerRefused as error:
                self._returning.give_back(plan, time.monotonic(), str(error))
                continue
            requests.append(request)
            sent.append((plan, context, claim_context))
        if not requests:
            return
        start, start_ns = time.perf_counter(), time.time_ns()
        try:
            answers = await self._ledger.claim(requests)
        except LedgerUnavailable as error:
            self._close(f"ledger unavailable: {error}")
            self._unanswered += requests
            for plan, _, _ in sent:
                self._returning.give_back(plan, time.monotonic(), "ledger unavailable", again=True)
            return
        metrics.claim_seconds.observe(time.perf_counter() - start)
        end_ns = time.time_ns()
        metrics.attempt_seconds.observe((end_ns - began_ns) / 1e9)
        faults: dict[str, str] = {}
        if self.withdrawing is not None:
            faults = await self.withdrawing.faults([plan for plan, _, _ in sent], requests, answers, came)
        now = time.monotonic()
        accepted: list[Flight] = []
        wounded: list[Wounded] = []
        offers: list[_Offer] = []
        for (plan, plan_context, context), request, answer in zip(sent, requests, answers, strict=True):
            many = len(plan.members)
            self._count(answer.status, "gang" if plan.unit.group else "pod")
            if answer.status != "ok" or spans.keeps(context, start_ns, end_ns):
                spans.record(
                    "ledger.claim",
                    parent=plan_context,
                    context=context,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    attributes={"claim": request.id, "result": answer.status, "pods": many},
                    error=None if answer.status == "ok" else _reason(answer),
                    pod=many == 1,
                )
            if answer.status == "ok":
                wounded += answer.wounded
                if request.id in faults:
                    self._withdrawn(plan, faults[request.id], plan_context, end_ns)
                    continue
                accepted += self._accepted(plan, request, answer, context, now)
            elif (offer := self._refused(plan, request, answer, plan_context, now)) is not None:
                offers.append(offer)
        for flight in accepted:
            try:
                await self._bus.room()
            except BusError as error:
                self._log.warning("the bus takes nothing at the moment", error=str(error))
            self._binds.publish(flight)
        if wounded:
            await self._tell_wounded(wounded)
        for offer in offers:
            await self._nominate(offer)

    def _restore(self, uids: Iterable[str]) -> None:
        if self.withdrawing is not None:
            self.withdrawing.rivals.restore(uids)

    def _withdrawn(self, plan: Planned, why: str, trace: TraceContext, since_ns: int) -> None:
        """The claim was given back: others had placed pods that forbid it. Planned anew, they are seen."""
        metrics.withdrawn.inc()
        now_ns, unit = time.time_ns(), plan.unit
        self._spans.record(
            "scheduler.withdraw",
            parent=trace,
            start_ns=since_ns,
            end_ns=now_ns,
            attributes={"pods": len(plan.members)},
            error=why,
            pod=len(plan.members) == 1,
        )
        unit.conflicts += 1
        again = unit.conflicts < CONFLICTS_IN_A_ROW
        if not again:
            unit.conflicts = 0
        self._returning.give_back(
            plan, time.monotonic(), f"taken back beside others' pods: {why}", again=again, counted=False
        )

    def _count_scheduled(self, plan: Planned) -> None:
        """Under the profile of the first, as with those that find no place."""
        name = plan.members[0][0].class_.profile.scheduler_name or self._profile
        made = self._scheduled.get(name)
        if made is None:
            made = self._scheduled[name] = metrics.attempts.labels("scheduled", name)
        made.inc(len(plan.members))

    def _count(self, status: str, kind: str) -> None:
        made = self._counters.get((status, kind))
        if made is None:
            made = self._counters[status, kind] = metrics.claims.labels(status, kind)
        made.inc()

    def _accepted(
        self, plan: Planned, request: ClaimRequest, answer: ClaimAnswer, trace: TraceContext, now: float
    ) -> list[Flight]:
        """Flights to publish now: this one and what was held for its group; none while the group only waits."""
        unit = plan.unit
        unit.conflicts = 0
        self._claims.refusals.accepted(unit.key)
        self._nominating.ended(unit.key)
        gone = [pod.uid for pod, _ in plan.members if pod.uid not in self._world.pending]
        if gone:
            for uid in gone:
                self._world.engine.forget(uid)
            # Members that went while the ledger was asked. A Strict gang is planned anew, others go on without them.
            if unit.group and request.strict:
                self._binds.release(Release(request.id, answer.token))
                self._returning.give_back(plan, now, "a member of the gang is gone", again=True)
                return []
            self._binds.release(Release(request.id, answer.token, tuple(gone)))
            plan.members = [(pod, placed) for pod, placed in plan.members if pod.uid not in gone]
            if not plan.members:
                self._returning.leave(plan, now)
                return []
        flight = self._claims.flight(plan, request, answer, trace)
        flight.began = unit.popped_at
        self._binds.hold(flight, unit.since, unit.attempts)
        for guest in plan.guests:
            self._binds.entered([uid for uid in guest.pods if uid in flight.members], guest.since, guest.attempts)
        planned = [pod for pod, _ in plan.members]
        for each in plan.units if plan.guests else (unit,):
            metrics.pod_attempts.observe(each.attempts)
            self._world.planned(each, planned)
        self._count_scheduled(plan)
        self._returning.leave(plan, now)
        if not plan.complete:
            gang = self._world.book.of(next(iter(flight.members)))
            if gang is not None:
                self._binds.wait_for_members(unit.group, now + self._world.book.wait_s(gang))
            return []
        if not unit.group:
            return [flight]
        metrics.gang_wait_seconds.observe(now - unit.since)
        return self._binds.complete(unit.group)

    async def _tell_wounded(self, wounded: Sequence[Wounded]) -> None:
        """The owners of the claims that made room plan them anew at once."""
        claims = [one.claim for one in wounded]
        self._log.info("claims of lower rank made room", wounded=claims)
        items = sorted({item for one in wounded for item in one.items})
        hint = LedgerHint("released", items, [uid for one in wounded for uid in one.uids], claims)
        await self._outgoing.hint(hint)  # the reconciler tells them too, with what expired

    def _refused(
        self, plan: Planned, request: ClaimRequest, answer: ClaimAnswer, trace: TraceContext, now: float
    ) -> _Offer | None:
        """The unit is planned again or backs off; if room is to be kept for it first, that is answered."""
        unit = plan.unit
        if answer.status in ("epoch", "closed"):
            if answer.status == "closed":
                self._close("the ledger is closed")
            self._returning.give_back(plan, now, "ledger unavailable", again=True)
            return None
        if answer.status != "conflict":
            # Busy: a record of an earlier claim, or a pod that ended; the state stream or the lease will tell. That is
            # no error of the pod's: it is asked again at a steady pace, for the last member of a gang may be waiting.
            text = f"claim {answer.status}: {answer.busy_uid} {answer.busy_claim}".rstrip()
            self._returning.give_back(plan, now, text, counted=False)
            return None
        # First what we took ourselves goes, then the columns are masked to what the ledger has left.
        self._returning.forget(plan)
        self._returning.mask(answer.shorts, now)
        self._returning.mask_slots(plan, answer.shorts, now)
        slot = any(short.kind == "slot" and short.item.startswith(GANG_SLOT) for short in answer.shorts)
        unit.conflicts += 1
        if unit.pods:
            self._claims.refusals.refused(unit.key, now)
        if unit.conflicts < CONFLICTS_IN_A_ROW and not slot:
            self._returning.give_back(plan, now, "ledger conflict", again=True)
            return None
        unit.conflicts = 0
        nodes = {short.item for short in answer.shorts if short.item.startswith(NODE)}
        message = f"ledger conflict on {len(nodes)} nodes: {_reason(answer)}"
        wanted = None
        if unit.pods and not plan.job:  # a plan names its nodes, whatever is kept elsewhere
            wanted = self._nominating.request(unit.key, request, answer.shorts, now)
        if wanted is not None:
            return _Offer(plan, wanted, message, trace)
        self._returning.back_off(plan, now, message, tell=not slot)
        return None

    async def _nominate(self, offer: _Offer) -> None:
        """Have room kept, then plan the unit again at once; if it is not to be had the unit backs off."""
        plan, request = offer.plan, offer.request
        unit, start_ns = plan.unit, time.time_ns()
        kind = "gang" if unit.group else "pod"
        try:
            [answer] = await self._ledger.nominate([request])
        except LedgerUnavailable as error:
            self._close(f"ledger unavailable: {error}")
            self._returning.give_back(plan, time.monotonic(), "ledger unavailable", again=True)
            return
        now = time.monotonic()
        metrics.nominations.labels(answer.status, kind).inc()
        self._spans.record(
            "ledger.nominate",
            parent=offer.trace,
            start_ns=start_ns,
            end_ns=time.time_ns(),
            attributes={"nomination": request.id, "result": answer.status, "pods": len(request.members)},
            error=None if answer.status == "ok" else _reason(answer),
            pod=not unit.group,
        )
        if answer.status == "ok":
            self._nominating.kept(unit.key, request, now)
            self._tell_kept(plan, request, offer.message)
            self._returning.give_back(plan, now, offer.message, again=True)
        elif answer.status == "conflict":
            self._returning.mask(answer.shorts, now)
            self._returning.back_off(plan, now, offer.message)
        else:
            self._returning.give_back(
                plan, now, f"nomination {answer.status}", again=answer.status != "busy", counted=False
            )

    def _tell_kept(self, plan: Planned, request: NominateRequest, why: str) -> None:
        pods, nodes = len(request.members), len({member.node for member in request.members})
        text = f"room of {pods} pods on {nodes} nodes is kept for {KEEP_S:g} s: {why}"
        self._log.info("room is kept for a unit that was refused again and again", unit=plan.unit.key, pods=pods)
        ref = plan.members[0][0].ref
        gang = self._world.book.of(ref.uid) if plan.unit.group else None
        group_uid = self._world.book.pod_group_uids.get(gang.ref.id) if gang is not None else None
        if gang is None or group_uid is None:
            self._notices.inform(
                ObjectRef(resources.PODS.token, ref.namespace, ref.name, ref.uid), "Pod", "RoomKept", text
            )
            return
        group = ObjectRef(resources.POD_GROUPS.token, gang.ref.namespace, gang.ref.name, group_uid)
        self._notices.inform(
            group, resources.POD_GROUPS.kind, "RoomKept", text, api_version=resources.POD_GROUPS.api_version
        )


def _reason(answer: ClaimAnswer | NominateAnswer) -> str:
    if answer.shorts:
        short = answer.shorts[0]
        what = f"{short.item} {short.key}".rstrip()
        return f"{answer.status}: {what}: {short.kind}, needed {short.needed}, available {short.available}"
    return f"{answer.status} {answer.busy_uid}".rstrip()
