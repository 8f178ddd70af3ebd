"""Admission: which waiting units get room now, planned on a copy of the ledger and judged by it (spec 70 section 3.9).

A cycle has three parts: :meth:`Admission.plan` (no I/O, so nothing moves meanwhile), one batch of claims, and
:meth:`Admission.judge`, which turns each accepted claim into decision 1: the QueueUnit's status, carrying the claim.
Decision 2, the resume, follows when the queue sees its own status write, so that a crash in between repairs itself.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence

import msgspec

from koord.accounting.quotas import QuotaTreeError
from koord.accounting.requests import pod_request, resource_list
from koord.accounting.takes import ADMITTED, Take, admitted_item, unit_takes
from koord.contracts.decisions import ClaimRef
from koord.kube.meta import decode
from koord.kube.pods import PodTemplate
from koord.kube.quantity import QuantityError
from koord.kube.queues import QueueUnit
from koord.kube.resources import QUEUE_UNITS
from koord.ledger.model import ClaimAnswer, ClaimRequest, Item, Member, Short
from koord.queue.desk import Desk
from koord.queue.headroom import PLAIN, WAITING, Headroom, Refusal, short_of
from koord.queue.ordering import queue_rank
from koord.queue.phases import CHARGED, DEQUEUED
from koord.queue.status import Granted, admitted
from koord.queue.traces import Admitting, AttemptTraces
from koord.queue.waiting import Waiting
from koord.queue.world import QueueEntry, UnitEntry, World
from koord.telemetry.metrics import counter, histogram

BUDGET = 64
"""Units admitted per queue and cycle; the next cycle goes on."""
BUSY_S = 0.5
TOLD_S = 30.0

_attempts = counter("job_schedule_attempts", "Admission attempts", ("queue", "result"))
_wait = histogram("koord_queue_admission_wait_seconds", "From waiting to dequeued", ("queue",))


class Planned(msgspec.Struct, frozen=True):
    """One claim to make. ``charged``: the job runs already; ``over``: and does not fit."""

    key: str
    claim: ClaimRequest
    quota: str
    queue: str
    admitting: Admitting
    waiting: Waiting | None = None
    charged: bool = False
    over: Refusal | None = None


class InFlight(msgspec.Struct, frozen=True):
    """A claim that is held while its status write is under way."""

    planned: Planned
    token: int
    epoch: int


class Admission:
    """Plans and judges; knows which claims are held for writes under way."""

    def __init__(self, world: World, desk: Desk, traces: AttemptTraces) -> None:
        self.rate = PLAIN
        self._world = world
        self._desk = desk
        self._traces = traces
        self.in_flight: dict[str, InFlight] = {}
        self.to_release: list[InFlight] = []
        self.charges: dict[str, Refusal | None] = {}
        self._busy_until: dict[str, float] = {}

    # Plan ---------------------------------------------------------------------------------------------------------

    def plan(self, items: Mapping[str, Item]) -> list[Planned]:
        """The claims of one cycle; ``items`` are the ledger's ``admitted/`` items of :meth:`looked_at` as just read."""
        room = self._headroom(items)
        planned: list[Planned] = []
        for key in list(self.charges):
            one = self._plan_charge(key, room)
            if one is not None:
                planned.append(one)
        for queue in sorted(self._walked(), key=_cross_order):
            self._walk(queue, room, planned)
        return planned

    def looked_at(self) -> set[str]:
        """The quotas that the next :meth:`plan` looks at: the chains of all that may be let in or is to be charged.

        There may be ten thousand others, and reading those would hold up the ledger for everybody.
        """
        tree, world = self._world.tree, self._world
        leaves = {quota for queue in self._walked() for quota in queue.waiting.hopeful_quotas()}
        for key in self.charges:
            entry = world.units.get(key)
            if entry is not None:
                leaves.add(tree.quota_of_unit(entry.view.metadata.labels, entry.view.metadata.namespace))
        found: set[str] = set()
        for quota in leaves:
            with contextlib.suppress(QuotaTreeError):  # said where the unit is looked at
                found.update(tree.chain(quota))
        return found

    def _walked(self) -> list[QueueEntry]:
        return [
            queue
            for queue in self._world.queues.values()
            if queue.policy is not None and queue.view is not None and queue.waiting.hopeful()
        ]

    def _headroom(self, items: Mapping[str, Item]) -> Headroom:
        # What began to wait after ``items`` were read is known by its max alone; the ledger judges.
        maxima = {quota: self._world.tree.limits(quota) for quota in self.looked_at()}
        limits: dict[str, Mapping[str, int]] = {}
        taken: dict[str, dict[str, int]] = {}
        for quota in maxima:
            item = items.get(admitted_item(quota))
            if item is None:
                continue
            limits[quota] = item.limits
            taken[quota] = {
                key: item.used.get(key, 0) + item.held.get(key, 0) for key in item.used.keys() | item.held.keys()
            }
        return Headroom(limits, taken, maxima, self.rate)

    def _walk(self, queue: QueueEntry, room: Headroom, planned: list[Planned]) -> None:
        assert queue.policy is not None and queue.view is not None
        depth = queue.max_depth
        walk = queue.policy.walk(queue.waiting, depth if depth >= 0 else None)
        admitted_now = 0
        while admitted_now < BUDGET and (unit := walk.next()) is not None:
            entry = self._world.units.get(unit.key)
            if entry is None:
                continue
            try:
                chain = self._world.tree.chain(unit.quota, unit.key)
            except QuotaTreeError:
                self._world.dirty_units.add(unit.key)  # placed before the tree changed; it is placed again
                continue
            refusal = room.check(chain, unit.total)
            if refusal is not None:
                walk.refused(unit)
                self.refuse(queue, unit, entry, refusal)
                continue
            # A unit whose last write is still under way keeps its turn: nobody behind it takes its room meanwhile.
            room.take(chain, unit.total)
            if not self._may_try(unit.uid, entry):
                continue
            planned.append(self._planned(entry, unit.quota, queue.name, unit_takes(unit.total, chain), unit))
            admitted_now += 1
        if admitted_now >= BUDGET:
            self._world.admission_wanted = True
        self._tell_blocked(queue, walk.blocked)

    def _tell_blocked(self, queue: QueueEntry, blocked: set[str]) -> None:
        """Units behind a blocked quota's head say so. A quota that is blocked time and again is looked at now and then:
        its units' texts do not change."""
        now = self._desk.now_s
        newly = {quota for quota in blocked if now - queue.blocked_told_s.get(quota, -TOLD_S) >= TOLD_S}
        queue.waiting.blocked = blocked
        if newly:
            queue.blocked_told_s.update(dict.fromkeys(newly, now))
            self._world.texts_wanted.update(queue.waiting.keys_of_quotas(newly))

    def _may_try(self, uid: str, entry: UnitEntry) -> bool:
        if uid in self.in_flight or not self._desk.free(QUEUE_UNITS, entry.view.metadata):
            return False
        return self._busy_until.get(uid, 0.0) <= self._desk.now_s

    def _plan_charge(self, key: str, room: Headroom) -> Planned | None:
        entry = self._world.units.get(key)
        if entry is None or entry.view.metadata.uid in self.in_flight:
            self.charges.pop(key, None)
            return None
        if not self._may_try(entry.view.metadata.uid, entry):
            return None
        view = entry.view
        quota = self._world.tree.quota_of_unit(view.metadata.labels, view.metadata.namespace)
        try:
            chain = self._world.tree.chain(quota, key)
        except QuotaTreeError:
            chain = ()  # the job runs anyway; the unit is charged where its quota appears later
        over = self.charges[key] or room.check(chain, entry.total)
        takes = unit_takes(entry.total, chain)
        if over is not None:
            takes = tuple(msgspec.structs.replace(take, checked=False) for take in takes)
        room.take(chain, entry.total)
        return self._planned(entry, quota, quota, takes, None, charged=True, over=over)

    def _planned(
        self,
        entry: UnitEntry,
        quota: str,
        queue: str,
        takes: tuple[Take, ...],
        waiting: Waiting | None,
        *,
        charged: bool = False,
        over: Refusal | None = None,
    ) -> Planned:
        meta = entry.view.metadata
        trace = self._desk.trace_of(meta)
        member = Member(meta.uid, meta.namespace, meta.name, "", takes)
        claim = ClaimRequest(
            self._desk.id(), (member,), priority=entry.view.spec.priority or 0, trace=trace.traceparent
        )
        admitting = self._traces.admitting(trace, entry.waiting_since_ns or self._desk.now_ns)
        return Planned(meta.key, claim, quota, queue, admitting, waiting, charged, over)

    # Judge --------------------------------------------------------------------------------------------------------

    def judge(self, planned: Sequence[Planned], answers: Sequence[ClaimAnswer], begun_ns: int) -> bool:
        """Turn answers into writes and refusals; False if the ledger takes no claims at the moment."""
        usable = True
        held_back: set[tuple[str, str]] = set()
        for one, answer in zip(planned, answers, strict=True):
            self._traces.claimed(one.admitting, begun_ns, time.time_ns(), one.claim.id, answer.status)
            entry = self._world.units.get(one.key)
            if answer.status == "ok" and (one.queue, one.quota) in held_back and not one.charged:
                self.to_release.append(InFlight(one, answer.token, answer.epoch))
                self._world.admission_wanted = True
            elif answer.status == "ok":
                self._accepted(one, answer, entry)
            elif answer.status == "conflict":
                self._conflict(one, answer, entry)
                if not one.charged and self._blocks(one.queue):
                    held_back.add((one.queue, one.quota))  # claims of one call are judged in their order
            elif answer.status == "busy":
                self._busy_until[one.claim.members[0].uid] = self._desk.now_s + BUSY_S
                self._world.look_again(one.key, self._desk.now_s + BUSY_S)
            elif answer.status == "epoch":
                # The ledger was opened anew since our last call; the client knows that now, the next cycle asks again.
                self._world.admission_wanted = True
            else:
                usable = False
        return usable

    def _accepted(self, one: Planned, answer: ClaimAnswer, entry: UnitEntry | None) -> None:
        uid = one.claim.members[0].uid
        self.in_flight[uid] = InFlight(one, answer.token, answer.epoch)
        self.charges.pop(one.key, None)
        if entry is None or entry.view.metadata.uid != uid or not self._desk.free(QUEUE_UNITS, entry.view.metadata):
            self._world.dirty_units.add(one.key)
            self.to_release.append(self.in_flight.pop(uid))
            return
        self._world.leave_queue(entry)
        claim = ClaimRef(one.claim.id, answer.token, answer.epoch)
        message = CHARGED if one.charged else DEQUEUED
        body = admitted(entry.view, granted_of(entry.view), message, self._desk.now_s, entry.failed_tries)
        entry.failed_tries = 0
        if one.over is not None:
            self._tell_outside(entry, one.over)
        self._desk.patch(QUEUE_UNITS, entry.view.metadata, body, subresource="status", claim=claim)
        _attempts.labels(one.queue, "scheduled").inc()

    def _blocks(self, queue: str) -> bool:
        entry = self._world.queues.get(queue)
        return entry is not None and entry.policy is not None and entry.policy.blocks

    def refused_by_ledger(self, one: Planned, why: str) -> None:
        """The ledger would not even judge the claim: the unit waits, and says why, until it changes."""
        self.charges.pop(one.key, None)
        entry = self._world.units.get(one.key)
        if entry is not None:
            entry.problem = why
            self._world.dirty_units.add(one.key)

    def _tell_outside(self, entry: UnitEntry, over: Refusal) -> None:
        """A job runs that the queue would not have let go: it is charged beyond max, and said to be."""
        text = f"the job was resumed outside the queue and is charged beyond its quota: {over.message}"
        job = self._world.job_of(entry.view)
        if job is not None:
            self._desk.warn(job.kind.resource, job.meta, "ResumedOutsideQueue", text)
        else:
            self._desk.warn(QUEUE_UNITS, entry.view.metadata, "ResumedOutsideQueue", text)

    def _conflict(self, one: Planned, answer: ClaimAnswer, entry: UnitEntry | None) -> None:
        refusal = refusal_of(answer.shorts)
        if one.charged:
            self.charges[one.key] = refusal  # next time unchecked
            self._world.admission_wanted = True
        elif one.waiting is not None and entry is not None and entry.queued:
            self.refuse(self._world.queues[entry.queued], one.waiting, entry, refusal)

    def refuse(self, queue: QueueEntry, unit: Waiting, entry: UnitEntry, refusal: Refusal) -> None:
        """The unit does not fit now, and neither do those of its shape."""
        told_anew = queue.waiting.refuse(unit.shape, refusal)
        entry.failed_tries += 1
        _attempts.labels(queue.name, "unschedulable").inc()
        self._desk.warn(QUEUE_UNITS, entry.view.metadata, "FailedScheduling", refusal.message)
        if told_anew:
            self._world.texts_wanted.update(queue.waiting.keys_of(unit.shape))

    # What became of it --------------------------------------------------------------------------------------------

    def dequeued(self, uid: str, entry: UnitEntry) -> None:
        """The unit shows its admission."""
        flight = self.in_flight.pop(uid, None)
        self._busy_until.pop(uid, None)
        if flight is None:
            return
        one, meta = flight.planned, entry.view.metadata
        self._traces.admitted(one.admitting, self._desk.now_ns, entry.view, one.queue, one.quota)
        _wait.labels(one.queue).observe(max(0, self._desk.now_ns - one.admitting.start_ns) / 1e9)
        entry.waiting_since_ns = 0
        self._desk.tell(QUEUE_UNITS, meta, "Scheduled", "dequeue success")

    def failed(self, uid: str) -> None:
        """The status write was refused, or the unit is gone: give the claim back."""
        self._busy_until.pop(uid, None)
        flight = self.in_flight.pop(uid, None)
        if flight is not None:
            self.to_release.append(flight)


def granted_of(unit: QueueUnit) -> list[Granted]:
    """What each pod set is admitted with: all its replicas, and what they ask for together.

    A template that does not parse was counted by whoever made the unit; its amounts are left out here.
    """
    granted = []
    for part in unit.spec.pod_set:
        try:
            request = pod_request(decode(PodTemplate, bytes(part.template)).spec)
        except (QuantityError, msgspec.MsgspecError):
            request = {}
        total = {name: amount * part.count for name, amount in request.items() if amount}
        granted.append(Granted(part.name, part.count, resource_list(total)))
    if not granted:
        granted.append(Granted("koord-queue/default-requirement", 1, {}))
    return granted


def refusal_of(shorts: Sequence[Short]) -> Refusal:
    """The ledger's conflict in the queue's words: the first item that was short."""
    for short in shorts:
        quota = short.item.removeprefix(ADMITTED)
        if short.kind == "amount":
            return short_of(quota, short.key, short.needed, short.available)
    quota = shorts[0].item.removeprefix(ADMITTED) if shorts else ""
    return Refusal(f"quota {quota} takes no units yet: its limits are not in the ledger", WAITING, quota)


def _cross_order(queue: QueueEntry) -> tuple[int, str, str]:
    meta = queue.view.metadata if queue.view is not None else None
    priority = queue.view.spec.priority if queue.view is not None else None
    return queue_rank(priority, (meta.creation_timestamp or "") if meta is not None else "", queue.name)
