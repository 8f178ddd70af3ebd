"""What the leader does once a second: decisions about objects. Everything of it may wait; limits do not wait for it."""

import time
from collections.abc import Mapping, Sequence

import msgspec

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.contracts.decisions import Create, Decision, EventNote, Evict, ObjectRef, Patch, RecordEvents
from koord.contracts.results import Result
from koord.kube.meta import ObjectMeta
from koord.kube.quotas import ElasticQuotaProfile
from koord.kube.resources import ELASTIC_QUOTA_PROFILES, ELASTIC_QUOTAS, NAMESPACES, PODS
from koord.quota import metrics
from koord.quota.inforce import Problem
from koord.quota.inputs import MOST_PROBLEMS
from koord.quota.keeper import Keeper
from koord.quota.notes import note
from koord.quota.profiles import Profiles, Step
from koord.quota.revoking import Revoker
from koord.quota.settings import QuotaSettings
from koord.quota.special import namespace_object, special_quotas
from koord.quota.views import PodBrief
from koord.quota.writes import Writes
from koord.runtime.host import Host
from koord.telemetry.context import TraceContext

PATIENCE_S = 10.0
"""A write that was refused, or of which nothing was heard, is made again after so long."""

Decisions = list[tuple[Decision, TraceContext]]


class Chores:
    """Objects are keyed by namespace and name, a Namespace by its name, a profile by ``profile`` before its key."""

    def __init__(
        self,
        host: Host,
        settings: QuotaSettings,
        keeper: Keeper,
        profiles: Profiles,
        publisher: DecisionPublisher,
    ) -> None:
        self._host, self._settings = host, settings
        self._keeper, self._profiles, self._publisher = keeper, profiles, publisher
        self._revoker = Revoker(keeper, settings.delay_evict_s)
        self._revoked_s = 0.0
        self._notes: list[EventNote] = []
        self._writes = Writes(PATIENCE_S)
        self._numbers = 0
        publisher.on_result(self._on_result)

    def seen(self, key: str) -> None:
        """The object changed."""
        self._writes.seen(key)

    def bad_profile(self, profile: ElasticQuotaProfile, why: str) -> None:
        """A profile is not in force."""
        self._host.log.warning("a profile is not in force", profile=profile.key, error=why)
        self._notes.append(note(ELASTIC_QUOTA_PROFILES, profile.metadata, "InvalidProfile", why))
        del self._notes[:-MOST_PROBLEMS]

    async def do(self, namespaces: Mapping[str, object], pods: Mapping[str, PodBrief] | None) -> None:
        """All of it. ``pods`` None: nothing is taken back now, because the picture may not be whole."""
        decisions: Decisions = []
        self._ensure_objects(decisions, namespaces)
        self._keep_profiles(decisions)
        if pods is not None:
            self._revoke(decisions, pods)
        self._keeper.quotas.look()
        problems, self._keeper.quotas.problems = self._keeper.quotas.problems, []
        self._tell(decisions, problems)
        with metrics.UPDATE.time():
            self._write_back(decisions)
        try:
            await self._publisher.publish_many(decisions)
        except BusError as error:
            self._writes.clear()
            told = [each for decision, _ in decisions if isinstance(decision, RecordEvents) for each in decision.events]
            self._notes = [*told, *self._notes][-MOST_PROBLEMS:]
            self._host.log.warning("the bus does not take decisions, they wait", error=str(error))

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

    def _ensure_objects(self, decisions: Decisions, namespaces: Mapping[str, object]) -> None:
        namespace = self._settings.namespace
        if namespace not in namespaces:
            body = msgspec.json.encode(namespace_object(namespace))
            self._put(decisions, namespace, Create(self._id(), NAMESPACES.token, "", namespace, body))
            return
        settings = self._settings
        for quota in special_quotas(namespace, settings.default_quota_group_max, settings.system_quota_group_max):
            name = quota["metadata"]["name"]
            if name not in self._keeper.tree:
                body = msgspec.json.encode(quota)
                create = Create(self._id(), ELASTIC_QUOTAS.token, namespace, name, body)
                self._put(decisions, f"{namespace}/{name}", create)

    def _write_back(self, decisions: Decisions) -> None:
        for quota, patch in self._keeper.showing.patches():
            meta = quota.metadata
            target = ObjectRef(ELASTIC_QUOTAS.token, meta.namespace, meta.name, meta.uid)
            if self._put(decisions, quota.key, Patch(self._id(), target, msgspec.json.encode(patch))):
                metrics.WRITTEN.inc()

    def _keep_profiles(self, decisions: Decisions) -> None:
        """Root quotas as the profiles say."""
        if not self._profiles.dirty:
            return
        self._profiles.dirty = False
        quotas = self._keeper.quotas.objects
        for step in self._profiles.steps(quotas):
            self._profiles.dirty = True  # until the objects show it
            profile, name = step.profile.metadata, step.profile.spec.quota_name
            key, body, id_ = f"{profile.namespace}/{name}", msgspec.json.encode(step.body), self._id()
            decision: Decision
            if step.kind == "create":
                decision = Create(id_, ELASTIC_QUOTAS.token, profile.namespace, name, body)
            elif step.kind == "patch":
                uid = quotas[key].metadata.uid
                decision = Patch(id_, ObjectRef(ELASTIC_QUOTAS.token, profile.namespace, name, uid), body)
            else:
                key = f"profile {profile.key}"
                target = ObjectRef(ELASTIC_QUOTA_PROFILES.token, profile.namespace, profile.name, profile.uid)
                decision = Patch(id_, target, body)
            self._put(decisions, key, decision, step)

    def _revoke(self, decisions: Decisions, pods: Mapping[str, PodBrief]) -> None:
        """Evict pods of quotas that use more than they may for too long."""
        now = time.monotonic()
        if now - self._revoked_s < self._settings.revoke_interval_s:
            return
        self._revoked_s = now
        for revocation in self._revoker.due(pods, now):
            for pod in revocation.pods:
                target = ObjectRef(PODS.token, pod.namespace, pod.name, pod.uid)
                decisions.append((Evict(self._id(), target, revocation.reason), TraceContext.new(sampled=False)))
                meta = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
                self._notes.append(note(PODS, meta, "QuotaRevoked", revocation.reason))
                self._host.log.info("a pod is evicted", pod=f"{pod.namespace}/{pod.name}", reason=revocation.reason)
            metrics.REVOKED.inc(len(revocation.pods))

    def _tell(self, decisions: Decisions, problems: Sequence[Problem]) -> None:
        for each in problems:
            self._host.log.warning("a quota is not in force", quota=each.quota.key, reason=each.reason, error=each.text)
            self._notes.append(note(ELASTIC_QUOTAS, each.quota.metadata, each.reason, each.text))
        notes, self._notes = self._notes[-MOST_PROBLEMS:], []
        if notes:
            decisions.append((RecordEvents(self._id(), notes), TraceContext.new(sampled=False)))

    def _put(self, decisions: Decisions, key: str, decision: Decision, step: Step | None = None) -> bool:
        """Decide about an object unless a write of it is under way."""
        if not self._writes.begin(key, decision.id, time.monotonic(), step):
            return False
        decisions.append((decision, TraceContext.new(sampled=False)))
        return True

    def _id(self) -> str:
        self._numbers += 1
        return f"{self._host.incarnation}-w{self._numbers}"
