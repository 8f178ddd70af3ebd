"""The quota service: changes of quotas, pods and QueueUnits in, limits and decisions out. Wiring only.

One instance leads: it alone writes limits to the ledger (fenced by its role's epoch there) and objects.
"""

import asyncio
import contextlib
import time
from fractions import Fraction
from typing import Any

import msgspec

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.bus.statecache import Change, StateCache
from koord.contracts.codec import ContractError, encode
from koord.contracts.decisions import Create, Decision, EventNote, ObjectRef, Patch, RecordEvents
from koord.contracts.ledger import LedgerHint
from koord.contracts.results import Result
from koord.kube.meta import PartialObject, split_key
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import ELASTIC_QUOTAS, NAMESPACES, PODS, QUEUE_UNITS
from koord.ledger.model import ItemClosed, LedgerUnavailable, Observation
from koord.quota.keeper import Keeper
from koord.quota.special import NAMESPACE, namespace_object, special_quotas
from koord.quota.views import PodBrief, UnitBrief
from koord.runtime.host import Host, Leadership
from koord.runtime.service import ServiceSpec
from koord.telemetry.context import TraceContext
from koord.telemetry.metrics import counter, gauge

PERIOD_S = 1.0
"""Sums are published and written back at most this often."""
PATIENCE_S = 10.0
"""A write of which nothing was heard for so long is made again."""
BATCH = 2000

_quotas = gauge("koord_quota_quotas", "Quotas in force")
_pods = gauge("koord_quota_pods", "Live pods counted")
_written = counter("koord_quota_writebacks", "ElasticQuota objects patched")
_limits = counter("koord_quota_limits_written", "Limits written to the ledger")


class QuotaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the quota service. ``namespace``: where the special quotas are created if they do not exist.

    ``oversell_rate``: max times this may be admitted by the queue; pods are held to max itself.
    """

    namespace: str = NAMESPACE
    oversell_rate: str | float = 1.0

    def __post_init__(self) -> None:
        self.rate()

    def rate(self) -> Fraction:
        """``oversell_rate``, exactly; ValueError if it is no number above 0."""
        try:
            rate = Fraction(str(self.oversell_rate))
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(f"quota.oversell_rate: must be a number above 0, got {self.oversell_rate!r}") from error
        if rate <= 0:
            raise ValueError(f"quota.oversell_rate: must be a number above 0, got {self.oversell_rate!r}")
        return rate


class QuotaService:
    """Runs the :class:`Keeper` on the bus and the ledger."""

    def __init__(self, host: Host, settings: QuotaSettings) -> None:
        self._host = host
        self._settings = settings
        self._keeper = Keeper(settings.rate())
        self._publisher = DecisionPublisher(host.bus, "quota")
        self._publisher.on_result(self._on_result)
        self._limits_wake = asyncio.Event()
        self._under_way: dict[str, tuple[str, float]] = {}
        self._owner_of: dict[str, str] = {}
        self._numbers = 0
        self._ledger_epoch = 0
        self._role_epoch = 0
        bus = host.bus
        self._namespaces = StateCache(bus, NAMESPACES, PartialObject)
        self._quotas = StateCache(bus, ELASTIC_QUOTAS, ElasticQuota, self._on_quota, on_bad=self._on_bad_quota)
        self._pods = StateCache(bus, PODS, PodBrief, self._on_pod, on_bad=self._on_bad)
        self._units = StateCache(bus, QUEUE_UNITS, UnitBrief, self._on_unit, on_bad=self._on_bad)
        self._caches: tuple[StateCache[Any], ...] = (self._namespaces, self._quotas, self._units, self._pods)

    async def start(self) -> None:
        """Read the state, then lead. Ready once the state is complete: a standby is ready, too."""
        self._host.ready.require("synced")
        for cache in self._caches:
            await cache.start()
        await self._host.bus.subscribe(self._host.bus.subjects.ledger("epoch"), self._on_epoch)
        self._host.spawn(self._run(), "quota")

    async def drain(self) -> None:
        """Nothing is in flight that would have to be finished: the next leader computes the same."""
        self._publisher.close()
        for cache in self._caches:
            await cache.close()

    async def _run(self) -> None:
        for cache in self._caches:
            await cache.synced()
        self._host.ready.open("synced")
        while not _cancelled():
            leadership = await self._host.lead("quota")
            self._role_epoch = leadership.epoch
            self._keeper.all_limits_dirty()
            self._limits_wake.set()
            limits = self._host.spawn(self._write_limits(leadership), "quota-limits")
            while leadership.held and not _cancelled():
                begun = time.monotonic()
                await self._tick()
                await asyncio.sleep(max(0.05, PERIOD_S - (time.monotonic() - begun)))
            limits.cancel()
            self._host.log.warning("the lease was lost, standing by", role="quota")

    # Changes ------------------------------------------------------------------------------------------------------

    def _on_quota(self, change: Change[ElasticQuota]) -> None:
        if change.new is not None:
            self._under_way.pop(change.key, None)
            self._keeper.put_quota(change.new)
        elif change.old is not None:
            self._under_way.pop(change.key, None)
            self._keeper.drop_quota(change.old)
        if self._keeper.limits_dirty or self._keeper.closed:
            self._limits_wake.set()

    def _on_pod(self, change: Change[PodBrief]) -> None:
        if change.new is not None:
            self._keeper.put_pod(change.key, change.new)
        else:
            self._keeper.drop_pod(change.key)

    def _on_unit(self, change: Change[UnitBrief]) -> None:
        if change.new is not None:
            self._keeper.put_unit(change.key, change.new)
        else:
            self._keeper.drop_unit(change.key)

    def _on_bad_quota(self, key: str, error: ContractError) -> None:
        """A quota that does not decode changes nothing, and is told so by an event."""
        self._on_bad(key, error)
        namespace, name = split_key(key)
        self._keeper.undecodable(namespace, name, str(error))

    def _on_bad(self, key: str, error: ContractError) -> None:
        self._host.log.warning("an object does not decode, its last good version stays", key=key, error=str(error))

    async def _on_epoch(self, message: object) -> None:
        self._keeper.all_limits_dirty()
        self._limits_wake.set()

    def _on_result(self, result: Result) -> None:
        key = self._owner_of.pop(result.id, "")
        held = self._under_way.get(key)
        if held is not None and held[0] == result.id and result.outcome != "done":
            del self._under_way[key]
            self._host.log.info("a write was not taken", object=key, outcome=result.outcome, reason=result.reason)

    # Limits to the ledger -----------------------------------------------------------------------------------------

    async def _write_limits(self, leadership: Leadership) -> None:
        """Write what changed at once; look at the ledger's epoch every five seconds, hints may be lost."""
        while leadership.held and not _cancelled():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    await self._limits_wake.wait()
            self._limits_wake.clear()
            try:
                done = await self._write_limits_once()
            except LedgerUnavailable as error:
                self._host.log.warning("the ledger cannot be reached, limits wait", error=str(error))
                done = False
            if not done:
                self._limits_wake.set()
                await asyncio.sleep(0.5)

    async def _write_limits_once(self) -> bool:
        ledger, keeper = self._host.ledger, self._keeper
        status = await ledger.status()
        if status.epoch != self._ledger_epoch:
            self._ledger_epoch = status.epoch
            keeper.all_limits_dirty()
        names, closed = keeper.limits_dirty, keeper.closed
        # Taken before the first await: what is edited while the ledger answers is dirty again and is written again.
        keeper.limits_dirty, keeper.closed = set(), set()
        done = False
        try:
            done = await self._observe_limits(names, closed)
        finally:
            if not done:
                for name in names | closed:
                    (keeper.limits_dirty if name in keeper.tree else keeper.closed).add(name)
        return done

    async def _observe_limits(self, names: set[str], closed: set[str]) -> bool:
        keeper = self._keeper
        observations: list[Observation] = [
            limit for name in names if name in keeper.tree for limit in keeper.limits(name)
        ]
        observations.extend(ItemClosed(item) for name in closed for item in keeper.items_of(name))
        for start in range(0, len(observations), BATCH):
            batch = observations[start : start + BATCH]
            answer = await self._host.ledger.observe(batch, role="quota", role_epoch=self._role_epoch)
            if answer.status == "stale":
                self._host.log.warning("the ledger knows a newer quota leader; this one waits for its lease to end")
                return False
            if answer.status != "ok":
                return False
            _limits.inc(len(batch))
            if answer.changed:
                hint = encode(LedgerHint("released", list(answer.changed)))
                subject = self._host.bus.subjects.ledger("claim.released")
                await self._host.bus.publish(subject, hint)
        return True

    # Once a second ------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        keeper = self._keeper
        decisions: list[tuple[Decision, TraceContext]] = []
        self._ensure_objects(decisions)
        self._tell_problems(decisions)
        computed = keeper.compute()
        self._write_back(decisions)
        try:
            if computed:
                for message in keeper.runtimes():
                    subject = self._host.bus.subjects.quota_runtime(message.tree)
                    await self._host.bus.publish_acked(subject, encode(message))
            await self._publisher.publish_many(decisions)
        except BusError as error:
            self._under_way.clear()
            self._host.log.warning("the bus does not take decisions, they wait", error=str(error))
        _quotas.set(len(keeper.tree))
        _pods.set(len(keeper.usage))

    def _ensure_objects(self, decisions: list[tuple[Decision, TraceContext]]) -> None:
        namespace = self._settings.namespace
        if namespace not in self._namespaces.items:
            body = msgspec.json.encode(namespace_object(namespace))
            self._put(decisions, namespace, Create(self._id(), NAMESPACES.token, "", namespace, body))
            return
        for quota in special_quotas(namespace):
            name = quota["metadata"]["name"]
            if name not in self._keeper.tree:
                body = msgspec.json.encode(quota)
                create = Create(self._id(), ELASTIC_QUOTAS.token, namespace, name, body)
                self._put(decisions, f"{namespace}/{name}", create)

    def _write_back(self, decisions: list[tuple[Decision, TraceContext]]) -> None:
        for quota, patch in self._keeper.patches():
            meta = quota.metadata
            target = ObjectRef(ELASTIC_QUOTAS.token, meta.namespace, meta.name, meta.uid)
            if self._put(decisions, quota.key, Patch(self._id(), target, msgspec.json.encode(patch))):
                _written.inc()

    def _tell_problems(self, decisions: list[tuple[Decision, TraceContext]]) -> None:
        problems, self._keeper.problems = self._keeper.problems, []
        if not problems:
            return
        now_ns = time.time_ns()
        notes = [
            EventNote(
                target=ObjectRef(
                    ELASTIC_QUOTAS.token,
                    each.quota.metadata.namespace,
                    each.quota.metadata.name,
                    each.quota.metadata.uid,
                ),
                kind=ELASTIC_QUOTAS.kind,
                api_version=ELASTIC_QUOTAS.api_version,
                type="Warning",
                reason=each.reason,
                note=each.text,
                controller="koord-quota",
                time_ns=now_ns,
            )
            for each in problems
        ]
        for each in problems:
            self._host.log.warning("a quota is not in force", quota=each.quota.key, reason=each.reason, error=each.text)
        decisions.append((RecordEvents(self._id(), notes), TraceContext.new(sampled=False)))

    def _put(self, decisions: list[tuple[Decision, TraceContext]], key: str, decision: Decision) -> bool:
        """Decide about an object unless a write of it is under way."""
        now = time.monotonic()
        held = self._under_way.get(key)
        if held is not None and now - held[1] < PATIENCE_S:
            return False
        if held is not None:
            self._owner_of.pop(held[0], None)
        self._under_way[key] = (decision.id, now)
        self._owner_of[decision.id] = key
        decisions.append((decision, TraceContext.new(sampled=False)))
        return True

    def _id(self) -> str:
        self._numbers += 1
        return f"{self._host.incarnation}-w{self._numbers}"


def _cancelled() -> bool:
    """Whether somebody wants this task to end: a client library below may have swallowed the exception that says so."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _build(host: Host, settings: QuotaSettings) -> QuotaService:
    return QuotaService(host, settings)


SPEC = ServiceSpec(
    name="quota",
    summary="elastic quota trees: limits to the ledger, used and request back to the objects",
    settings=QuotaSettings,
    build=_build,
    needs=frozenset(("bus", "ledger")),
)
