"""Inline batch: the pods of a plan are placed together, each on its node, or none of them (spec 10 section 3.10b).

They go node by node, on a node by name, each after every filter with those before it counted. The first that fails ends
it: all are taken back bit for bit, and the job waits without preempting. What was placed is claimed in one go, so the
ledger, too, takes all or nothing; from the Bind on each pod is for itself. The pods end their attempt as planned ones
do, so nothing has to be kept from being told as a failure (the original suppresses a reason ``PodBatchScheduled``).
"""

from collections.abc import Callable, Mapping
from itertools import groupby
from time import perf_counter

import msgspec

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, Placed, PodInfo
from koord.scheduler.gang.book import Gang, GangBook
from koord.scheduler.jobs import metrics
from koord.scheduler.jobs.asking import Asked, Undesignated, confined

LARGEST = 4096
"""Pods that one claim holds."""


class InlineBatch:
    """Placing the pods of a plan, ``trigger`` among them: ``step`` until True, then ``failure`` or ``placed``.

    ``waiting``: all pods that are to be placed, by uid. ``held`` answers why a pod of them must not be placed now, or
    None.
    """

    def __init__(
        self,
        engine: Engine,
        book: GangBook,
        asked: Asked,
        trigger: PodInfo,
        waiting: Mapping[str, PodInfo],
        held: Callable[[PodInfo], str | None],
        undesignated: Undesignated,
    ) -> None:
        self._engine = engine
        self._book = book
        self._plugin = asked.plugin.name
        self._waiting = waiting
        self._undesignated = undesignated
        self.placed: list[tuple[PodInfo, Placed]] = []
        self.failure: Diagnosis | None = None
        self._todo: list[tuple[str, list[PodInfo]]] = []
        self._node = self._pod = 0
        self._begun = perf_counter()
        self._node_begun = self._begun
        pods = self._pods(asked, trigger, held)
        if self.failure is None:
            nodes = asked.plan.nodes
            pods.sort(key=lambda pod: (nodes[pod.uid], pod.ref.name, pod.ref.namespace))
            self._todo = [(node, list(some)) for node, some in groupby(pods, lambda pod: nodes[pod.uid])]
        self._count = len(pods)

    def _pods(self, asked: Asked, trigger: PodInfo, held: Callable[[PodInfo], str | None]) -> list[PodInfo]:
        """Those of the plan that are to be placed; what has a node by now, or is gone, is not."""
        plan = asked.plan
        found: list[PodInfo] = []
        for uid in dict.fromkeys((*plan.pods, *plan.nodes)):
            pod = self._waiting.get(uid)
            if pod is None or uid in self._engine.cluster.pods:
                continue
            name = f"{pod.ref.namespace}/{pod.ref.name}"
            if not plan.nodes.get(uid):
                self._wrong(f"batch schedule plan missing node for pod {name}")
                return []
            why = held(pod)
            if why is not None:
                self._fail(f"batch schedule plan names pod {name}, which is held back: {why}")
                return []
            found.append(pod)
        own = self._book.of(trigger.uid)
        for pod in found:
            gang = self._book.of(pod.uid)
            if (gang.ref.groups if gang else None) != (own.ref.groups if own else None):
                what = f"pod {pod.ref.namespace}/{pod.ref.name} is not of the gang group of the pod that it is for"
                self._wrong(f"batch schedule plan of {self._plugin}: {what}")
                return []
        if len(found) > LARGEST:
            self._wrong(f"batch schedule plan has {len(found)} pods, one claim holds at most {LARGEST}")
            return []
        return found

    def step(self, until: float = float("inf"), now: float = 0.0) -> bool:
        """Place pods until all are placed or one failed (True), or ``perf_counter()`` passes ``until``.

        ``now`` (epoch seconds): when they count as planned.
        """
        while self.failure is None and self._node < len(self._todo):
            node, pods = self._todo[self._node]
            if self._pod == 0:
                self._node_begun = perf_counter()
            while self._pod < len(pods):
                begun = perf_counter()
                if begun >= until:
                    return False
                pod = pods[self._pod]
                self._pod += 1
                if self._waiting.get(pod.uid) is None or pod.uid in self._engine.cluster.pods:
                    continue  # it went, or somebody bound it, between two steps
                placed = self._place(pod, node, now)
                metrics.by_pod_seconds.observe(perf_counter() - begun)
                if not placed:
                    return self._end()
            metrics.by_node_seconds.observe(perf_counter() - self._node_begun)
            self._node, self._pod = self._node + 1, 0
        if self.failure is None:
            self._permit()
        return self._end()

    def _place(self, pod: PodInfo, node: str, now: float) -> bool:
        outcome = self._engine.place_one(confined(self._undesignated.pod(pod), node, self._plugin), now)
        if isinstance(outcome, Placed):
            self.placed.append((pod, outcome))
            return True
        where = f"pod {pod.ref.namespace}/{pod.ref.name} on node {node}"
        text = f"batch schedule plan of {self._count} pods failed at {where}: {outcome.message}"
        self.failure = msgspec.structs.replace(
            outcome,
            message=text,
            plugins=outcome.plugins | {self._plugin},
            reasons=tuple([msgspec.structs.replace(reason, resolvable=False) for reason in outcome.reasons]),
        )
        return False

    def _permit(self) -> None:
        """Gangs that do not have what they need with these pods would wait on."""
        gangs: dict[str, Gang] = {}
        for pod, _ in self.placed:
            gang = self._book.of(pod.uid)
            if gang is not None:
                gangs.update((each.ref.id, each) for each in self._book.group(gang))
        for gang in gangs.values():
            waiting = self._book.waiting(gang) + sum(pod.uid in gang.pending for pod, _ in self.placed)
            if not self._book.valid(gang, waiting):
                self._fail(
                    f"inline batch permit did not complete: {len(self.placed)} pods are still waiting after all pods "
                    "were permitted"
                )
                return

    def _end(self) -> bool:
        if self.failure is not None:
            for pod, _ in self.placed:
                self._engine.forget(pod.uid)
            if self.placed:
                metrics.cleanups.labels("schedule").inc(len(self.placed))
            self.placed = []
        result = "success" if self.failure is None else "error" if self.failure.error else "failure"
        metrics.schedule_seconds.labels(result).observe(perf_counter() - self._begun)
        return True

    def _wrong(self, text: str) -> None:
        """The plan cannot be meant."""
        self.failure = Diagnosis(text, frozenset((self._plugin,)), (), len(self._engine.cluster), 0, True)

    def _fail(self, text: str) -> None:
        """The plan cannot be done now; taking other pods away does not help."""
        self.failure = Diagnosis(text, frozenset((self._plugin,)), (), len(self._engine.cluster))
