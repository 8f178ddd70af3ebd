"""The scheduler service: wiring only. State and hints in; claims, binds, conditions and events out.

Several replicas may run and share the pods; what one claims the others are refused. Nothing is planned before the state
of pods, nodes, quotas and PodGroups is complete and the ledger is open.
"""

import contextlib
import time
from typing import Any

from nats.aio.msg import Msg

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.bus.lastvalues import LastValues
from koord.bus.presence import Presence
from koord.bus.questions import serve
from koord.bus.statecache import Change, StateCache
from koord.contracts.asks import ExplainPod
from koord.contracts.codec import ContractError, decode
from koord.contracts.decisions import ObjectRef
from koord.contracts.ledger import LedgerHint
from koord.contracts.quota import QuotaRuntime
from koord.contracts.results import Result
from koord.kube.groups import PodGroup
from koord.kube.meta import split_key
from koord.kube.protocol.gang import GangRef, governed_by
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.kube.resources import ELASTIC_QUOTAS, NODES, POD_GROUPS, PODS
from koord.runtime.host import Host
from koord.runtime.service import ServiceSpec
from koord.runtime.settings import SettingsError
from koord.scheduler import metrics
from koord.scheduler.binds import Binds
from koord.scheduler.catalogue import Catalogue
from koord.scheduler.claiming import Claims
from koord.scheduler.config.errors import ConfigError
from koord.scheduler.configured import profiles_of
from koord.scheduler.debugging import Debugging
from koord.scheduler.driver import Driver
from koord.scheduler.endpoints.configured import add_configz
from koord.scheduler.endpoints.flags import Flags
from koord.scheduler.endpoints.routes import NOT_LEADER, Routes
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.explain import Explainer
from koord.scheduler.explanations.controller import ExplanationController
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.profile import ProfileError
from koord.scheduler.gang.news import GangNews
from koord.scheduler.gang.partial import PartialGangs
from koord.scheduler.gang.podgroups import PodGroupController
from koord.scheduler.monitor import Monitor
from koord.scheduler.nodeview import ImagesNodeView, NodeView
from koord.scheduler.notices import Notices
from koord.scheduler.outgoing import Outgoing
from koord.scheduler.planning import Planner
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.podview import PodView
from koord.scheduler.preempting import Preempting
from koord.scheduler.queueing.hints import Hints
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.retiring import Retiring
from koord.scheduler.settings import SchedulerSettings
from koord.scheduler.sharing import Share, shared_by
from koord.scheduler.standing import watch_seat
from koord.scheduler.upkeep import Upkeep
from koord.scheduler.watching import Watching
from koord.scheduler.world import World


class SchedulerService:
    """One scheduler replica."""

    def __init__(self, host: Host, settings: SchedulerSettings) -> None:
        try:
            profiles = profiles_of(settings, host.common.scheduler_names)
        except ProfileError as error:
            raise SettingsError(f"scheduler.{error}") from error
        except ConfigError as error:
            raise SettingsError(str(error)) from error
        coscheduling = profiles.coscheduling
        self._host = host
        self._log = host.log
        bus, name = host.bus, host.common.scheduler_names[0]
        cluster = Cluster(settings.seed)
        self._engine = Engine(cluster, *profiles.all)
        quota = next((plugin for plugin in self._engine.plugins if isinstance(plugin, ElasticQuota)), None)
        if quota is not None:
            quota.tree.default = not host.common.disable_default_quota
        hints = Hints(self._engine.profiles)
        self._queue = SchedulingQueue(hints.events, profiles.queue, hints)
        self._publisher = DecisionPublisher(bus, "scheduler")
        self._pods = StateCache(bus, PODS, PodView, self._on_pod, on_bad=self._on_bad_pod)
        images = any(plugin.reads_images for plugin in self._engine.plugins)
        node_view = ImagesNodeView if images else NodeView
        self._nodes: StateCache[NodeView] = StateCache(bus, NODES, node_view, self._on_node, on_bad=self._on_bad)
        self._quotas = StateCache(bus, ELASTIC_QUOTAS, QuotaObject, self._on_quota, on_bad=self._on_bad)
        self._groups = StateCache(bus, POD_GROUPS, PodGroup, self._on_pod_group, on_bad=self._on_bad_pod_group)
        self._runtimes = LastValues(
            bus,
            bus.subjects.quota_stream,
            bus.subjects.quota_runtime_all,
            QuotaRuntime,
            self._on_runtime,
            self._on_bad_runtime,
        )
        self._phases = PodGroupController(host, self._publisher, settings.coscheduling.stale_after_s)
        self._notices = Notices(host.incarnation, name, self._pods.get)
        claims = Claims(host.incarnation, quota, coscheduling.book, host.spans)
        after_s = settings.coscheduling.gated_event_after_s
        self._news = GangNews(coscheduling.book, self._queue, self._notices, after_s)
        self._outgoing = Outgoing(bus, self._publisher, self._notices, self._news, host.spans, host.log)
        self._world = World(
            self._engine,
            Catalogue(
                cluster,
                profiles.usual,
                profiles.others,
                gates=settings.transformers,
                on_error=self._engine.errors.append,
            ),
            self._queue,
            coscheduling,
            quota,
            frozenset(host.common.scheduler_names),
            on_bound=self._on_bound,
            on_ended=self._on_ended,
            on_invalid=self._on_invalid,
            on_gang_problem=self._on_gang_problem,
            on_gated=self._news.gated,
            on_let_go=self._news.let_go,
            on_deleting=self._on_deleting,
        )
        self._watching = Watching(
            bus,
            self._engine.profiles,
            self._world.events,
            self._notices,
            host.log,
            on_error=self._engine.errors.append,
            kick=self._kick,
        )
        self._caches: tuple[StateCache[Any], ...] = (
            self._nodes,
            self._quotas,
            self._groups,
            *self._watching.caches,
            self._pods,
        )
        self._monitor = Monitor(host.log, name, settings.monitor)
        self._binds = Binds(
            self._world,
            self._queue,
            claims,
            self._notices,
            ledger=host.ledger,
            publisher=self._publisher,
            log=host.log,
            scheduled_events=settings.scheduled_events,
            kick=self._kick,
            on_gang=self._news.tell,
            on_unavailable=self._close,
            monitor=self._monitor,
        )
        self._preempting = Preempting(
            self._engine,
            ledger=host.ledger,
            outgoing=self._outgoing,
            notices=self._notices,
            member=claims.member,
            waits=self._world.pending.__contains__,
            log=host.log,
            incarnation=host.incarnation,
            scheduler=name,
            unavailable=self._close,
        )
        self._debugging = Debugging(self._engine, host.log, settings.debug)
        self._driver = Driver(
            self._world,
            self._queue,
            Planner(
                self._engine,
                self._queue,
                self._world,
                self._tell,
                name,
                self._news.tell,
                self._preempting,
                self._debugging,
            ),
            claims,
            self._binds,
            self._notices,
            bus=bus,
            ledger=host.ledger,
            outgoing=self._outgoing,
            spans=host.spans,
            log=host.log,
            batch=settings.batch,
            profile=name,
            on_crash=host.fail,
        )
        self._share = Share(host.incarnation)
        self._complete = False
        self._queue.mine = self._is_mine
        self._presence = Presence(
            bus, "scheduler", host.incarnation, on_change=self._on_replicas, is_dead=host.life.is_dead
        )
        self.upkeep = Upkeep(
            host,
            self._driver,
            self._binds,
            self._queue,
            self._engine,
            news=self._news,
            partial=PartialGangs(coscheduling.book, self._phases.on_nodes, self._notices),
            retiring=Retiring(host.ledger, host.name, lambda: self._presence.members, host.life.is_dead),
            outgoing=self._outgoing,
            groups=self._groups,
            monitor=self._monitor,
            evicting=lambda: (self._phases.leading, self._pods.is_following),
            profile=name,
            plugins=list(dict.fromkeys(plugin.name for plugin in self._engine.plugins)),
        )
        self._publisher.on_result(self._on_result)
        self._explainer = Explainer(self._world, self._binds, self._pods.get)
        self._explanations = ExplanationController(
            host,
            self._publisher,
            self._world,
            self._binds,
            self._notices,
            self._pods.items,
            lambda: self._phases.leading,
        )
        Routes(host.pages, self._engine, self._explainer.explain, self._unfit, host.log)
        add_configz(host.pages, settings, self._engine.profiles)
        if settings.debug.flags and profiles.profiling:
            Flags(host.pages, self._debugging)
        for text in profiles.notes:
            self._log.warning("the scheduler's configuration", file=settings.config, note=text)
        if settings.percentage_of_nodes_to_score:
            self._log.info("percentage_of_nodes_to_score is ignored: all nodes are always scored")

    async def start(self) -> None:
        """Subscribe, then schedule once the state is complete and the ledger is open."""
        self._host.ready.require("synced", "ledger")
        await self._presence.start()
        for cache in self._caches:
            await cache.start()
        await self._explanations.start()
        bus = self._host.bus
        await bus.subscribe(bus.subjects.ledger("claim.>"), self._on_hint)
        await bus.subscribe(bus.subjects.ledger("epoch"), self._on_epoch)
        self._runtimes.start()
        await serve(bus, "scheduler", "explain", ExplainPod, self._explainer.explain)
        self._host.spawn(self._schedule(), "loop")
        self._host.spawn(self.upkeep.watch_ledger(), "ledger")
        self._host.spawn(self.upkeep.send(), "notices")
        self._host.spawn(self.upkeep.run(), "upkeep")
        self._host.spawn(self._debugging.dump(), "dump")
        self._host.spawn(watch_seat(bus, self._host.incarnation, self._on_alone), "seat")

    async def drain(self) -> None:
        """Finish the claims under way, give back what is only held; published binds go on without us."""
        await self._presence.stop()
        await self._driver.drain()
        with contextlib.suppress(BusError):
            await self._outgoing.send()
        await self._phases.stop()
        self._publisher.close()
        await self._runtimes.close()
        await self._explanations.close()
        for cache in self._caches:
            await cache.close()

    @property
    def writes_pod_groups(self) -> bool:
        """Whether this replica is the one that writes the status of PodGroups."""
        return self._phases.leading

    def _unfit(self) -> str:
        """Why nothing can be said of the cluster now; empty: everything can."""
        if not self._complete:
            return "the state is not complete yet"
        return NOT_LEADER if self._share.stands_by else ""

    # Tasks ----------------------------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        for cache in self._caches:
            await cache.synced()
        self._host.ready.open("synced")
        self._complete = True
        self._phases.start()
        self._host.spawn(self._explanations.run(), "explanations")
        cluster = self._engine.cluster
        self._log.info(
            "state is complete", nodes=len(cluster), pods=len(cluster.pods), pending=len(self._world.pending)
        )
        await self._driver.run()

    # In -------------------------------------------------------------------------------------------------------------

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

    def _on_quota(self, change: Change[QuotaObject]) -> None:
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

    def _warn_pod_group(self, target: ObjectRef, text: str) -> None:
        self._notices.warn(target, POD_GROUPS.kind, "InvalidGang", text, api_version=POD_GROUPS.api_version)

    def _on_replicas(self) -> None:
        members = self._presence.members
        self._share.set_members(members)
        metrics.replicas.set(len(members))
        came = self._queue.reassign()
        self._log.info("the schedulers that share the pods changed", replicas=len(members), units_taken_over=came)
        self._driver.kick()

    def _on_alone(self, scheduler: str) -> None:
        """Only this scheduler may bind (empty: all)."""
        if self._share.set_alone(scheduler):
            came = self._queue.reassign()
            if scheduler:
                self._log.warning("only one scheduler may bind", scheduler=scheduler, units_taken_over=came)
            self._driver.kick()

    def _is_mine(self, unit: Unit) -> bool:
        """Whoever holds room for a part of a gang group goes on with it."""
        if unit.group:
            return self._share.mine(unit.key) or self._binds.holds(unit.group)
        if self._share.replicas == 1:
            return self._share.mine(unit.key)
        pod = next(iter(unit.pods.values()), None)
        key = unit.key
        if pod is not None:
            key = shared_by(key, pod.ref.namespace, pod.class_.template.spec)
        return self._share.mine(key)

    def _kick_on_events(self) -> None:
        if self._world.events:
            self._driver.kick()

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

    # World and binds come before the driver, and tell it through these. -----------------------------------------

    def _on_bound(self, view: PodView) -> None:
        self._preempting.ended(view.uid)
        self._binds.on_bound(view)

    def _on_ended(self, uid: str) -> None:
        self._preempting.ended(uid)
        self._binds.on_ended(uid)

    def _on_result(self, result: Result) -> None:
        if not self._preempting.on_result(result):
            self._binds.on_result(result)

    def _kick(self) -> None:
        self._driver.kick()

    def _close(self, why: str) -> None:
        self._driver.close(why)

    # Out ------------------------------------------------------------------------------------------------------------

    def _tell(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        ref = pod.ref
        self._notices.failed(
            ref.uid, ref.namespace, ref.name, diagnosis.message, time.monotonic(), error=diagnosis.error
        )

    def _on_invalid(self, view: PodView, message: str) -> None:
        meta = view.metadata
        self._log.warning("a pod cannot be scheduled as written", pod=view.key, error=message)
        self._notices.failed(meta.uid, meta.namespace, meta.name, message, time.monotonic(), error=True)

    def _on_deleting(self, view: PodView) -> None:
        meta = view.metadata
        target = ObjectRef(PODS.token, meta.namespace, meta.name, meta.uid)
        self._notices.warn(target, "Pod", "FailedScheduling", f"skip schedule deleting pod: {view.key}")

    def _on_gang_problem(self, view: PodView, message: str) -> None:
        meta = view.metadata
        target = ObjectRef(PODS.token, meta.namespace, meta.name, meta.uid)
        self._notices.warn(target, "Pod", "InvalidGang", message)

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


def _build(host: Host, settings: SchedulerSettings) -> SchedulerService:
    return SchedulerService(host, settings)


SPEC = ServiceSpec(
    name="scheduler",
    summary="Places pods and gangs on nodes and claims the room in the ledger.",
    settings=SchedulerSettings,
    build=_build,
)
