"""Answers "why is this pod where it is?" from live state: queue, flights, columns, quota, gang."""

import time
from collections.abc import Callable

from koord.contracts.asks import ExplainPod, NearNode, NodeReason, PodExplanation
from koord.scheduler.binds import Binds
from koord.scheduler.engine.inspecting import near_misses
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.framework.contract import PluginError
from koord.scheduler.podview import PodView
from koord.scheduler.queueing.queue import Unit
from koord.scheduler.world import World

NEAREST = 3
"""Nodes that are told to come near."""
_STATES = {"inflight": "planned", "new": "active"}


class Explainer:
    """``view`` finds a pod by ``ns/name``."""

    def __init__(self, world: World, binds: Binds, view: Callable[[str], PodView | None]) -> None:
        self._world = world
        self._binds = binds
        self._view = view

    async def explain(self, question: ExplainPod) -> PodExplanation:
        """The scheduler's view of one pod, diagnosed as of now."""
        view = self._view(f"{question.namespace}/{question.name}")
        if view is None:
            return self._bare(question, "unknown", error="the pod is not known (or it has ended and was removed)")
        if view.spec.node_name:
            return self._bare(question, "bound", node=view.spec.node_name)
        if view.terminal:
            return self._bare(question, "unknown", error=f"the pod has ended: {view.status.phase}")
        uid = view.metadata.uid
        if not self._world.ours(view):
            scheduler = view.spec.scheduler_name or "default-scheduler"
            return self._bare(question, "foreign", message=f"the pod is for scheduler {scheduler!r}")
        if uid in self._world.invalid:
            return self._bare(question, "unschedulable", error=self._world.invalid[uid])
        pod = self._world.pending.get(uid)
        if pod is None:
            deleting = view.metadata.deletion_timestamp is not None
            return self._bare(question, "unknown", error="the pod is being deleted" if deleting else "not seen yet")
        flight = self._binds.flights.of_pod(uid)
        if flight is not None:
            _, placed = flight.members[uid]
            held = flight.bind is None and not flight.outside
            text = "room is held until the gang is complete" if held else "claimed, the bind is under way"
            if flight.outside:
                text = "claimed, an extender binds the pod"
            if held and (plugin := self._binds.waits_for(flight)):
                text = f"room is held until {plugin} has in the API what the pods need"
            return self._pending(question, pod, "planned" if held else "binding", text, node=placed.node)
        unit = self._world.unit_of(uid)
        if unit is None:
            return self._pending(question, pod, "planned", "being planned")
        if unit.state == "elsewhere":
            return self._bare(question, "elsewhere", message="another replica of the scheduler places this pod")
        return self._pending(question, pod, _STATES.get(unit.state, unit.state), unit.message, unit=unit)

    def _bare(
        self, question: ExplainPod, state: str, *, node: str = "", message: str = "", error: str = ""
    ) -> PodExplanation:
        total = len(self._world.engine.cluster)
        return PodExplanation(
            question.namespace, question.name, state, node=node, message=message, total_nodes=total, error=error
        )

    def _pending(
        self,
        question: ExplainPod,
        pod: PodInfo,
        state: str,
        message: str,
        *,
        node: str = "",
        unit: Unit | None = None,
    ) -> PodExplanation:
        world = self._world
        diagnosis = world.engine.explain(pod.class_) if unit is not None else None
        waits = unit is not None and unit.state in ("backoff", "unschedulable", "active")
        now = time.monotonic()
        gang = world.book.of(pod.uid)
        quota = world.quota
        ref = pod.ref
        return PodExplanation(
            question.namespace,
            question.name,
            state,
            node=node,
            message=message or (diagnosis.message if diagnosis is not None and not diagnosis.feasible else ""),
            attempts=unit.attempts if unit is not None else 0,
            total_nodes=len(world.engine.cluster),
            feasible_nodes=diagnosis.feasible if diagnosis is not None else 0,
            reasons=[NodeReason(r.plugin, r.reason, r.nodes) for r in diagnosis.reasons] if diagnosis else [],
            quota=quota.levels(ref.labels, ref.namespace, pod.class_.template.request) if quota is not None else [],
            gang=gang.ref.id if gang is not None else "",
            gang_members=gang.members if gang is not None else 0,
            gang_minimum=(gang.ref.min or 0) if gang is not None else 0,
            waiting_s=round(now - unit.since, 3) if unit is not None else 0.0,
            backoff_s=round(max(0.0, unit.ready_at - now), 3) if waits and unit is not None else 0.0,
            rejected_by=sorted(unit.rejecters) if waits and unit is not None else [],
            wakes_on=self._wakes(pod, unit) if waits and unit is not None else [],
            nearest=self._nearest(pod) if diagnosis is not None and not diagnosis.feasible else [],
        )

    def _wakes(self, pod: PodInfo, unit: Unit) -> list[str]:
        """Events after which the pod is tried again; whether one really helps is judged when it comes."""
        profile = pod.class_.profile
        events = {event.value for plugin in unit.rejecters for event in profile.events(plugin)}
        return sorted(events)

    def _nearest(self, pod: PodInfo) -> list[NearNode]:
        engine = self._world.engine
        try:
            if engine.prefiltered(pod.class_.compiled(engine.cluster, engine.verdicts)) is not None:
                return []  # no node has anything to do with it
            found = near_misses(engine, pod.class_, NEAREST)
        except PluginError:  # the message says which
            return []
        return [NearNode(near.node, list(near.reasons), dict(near.short)) for near in found]
