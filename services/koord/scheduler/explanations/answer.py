"""What is answered about some pods: where they are, or who refuses them (spec 10 section 2.10).

Of a pod that waits the filters are asked anew. Several that wait are placed together for a moment, and in each topology
domain if they name a key (``together``). That a plugin has nothing to give on a node is told as the last try left it.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from koord.kube.explanations import (
    DetailedExplanation,
    Explanation,
    ExplanationStatus,
    NodeFailedDetail,
    NodePossibleVictims,
    PossibleVictim,
    SchedulingResult,
)
from koord.kube.protocol.scheduler import TOPOLOGY_KEY_TO_EXPLAIN
from koord.scheduler.binds import Binds
from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.inspecting import best, refusals
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.explanations import together
from koord.scheduler.explanations.together import Domain, Together
from koord.scheduler.framework.contract import PluginError, Preempt, Release, StandBy
from koord.scheduler.podview import PodView
from koord.scheduler.world import World

MOST_NODES = 100
"""Names of nodes that are listed for each plugin and reason; how many more there are is said after them."""
MOST_PODS = 500
MOST_CLASSES = 16
"""Kinds of waiting pods that one answer looks at."""


class Answers:
    """Answers from live state. Milliseconds for each kind of pod that waits."""

    def __init__(self, world: World, binds: Binds) -> None:
        self._world = world
        self._binds = binds

    async def about(self, pods: Sequence[PodView]) -> ExplanationStatus:
        """The answer about ``pods`` (at least one), without the time. Others have their turn between domains."""
        answer, waiting = self._whole(pods)
        key = next((label for pod in pods if (label := pod.metadata.labels.get(TOPOLOGY_KEY_TO_EXPLAIN))), "")
        if not key or not waiting:
            return answer
        found, left = together.domains(self._world.engine.cluster, key, len(waiting))
        entries = list(answer.detailed_explanation)
        for domain in found:
            await asyncio.sleep(0)
            entries.append(self._in_domain(domain, waiting))
        if left:
            entries.append(DetailedExplanation(f"and {left} more"))
        return replace(answer, detailed_explanation=entries)

    def _in_domain(self, domain: Domain, waiting: Sequence[PodInfo]) -> DetailedExplanation:
        # Since the others had their turn some of the pods may have been planned.
        engine = self._world.engine
        pods = [pod for pod in waiting if pod.uid in self._world.pending and engine.counted(pod.uid) is None]
        tried = together.fit(engine, pods, MOST_NODES, domain.rows)
        message = _joint(tried, len(pods))
        return DetailedExplanation(domain.name, not message, False, message, _explained(tried, message))

    def _whole(self, pods: Sequence[PodView]) -> tuple[ExplanationStatus, list[PodInfo]]:
        """The answer for the whole cluster, and the pods that wait, of which not too many are tried together."""
        look = _Look(self._world, self._binds)
        for pod in pods:
            if not pod.terminal:
                look.at(pod)
        tried = look.together()
        message = _said(look.failed) if look.failed or tried is None else _joint(tried, len(look.waiting))
        if tried is not None and message and not look.failed:
            explained = _explained(tried, message, look.placed)
            domain = DetailedExplanation("", False, False, message, explained)
            return ExplanationStatus(False, False, message, UNSET, [domain]), look.tried[: together.MOST_PODS]
        now = Explanation(not look.failed, message, look.placed[:MOST_PODS], _details(look.diagnoses, self._world))
        later, victims = self._after_preemption(pods, look) if look.failed else (None, [])
        after = later is not None and later.schedulable
        if later is not None and later.failed_message:
            message = f"{message} {later.failed_message}"  # as the pod is told
        then = UNSET if later is None else later
        domain = DetailedExplanation("", not look.failed, after, message, now, victims, then)
        status = ExplanationStatus(not look.failed, after, message, UNSET, [domain])
        return status, look.tried[: together.MOST_PODS]

    def _after_preemption(
        self, pods: Sequence[PodView], look: "_Look"
    ) -> tuple[Explanation | None, list[NodePossibleVictims]]:
        """What preemption would do for a single pod; None: nobody is asked (gangs do not preempt yet)."""
        pod = look.single if len(pods) == 1 else None
        if pod is None or not pod.class_.profile.post_filters:
            return None, []
        diagnosis = look.diagnoses[pod.class_]
        texts: list[str] = []
        for plugin in pod.class_.profile.post_filters:
            try:
                found = plugin.post_filter(pod, self._world.engine, diagnosis)
            except Exception as error:
                return Explanation(False, str(PluginError(plugin.name, "PostFilter", error))), []
            if isinstance(found, Preempt):
                ref = pod.ref
                there = SchedulingResult(ref.namespace, ref.name, ref.uid, found.node)
                gone = [
                    PossibleVictim(one.ref.namespace, one.ref.name, one.ref.uid) for one in found.victims[:MOST_PODS]
                ]
                return Explanation(True, "", [there]), [NodePossibleVictims(found.node, gone)]
            if isinstance(found, StandBy | Release):
                return Explanation(True, found.text), []
            if found:
                texts.append(found)
        return Explanation(False, ", ".join(texts)), []


def nothing(message: str) -> ExplanationStatus:
    """An answer that there is nothing to say about, and why."""
    return ExplanationStatus(False, False, message)


class _Look:
    """What was seen of the pods of one question."""

    def __init__(self, world: World, binds: Binds) -> None:
        self._world = world
        self._binds = binds
        self.placed: list[SchedulingResult] = []
        self.failed: list[tuple[str, str]] = []
        """Pods that cannot be placed, by ``ns/name``, and why."""
        self.diagnoses: dict[SchedulingClass, Diagnosis] = {}
        """Of kinds of pods that no node takes."""
        self.single: PodInfo | None = None
        """The last pod that no node takes."""
        self.tried: list[PodInfo] = []
        """Pods that wait and are not held back."""
        self.waiting: list[tuple[PodView, PodInfo]] = []
        """Those of them that some node takes."""
        self._looked: dict[SchedulingClass, Diagnosis] = {}

    def at(self, view: PodView) -> None:
        meta = view.metadata
        if view.spec.node_name:
            self._place(view, view.spec.node_name)
        elif meta.uid in self._world.invalid:
            self._fail(view, self._world.invalid[meta.uid])
        elif meta.deletion_timestamp is not None:
            self._fail(view, "the pod is being deleted")
        elif not self._world.ours(view):
            self._fail(view, f"the pod is for scheduler {view.spec.scheduler_name or 'default-scheduler'!r}")
        elif (flight := self._binds.flights.of_pod(meta.uid)) is not None:
            self._place(view, flight.members[meta.uid][1].node)
        elif (pod := self._world.pending.get(meta.uid)) is not None:
            self._wait(view, pod)
        else:
            self._fail(view, "not seen by the scheduler yet")

    def _wait(self, view: PodView, pod: PodInfo) -> None:
        unit = self._world.unit_of(pod.uid)
        if unit is None:
            return  # being planned at this moment
        said = unit.message or _condition(view)
        if unit.state == "gated":
            self._fail(view, said or "the pod is held back")
            return
        self.tried.append(pod)
        class_ = pod.class_
        diagnosis = self._looked.get(class_)
        if diagnosis is None:
            if len(self._looked) >= MOST_CLASSES:
                if said:
                    self._fail(view, said)
                return
            diagnosis = self._looked[class_] = self._world.engine.explain(class_)
        if not diagnosis.feasible:
            self.diagnoses[class_] = diagnosis
            self.single = pod
            self._fail(view, diagnosis.message)
        elif said and (unit.state == "unschedulable" or (unit.group and unit.state in ("backoff", "elsewhere"))):
            self._fail(view, said)  # as the last try found, although each filter has a node for the pod
        else:
            self.waiting.append((view, pod))

    def together(self) -> Together | None:
        """Several pods that wait, each of which some node takes, tried together; None: there are not several, or some
        cannot be placed anyway."""
        if len(self.waiting) == 1:
            view, pod = self.waiting[0]
            self._could(view, pod.class_)
        if self.failed or not 1 < len(self.waiting) <= together.MOST_PODS:
            return None
        found = together.fit(self._world.engine, [pod for _, pod in self.waiting], MOST_NODES)
        if found.failed is None:
            for (view, _), (_, node) in zip(self.waiting, found.placed, strict=True):
                self._place(view, node)
        return found

    def _could(self, view: PodView, class_: SchedulingClass) -> None:
        try:
            nodes = best(self._world.engine, class_, 1)
        except PluginError as error:
            self._fail(view, str(error))
            return
        if nodes:
            self._place(view, nodes[0].node)

    def _place(self, view: PodView, node: str) -> None:
        meta = view.metadata
        self.placed.append(SchedulingResult(meta.namespace, meta.name, meta.uid, node))

    def _fail(self, view: PodView, why: str) -> None:
        self.failed.append((view.key, why))


def _condition(view: PodView) -> str:
    """What whoever tried the pod last wrote into its condition; another replica, perhaps."""
    return next((one.message for one in view.status.conditions if one.type == "PodScheduled"), "")


def _said(failed: Sequence[tuple[str, str]]) -> str:
    """One pod's reason as it is; of several, each reason once, with how many pods have it and the first of them."""
    if len(failed) == 1:
        return failed[0][1]
    by_reason: dict[str, list[str]] = {}
    for key, why in failed:
        by_reason.setdefault(why, []).append(key)
    parts = [
        f"{keys[0]}: {why}" if len(keys) == 1 else f"{len(keys)} pods, {keys[0]} first: {why}"
        for why, keys in by_reason.items()
    ]
    return "; ".join(parts[:MOST_CLASSES])


def _joint(tried: Together, pods: int) -> str:
    """Why pods do not fit together; empty: they do."""
    if tried.failed is None:
        return ""
    ref = tried.failed.ref
    why = f"{ref.namespace}/{ref.name}: {tried.message}"
    return f"{len(tried.placed)} of {pods} pods fit together; {why}" if pods > 1 else tried.message


def _explained(tried: Together, message: str, before: Sequence[SchedulingResult] = ()) -> Explanation:
    placed = [SchedulingResult(pod.ref.namespace, pod.ref.name, pod.uid, node) for pod, node in tried.placed]
    refused = [
        NodeFailedDetail(one.plugin, one.reason, one.resolvable, _listed(one.names, one.nodes)) for one in tried.refused
    ]
    return Explanation(not message, message, [*before, *placed][:MOST_PODS], refused)


def _details(diagnoses: Mapping[SchedulingClass, Diagnosis], world: World) -> list[NodeFailedDetail]:
    """Who refuses which nodes, over all kinds of pods."""
    names: dict[tuple[str, str, bool], set[str]] = {}
    counts: dict[tuple[str, str, bool], int] = {}
    for class_, diagnosis in diagnoses.items():
        for reason in diagnosis.reasons:
            key = (reason.plugin, reason.reason, reason.resolvable)
            names.setdefault(key, set())
            counts[key] = max(counts.get(key, 0), reason.nodes)
        try:
            refused = refusals(world.engine, class_, MOST_NODES)
        except PluginError:
            continue  # the diagnosis says it
        for one in refused:
            key = (one.plugin, one.reason, one.resolvable)
            if key in names:
                names[key].update(one.names)
    return [
        NodeFailedDetail(plugin, reason, helps, _listed(names[plugin, reason, helps], count))
        for (plugin, reason, helps), count in sorted(counts.items())
    ]


def _listed(names: Iterable[str], count: int) -> list[str]:
    """Names in order, and how many more there are than listed."""
    listed = sorted(names)[:MOST_NODES]
    more = count - len(listed)
    return [*listed, f"and {more} more"] if more > 0 and listed else listed
