"""The quota service: changes of quotas, nodes, pods, QueueUnits and Queues in, limits and decisions out. Wiring only.

One instance leads: it alone writes limits to the ledger (fenced by its role's epoch there) and objects.
"""

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.bus.statecache import Change, StateCache
from koord.contracts.codec import ContractError, encode
from koord.contracts.decisions import Create, Decision, EventNote, Evict, ObjectRef, Patch, RecordEvents
from koord.contracts.results import Result
from koord.kube.meta import ObjectMeta, PartialObject, split_key
from koord.kube.protocol.queue import MAX_DEPTH, POLICY_BLOCK, POLICY_FIFO, integer
from koord.kube.quantity import QuantityError
from koord.kube.queues import NAMESPACE as QUEUE_NAMESPACE
from koord.kube.quotas import ElasticQuota, ElasticQuotaProfile
from koord.kube.resources import (
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    NAMESPACES,
    NODES,
    PODS,
    QUEUE_UNITS,
    QUEUES,
)
from koord.kube.selectors import SelectorError
from koord.quota.idle import DEPTH, Order
from koord.quota.keeper import Keeper
from koord.quota.limitwriter import LimitWriter
from koord.quota.notes import note
from koord.quota.profiles import Profiles, Step
from koord.quota.revoking import Revoker
from koord.quota.settings import QuotaSettings
from koord.quota.special import namespace_object, special_quotas
from koord.quota.views import NodeBrief, PodBrief, QueueBrief, UnitBrief
from koord.quota.writes import Writes
from koord.runtime.ending import cancelled, end
from koord.runtime.freshness import FreezeGuard
from koord.runtime.host import Host
from koord.runtime.service import ServiceSpec
from koord.telemetry.context import TraceContext
from koord.telemetry.metrics import counter, gauge, histogram

FILL_S = 0.1
"""Runtimes are computed at most this often, and at once when nothing changed for so long before."""
REST = 3.0
"""After a computation that takes long, in a tree of thousands of contended quotas, so many times its time is rested."""
GATHER_S = 0.005
"""Changes come in bursts: so long is waited for the rest of one."""
PERIOD_S = 1.0
"""Objects are written at most this often."""
MOST_PROBLEMS = 1000
"""A standby tells nobody; the latest are told by whoever leads next."""
PUBLISH_PER_QUOTA_S = 0.0001
"""Sums and messages cost time in proportion to the tree: a tree of 10,000 quotas is published once a second."""
PATIENCE_S = 10.0
"""A write that was refused, or of which nothing was heard, is made again after so long."""

_quotas = gauge("koord_quota_quotas", "Quotas in force")
_pods = gauge("koord_quota_pods", "Live pods counted")
_written = counter("koord_quota_writebacks", "ElasticQuota objects patched")
_revoked = counter("koord_quota_pods_revoked", "Pods whose eviction was decided because their quota is overused")
_fills = histogram("koord_quota_fill_seconds", "Computing runtimes and limits anew")


class QuotaService:
    """Runs the :class:`Keeper` on the bus and the ledger."""

    def __init__(self, host: Host, settings: QuotaSettings) -> None:
        self._host = host
        self._settings = settings
        self._keeper = Keeper(settings.rules())
        self._profiles = Profiles()
        self._revoker = Revoker(self._keeper, settings.delay_evict_s)
        self._revoked_s = 0.0
        self._freeze = FreezeGuard(host.bus, settings.freeze_interval_s) if settings.revokes else None
        self._notes: list[EventNote] = []
        self._publisher = DecisionPublisher(host.bus, "quota")
        self._publisher.on_result(self._on_result)
        self._limits = LimitWriter(self._keeper, host.bus, host.ledger, host.log)
        self._changed = asyncio.Event()
        self._published_s = 0.0
        self._writes = Writes(PATIENCE_S)
        self._numbers = 0
        bus, bad = host.bus, self._on_bad
        self._namespaces = StateCache(bus, NAMESPACES, PartialObject)
        self._quotas = StateCache(bus, ELASTIC_QUOTAS, ElasticQuota, self._on_quota, on_bad=self._on_bad_quota)
        self._pods = StateCache(bus, PODS, PodBrief, self._on_pod, on_bad=bad)
        self._units = StateCache(bus, QUEUE_UNITS, UnitBrief, self._on_unit, on_bad=bad)
        self._queues = StateCache(bus, QUEUES, QueueBrief, self._on_queue, on_bad=bad)
        self._nodes = StateCache(bus, NODES, NodeBrief, self._on_node, on_bad=bad)
        self._profile_objects = StateCache(
            bus, ELASTIC_QUOTA_PROFILES, ElasticQuotaProfile, self._on_profile, on_bad=bad
        )
        self._caches: tuple[StateCache[Any], ...] = (
            self._namespaces,
            self._nodes,
            self._quotas,
            self._profile_objects,
            self._queues,
            self._units,
            self._pods,
        )

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
        if self._freeze is not None:
            self._freeze.close()
        for cache in self._caches:
            await cache.close()

    async def _run(self) -> None:
        for cache in self._caches:
            await cache.synced()
        self._host.ready.open("synced")
        while not cancelled():
            leadership = await self._host.lead("quota")
            self._fill()  # the first limits are those of the whole picture
            self._keeper.all_limits_dirty()
            self._limits.wake()
            beside = [
                self._host.spawn(self._limits.run(leadership.epoch), "quota-limits"),
                self._host.spawn(self._keep_filled(), "quota-runtime"),
            ]
            while leadership.held and not cancelled():
                begun = time.monotonic()
                await self._tick()
                await asyncio.sleep(max(0.05, PERIOD_S - (time.monotonic() - begun)))
            await end(*beside)
            self._host.log.warning("the lease was lost, standing by", role="quota")

    # Runtimes -----------------------------------------------------------------------------------------------------

    async def _keep_filled(self) -> None:
        """Compute, soon after anything changed, what every quota may use; tell the ledger and the schedulers."""
        while not cancelled():
            due = self._keeper.due_s
            wait = PERIOD_S if due is None else max(0.0, min(PERIOD_S, due - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            self._changed.clear()
            begun = time.monotonic()
            self._fill()
            filled_s = time.monotonic() - begun
            await self._publish(begun)
            await asyncio.sleep(max(0.0, FILL_S - (time.monotonic() - begun), REST * filled_s))

    def _fill(self) -> None:
        begun = time.perf_counter()
        if self._keeper.fill(time.monotonic()):
            _fills.observe(time.perf_counter() - begun)
        if self._keeper.limits_dirty or self._keeper.closed:
            self._limits.wake()

    async def _publish(self, now: float) -> None:
        """Sums and runtimes to whom it may concern."""
        if now - self._published_s < len(self._keeper.tree) * PUBLISH_PER_QUOTA_S or not self._keeper.compute():
            return
        self._published_s = now
        for message in self._keeper.runtimes():
            subject = self._host.bus.subjects.quota_runtime(message.tree)
            try:
                await self._host.bus.publish_acked(subject, encode(message))
            except BusError as error:
                self._keeper.unpublished(message.tree)
                self._host.log.warning("runtimes were not published, they wait", error=str(error))

    # Changes ------------------------------------------------------------------------------------------------------

    def _on_quota(self, change: Change[ElasticQuota]) -> None:
        if change.new is not None:
            self._writes.seen(change.key)
            self._keeper.put_quota(change.new)
            del self._keeper.problems[:-MOST_PROBLEMS]
        elif change.old is not None:
            self._writes.seen(change.key)
            self._keeper.drop_quota(change.old)
        self._profiles.dirty = True
        self._changed.set()

    def _on_profile(self, change: Change[ElasticQuotaProfile]) -> None:
        self._writes.seen(f"profile {change.key}")
        if change.new is None:
            self._profiles.drop(change.key)
            return
        try:
            self._profiles.put(change.key, change.new)
        except SelectorError as error:
            self._bad_profile(change.new, str(error))
        if owner := self._profiles.rivals().get(change.key):
            name = change.new.spec.quota_name
            self._bad_profile(
                change.new,
                f"ElasticQuotaProfile {change.key}: spec.quotaName: quota {name} is already that of profile {owner}",
            )

    def _bad_profile(self, profile: ElasticQuotaProfile, why: str) -> None:
        self._host.log.warning("a profile is not in force", profile=profile.key, error=why)
        self._notes.append(note(ELASTIC_QUOTA_PROFILES, profile.metadata, "InvalidProfile", why))
        del self._notes[:-MOST_PROBLEMS]

    def _on_node(self, change: Change[NodeBrief]) -> None:
        if change.new is None:
            self._keeper.drop_node(change.key)
            self._profiles.drop_node(change.key)
        else:
            self._profiles.put_node(change.key, change.new)
            try:
                self._keeper.put_node(change.key, change.new)
            except QuantityError as error:
                self._host.log.warning("a node's room does not parse, what was known of it stays", error=str(error))
        self._changed.set()

    def _on_queue(self, change: Change[QueueBrief]) -> None:
        namespace, _, name = change.key.partition("/")
        if namespace == QUEUE_NAMESPACE:
            self._keeper.put_queue(name, order_of(change.new) if change.new is not None else None)
            self._changed.set()

    def _on_pod(self, change: Change[PodBrief]) -> None:
        if change.new is not None:
            self._keeper.put_pod(change.key, change.new)
        else:
            self._keeper.drop_pod(change.key)
        if self._keeper.usage.touched:
            self._changed.set()

    def _on_unit(self, change: Change[UnitBrief]) -> None:
        if change.new is not None:
            self._keeper.put_unit(change.key, change.new)
        else:
            self._keeper.drop_unit(change.key)
        if self._keeper.usage.touched:
            self._changed.set()

    def _on_bad_quota(self, key: str, error: ContractError) -> None:
        """A quota that does not decode changes nothing, and is told so by an event."""
        self._on_bad(key, error)
        namespace, name = split_key(key)
        self._keeper.undecodable(namespace, name, str(error))
        del self._keeper.problems[:-MOST_PROBLEMS]

    def _on_bad(self, key: str, error: ContractError) -> None:
        self._host.log.warning("an object does not decode, its last good version stays", key=key, error=str(error))

    async def _on_epoch(self, message: object) -> None:
        self._keeper.all_limits_dirty()
        self._limits.wake()

    def _on_result(self, result: Result) -> None:
        ended = self._writes.ended(result.id, at_once=result.outcome in ("conflict", "gone"))
        if ended is None or result.outcome == "done":
            return
        key, step = ended
        self._host.log.info("a write was not taken", object=key, outcome=result.outcome, reason=result.reason)
        if step is not None and result.outcome != "conflict":
            self._profiles.dirty = True
            reason = "CreateQuotaFailed" if step.kind == "create" else "UpdateQuotaFailed"
            text = f"quota {step.profile.metadata.namespace}/{step.profile.spec.quota_name}: {result.reason}"
            self._notes.append(note(ELASTIC_QUOTA_PROFILES, step.profile.metadata, reason, text))

    # Once a second ------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        keeper = self._keeper
        decisions: list[tuple[Decision, TraceContext]] = []
        self._ensure_objects(decisions)
        keeper.look_for_parents()
        self._keep_profiles(decisions)
        self._revoke(decisions)
        self._tell_problems(decisions)
        self._write_back(decisions)
        try:
            await self._publisher.publish_many(decisions)
        except BusError as error:
            self._writes.clear()
            told = [each for decision, _ in decisions if isinstance(decision, RecordEvents) for each in decision.events]
            self._notes = [*told, *self._notes]
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

    def _keep_profiles(self, decisions: list[tuple[Decision, TraceContext]]) -> None:
        """Root quotas as the profiles say."""
        if not self._profiles.dirty:
            return
        self._profiles.dirty = False
        for step in self._profiles.steps(self._quotas.items):
            self._profiles.dirty = True  # until the objects show it
            profile, name = step.profile.metadata, step.profile.spec.quota_name
            key, body, id_ = f"{profile.namespace}/{name}", msgspec.json.encode(step.body), self._id()
            decision: Decision
            if step.kind == "create":
                decision = Create(id_, ELASTIC_QUOTAS.token, profile.namespace, name, body)
            elif step.kind == "patch":
                uid = self._quotas.items[key].metadata.uid
                decision = Patch(id_, ObjectRef(ELASTIC_QUOTAS.token, profile.namespace, name, uid), body)
            else:
                key = f"profile {profile.key}"
                target = ObjectRef(ELASTIC_QUOTA_PROFILES.token, profile.namespace, profile.name, profile.uid)
                decision = Patch(id_, target, body)
            self._put(decisions, key, decision, step)

    def _revoke(self, decisions: list[tuple[Decision, TraceContext]]) -> None:
        """Evict pods of quotas that use more than they may for too long; never on an incomplete picture."""
        now = time.monotonic()
        if self._freeze is None or self._freeze.frozen or now - self._revoked_s < self._settings.revoke_interval_s:
            return
        if not all(cache.is_synced for cache in self._caches):
            return
        self._revoked_s = now
        for revocation in self._revoker.due(self._pods.items, now):
            for pod in revocation.pods:
                target = ObjectRef(PODS.token, pod.namespace, pod.name, pod.uid)
                decisions.append((Evict(self._id(), target, revocation.reason), TraceContext.new(sampled=False)))
                meta = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
                self._notes.append(note(PODS, meta, "QuotaRevoked", revocation.reason))
                self._host.log.info("a pod is evicted", pod=f"{pod.namespace}/{pod.name}", reason=revocation.reason)
            _revoked.inc(len(revocation.pods))

    def _tell_problems(self, decisions: list[tuple[Decision, TraceContext]]) -> None:
        problems, self._keeper.problems = self._keeper.problems, []
        for each in problems:
            self._host.log.warning("a quota is not in force", quota=each.quota.key, reason=each.reason, error=each.text)
            self._notes.append(note(ELASTIC_QUOTAS, each.quota.metadata, each.reason, each.text))
        notes, self._notes = self._notes[-MOST_PROBLEMS:], []
        if notes:
            decisions.append((RecordEvents(self._id(), notes), TraceContext.new(sampled=False)))

    def _put(
        self,
        decisions: list[tuple[Decision, TraceContext]],
        key: str,
        decision: Decision,
        step: Step | None = None,
    ) -> bool:
        """Decide about an object unless a write of it is under way."""
        if not self._writes.begin(key, decision.id, time.monotonic(), step):
            return False
        decisions.append((decision, TraceContext.new(sampled=False)))
        return True

    def _id(self) -> str:
        self._numbers += 1
        return f"{self._host.incarnation}-w{self._numbers}"


def order_of(queue: QueueBrief) -> Order:
    """How a Queue hands out its units."""
    depth = integer(queue.metadata.annotations, MAX_DEPTH, -1)
    return Order(queue.spec.queue_policy in (POLICY_BLOCK, POLICY_FIFO), depth if depth >= 0 else DEPTH)


def _build(host: Host, settings: QuotaSettings) -> QuotaService:
    return QuotaService(host, settings)


SPEC = ServiceSpec(
    name="quota",
    summary="elastic quota trees: limits to the ledger, used and request back to the objects",
    settings=QuotaSettings,
    build=_build,
    needs=frozenset(("bus", "ledger")),
)
