"""Disruption budgets: whose eviction the API would refuse (spec 10 section 3.15, DefaultPreemption step 3)."""

from collections.abc import Sequence

import msgspec

from koord.kube.meta import View
from koord.kube.selectors import LabelSelector, Selector, SelectorError, compile_label_selector
from koord.scheduler.framework.contract import AssignedPod


class BudgetMeta(View, frozen=True):
    """Of a budget's metadata."""

    name: str = ""
    namespace: str = ""
    generation: int = 0


class BudgetSpec(View, frozen=True):
    """Whose budget it is."""

    selector: LabelSelector | None = None


class BudgetStatus(View, frozen=True):
    """How much of it is left."""

    disruptions_allowed: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = msgspec.field(default_factory=dict)


class BudgetView(View, frozen=True):
    """A PodDisruptionBudget."""

    metadata: BudgetMeta = msgspec.field(default_factory=BudgetMeta)
    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)


class Budget(msgspec.Struct, frozen=True):
    """A budget, compiled. ``disrupted``: names of pods whose eviction it counts already."""

    key: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str]


class Budgets:
    """All budgets. One without a selector, or with an empty one, is nobody's."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Budget]] = {}
        self.version = 0
        """Another number whenever any budget changed."""

    def set(self, view: BudgetView) -> None:
        """A budget came or changed. ValueError: its selector breaks a rule; what was known of it stays."""
        meta, status = view.metadata, view.status
        try:
            selector = compile_label_selector(view.spec.selector or LabelSelector())
        except SelectorError as error:
            raise ValueError(f"spec.selector: {error}") from error
        if not selector.requirements:
            self.remove(meta.namespace, meta.name)
            return
        # Before the controller looked at the spec the API evicts nobody, and the ledger has no unit to give.
        allowed = max(0, status.disruptions_allowed) if status.observed_generation >= meta.generation else 0
        budget = Budget(f"{meta.namespace}/{meta.name}", selector, allowed, frozenset(status.disrupted_pods))
        self._by_namespace.setdefault(meta.namespace, {})[meta.name] = budget
        self.version += 1

    def remove(self, namespace: str, name: str) -> None:
        """A budget went."""
        self.version += 1
        of_namespace = self._by_namespace.get(namespace)
        if of_namespace is not None and of_namespace.pop(name, None) is not None and not of_namespace:
            del self._by_namespace[namespace]

    def of(self, pod: AssignedPod) -> tuple[Budget, ...]:
        """The budgets that the pod's eviction takes from."""
        of_namespace = self._by_namespace.get(pod.ref.namespace)
        if not of_namespace or not pod.ref.labels:
            return ()
        return tuple(
            budget
            for budget in of_namespace.values()
            if pod.ref.name not in budget.disrupted and budget.selector.matches(pod.ref.labels)
        )

    def violated(self, pods: Sequence[AssignedPod]) -> list[bool]:
        """For each of ``pods``, evicted in this order, whether a budget has nothing left for it."""
        if not self._by_namespace:
            return [False] * len(pods)
        left: dict[str, int] = {}
        found = []
        for pod in pods:
            beyond = False
            for budget in self.of(pod):
                left[budget.key] = rest = left.get(budget.key, budget.allowed) - 1
                beyond = beyond or rest < 0
            found.append(beyond)
        return found

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))
