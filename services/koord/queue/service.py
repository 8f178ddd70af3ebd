"""The queue service: caches in, decisions and claims out. Wiring only; the core is :mod:`koord.queue.engine`.

One instance leads (a lease that only elects: decisions carry resourceVersions and claims, so that a second writer can
do no harm). One task makes passes: it wakes when something changed or is due, looks at what is dirty, claims and
publishes.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from nats.aio.msg import Msg

from koord.accounting.takes import admitted_item
from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.bus.lastvalues import LastValues
from koord.bus.statecache import MARKER, Change, StateCache
from koord.contracts.codec import ContractError, decode
from koord.contracts.ledger import LedgerHint
from koord.contracts.quota import QuotaRuntime
from koord.contracts.results import Result
from koord.kube.jobs.registry import JOB_KINDS
from koord.kube.meta import ObjectMeta, PartialObject, split_key
from koord.kube.priorities import PriorityClass
from koord.kube.queues import NAMESPACE, Queue, QueueUnit
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import (
    ELASTIC_QUOTAS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    QUEUE_UNITS,
    QUEUES,
    RAYCLUSTERS,
    Resource,
)
from koord.ledger.model import ClaimAnswer, Item, LedgerRefused, LedgerUnavailable, Release
from koord.queue.admission import Planned
from koord.queue.engine import Engine
from koord.queue.headroom import rate_of
from koord.queue.settings import QueueSettings
from koord.queue.views import RELATED_UNIT, PodBrief
from koord.runtime.ending import cancelled
from koord.runtime.host import Host
from koord.runtime.service import ServiceSpec
from koord.telemetry.metrics import gauge, histogram

PASS_S = 0.005
"""Changes are gathered for this long, so that a burst costs one pass."""
CYCLE_S = 0.02
"""The ledger's amounts are read at most this often."""
POLL_S = 5.0
"""Hints may be lost: whoever waits is tried again this often."""
RENEW_S = 10.0
IDLE_S = 30.0

_units = gauge("koord_queue_units", "QueueUnits known")
_passes = histogram("koord_queue_pass_seconds", "One pass, I/O included")


_MARKER_TAIL = f".{MARKER}.{MARKER}".encode()


class UnitPods(StateCache[PodBrief]):
    """Pods of units only: the others are passed over without decoding them; the marker of the list's end is not."""

    def message(self, subject: bytes, headers: bytes | None, body: bytes, sequence: int) -> None:
        """One pod."""
        if RELATED_UNIT in body or subject.endswith(_MARKER_TAIL):
            super().message(subject, headers, body, sequence)

    def live(self, subject: bytes, headers: bytes | None, body: bytes) -> None:
        """A live copy of one."""
        if RELATED_UNIT in body:
            super().live(subject, headers, body)


class QueueService:
    """Runs the :class:`Engine` on the bus and the ledger."""

    def __init__(self, host: Host, settings: QueueSettings) -> None:
        self._host = host
        self.engine = Engine(
            host.incarnation,
            host.spans,
            settings.all_timeouts(),
            doubling=settings.requeue_state,
            manage_all=settings.manage_all_jobs,
        )
        self._publisher = DecisionPublisher(host.bus, "queue")
        self._publisher.on_result(self._on_result)
        self._runtimes = LastValues(
            host.bus,
            host.bus.subjects.quota_stream,
            host.bus.subjects.quota_runtime_all,
            QuotaRuntime,
            self._on_runtime,
            lambda error: host.log.warning("runtime quotas do not decode, the last ones stay", error=str(error)),
        )
        self._lease = host.lease("queue")
        self._wake = asyncio.Event()
        self._unsure: list[Planned] = []
        self._next_cycle_s = self._next_poll_s = 0.0  # by the monotonic clock
        self._due_s: float | None = None
        self._draining = False
        bus, bad = host.bus, self._on_bad
        quiet = self._log_bad
        self._caches: tuple[StateCache[Any], ...] = (
            StateCache(bus, NAMESPACES, PartialObject, self._on_namespace, on_bad=quiet),
            StateCache(bus, PRIORITY_CLASSES, PriorityClass, self._on_priority_class, on_bad=quiet),
            StateCache(bus, ELASTIC_QUOTAS, ElasticQuota, self._on_quota, on_bad=quiet),
            StateCache(bus, QUEUES, Queue, self._on_queue, on_bad=bad(QUEUES)),
            StateCache(bus, QUEUE_UNITS, QueueUnit, self._on_unit, on_bad=bad(QUEUE_UNITS)),
            StateCache(bus, RAYCLUSTERS, PartialObject, self._on_cluster, on_bad=quiet),
            UnitPods(bus, PODS, PodBrief, self._on_pod, on_bad=quiet),
            *(
                StateCache(bus, kind.resource, dict, self._on_job(token), on_bad=bad(kind.resource))
                for token, kind in JOB_KINDS.items()
            ),
        )

    async def start(self) -> None:
        """Read the state, then lead. Ready once the state is complete: a standby is ready, too."""
        self._host.ready.require("synced")
        subjects = self._host.bus.subjects
        for cache in self._caches:
            await cache.start()
        self._runtimes.start()
        for event in ("claim.released", "claim.expired"):
            await self._host.bus.subscribe(subjects.ledger(event), self._on_hint)
        await self._host.bus.subscribe(subjects.ledger("epoch"), self._on_epoch)
        self._host.spawn(self._run(), "queue")

    async def drain(self) -> None:
        """Stop; claims whose decision is published go on without us, the others end with their lease."""
        self._draining = True
        self._publisher.close()
        await self._runtimes.close()
        for cache in self._caches:
            await cache.close()
        await self._lease.release()

    # Changes ------------------------------------------------------------------------------------------------------

    def _on_job(self, token: str) -> Any:
        def changed(change: Change[dict[str, Any]]) -> None:
            problem = self.engine.on_job(token, change.key, change.new, time.time_ns())
            if problem:
                self._host.log.warning("a job cannot be read", key=change.key, error=problem)
            self._wake.set()

        return changed

    def _on_cluster(self, change: Change[PartialObject]) -> None:
        self.engine.on_cluster(change.key, change.new.metadata if change.new is not None else None, time.time_ns())
        self._wake.set()

    def _on_unit(self, change: Change[QueueUnit]) -> None:
        self.engine.on_unit(change.key, change.new)
        self._wake.set()

    def _on_queue(self, change: Change[Queue]) -> None:
        namespace, _, name = change.key.partition("/")
        if namespace == NAMESPACE:
            self.engine.on_queue(name, change.new)
            self._wake.set()

    def _on_quota(self, change: Change[ElasticQuota]) -> None:
        self.engine.on_quota(change.key, change.new)
        self._wake.set()

    def _on_runtime(self, published: QuotaRuntime) -> None:
        """How much of max the quota service lets in at most; what is let in right now stands in the ledger."""
        try:
            changed = self.engine.on_ceiling(rate_of(published.ceiling))
        except ValueError:
            self._host.log.warning("runtime quotas name no ceiling, the last one stays", ceiling=published.ceiling)
            return
        if changed:
            self._wake.set()

    def _on_namespace(self, change: Change[PartialObject]) -> None:
        new = change.new
        self.engine.on_namespace(change.key, new.metadata.resource_version if new is not None else None)
        self._wake.set()

    def _on_priority_class(self, change: Change[PriorityClass]) -> None:
        self.engine.on_priority_class(change.key, change.new)
        self._wake.set()

    def _on_pod(self, change: Change[PodBrief]) -> None:
        reporter = self.engine.reporter
        if reporter.put(change.key, change.new) if change.new is not None else reporter.drop(change.key):
            self._wake.set()  # so that the next pass knows when the report is due

    def _on_bad(self, resource: Resource) -> Callable[[str, ContractError], None]:
        """An object that does not decode changes nothing, and is told so by an event."""

        def told(key: str, error: ContractError) -> None:
            self._log_bad(key, error)
            namespace, name = split_key(key)
            meta = ObjectMeta(namespace=namespace, name=name)
            self.engine.desk.warn(resource, meta, "InvalidObject", str(error))
            self._wake.set()

        return told

    def _log_bad(self, key: str, error: ContractError) -> None:
        self._host.log.warning("an object does not decode, its last good version stays", key=key, error=str(error))

    def _on_result(self, result: Result) -> None:
        if result.outcome != "done":
            self._host.log.info("a decision was not taken", id=result.id, outcome=result.outcome, reason=result.reason)
        self.engine.on_result(result)
        self._wake.set()

    async def _on_hint(self, message: Msg) -> None:
        try:
            hint = decode(LedgerHint, message.data)
        except ContractError as error:
            self._host.log.warning("a ledger hint does not decode", subject=message.subject, error=str(error))
            return
        if self.engine.on_room(hint.items):
            self._wake.set()

    async def _on_epoch(self, message: Msg) -> None:
        self.engine.on_room(())
        self.engine.world.admission_wanted = True
        self._wake.set()

    # Passes -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        for cache in self._caches:
            await cache.synced()
        self._host.ready.open("synced")
        self._host.spawn(self._renew(), "renew")
        while not (self._draining or cancelled()):
            await self._lease.acquire()
            self._host.spawn(self._until_lost(), "lease")
            await self._retire()
            self.engine.desk.tick(time.time_ns())
            self.engine.mark_all()
            while self._lease.held and not cancelled():
                await self._pass()
                await self._sleep()

    async def _retire(self) -> None:
        """Give back what the one who led before held and had not decided: its leases would keep units waiting."""
        ledger, own = self._host.ledger, self._host.incarnation
        try:
            owners = await ledger.owners()
            before = [owner for owner in owners if owner.startswith(f"{self._host.name}-") and owner != own]
            answer = await ledger.retire(before) if before else None
        except LedgerUnavailable as error:
            self._host.log.warning("what a predecessor held is free when its leases end", error=str(error))
            return
        if answer is not None and answer.ended:
            self._host.log.warning("what a predecessor held is given back", claims=len(answer.ended))

    async def _until_lost(self) -> None:
        """Wake the task that makes passes: it has to stop making them until the lease is its own again."""
        await self._lease.lost.wait()
        self._wake.set()

    async def _renew(self) -> None:
        """Keep the leases of claims whose write is under way; who stands by keeps no more than what is there."""
        while not cancelled():
            await asyncio.sleep(RENEW_S)
            if not self._lease.held:
                self.engine.stand_by(time.time_ns())
            if self.engine.admission.in_flight:
                with contextlib.suppress(LedgerUnavailable):
                    await self._host.ledger.renew()

    async def _pass(self) -> None:
        begun = time.perf_counter()
        engine = self.engine
        engine.desk.tick(time.time_ns())
        if time.monotonic() >= self._next_poll_s:
            self._next_poll_s = time.monotonic() + POLL_S
            engine.on_room(())
        engine.reconcile()
        await self._admit()
        self._due_s = engine.after_admission()
        await self._release()
        decisions = engine.decisions()
        if decisions:
            try:
                await self._publisher.publish_many(decisions)
            except BusError as error:
                engine.desk.outbox.publish_again()
                self._host.log.warning("the bus does not take decisions, they wait", error=str(error))
                await asyncio.sleep(0.5)
        _units.set(len(engine.world.units))
        _passes.observe(time.perf_counter() - begun)

    async def _sleep(self) -> None:
        """Until something changes or is due."""
        engine = self.engine
        now, wall = time.monotonic(), time.time()
        waits = [IDLE_S]
        if engine.world.texts_wanted or self._anyone_waits():
            waits.append(self._next_poll_s - now)
        waits.extend(due - wall for due in (self._due_s, engine.desk.outbox.next_overdue_s()) if due is not None)
        if engine.world.admission_wanted or self._unsure:
            waits.append(self._next_cycle_s - now)
        if engine.admission.charges:
            waits.append(0.5)
        wait = max(0.0, min(waits))
        if wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
        self._wake.clear()
        await asyncio.sleep(PASS_S)

    def _anyone_waits(self) -> bool:
        return any(len(queue.waiting) for queue in self.engine.world.queues.values())

    async def _admit(self) -> None:
        """One cycle, if one is wanted and due."""
        engine, now = self.engine, time.monotonic()
        if not (engine.world.admission_wanted or engine.admission.charges or self._unsure) or now < self._next_cycle_s:
            return
        engine.world.admission_wanted = False
        if not (self._unsure or engine.admission.charges or self._hopeful()):
            return
        self._next_cycle_s = now + CYCLE_S
        usable = False
        engine.cycle_begins()
        try:
            # Claims whose answer was lost are asked again as they were: an accepted one keeps its token.
            planned = self._unsure or engine.admission.plan(await self._items())
            self._unsure = planned
            if planned:
                begun_ns = time.time_ns()
                planned, answers = await self._claim(planned)
                usable = engine.admission.judge(planned, answers, begun_ns)
            else:
                usable = True
            self._unsure = []
        except LedgerUnavailable as error:
            self._host.log.warning("the ledger cannot be reached, admission waits", error=str(error))
        engine.cycle_ends()
        if not usable:
            engine.world.admission_wanted = True
            self._next_cycle_s = now + 0.5

    async def _claim(self, planned: list[Planned]) -> tuple[list[Planned], list[ClaimAnswer]]:
        """All claims in one call. If the ledger will not take one of them, each by itself, and that one without."""
        ledger = self._host.ledger
        try:
            return planned, await ledger.claim([one.claim for one in planned])
        except LedgerRefused:
            judged, answers = [], []
            for one in planned:
                try:
                    answers += await ledger.claim([one.claim])
                    judged.append(one)
                except LedgerRefused as error:
                    self._host.log.error("the ledger refuses a claim", unit=one.key, error=str(error))
                    self.engine.admission.refused_by_ledger(one, str(error))
            return judged, answers

    async def _items(self) -> dict[str, Item]:
        """What is admitted in the quotas that matter to the cycle."""
        quotas = self.engine.admission.looked_at()
        return await self._host.ledger.items_named([admitted_item(quota) for quota in quotas])

    def _hopeful(self) -> bool:
        return any(queue.policy is not None and queue.waiting.hopeful() for queue in self.engine.world.queues.values())

    async def _release(self) -> None:
        """Give back claims whose write was refused (no-op where the gateway did so)."""
        waiting = self.engine.admission.to_release
        if not waiting:
            return
        releases = [Release(one.planned.claim.id, one.token, by="queue") for one in waiting]
        try:
            await self._host.ledger.release(releases)
        except LedgerUnavailable:
            return  # tried again with the next pass; the lease is not renewed for ever
        self.engine.admission.to_release = []


def _build(host: Host, settings: QueueSettings) -> QueueService:
    return QueueService(host, settings)


SPEC = ServiceSpec(
    name="queue",
    summary="holds whole jobs until their quota chain has room, then resumes them",
    settings=QueueSettings,
    build=_build,
    needs=frozenset(("bus", "ledger")),
)
