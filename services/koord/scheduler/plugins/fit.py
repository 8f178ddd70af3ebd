"""NodeResourcesFit: room for the pod, and how full the node would be. Spec 10 section 3.15, "Fit strategies"."""

import heapq
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.resources import CPU, FIRST, MEMORY, NOWHERE, PODS
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, Reason, ScorePlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent

NATIVE = ("cpu", "memory")
MAX_SCORE = 100.0
MOST_UNLISTED = 16
"""Names that no node offers, of one pod, which are looked at and named: one is enough for it to fit nowhere."""


class ResourceWeight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A resource that counts in the score, 1..100."""

    name: str
    weight: int = 1


class FitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``strategy`` and the resources it looks at; extended ones count only for pods that request them."""

    strategy: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = (
        ResourceWeight("cpu"),
        ResourceWeight("memory"),
        ResourceWeight("kubernetes.io/batch-cpu"),
        ResourceWeight("kubernetes.io/batch-memory"),
    )


class FitTerms(msgspec.Struct, frozen=True):
    """Requested resources: number, name and amount; the pod itself (``pods``: 1) comes first."""

    needs: tuple[tuple[int, str, float], ...]


class FitScoreTerms(msgspec.Struct, frozen=True):
    """Per resource in the score: its number, what the pod adds, its weight."""

    parts: tuple[tuple[int, float, int], ...]
    weight: int


class NodeResourcesFit(FilterPlugin, ScorePlugin):
    """Filter: every request within what is free. Score: least or most allocated."""

    name: ClassVar[str] = "NodeResourcesFit"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (
            ClusterEvent.POD_DELETE,
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.LEDGER_RELEASE,
        )
    )

    def __init__(self, settings: FitSettings | None = None) -> None:
        self.settings = settings or FitSettings()

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Everything requested above zero; of what no node offers, the first names only."""
        vector, unlisted = template.footprint.vector, template.footprint.unlisted
        numbers = np.flatnonzero(vector[FIRST:]).tolist()
        needs = [(n, cluster.resources[n], float(vector[FIRST + n])) for n in numbers]
        if unlisted:
            needs += [(NOWHERE, name, float(unlisted[name])) for name in heapq.nsmallest(MOST_UNLISTED, unlisted)]
        return FitTerms(tuple(needs))

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Request ≤ free for every resource."""
        assert isinstance(terms, FitTerms)
        needs = terms.needs
        number, _, amount = needs[0]
        ok: Bools = window.free(number) >= amount
        for number, _, amount in needs[1:]:
            ok &= window.free(number) >= amount
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """Every resource that is short is a reason; not resolvable where the node could never hold the request."""
        assert isinstance(terms, FitTerms)
        found: list[Reason] = []
        for number, name, amount in terms.needs:
            short: Bools = window.free(number) < amount
            if not short.any():
                continue
            text = "Too many pods" if number == PODS else f"Insufficient {name}"
            never: Bools = short & (window.allocated(number) < amount)
            if never.any():
                found.append(Reason(text, never, resolvable=False))
                short = short & ~never
            if short.any():
                found.append(Reason(text, short))
        return found

    # Score ----------------------------------------------------------------------------------------------------------

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The native two always, with the non-zero floor; others only if requested."""
        parts: list[tuple[int, float, int]] = []
        for resource in self.settings.resources:
            if resource.name in NATIVE:
                which = NATIVE.index(resource.name)
                parts.append((which - len(NATIVE), float(template.footprint.vector[which]), resource.weight))
            elif template.request.get(resource.name, 0):
                number = cluster.resources.find(resource.name)
                if number is None:
                    continue  # no node offers it, so no node passes the filter
                parts.append((number, float(template.footprint.vector[FIRST + number]), resource.weight))
        return FitScoreTerms(tuple(parts), sum(weight for _, _, weight in parts)) if parts else None

    def score(self, terms: Terms, window: Window) -> Floats:
        """Floor of the weighted mean of the resources' floors; resources a node lacks are left out of its mean."""
        assert isinstance(terms, FitScoreTerms)
        most = self.settings.strategy == "MostAllocated"
        total: Floats | None = None
        missing: list[tuple[Bools, int]] = []
        for number, added, weight in terms.parts:
            if number < 0:
                free = window.nonzero_free(number + len(NATIVE))
                capacity = window.allocated(CPU if number + len(NATIVE) == 0 else MEMORY)
            else:
                free = window.free(number)
                capacity = window.allocated(number)
            part = _share(free - added, capacity, most)
            if capacity.size and capacity.min() <= 0.0:
                lacking: Bools = capacity <= 0.0
                part[lacking] = 0.0
                missing.append((lacking, weight))
            if weight != 1:
                part *= weight
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None, "score terms have at least one part"
        if not missing:
            if terms.weight != 1:
                total /= terms.weight
            return np.floor(total, out=total)
        weights = np.full(window.size, float(terms.weight))
        for lacking, weight in missing:
            weights[lacking] -= weight
        mean: Floats = np.divide(total, weights, out=np.zeros(window.size), where=weights > 0)
        return np.floor(mean, out=mean)


def _share(left: Floats, capacity: Floats, most: bool) -> Floats:
    """floor(100·left/capacity), or of what is used; ``left`` is what remains after the pod.

    Exact: both are whole numbers below 2^46 in practice, so the rounded quotient never crosses a whole number.
    """
    if most:
        left = np.maximum(left, 0.0)
        used = np.subtract(capacity, left, out=left)
        used *= MAX_SCORE
        with np.errstate(divide="ignore", invalid="ignore"):
            used /= capacity
        return np.floor(used, out=used)
    share = np.maximum(left, 0.0)
    share *= MAX_SCORE
    with np.errstate(divide="ignore", invalid="ignore"):
        share /= capacity
    return np.floor(share, out=share)


def resource_weights(pairs: Sequence[tuple[str, int]]) -> tuple[ResourceWeight, ...]:
    """Shorthand for settings made in code."""
    return tuple(ResourceWeight(name, weight) for name, weight in pairs)
