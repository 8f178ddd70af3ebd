"""The scheduler service: wiring only. State and hints in; claims, binds, conditions and events out.

Several replicas may run and share the pods; what one claims the others are refused. Nothing is planned before the state
of pods, nodes, quotas and PodGroups is complete and the ledger is open.
"""

import contextlib
import time

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.bus.questions import serve
from koord.contracts.asks import ExplainPod
from koord.contracts.results import Result
from koord.runtime.host import Host
from koord.runtime.service import ServiceSpec
from koord.runtime.settings import SettingsError
from koord.scheduler.auditor.auditor import Auditor
from koord.scheduler.binds import Binds
from koord.scheduler.catalogue import Catalogue
from koord.scheduler.claiming import Claims
from koord.scheduler.config.errors import ConfigError
from koord.scheduler.configured import profiles_of
from koord.scheduler.debugging import Debugging
from koord.scheduler.driver import Driver
from koord.scheduler.endpoints.componentmetrics import ComponentMetrics
from koord.scheduler.endpoints.configured import add_configz
from koord.scheduler.endpoints.flags import Flags
from koord.scheduler.endpoints.profiling import Profiling
from koord.scheduler.endpoints.routes import NOT_LEADER, Routes
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.placement import Engine
from koord.scheduler.engine.rejudging import Rejudging
from koord.scheduler.explain import Explainer
from koord.scheduler.explanations.controller import ExplanationController
from koord.scheduler.extenders.extending import Extending
from koord.scheduler.framework.profile import ProfileError
from koord.scheduler.gang.news import GangNews
from koord.scheduler.gang.partial import PartialGangs
from koord.scheduler.gang.podgroups import PodGroupController
from koord.scheduler.gates import read_gates
from koord.scheduler.intake import Intake
from koord.scheduler.jobs.asking import JobPlans
from koord.scheduler.jobs.nextpod import NextPods
from koord.scheduler.monitor import Monitor
from koord.scheduler.notices import Notices
from koord.scheduler.outgoing import Outgoing
from koord.scheduler.planning import Planner
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.podview import PodView
from koord.scheduler.preempting import Preempting
from koord.scheduler.queueing.hints import Hints
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.replicas import Replicas
from koord.scheduler.retiring import Retiring
from koord.scheduler.rivals import Rivals
from koord.scheduler.settings import SchedulerSettings
from koord.scheduler.standing import watch_seat
from koord.scheduler.telling import Telling
from koord.scheduler.upkeep import Upkeep
from koord.scheduler.withdrawing import Withdrawing
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
        gates = read_gates(settings.feature_gates)
        for profile in profiles.all if gates.resize_pod else ():
            profile.allow_resizing()
        bus, name = host.bus, host.common.scheduler_names[0]
        cluster = Cluster(settings.seed)
        self._engine = Engine(cluster, *profiles.all)
        quota = next((plugin for plugin in self._engine.plugins if isinstance(plugin, ElasticQuota)), None)
        if quota is not None:
            quota.tree.default = not host.common.disable_default_quota
        hints = Hints(self._engine.profiles)
        self._queue = SchedulingQueue(hints.events, profiles.queue, hints)
        self._publisher = DecisionPublisher(bus, "scheduler")
        self._phases = PodGroupController(host, self._publisher, settings.coscheduling.stale_after_s)
        self._notices = Notices(host.incarnation, name, self._pod, host.common.scheduler_names)
        telling = Telling(self._notices, host.log)
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
                gates=gates.transformers(settings.transformers),
                on_error=self._engine.errors.append,
            ),
            self._queue,
            coscheduling,
            quota,
            frozenset(host.common.scheduler_names),
            on_bound=self._on_bound,
            on_ended=self._on_ended,
            on_invalid=telling.invalid,
            on_gang_problem=telling.gang_problem,
            on_gated=self._news.gated,
            on_let_go=self._news.let_go,
            on_deleting=telling.deleting,
            on_remark=telling.remark,
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
            expectation=gates.expectation,
        )
        self._engine.nominated.only_beside = gates.only_beside
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
            let_go=self._let_go,
        )
        self._debugging = Debugging(self._engine, host.log, settings.debug)
        planner = Planner(
            self._engine,
            self._queue,
            self._world,
            telling.failed,
            name,
            self._news.tell,
            self._preempting,
            self._debugging,
            JobPlans(self._engine, self._world.pending, inline=gates.inline_batch),
        )
        self.audit = Auditor(settings.auditor, coscheduling.book, host.log) if settings.auditor.enabled else None
        self._preempting.audit = self._world.waiting.audit = planner.audit = self.audit
        self._driver = Driver(
            self._world,
            self._queue,
            planner,
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
        next_pods = NextPods(self._engine.plugins, self._queue, self._world, host.log, most=settings.batch)
        if next_pods.plugin is not None:
            self._driver.next_pods = next_pods
        self._intake = Intake(
            bus,
            self._engine,
            self._world,
            self._queue,
            self._driver,
            self._phases,
            self._notices,
            host.log,
        )
        self._rivals = Rivals(self._world, self._queue, host.ledger, self._pod, host.log)
        self._driver.rounds.withdrawing = Withdrawing(
            self._rivals,
            Rejudging(self._engine, self._world.catalogue.renewed),
            ledger=host.ledger,
            binds=self._binds,
            outgoing=self._outgoing,
            log=host.log,
        )
        self._extending: Extending | None = None
        if profiles.extenders:
            try:
                self._extending = Extending(
                    profiles.extenders,
                    host,
                    self._engine,
                    self._driver,
                    self._binds,
                    self._preempting,
                    self._publisher,
                    at_once=profiles.at_once,
                )
                planner.inline.outside = self._extending.chooses
            except ConfigError as error:
                raise SettingsError(f"{settings.config}: {error}") from error
        self._complete = False
        self._replicas = Replicas(host, self._queue, self._binds, self._driver.kick)
        self.upkeep = Upkeep(
            host,
            self._driver,
            self._binds,
            self._queue,
            self._engine,
            news=self._news,
            partial=PartialGangs(coscheduling.book, self._phases.on_nodes, self._notices),
            retiring=Retiring(host.ledger, host.name, lambda: self._replicas.members, host.life.is_dead),
            outgoing=self._outgoing,
            groups=self._intake.groups,
            monitor=self._monitor,
            preempting=self._preempting,
            evicting=lambda: (self._phases.leading, self._intake.pods.is_following),
            profile=name,
            plugins=list(dict.fromkeys(plugin.name for plugin in self._engine.plugins)),
        )
        self._publisher.on_result(self._on_result)
        self._explainer = Explainer(self._world, self._binds, self._intake.pods.get)
        self._explanations = ExplanationController(
            host,
            self._publisher,
            self._world,
            self._binds,
            self._notices,
            self._intake.pods.items,
            lambda: self._phases.leading,
        )
        groups = self._intake.groups
        Routes(
            host.pages,
            self._engine,
            self._explainer.explain,
            self._unfit,
            host.log,
            lambda id_: (group.metadata.creation_timestamp or "") if (group := groups.get(id_)) is not None else "",
        )
        ComponentMetrics(host.pages, host.ready, self._intake.pods.items, lambda: self._phases.leading, name)
        add_configz(host.pages, settings, self._engine.profiles)
        if settings.debug.flags and profiles.profiling:
            Flags(host.pages, self._debugging)
        if profiles.profiling:
            Profiling(host.pages)
        for text in gates.notes:
            self._log.warning("the scheduler's feature gates", note=text)
        for text in profiles.notes:
            self._log.warning("the scheduler's configuration", file=settings.config, note=text)
        if settings.percentage_of_nodes_to_score:
            self._log.info("percentage_of_nodes_to_score is ignored: all nodes are always scored")

    async def start(self) -> None:
        """Subscribe, then schedule once the state is complete and the ledger is open."""
        self._host.ready.require("synced", "ledger")
        await self._replicas.start()
        await self._rivals.begin()
        await self._intake.start()
        if self._extending is not None:
            await self._extending.start()
        await self._explanations.start()
        bus = self._host.bus
        await serve(bus, "scheduler", "explain", ExplainPod, self._explainer.explain)
        self._host.spawn(self._schedule(), "loop")
        self._host.spawn(self.upkeep.watch_ledger(), "ledger")
        self._host.spawn(self.upkeep.send(), "notices")
        self._host.spawn(self.upkeep.run(), "upkeep")
        self._host.spawn(self._rivals.run(), "rivals")
        self._host.spawn(self._debugging.dump(), "dump")
        self._host.spawn(watch_seat(bus, self._host.incarnation, self._replicas.on_alone), "seat")

    async def drain(self) -> None:
        """Finish the claims under way, give back what is only held; published binds go on without us."""
        await self._replicas.stop()
        await self._driver.drain()
        if self._extending is not None:
            await self._extending.close()
        with contextlib.suppress(BusError):
            await self._outgoing.send()
        await self._phases.stop()
        self._publisher.close()
        await self._explanations.close()
        await self._intake.close()

    @property
    def writes_pod_groups(self) -> bool:
        """Whether this replica is the one that writes the status of PodGroups."""
        return self._phases.leading

    def _unfit(self) -> str:
        """Why nothing can be said of the cluster now; empty: everything can."""
        if not self._complete:
            return "the state is not complete yet"
        return NOT_LEADER if self._replicas.share.stands_by else ""

    # Tasks ----------------------------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        await self._intake.synced()
        if self._extending is not None:
            await self._extending.synced()
        self._host.ready.open("synced")
        self._complete = True
        self._phases.start()
        self._host.spawn(self._explanations.run(), "explanations")
        cluster = self._engine.cluster
        self._log.info(
            "state is complete", nodes=len(cluster), pods=len(cluster.pods), pending=len(self._world.pending)
        )
        await self._driver.run()

    # World, binds and notices come before the driver and the intake, and tell them through these. --------------------

    def _pod(self, key: str) -> PodView | None:
        return self._intake.pods.get(key)

    def _on_bound(self, view: PodView) -> None:
        self._preempting.ended(view.uid)
        self._rivals.settled(view.uid)
        self._binds.on_bound(view)
        if self.audit is not None:
            self.audit.bound(view.uid, time.monotonic())

    def _on_ended(self, uid: str) -> None:
        self._preempting.ended(uid)
        self._rivals.settled(uid)
        self._binds.on_ended(uid)
        if self.audit is not None:
            self.audit.ended(uid, time.monotonic())

    def _on_result(self, result: Result) -> None:
        if not self._preempting.on_result(result):
            self._binds.on_result(result)

    def _let_go(self, uid: str, at_once: bool) -> None:
        self._world.waiting.let_go(uid, time.monotonic(), at_once=at_once)
        self._driver.kick()

    def _kick(self) -> None:
        self._driver.kick()

    def _close(self, why: str) -> None:
        self._driver.close(why)


def _build(host: Host, settings: SchedulerSettings) -> SchedulerService:
    return SchedulerService(host, settings)


SPEC = ServiceSpec(
    name="scheduler",
    summary="Places pods and gangs on nodes and claims the room in the ledger.",
    settings=SchedulerSettings,
    build=_build,
)
