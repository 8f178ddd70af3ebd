"""DefaultPreemption: pods of lower priority go where that lets a pod in. Spec 10 section 3.15; the search is in
``koord.scheduler.preemption``, what follows from it in ``koord.scheduler.preempting``."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from koord.kube.resources import POD_DISRUPTION_BUDGETS, Resource
from koord.scheduler.config.upstreamargs import DefaultPreemptionArgs
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.framework.contract import (
    AssignedPod,
    PodRef,
    PostFilterPlugin,
    Preempt,
    PreEnqueuePlugin,
    StandBy,
    Watch,
    WatchPlugin,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.following import Release
from koord.scheduler.preemption.budgets import Budgets, BudgetView
from koord.scheduler.preemption.search import NEVER, TERMINATING, Search

HELD = "waiting for the preemption for this pod to be finished"


class DefaultPreemption(PostFilterPlugin, PreEnqueuePlugin, WatchPlugin):
    """Keeps the disruption budgets, looks for victims when a pod fits nowhere, and holds the pod back while they are
    being asked to go."""

    name: ClassVar[str] = "DefaultPreemption"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.POD_DELETE,))

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self._args = args or DefaultPreemptionArgs()
        self._budgets = Budgets()
        self._search: tuple[Engine, Search] | None = None
        self._begun: set[str] = set()
        self.holding = False

    def watches(self) -> tuple[Watch, ...]:
        """Disruption budgets."""
        return (Watch(POD_DISRUPTION_BUDGETS, BudgetView),)

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """A budget came, changed or went; that alone makes no room."""
        if new is not None:
            assert isinstance(new, BudgetView)
            self._budgets.set(new)
        else:
            namespace, _, name = key.rpartition("/")
            self._budgets.remove(namespace, name)
        return ()

    def pre_enqueue(self, pod: PodRef) -> str | None:
        """Nothing can be said of a pod whose victims are only half told."""
        return HELD if pod.uid in self._begun else None

    def begun(self, uid: str) -> None:
        """Hold the pod back."""
        self._begun.add(uid)
        self.holding = True

    def finished(self, uid: str) -> None:
        """Do so no longer."""
        self._begun.discard(uid)
        self.holding = bool(self._begun)

    def post_filter(self, pod: PodInfo, engine: Engine, diagnosis: Diagnosis) -> Preempt | StandBy | str | None:
        """The cheapest victims, or why there are none."""
        found = self._searching(engine).find(pod)
        if isinstance(found, str):
            return StandBy(found) if found in (NEVER, TERMINATING) else found
        return self._preempt(found.node, found.victims, found.violating)

    def candidates(
        self, pod: PodInfo, engine: Engine, diagnosis: Diagnosis
    ) -> Sequence[Preempt] | StandBy | Release | str | None:
        """About as many as the arguments say are enough, the cheapest first."""
        found = self._searching(engine).find_all(pod)
        if isinstance(found, str):
            return StandBy(found) if found in (NEVER, TERMINATING) else found
        return [self._preempt(each.node, each.victims, each.violating) for each in found]

    def revised(self, found: Preempt, victims: tuple[AssignedPod, ...]) -> Preempt:
        """With the budgets of these victims."""
        beyond = zip(victims, self._budgets.violated(victims), strict=True)
        violating = {victim.ref.uid for victim, no_room in beyond if no_room or victim.ref.uid in found.violating}
        return self._preempt(found.node, victims, frozenset(violating))

    def _preempt(self, node: str, victims: tuple[AssignedPod, ...], violating: frozenset[str]) -> Preempt:
        budgets = {
            victim.ref.uid: tuple(budget.key for budget in self._budgets.of(victim))
            for victim in victims
            if victim.ref.uid not in violating
        }
        return Preempt(node, victims, violating, budgets)

    def _searching(self, engine: Engine) -> Search:
        if self._search is None or self._search[0] is not engine:
            search = Search(
                engine,
                self._budgets,
                percentage=self._args.min_candidate_nodes_percentage,
                absolute=self._args.min_candidate_nodes_absolute,
            )
            self._search = (engine, search)
        return self._search[1]
