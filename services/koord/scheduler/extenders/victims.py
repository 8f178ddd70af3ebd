"""Extenders with a ``preemptVerb`` have a say in who goes: they are shown all candidates, nodes with their victims, and
leave some, perhaps with other victims.

They are asked beside the loop while the pod is held back as one whose victims are being told; then it is tried anew,
and what they left is taken if it still stands. Rules are upstream's: one extender after the other, each about what the
one before left; a node without victims, a pod that is not there, or no answer is the end of it, unless the extender may
be ignored.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.extenders import wire
from koord.scheduler.extenders.asking import Extenders
from koord.scheduler.extenders.client import ExtenderClient, ExtenderError
from koord.scheduler.extenders.objects import Objects, ObjectsUnknown
from koord.scheduler.framework.contract import AssignedPod, PodRef, PostFilterPlugin, Preempt, StandBy
from koord.scheduler.podtrace import trace_of
from koord.scheduler.preemption.candidates import Candidate, cost, importance
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import Logger
from koord.telemetry.spans import Spans

WAITING = "preemption: waiting for extenders to agree"
NONE_LEFT = "preemption: extenders leave no candidate"
FRESH_S = 10.0
AT_ONCE = 16


class _Left(msgspec.Struct, frozen=True):
    """What extenders left of the candidates of a pod: victims by node. With an ``error`` nothing else counts."""

    pod: PodInfo
    until: float
    victims: Mapping[str, wire.Victims] = {}
    error: str = ""


class ExtenderVictims:
    """``verdict`` on candidates. ``let_go`` is told when a pod need not be held back any longer."""

    def __init__(
        self,
        extenders: Extenders,
        objects: Objects,
        engine: Engine,
        spans: Spans,
        log: Logger,
        *,
        let_go: Callable[[str, bool], None],
    ) -> None:
        self._extenders = extenders
        self._objects = objects
        self._engine = engine
        self._spans = spans
        self._log = log
        self._let_go = let_go
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._left: dict[str, _Left] = {}

    def concerns(self, class_: SchedulingClass) -> bool:
        """Whether some extender has a say in preemption for pods of the class."""
        return any(client.config.preempt_verb for client in self._extenders.interested(class_))

    def asking(self, uid: str) -> bool:
        """Whether extenders are being asked for the pod."""
        return uid in self._tasks

    def verdict(self, pod: PodInfo, plugin: PostFilterPlugin, candidates: Sequence[Preempt]) -> Preempt | StandBy | str:
        """The candidate to take, or why there is none; at first extenders are asked, and the pod has to wait."""
        left = self._left.pop(pod.uid, None)
        if left is None or left.pod is not pod or time.monotonic() >= left.until:
            plugin.begun(pod.uid)
            task = asyncio.create_task(self._ask(pod, {each.node: each for each in candidates}))
            self._tasks[pod.uid] = task
            task.add_done_callback(lambda ended: self._answered(pod.uid, plugin, ended))
            return StandBy(WAITING)
        if left.error:
            return f"preemption: {left.error}"
        before = {each.node: each for each in candidates}
        found: list[tuple[tuple[float, ...], Preempt]] = []
        for node, victims in left.victims.items():
            pods = [there for uid in victims.uids if (there := self._on(uid, node)) is not None]
            if not pods or len(pods) < len(victims.uids):
                continue
            pods.sort(key=importance)
            preempt = before.get(node, Preempt(node))
            if frozenset(victims.uids) != {each.ref.uid for each in preempt.victims}:
                preempt = plugin.revised(preempt, tuple(pods))
            rank = cost(Candidate(node, tuple(pods), preempt.violating))
            found.append(((victims.violations, *rank[1:]), preempt))
        return min(found, key=lambda each: each[0])[1] if found else NONE_LEFT

    def forget(self, uid: str) -> None:
        """The pod is placed, or gone."""
        self._left.pop(uid, None)
        task = self._tasks.get(uid)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Nobody is asked any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _answered(self, uid: str, plugin: PostFilterPlugin, task: "asyncio.Task[None]") -> None:
        del self._tasks[uid]
        plugin.finished(uid)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._log.error("asking extenders about preemption failed", uid=uid, error=repr(error))
        self._let_go(uid, True)

    def _on(self, uid: str, node: str) -> AssignedPod | None:
        pod = self._engine.counted(uid)
        return pod if pod is not None and pod.node == node and not pod.planned else None

    async def _ask(self, pod: PodInfo, candidates: Mapping[str, Preempt]) -> None:
        try:
            victims = await self._agree(pod, candidates)
        except (ExtenderError, ObjectsUnknown) as error:
            self._left[pod.uid] = _Left(pod, time.monotonic() + FRESH_S, error=str(error))
        else:
            self._left[pod.uid] = _Left(pod, time.monotonic() + FRESH_S, victims)

    async def _agree(self, pod: PodInfo, candidates: Mapping[str, Preempt]) -> dict[str, wire.Victims]:
        left = {
            node: wire.Victims(tuple(victim.ref.uid for victim in each.victims), len(each.violating))
            for node, each in candidates.items()
        }
        body = await self._objects.pod(pod.ref)
        refs = {victim.ref.uid: victim.ref for each in candidates.values() for victim in each.victims}
        trace = trace_of(pod.ref, self._spans)
        for client in self._extenders.interested(pod.class_):
            if not client.config.preempt_verb or not left:
                continue
            try:
                left = await self._asked(client, body, left, refs, trace)
            except ExtenderError as error:
                if not client.config.ignorable:
                    raise
                self._extenders.passed_over(client, client.config.preempt_verb, error)
        return left

    async def _asked(
        self,
        client: ExtenderClient,
        pod: bytes,
        victims: Mapping[str, wire.Victims],
        refs: Mapping[str, PodRef],
        trace: TraceContext,
    ) -> dict[str, wire.Victims]:
        """What one extender leaves. ExtenderError: it names what is not there, or nothing at all."""
        verb = client.config.preempt_verb
        if client.config.node_cache_capable:
            question = wire.preemption_args_by_uid(pod, victims)
        else:
            uids = [uid for each in victims.values() for uid in each.uids]
            question = wire.preemption_args_by_object(pod, victims, await self._bodies(uids, refs))
        answer = await client.ask(verb, question, trace)
        try:
            found = wire.read_victims(answer)
        except wire.WireError as error:
            raise ExtenderError(f"extender {client.name}: {verb}: the answer {error}") from error
        left: dict[str, wire.Victims] = {}
        for node, each in found.items():
            if self._engine.cluster.index.find(node) is None:
                raise ExtenderError(f"extender {client.name}: {verb}: there is no node {node[:253]!r}")
            for uid in each.uids:
                if self._on(uid, node) is None:
                    raise ExtenderError(
                        f"extender: {client.name} claims to preempt pod (UID: {uid[:64]}) on node: {node}, "
                        "but the pod is not found on that node"
                    )
            if each.uids:
                left[node] = each
            elif not client.config.ignorable:
                raise ExtenderError(f'extender {client.name}: expected at least one victim pod on node "{node}"')
        return left

    async def _bodies(self, uids: Sequence[str], refs: Mapping[str, PodRef]) -> dict[str, bytes]:
        """The JSON of victims; one that cannot be read is told by its uid alone."""
        limit = asyncio.Semaphore(AT_ONCE)
        bodies: dict[str, bytes] = {}

        async def read(uid: str) -> None:
            ref = refs.get(uid)
            if ref is None:
                found = self._engine.counted(uid)
                ref = found.ref if found is not None else None
            if ref is None:
                return
            async with limit:
                try:
                    bodies[uid] = await self._objects.pod(ref)
                except ObjectsUnknown as error:
                    self._log.info("a victim is shown to an extender by its uid alone", error=str(error))

        await asyncio.gather(*(read(uid) for uid in dict.fromkeys(uids)))
        return bodies
