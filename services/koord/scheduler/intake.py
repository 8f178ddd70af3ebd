"""What a scheduler hears: the state of the cluster, runtime quotas, and what others say of the ledger.

Every object goes to the world and to whoever else keeps books on its kind; then the loop is woken if there is anything
for it to do. What does not decode, or is not valid, is told in an Event about the object; its last good version stays.
"""

import time
from typing import Any

from nats.aio.msg import Msg

from koord.bus.connection import Bus
from koord.bus.lastvalues import LastValues
from koord.bus.statecache import Change, StateCache
from koord.contracts.codec import ContractError, decode
from koord.contracts.decisions import ObjectRef
from koord.contracts.ledger import LedgerHint
from koord.contracts.quota import QuotaRuntime
from koord.kube.groups import PodGroup
from koord.kube.meta import split_key
from koord.kube.protocol.gang import GangRef, governed_by
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import ELASTIC_QUOTAS, NODES, POD_GROUPS, PODS
from koord.scheduler.driver import Driver
from koord.scheduler.engine.placement import Engine
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.gang.podgroups import PodGroupController
from koord.scheduler.nodeview import ImagesNodeView, NodeView
from koord.scheduler.notices import Notices
from koord.scheduler.podview import PodView
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.watching import Watching
from koord.scheduler.world import World
from koord.telemetry.logs import Logger


class Intake:
    """The caches and subscriptions of one replica. Nothing comes before ``start``."""

    def __init__(
        self,
        bus: Bus,
        engine: Engine,
        world: World,
        queue: SchedulingQueue,
        driver: Driver,
        phases: PodGroupController,
        notices: Notices,
        log: Logger,
    ) -> None:
        self._bus = bus
        self._world = world
        self._queue = queue
        self._driver = driver
        self._phases = phases
        self._notices = notices
        self._log = log
        images = any(plugin.reads_images for plugin in engine.plugins)
        node_view = ImagesNodeView if images else NodeView
        self.pods = StateCache(bus, PODS, PodView, self._on_pod, on_bad=self._on_bad_pod)
        self.groups = StateCache(bus, POD_GROUPS, PodGroup, self._on_pod_group, on_bad=self._on_bad_pod_group)
        self.nodes: StateCache[NodeView] = StateCache(bus, NODES, node_view, self._on_node, on_bad=self._on_bad)
        self.quotas = StateCache(bus, ELASTIC_QUOTAS, ElasticQuota, self._on_quota, on_bad=self._on_bad)
        watching = Watching(
            bus, engine.profiles, world.events, notices, log, on_error=engine.errors.append, kick=driver.kick
        )
        # Pods come last: what they refer to is known then.
        self._caches: tuple[StateCache[Any], ...] = (
            self.nodes,
            self.quotas,
            self.groups,
            *watching.caches,
            self.pods,
        )
        self._runtimes = LastValues(
            bus,
            bus.subjects.quota_stream,
            bus.subjects.quota_runtime_all,
            QuotaRuntime,
            self._on_runtime,
            self._on_bad_runtime,
        )

    async def start(self) -> None:
        """Subscribe to everything."""
        for cache in self._caches:
            await cache.start()
        subjects = self._bus.subjects
        await self._bus.subscribe(subjects.ledger("claim.>"), self._on_hint)
        await self._bus.subscribe(subjects.ledger("epoch"), self._on_epoch)
        self._runtimes.start()

    async def synced(self) -> None:
        """Wait until all objects that existed at the start have been told."""
        for cache in self._caches:
            await cache.synced()

    async def close(self) -> None:
        """Hear nothing any more."""
        await self._runtimes.close()
        for cache in self._caches:
            await cache.close()

    # Objects --------------------------------------------------------------------------------------------------------

    def _on_pod(self, change: Change[PodView]) -> None:
        world = self._world
        told = bool(world.events)
        world.apply_pod(change.old, change.new, time.monotonic())
        self._phases.on_pod(change)
        # A pod that is merely seen bound gives the loop nothing to do, unless it is the first to say so.
        if self._queue.counts["active"] or world.touched or world.dissolved or (world.events and not told):
            self._driver.kick()

    def _on_node(self, change: Change[NodeView]) -> None:
        problems: tuple[str, ...]
        try:
            problems = self._world.apply_node(change.old, change.new)
        except ValueError as error:
            problems = (str(error),)
        for text in problems:
            self._log.warning("a node is not valid, what was known of it stays", node=change.key, error=text)
            if change.new is not None:
                target = ObjectRef(NODES.token, "", change.key, change.new.metadata.uid)
                self._notices.warn(target, "Node", "InvalidNode", text)
        self._kick_on_events()

    def _on_quota(self, change: Change[ElasticQuota]) -> None:
        try:
            self._world.apply_quota(change.old, change.new)
        except ValueError as error:
            self._log.warning("a quota is not valid, its last good version stays", quota=change.key, error=str(error))
        self._kick_on_events()

    def _on_pod_group(self, change: Change[PodGroup]) -> None:
        self._world.apply_pod_group(change.old, change.new, time.monotonic())
        self._phases.on_pod_group(change)
        if change.new is not None:
            self._check_pod_group(change.old, change.new)
        self._driver.kick()

    def _check_pod_group(self, old: PodGroup | None, new: PodGroup) -> None:
        """Tell what it says badly, also while no pod is its member."""
        meta, spec = new.metadata, new.spec
        if old is not None and (old.spec, old.metadata.annotations) == (spec, meta.annotations):
            return
        nobody = GangRef(meta.namespace, meta.name, None)
        for text in governed_by(nobody, spec.min_member, spec.schedule_timeout_seconds, meta.annotations).problems:
            self._warn_pod_group(ObjectRef(POD_GROUPS.token, meta.namespace, meta.name, meta.uid), text)

    def _kick_on_events(self) -> None:
        if self._world.events:
            self._driver.kick()

    # Ledger and quotas ----------------------------------------------------------------------------------------------

    async def _on_hint(self, message: Msg) -> None:
        try:
            self._driver.hint(decode(LedgerHint, message.data))
        except ContractError as error:
            self._log.warning("a ledger hint does not decode", subject=message.subject, error=str(error))

    async def _on_epoch(self, message: Msg) -> None:
        self._world.events.add(ClusterEvent.LEDGER_RELEASE)
        self._driver.kick()

    def _on_runtime(self, published: QuotaRuntime) -> None:
        self._world.apply_runtime(published)
        self._kick_on_events()

    def _on_bad_runtime(self, error: ContractError) -> None:
        self._log.warning("runtime quotas do not decode, the last ones stay", error=str(error))

    # What does not decode -------------------------------------------------------------------------------------------

    def _on_bad_pod(self, key: str, error: ContractError) -> None:
        self._on_bad(key, error)
        namespace, name = split_key(key)
        self._notices.warn(ObjectRef(PODS.token, namespace, name), "Pod", "FailedScheduling", str(error))

    def _on_bad_pod_group(self, key: str, error: ContractError) -> None:
        self._on_bad(key, error)
        namespace, name = split_key(key)
        self._warn_pod_group(ObjectRef(POD_GROUPS.token, namespace, name), str(error))

    def _on_bad(self, key: str, error: ContractError) -> None:
        self._log.warning("an object does not decode, its last good version stays", key=key, error=str(error))

    def _warn_pod_group(self, target: ObjectRef, text: str) -> None:
        self._notices.warn(target, POD_GROUPS.kind, "InvalidGang", text, api_version=POD_GROUPS.api_version)
