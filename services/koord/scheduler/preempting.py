"""What follows when a pod fits nowhere: PostFilter plugins are asked, and victims go (spec 10 section 3.15, step 5).

First the ledger keeps the room for the pod and locks the victims, so that of several schedulers one preempts; then all
of it is decided at once and told the gateway: the pod's ``nominatedNodeName``, and for each victim the condition
``DisruptionTarget`` and, after it, the deletion. Each decision names its pod's uid, so nothing is done twice to
anybody, however often it comes. Should this process die in between, the ledger's lease ends after a minute, or the pod
is told to wait already; whoever plans it next finds either room, victims that are going, or victims still to be asked.

Until the gateway has answered for all of it the pod does not preempt again.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from koord.accounting.takes import BUDGET
from koord.contracts.decisions import Decision, Delete, ObjectRef, Patch
from koord.contracts.results import Result
from koord.kube.meta import now_rfc3339
from koord.kube.resources import PODS
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable, Member
from koord.ledger.nominations import NominateRequest, Victim
from koord.scheduler import metrics
from koord.scheduler.auditor.auditor import Auditor
from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, Placed, PodInfo
from koord.scheduler.engine.timing import SUCCESS, UNSCHEDULABLE
from koord.scheduler.framework.contract import AssignedPod, PluginError, PostFilterPlugin, Preempt, StandBy
from koord.scheduler.framework.following import Release
from koord.scheduler.notices import Notices
from koord.scheduler.outgoing import Outgoing
from koord.scheduler.plugins.defaultpreemption import HELD
from koord.scheduler.prebinding import patch_of
from koord.scheduler.preemption.search import fits_unmasked
from koord.telemetry.logs import Logger

PATIENCE_S = 60.0
"""As long as the ledger locks victims: after that the pod may preempt again, whatever became of the decisions."""
_encode = msgspec.json.Encoder().encode


class _Open(msgspec.Struct):
    """A preemption of which not all decisions are answered. ``failed``: some victim was not made to go."""

    plugin: PostFilterPlugin
    decisions: set[str]
    victims: tuple[str, ...]
    until: float
    failed: bool = False


def _nobody(uid: str, at_once: bool) -> None:
    """Nobody holds pods back."""


class Say(Protocol):
    """Somebody outside who has a say in who goes."""

    def concerns(self, class_: SchedulingClass) -> bool:
        """Whether it has, for pods of the class."""
        ...

    def verdict(self, pod: PodInfo, plugin: PostFilterPlugin, candidates: Sequence[Preempt]) -> Preempt | StandBy | str:
        """The candidate to take, or why none is taken now."""
        ...

    def asking(self, uid: str) -> bool:
        """Whether the pod has to wait for it."""
        ...

    def forget(self, uid: str) -> None:
        """The pod is placed, or gone."""
        ...


class Preempting:
    """``answer`` is asked for every single pod that found no place. ``member`` makes what a pod takes on a node,
    ``waits`` tells by uid whether a pod still has to be placed. ``let_go`` is told when a pod need not be held back any
    longer, and whether its victims are gone, or will not go, so that it should be tried at once."""

    def __init__(
        self,
        engine: Engine,
        *,
        ledger: Ledger,
        outgoing: Outgoing,
        notices: Notices,
        member: Callable[[PodInfo, Placed], Member],
        waits: Callable[[str], bool],
        log: Logger,
        incarnation: str,
        scheduler: str,
        unavailable: Callable[[str], None],
        let_go: Callable[[str, bool], None] = _nobody,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._outgoing = outgoing
        self._notices = notices
        self._member = member
        self._waits = waits
        self._log = log
        self._incarnation = incarnation
        self._scheduler = scheduler
        self._unavailable = unavailable
        self.let_go = let_go
        self.audit: Auditor | None = None
        self.outside: Say | None = None
        self._numbers = itertools.count(1)
        self._open: dict[str, _Open] = {}
        self._deletions: dict[str, tuple[str, str]] = {}
        """Preemptor and victim of each deletion that is not answered."""
        self._going: dict[str, float] = {}
        """Victims that were asked to go, and until when that is believed without seeing it."""

    def __len__(self) -> int:
        return len(self._open)

    def concerns(self, pod: PodInfo, diagnosis: Diagnosis) -> bool:
        """Whether anybody may know a way out for the pod."""
        return not diagnosis.error and diagnosis.total > 0 and bool(pod.class_.profile.post_filters)

    async def answer(self, pod: PodInfo, diagnosis: Diagnosis, now: float) -> Diagnosis:
        """The diagnosis with what became of it; ``now`` is monotonic. If victims go, the message is as it was."""
        held = self._open.get(pod.uid)
        if held is not None:
            if now < held.until:
                if self.audit is not None:
                    self.audit.victims_going(pod, now)
                return _with(diagnosis, HELD)
            self._close(pod.uid)
        try:
            if fits_unmasked(self._engine, pod):
                return msgspec.structs.replace(diagnosis, again=True)
        except Exception as error:
            return msgspec.structs.replace(diagnosis, message=str(error), error=True)
        texts: list[str] = []
        stays = False
        for plugin in pod.class_.profile.post_filters:
            asked = self.outside if self.outside is not None and self.outside.concerns(pod.class_) else None
            timing = self._engine.cluster.timing
            begun = timing.begun()
            try:
                if asked is None:
                    found = plugin.post_filter(pod, self._engine, diagnosis)
                else:
                    several = plugin.candidates(pod, self._engine, diagnosis)
                    if several is None or isinstance(several, StandBy | Release | str):
                        found = several
                    else:
                        found = asked.verdict(pod, plugin, several)
            except Exception as error:
                failed = error if isinstance(error, PluginError) else PluginError(plugin.name, "PostFilter", error)
                return msgspec.structs.replace(diagnosis, message=str(failed), error=True)
            if begun:
                timing.took(plugin.name, "PostFilter", begun, SUCCESS if isinstance(found, Preempt) else UNSCHEDULABLE)
            if isinstance(found, Preempt):
                return await self._preempt(pod, plugin, found, diagnosis, now)
            if isinstance(found, Release):
                self._outgoing.add([patch_of(self._id("release"), each) for each in found.writes])
                return _with(diagnosis, ", ".join([*texts, found.text]))
            if isinstance(found, StandBy):
                texts.append(found.text)
                stays = True
            elif found:
                texts.append(found)
        if not stays and self._engine.nominated.clear(pod.uid) is not None:
            self._outgoing.add([self._nominate(_object(pod), None)])
        if self.audit is not None and stays:
            self.audit.victims_going(pod, now)
        elif self.audit is not None and texts:
            self.audit.preemption_failed(pod, now)
        return _with(diagnosis, ", ".join(texts))

    def on_result(self, result: Result) -> bool:
        """The gateway's answer to a decision; False if it is none of these."""
        uid, victim = self._deletions.pop(result.id, ("", ""))
        if not uid:
            return False
        entry = self._open.get(uid)
        if result.outcome in ("rejected", "conflict"):
            self._going.pop(victim, None)
            self._log.warning("a victim stays", decision=result.id, outcome=result.outcome, reason=result.reason)
            if entry is not None:
                entry.failed = True
        if entry is not None:
            entry.decisions.discard(result.id)
            if not entry.decisions:
                self._close(uid)
        return True

    def holds(self, uid: str) -> bool:
        """Whether victims of the pod's are still being asked to go."""
        return uid in self._open or (self.outside is not None and self.outside.asking(uid))

    def expire(self, now: float) -> None:
        """Pods whose preemption was not answered in time are tried again. About every second."""
        for uid, entry in list(self._open.items()):
            if entry.until > now:
                continue
            self._log.warning("nothing was heard of a preemption", uid=uid)
            entry.failed = True
            for id_ in entry.decisions:
                self._going.pop(self._deletions[id_][1], None)  # asked again
            self._close(uid)

    def ended(self, uid: str) -> None:
        """The pod found its place, or went."""
        self._close(uid)
        self._going.pop(uid, None)
        if self.outside is not None:
            self.outside.forget(uid)

    async def _preempt(
        self, pod: PodInfo, plugin: PostFilterPlugin, found: Preempt, diagnosis: Diagnosis, now: float
    ) -> Diagnosis:
        ref = pod.ref
        victims = tuple(
            Victim(
                victim.ref.uid,
                () if victim.terminating else tuple(f"{BUDGET}{key}" for key in found.budgets.get(victim.ref.uid, ())),
            )
            for victim in found.victims
        )
        id_ = f"{self._incarnation}-preemption-{next(self._numbers)}"
        request = NominateRequest(id_, (self._member(pod, Placed(found.node, 0)),), pod.priority, victims=victims)
        metrics.preemption_attempts.inc()
        try:
            [answer] = await self._ledger.nominate([request])
        except LedgerUnavailable as error:
            self._unavailable(f"ledger unavailable: {error}")
            return _with(diagnosis, "preemption: the ledger is away", again=True)
        metrics.nominations.labels(answer.status, "preemption").inc()
        if answer.status != "ok":
            # Somebody else was faster, or knows better: looked at again soon.
            short = answer.shorts[0] if answer.shorts else None
            why = f": {short.item} {short.kind}" if short is not None else ""
            return _with(diagnosis, f"preemption: the ledger answers {answer.status}{why}", again=True)
        if not self._waits(ref.uid):  # it went meanwhile; the ledger hears of that, too
            return diagnosis
        metrics.preemption_victims.observe(len(found.victims))
        decisions: list[Decision] = [self._nominate(_object(pod), found.node)]
        decisions += self._clear_lower(pod, found.node)
        waiting: set[str] = set()
        for victim in found.victims:
            if victim.terminating or self._going.get(victim.ref.uid, now) > now:
                continue
            decisions += self._go(pod, victim)
            waiting.add(decisions[-1].id)
            self._deletions[decisions[-1].id] = (ref.uid, victim.ref.uid)
            self._going[victim.ref.uid] = now + PATIENCE_S
            text = f"Preempted by pod {ref.uid} on node {found.node}"
            self._notices.preempted(_object(victim), text, pod.class_.profile.scheduler_name)
        self._engine.nominated.set(pod.planned(found.node, 0.0))
        if waiting:
            uids = tuple(victim.ref.uid for victim in found.victims)
            self._open[ref.uid] = _Open(plugin, waiting, uids, now + PATIENCE_S)
            plugin.begun(ref.uid)
        self._outgoing.add(decisions)
        if self.audit is not None:
            self.audit.preempted(pod, [victim.ref.uid for victim in found.victims], now)
        names = [f"{victim.ref.namespace}/{victim.ref.name}" for victim in found.victims]
        self._log.info("pods are preempted", pod=f"{ref.namespace}/{ref.name}", node=found.node, victims=names)
        return msgspec.structs.replace(diagnosis, plugins=diagnosis.plugins | {plugin.name})

    def _go(self, pod: PodInfo, victim: AssignedPod) -> list[Decision]:
        """Why it goes, then that it goes; the gateway keeps the order of what touches one object."""
        target, ref = _object(victim), pod.ref
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{self._scheduler}: preempting to accommodate a higher priority pod, "
            f"preemptor: {ref.namespace}/{ref.name}",
            "lastTransitionTime": now_rfc3339(time.time()),
        }
        body = _encode({"status": {"conditions": [condition]}})
        patch = Patch(self._id("victim"), target, body, patch="strategic", subresource="status")
        return [patch, Delete(self._id("deletion"), target)]

    def _clear_lower(self, pod: PodInfo, node: str) -> list[Decision]:
        """Who waits for the same node with less priority looks for another one."""
        decisions: list[Decision] = []
        nominated = self._engine.nominated
        for other in nominated.on(node):
            if other.priority < pod.priority and other.ref.uid != pod.uid:
                nominated.clear(other.ref.uid)
                decisions.append(self._nominate(_object(other), None))
        return decisions

    def _nominate(self, target: ObjectRef, node: str | None) -> Patch:
        body = _encode({"status": {"nominatedNodeName": node}})
        return Patch(self._id("nominated"), target, body, subresource="status")

    def _close(self, uid: str) -> None:
        entry = self._open.pop(uid, None)
        if entry is None:
            return
        for id_ in entry.decisions:
            self._deletions.pop(id_, None)
        entry.plugin.finished(uid)
        there = [victim for victim in entry.victims if self._engine.counted(victim) is not None]
        self.let_go(uid, entry.failed or not there)

    def _id(self, what: str) -> str:
        return f"{self._incarnation}-{what}-{next(self._numbers)}"


def _with(diagnosis: Diagnosis, text: str, *, again: bool = False) -> Diagnosis:
    message = f"{diagnosis.message} {text}" if text else diagnosis.message
    return msgspec.structs.replace(diagnosis, message=message, again=again)


def _object(pod: PodInfo | AssignedPod) -> ObjectRef:
    return ObjectRef(PODS.token, pod.ref.namespace, pod.ref.name, pod.ref.uid)
